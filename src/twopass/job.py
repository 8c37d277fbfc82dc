"""The contract with callers: an input dict becomes a Job or a named error, a Result becomes an answer.

Knows fields, defaults and limits. Knows nothing of S3, PDF, engines or RunPod.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from twopass.document import Canary, Problem, Severity, Status
from twopass.errors import Code, InvalidJob
from twopass.format_options import Chunks, Markdown, Writing
from twopass.settings import Settings

READING_VERSION = 4  # raised by hand when prompts or preprocessing change: old checkpoints are then read again
INLINE_BYTES = 1_000_000  # of an answer: RunPod loses results that are much larger
RESULT_BYTES = 64_000
RESULT_DOCUMENTS = 20
RESULT_PROBLEMS = 50
LONGEST = 100_000  # of a list of pages: 5,000 of them in words
PLACE_LENGTH = 2048  # of a URI or path: S3 keys have 1,024 bytes, presigned queries most of the rest


class Door(StrEnum):
    """Which way a job came in; it decides whether local paths may be named."""

    SERVERLESS = "serverless"  # no local path but the volume's
    API = "api"  # local paths below ALLOWED_DIR
    LOCAL = "local"  # any path: the caller sits at this machine


class Mode(StrEnum):
    AUTO = "auto"
    TINY = "tiny"
    SMALL = "small"
    BASE = "base"
    LARGE = "large"
    GUNDAM = "gundam"


class Pass2(StrEnum):
    AUTO = "auto"
    ALL = "all"
    NONE = "none"


class Task(StrEnum):
    DOCUMENT = "document"
    IMAGE = "image"
    FREE = "free"
    FIGURE = "figure"
    DESCRIBE = "describe"
    LOCATE = "locate"
    CUSTOM = "custom"


class Format(StrEnum):
    DOCJSON = "docjson"
    MARKDOWN = "markdown"
    REVIEW = "review"
    CHUNKS = "chunks"
    DOCLING = "docling"
    MINERU = "mineru"
    ZIP = "zip"


# What the options of a job's field spell; without one of these formats they would change nothing.
SPELLED = {"markdown": frozenset({Format.MARKDOWN, Format.ZIP}), "chunks": frozenset({Format.CHUNKS})}
PACKED = frozenset({Format.DOCJSON, Format.MARKDOWN})  # what is at least in document.zip


class Inline(StrEnum):
    MARKDOWN = "markdown"
    DOCJSON = "docjson"


def _of_whole_characters(secret: SecretStr) -> SecretStr:
    if any("\ud800" <= letter <= "\udfff" for letter in secret.get_secret_value()):
        raise ValueError("holds half a character")
    return secret


# With a bound, even one that nobody meets, pydantic refuses half characters, which no file name or URI can hold.
Text = Annotated[str, Field(max_length=1 << 30)]
Secret = Annotated[SecretStr, AfterValidator(_of_whole_characters)]

_SHARE = re.compile(r"(?:100|\d{1,2}(?:\.\d{1,3})?)%$")
_PART = re.compile(r"\s*(\d{1,6})\s*(?:(-)\s*(\d{1,6})?\s*)?$")


@dataclass(frozen=True)
class PageRange:
    """`"1-5,8,11-"`: pages counted from 1; an open end runs to the last page."""

    text: str
    parts: tuple[tuple[int, int | None], ...]

    @classmethod
    def parse(cls, text: str) -> PageRange:
        """Raises ValueError with a message for the caller."""
        parts = []
        for part in text.split(","):
            found = _PART.match(part)
            if not found:
                raise ValueError(f"'{part.strip()}' is no page or range; write for example 1-5,8,11-")
            first, dash, last = found.groups()
            start, end = int(first), int(last) if last else (None if dash else int(first))
            if start < 1 or (end is not None and end < start):
                raise ValueError(f"'{part.strip()}' counts pages from 1 and upwards")
            parts.append((start, end))
        return cls(",".join(_shown(*part) for part in parts), tuple(parts))

    def select(self, page_count: int) -> tuple[int, ...]:
        """The pages of a document that has so many, in their order; those outside are left out."""
        chosen: list[int] = []
        last = 0  # a million ranges over each other cost no more than their pages
        for start, end in sorted(self.parts, key=lambda part: part[0]):
            stop = min(end or page_count, page_count)
            chosen.extend(range(max(start, last + 1), stop + 1))
            last = max(last, stop)
        return tuple(chosen)

    def beyond(self, page_count: int) -> bool:
        """Whether a named page does not exist in a document that has so many."""
        return any(start > page_count or (end or 0) > page_count for start, end in self.parts)


def ranges(numbers: Iterable[int]) -> str | None:
    """Rising page numbers as a caller may give them back, `"3,5-9"`; None when there are none."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(_shown(*part) for part in parts) or None


def _shown(start: int, end: int | None) -> str:
    return f"{start}-" if end is None else f"{start}" if start == end else f"{start}-{end}"


class Input(BaseModel):
    """A frozen part of the input; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class S3(Input):
    """Credentials for this job only; also read in the spelling of RunPod's `s3Config`."""

    access_key_id: Secret = Field(min_length=1, validation_alias=AliasChoices("access_key_id", "accessId"))
    secret_access_key: Secret = Field(min_length=1, validation_alias=AliasChoices("secret_access_key", "accessSecret"))
    session_token: Secret | None = None
    endpoint_url: Text | None = Field(None, validation_alias=AliasChoices("endpoint_url", "endpointUrl"))
    region: Text | None = None
    bucket: Text | None = Field(None, validation_alias=AliasChoices("bucket", "bucketName"))


class FailedPages(Input):
    """From how many failed pages on a document's status is which; what was read is kept all the same."""

    partial_success: int | str = 1
    failure: int | str | None = Field(None, description="null: only when nothing could be read")

    @field_validator("partial_success", "failure")
    @classmethod
    def _is_a_number(cls, many: int | str | None) -> int | str | None:
        if isinstance(many, int) and many < 1 or isinstance(many, str) and not _SHARE.match(many):
            raise ValueError('must be a number of pages from 1, or a share of them such as "5%"')
        return many

    def are_too_many(self, failed: int, total: int) -> bool:
        return self.failure is not None and _reached(self.failure, failed, total)

    def are_some(self, failed: int, total: int) -> bool:
        return _reached(self.partial_success, failed, total)


def _reached(many: int | str, failed: int, total: int) -> bool:
    least = many if isinstance(many, int) else float(many.rstrip("%")) / 100 * total
    return failed > 0 and failed >= least


class SamplingOptions(Input):
    """What a caller may change of how tokens are chosen."""

    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1, le=8192)
    ngram: int | None = Field(None, ge=0, le=1000)
    window: int | None = Field(None, ge=1, le=10000)


class Job(Input):
    """One job as read from its input. `id`, `door` and `queued_s` come from whoever delivers it."""

    id: str = Field("local", exclude=True)
    door: Door = Field(Door.LOCAL, exclude=True)
    queued_s: float | None = Field(None, exclude=True)
    sources: tuple[Text, ...] = Field(min_length=1, max_length=1000)
    output: str | None = Field(
        None, max_length=PLACE_LENGTH, description="s3://bucket/prefix/, the volume, or a folder when local"
    )
    inline: tuple[Inline, ...] | None = Field(None, description="artefacts returned in the answer itself, up to 1 MB")
    s3: S3 | None = None
    pages: str | None = Field(None, max_length=LONGEST, description='"1-5,8,11-"; part of the identity')
    slice: str | None = Field(
        None, max_length=LONGEST, description='"1-50": write only these checkpoints; not part of the identity'
    )
    mode: Mode = Mode.AUTO
    dpi: int = Field(144, ge=36, le=600)
    max_crops: int = Field(6, ge=2, le=9)
    pass2: Pass2 = Pass2.AUTO
    task: Task = Task.DOCUMENT
    prompt: str | None = Field(None, max_length=4000)
    formats: tuple[Format, ...] = (Format.DOCJSON, Format.MARKDOWN)
    markdown: Markdown | None = Field(None, description="how document.md is spelled; null: as it lies there, or usual")
    chunks: Chunks | None = Field(None, description="sizes of chunks; null: as they lie there, or usual")
    password: Secret | None = None
    language: str | None = Field(None, pattern=r"^[a-z]{2,3}(-[A-Za-z]{2,4})?$")
    sampling: SamplingOptions = SamplingOptions()
    deadline_s: float | None = Field(None, gt=0, le=604_800)
    failed_pages: FailedPages = FailedPages()
    resume: bool = True

    @model_validator(mode="before")
    @classmethod
    def _one_source_or_several(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "source" not in data:
            return data
        if "sources" in data:
            raise ValueError("source: give source or sources, not both")
        rest = {name: value for name, value in data.items() if name != "source"}
        if not isinstance(data["source"], str):
            raise ValueError("source: must be a string")
        return {**rest, "sources": [data["source"]]}

    @field_validator("pages", "slice")
    @classmethod
    def _is_a_range(cls, text: str | None) -> str | None:
        return PageRange.parse(text).text if text is not None else None

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Job:
        needs = self.task in (Task.LOCATE, Task.CUSTOM)
        if needs != (self.prompt is not None):
            raise ValueError(f"prompt: {'needed' if needs else 'not used'} with task {self.task}")
        if self.slice and not self.resume:
            raise ValueError("slice: cannot be joined with resume false, which reads into a folder of its own")
        if self.task is Task.CUSTOM and (self.prompt or "").count("<image>") != 1:
            raise ValueError("prompt: must contain <image> exactly once")
        return self

    @classmethod
    def parse(cls, job: Mapping[str, Any], settings: Settings, door: Door) -> Job:
        """The delivered dict {"id", "input", "s3Config"?} as a Job; raises InvalidJob naming the field."""
        data = job.get("input")
        if not isinstance(data, Mapping):
            raise InvalidJob(Code.INVALID_JOB, "input: must be an object")
        if taken := {"id", "door", "queued_s"} & set(data):
            raise InvalidJob(Code.INVALID_JOB, f"{min(taken)}: unknown field")
        name = str(job.get("id") or "local")
        if door is Door.LOCAL and data.get("resume") is False:
            name += f"-{secrets.token_hex(3)}"  # local ids repeat, and the id decides where a new reading goes
        extra: dict[str, Any] = {"id": name, "door": door}
        if isinstance(waited := job.get("delayTime"), int):  # milliseconds, where the platform tells them
            extra["queued_s"] = waited / 1000
        if isinstance(job.get("s3Config"), Mapping) and "s3" not in data:
            extra["s3"] = dict(job["s3Config"])
        try:
            parsed = cls.model_validate({**data, **extra})
        except ValidationError as error:
            raise InvalidJob(Code.INVALID_JOB, _named(error)) from None
        for number, source in enumerate(parsed.sources):
            if len(source) > PLACE_LENGTH and not source.startswith("data:"):
                raise InvalidJob(Code.INVALID_JOB, f"sources[{number}]: longer than {PLACE_LENGTH} characters")
            _check_place(f"sources[{number}]", source, settings, door, ("s3://", "https://", "data:"))
        return parsed._with_output(settings)._spelling_something()

    def _with_output(self, settings: Settings) -> Job:
        output = self.output
        if output is None and self.s3:
            # The job's keys write into the job's bucket; the worker's own would refuse them.
            output = f"s3://{self.s3.bucket}/{settings.bucket_prefix.strip('/')}/" if self.s3.bucket else None
        elif output is None:
            output = settings.default_output
        if output is None and self.door is Door.LOCAL and self.inline is None:
            output = str(settings.output_dir)
        if output is not None:
            _check_place("output", output, settings, self.door, ("s3://",))
        if output is None and self.slice:
            raise InvalidJob(Code.OUTPUT_MISSING, "slice: needs an output to leave its checkpoints in")
        if output is None and len(self.sources) > RESULT_DOCUMENTS:
            message = f"sources: more than {RESULT_DOCUMENTS} documents do not fit into an answer; set output"
            raise InvalidJob(Code.OUTPUT_MISSING, message)
        inline = self.inline if self.inline is not None else (() if output else (Inline.MARKDOWN,))
        return self.model_copy(update={"output": output, "inline": inline})

    def _spelling_something(self) -> Job:
        for field, formats in SPELLED.items():
            if getattr(self, field) is not None and not formats & set(self.formats_needed):
                raise InvalidJob(Code.INVALID_JOB, f"{field}: changes nothing without {field} among formats")
        return self

    @property
    def page_range(self) -> PageRange | None:
        return PageRange.parse(self.pages) if self.pages else None

    @property
    def slice_range(self) -> PageRange | None:
        return PageRange.parse(self.slice) if self.slice else None

    @property
    def formats_needed(self) -> tuple[Format, ...]:
        """The formats asked for, those that the answer carries inline, and those that others are made of."""
        wanted = {*self.formats, *(Format(name) for name in self.inline or ())}
        wanted |= PACKED if Format.ZIP in wanted else set()
        return tuple(name for name in Format if name in wanted)

    def writing(self, before: Writing | None) -> Writing:
        """How artefacts are spelled: as the job says, where it is silent as before, else as usual."""
        asked = {name: getattr(self, name) for name in SPELLED if getattr(self, name) is not None}
        return (before or Writing()).model_copy(update=asked)

    @property
    def reading_options(self) -> dict[str, Any]:
        """The job's part of a document's identity: whatever changes what is read."""
        return {
            "version": READING_VERSION,
            "mode": self.mode,
            "dpi": self.dpi,
            "max_crops": self.max_crops,
            "pass2": self.pass2,
            "task": self.task,
            "prompt": self.prompt,
            "sampling": self.sampling.model_dump(exclude_none=True),
            "language": self.language,
            "pages": self.pages,
        }


def document_id(stem: str, sha256: str, options: Mapping[str, Any]) -> str:
    """`{file stem, 40 characters}-{12 hex}` from the source's bytes and the reading options."""
    safe = re.sub(r"[^\w.-]+", "-", stem, flags=re.UNICODE).strip("-.")[:40] or "document"
    canonical = json.dumps(options, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return f"{safe}-{hashlib.sha256((sha256 + canonical).encode()).hexdigest()[:12]}"


def shown(uri: str) -> str:
    """A URI as it may appear in results, artefacts and logs: without query, user info or inline bytes."""
    scheme, colon, rest = uri.partition(":")
    if scheme.lower() == "data" and colon:
        media, comma, _ = rest.partition(",")
        return f"data:{media[:60]},…" if comma else "data:…"
    if scheme.lower() not in ("http", "https"):
        return uri  # an S3 key may hold ? and #
    authority, slash, path = rest.removeprefix("//").partition("/")
    path = path.partition("?")[0].partition("#")[0]
    return f"{scheme}://{authority.rpartition('@')[2].partition('?')[0]}{slash}{path}"


def _check_place(field: str, uri: str, settings: Settings, door: Door, schemes: tuple[str, ...]) -> None:
    """Whether a job that came through this door may name this place; raises InvalidJob."""
    if uri.startswith(schemes):
        return
    if not uri or "\0" in uri:
        raise InvalidJob(Code.INVALID_JOB, f"{field}: is no place")
    if "://" in uri or uri.startswith("data:"):
        raise InvalidJob(Code.INVALID_JOB, f"{field}: {uri.partition(':')[0]} is not one of {', '.join(schemes)}")
    on_volume = Path(os.path.normpath(uri)).is_relative_to(settings.volume)
    if door is Door.SERVERLESS and not (on_volume and settings.allow_volume):  # before any look at this machine's files
        raise _closed(field) if on_volume else _no_path(field, schemes)
    if door is Door.LOCAL:
        return
    try:
        path = Path(uri).resolve()
    except (OSError, RuntimeError):  # links that lead in a circle
        raise _no_path(field, schemes) from None
    if path.is_relative_to(settings.volume.resolve()):
        if not settings.allow_volume:
            raise _closed(field)
        return
    if door is Door.API and settings.allowed_dir and path.is_relative_to(settings.allowed_dir.resolve()):
        return
    raise _no_path(field, schemes)


def _closed(field: str) -> InvalidJob:
    return InvalidJob(Code.INVALID_JOB, f"{field}: the volume is closed; set ALLOW_VOLUME=true on the endpoint")


def _no_path(field: str, schemes: tuple[str, ...]) -> InvalidJob:
    return InvalidJob(Code.INVALID_JOB, f"{field}: local paths are not allowed here; use one of {', '.join(schemes)}")


def _named(error: ValidationError) -> str:
    """The first error as `field: what is wrong`, and how many more there are; never the value."""
    first, *more = error.errors(include_url=False, include_input=False, include_context=False)
    field = ".".join(str(part) for part in first["loc"])
    message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    text = f"{field}: {message}" if field else message
    return f"{text} (and {len(more)} more)" if more else text


class Artefact(Input):
    """One object that was written."""

    uri: str
    bytes: int
    sha256: str
    content_type: str


class DocumentResult(Input):
    """How one document of the job ended; fields are null when the document was never opened."""

    id: str | None = None
    source: str
    status: Status
    pages: dict[str, int] = Field(default_factory=dict, description="page counts per state")
    failed: str | None = Field(None, description="pages that failed: 3,7-9")
    left: str | None = Field(None, description="pages still to be read; the same job again goes on with them")
    artefacts: dict[str, Artefact] = Field(default_factory=dict)
    inline: dict[str, Any] = Field(default_factory=dict)
    canary: Canary | None = Field(None, description="as in the document: passed, off, or null when it needs none")
    timings: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, Any] = Field(default_factory=dict)


class Result(Input):
    """What a job comes to. `as_answer` is what the caller gets; `result.json` holds it whole."""

    status: Status
    documents: tuple[DocumentResult, ...] = ()
    problems: tuple[Problem, ...] = ()
    timings: dict[str, Any] = Field(default_factory=dict)
    usage: dict[str, Any] = Field(default_factory=dict)
    result_uri: str | None = Field(None, description="the whole result where this one was cut")
    omitted: dict[str, int] = Field(default_factory=dict, description="documents and problems left out here")
    store: Literal["conditional", "head_then_put"] | None = None
    started: dict[str, float] | None = Field(None, description="seconds of the worker's start, in its first result")

    def as_answer(self) -> dict[str, Any]:
        """JSON of at most RESULT_BYTES plus the inline artefacts; a failed job carries `error`."""
        shrunk = self._cut(RESULT_DOCUMENTS, RESULT_PROBLEMS)
        keep = len(shrunk.documents), len(shrunk.problems)
        while shrunk._weight() > RESULT_BYTES and max(keep) > 1:
            keep = max(1, keep[0] // 2), max(1, keep[1] // 2)
            shrunk = self._cut(*keep)
        answer = shrunk.model_dump(mode="json", exclude_none=True)
        if self.status is not Status.FAILURE:
            return answer
        first = next((p for p in self.problems if p.severity is Severity.ERROR), None)
        message = f"{first.code}: {first.message}" if first else f"{Code.INTERNAL}: nothing was read"
        return {"error": message[:1000], "detail": answer}

    def _cut(self, documents: int, problems: int) -> Result:
        omitted = {
            "documents": max(len(self.documents) - documents, 0),
            "problems": max(len(self.problems) - problems, 0),
        }
        return self.model_copy(
            update={
                "documents": self.documents[:documents],
                "problems": tuple(_short(problem) for problem in self.problems[:problems]),
                "omitted": {name: count for name, count in omitted.items() if count},
            }
        )

    def _weight(self) -> int:
        """Bytes of the answer without the inline artefacts, which have a limit of their own."""
        return len(self.model_dump_json(exclude_none=True, exclude={"documents": {"__all__": {"inline"}}}).encode())


def _short(problem: Problem) -> Problem:
    return problem.model_copy(update={"message": problem.message[:500]})
