"""What endpoints answer, parsed: the only module that looks into their JSON, or into what a Ray actor returns.

Whatever an answer is, it becomes a value or an AnswerError, which fails one job. Fields that a newer worker adds are
kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler
from pydantic.functional_validators import WrapValidator
from pydantic_core import from_json, to_json

from twopass.errors import AnswerError, Code
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.values import Value

REASON_CHARS = 300
_ERROR_CHARS = 2000  # of a job's error; a worker's own has at most 1,000

Model = TypeVar("Model", bound=Value)


def _check_file_name(name: str) -> str:
    """Results are saved under names that workers choose, which must not lead out of their folder."""
    if not name.isprintable() or PurePath(name).name != name or name == "..":
        raise ValueError("is not the name of a file")
    return name


def _ignore_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Amount = Annotated[float, Field(ge=0, le=1e12)]  # seconds, dollars
Milliseconds = Annotated[Amount | None, WrapValidator(_ignore_invalid)]  # only for the person who waits
FileName = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_check_file_name)]
Word = Annotated[str, Field(max_length=40, pattern=r"^[ -~]*$")]  # shown on the terminal
JobId = Annotated[str, Field(max_length=256, pattern=r"^[!-~]+$")]


class Answer(Value, extra="allow", allow_inf_nan=False):
    """A part of an answer."""


class SubmittedJob(Answer):
    """The answer to a job that was sent."""

    id: JobId


class StatusAnswer(Answer):
    """How a job stands, as RunPod and a worker's local API say it. The output is parsed when its meaning is known."""

    status: str
    output: Any = None
    error: Any = None
    executionTime: Milliseconds = None
    delayTime: Milliseconds = None


class ActorReply(Answer):
    """A Ray actor's answer to a job."""

    output: dict[str, Any] | None
    error: str | None
    seconds: Amount
    is_gone: bool = False


class ProgressAnswer(Answer):
    """What a campaign shows of a running job's progress."""

    phase: Word = ""
    pages_done: Count = 0
    pages_stored: Count = 0


class Artefact(Answer):
    uri: str


class DocumentAnswer(Answer):
    """The result of one document."""

    id: FileName | None = None
    status: Literal["success", "partial_success", "failure"]
    pages: dict[Word, Count] = {}
    artefacts: dict[FileName, Artefact] = {}
    inline: dict[str, Any] = {}

    @property
    def unread_pages(self) -> int:
        return self.pages.get("unread", 0)

    @property
    def read_pages(self) -> int:
        return sum(self.pages.values()) - self.unread_pages


class Usage(Answer):
    """What a job used; `pages_read_now` were read now and not found in the store."""

    engine_s: Amount | None = None
    cost: Amount | None = None
    pages_read_now: Count = 0


class JobResult(Answer):
    """The result of a job, of whose documents only the first one counts: a campaign sends one in each job."""

    status: Literal["success", "partial_success", "failure"] | None = None
    documents: tuple[DocumentAnswer, ...] = ()
    problems: tuple[dict[str, Any], ...] = ()
    usage: Usage = Usage()
    result_uri: str | None = None
    store: str | None = None
    duplicate_of: JobId | None = None

    @property
    def document(self) -> DocumentAnswer | None:
        return self.documents[0] if self.documents else None

    @property
    def is_done(self) -> bool:
        """Whether another job could not read more: what is lost of a page that was read is lost each time."""
        if self.status != "partial_success":
            return self.status == "success"
        has_error = any(problem.get("severity") != "warning" for problem in self.problems)
        return not has_error and not any(one.pages.get("failed") or one.unread_pages for one in self.documents)

    @property
    def has_store(self) -> bool:
        """Whether the worker had an output for the pages that it read."""
        return bool(self.result_uri or self.store)

    def as_record(self) -> dict[str, Any]:
        """The result for the ledger, without inline artefacts, which are saved as files."""
        without_inline = {"documents": {"__all__": {"inline"}}}
        return self.model_dump(mode="json", exclude_unset=True, exclude=without_inline)


class _Output(JobResult):
    """The output of a job that ended. If it failed, its result is in `detail`."""

    error: str | None = None
    detail: JobResult | None = None


class _RecordedOutcome(Answer):
    """The outcome of a job that need not be sent again, as the ledger keeps it."""

    output: JobResult
    error: str | None = None
    version: str | None = None


def decode(answer: bytes, what: str) -> Any:
    """The JSON of an answer; raises AnswerError. `what` says in messages whose answer it is."""
    try:
        return from_json(answer)
    except ValueError as error:
        raise AnswerError(Code.ENDPOINT_ANSWER, f"{what} is not JSON: {error}"[:REASON_CHARS]) from None


def parse(model: type[Model], answer: Any, what: str) -> Model:
    """Parse JSON or objects; raises AnswerError, which names the field. What JSON has no number for is a string."""
    try:
        data = answer if isinstance(answer, bytes) else to_json(answer, inf_nan_mode="strings")
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field[-100:]}: {first['msg']}" if field else first["msg"]
    except ValueError as error:  # objects that are not JSON's, or nested too deeply
        reason = str(error)
    raise AnswerError(Code.ENDPOINT_ANSWER, f"{what} cannot be parsed: {reason}"[:REASON_CHARS])


def parse_progress(status: JobStatus) -> ProgressAnswer:
    """The progress of an open job. What cannot be parsed is left out: it is shown only, and the job goes on."""
    try:
        return ProgressAnswer.model_validate(status.output)
    except ValidationError:
        return ProgressAnswer(phase=str(status.state))


def parse_end(status: JobStatus) -> tuple[JobResult, str | None]:
    """The result and the error of a job that ended; raises AnswerError. A job that is gone may have no result."""
    try:
        output = _Output() if status.output is None else parse(_Output, status.output, "the job's result")
    except AnswerError:
        if status.state is not JobState.GONE:
            raise
        output = _Output()
    result, error = output.detail or output, status.error or output.error
    if status.state is JobState.ENDED and error is None and result.document is None:
        raise AnswerError(Code.ENDPOINT_ANSWER, "the job's result cannot be parsed: it has no document and no error")
    return result, error and _add_code(error)


def parse_recorded(recorded: Mapping[str, Any]) -> _RecordedOutcome | None:
    """An outcome from the ledger; None if it is damaged, so that the job is sent again."""
    try:
        return _RecordedOutcome.model_validate(recorded)
    except ValidationError:
        return None


def _add_code(error: str) -> str:
    """The error on one line, with a code: that of the platform itself has none."""
    line = "".join(letter if letter.isprintable() else " " for letter in error[:_ERROR_CHARS])
    return line if re.match(r"[A-Z][A-Z_]+: ", line) else f"{Code.JOB_LOST}: {line}"
