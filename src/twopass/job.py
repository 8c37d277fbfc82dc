"""The job: what callers may ask for, parsed and checked before anything is read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import quote

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator

from twopass import locations
from twopass.errors import Code, InvalidJob, suggest
from twopass.format_options import Chunks, FormatOptions, Furniture, HiddenText, Markdown, accept_boolean_furniture
from twopass.locations import Scheme
from twopass.page_range import PageRange
from twopass.result import RESULT_DOCUMENTS
from twopass.settings import Settings
from twopass.values import Value, refuse_boolean

_READING_VERSION = 6  # raised by hand when prompts or preprocessing change, so that old checkpoints are not reused
_MAX_PAGES_LENGTH = 100_000  # characters of a page list; 5,000 single pages fit
_MAX_VALUES = 5000  # of a job, in all its fields: 1,000 sources and a hundred options fit
_MAX_SHOWN = 100  # characters of the name of a wrong field in a message
_MAX_LOCATION_LENGTH = 2048  # characters of a URI or path: S3 keys have 1,024 bytes, presigned queries the rest


class EntryPoint(StrEnum):
    """How a job reached the worker; it decides which local paths the job may name."""

    SERVERLESS = "serverless"  # only paths on the network volume
    API = "api"  # local paths below ALLOWED_DIR
    LOCAL = "local"  # any path: the caller runs the worker on their own machine
    SERVER = "server"  # as serverless, and the file that was sent with the job to `twopass serve`


@dataclass(frozen=True)
class Upload:
    """A file that was sent with a job: its name, as the caller gave it, and where the server has stored it."""

    name: str
    path: Path

    @property
    def uri(self) -> str:
        """The file as a source. Callers cannot name a source of this scheme."""
        return f"upload:///{quote(self.name, safe='')}"


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


class FigureDescriptions(StrEnum):
    ALL = "all"
    CHARTS = "charts"
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
    HTML = "html"
    REVIEW = "review"
    CHUNKS = "chunks"
    DOCLING = "docling"
    MINERU = "mineru"
    PDF = "pdf"
    ZIP = "zip"


# The formats that each options field affects; without one of them the options would have no effect.
_OPTION_FORMATS = {
    "markdown": frozenset({Format.MARKDOWN, Format.HTML, Format.ZIP}),
    "chunks": frozenset({Format.CHUNKS}),
    "furniture": frozenset({Format.MARKDOWN, Format.HTML, Format.CHUNKS, Format.ZIP}),
    "hidden_text": frozenset(Format) - {Format.DOCJSON, Format.REVIEW, Format.PDF},
}
_ZIP_CONTENTS = frozenset({Format.DOCJSON, Format.MARKDOWN})  # document.zip always holds these


class Inline(StrEnum):
    MARKDOWN = "markdown"
    DOCJSON = "docjson"


def _reject_surrogates(secret: SecretStr) -> SecretStr:
    if any("\ud800" <= letter <= "\udfff" for letter in secret.get_secret_value()):
        raise ValueError("contains a lone surrogate, which cannot be encoded")
    return secret


# pydantic rejects lone surrogates only in strings with a length limit. File names and URIs cannot hold them.
Text = Annotated[str, Field(max_length=1 << 30)]
Secret = Annotated[SecretStr, AfterValidator(_reject_surrogates)]

_PERCENTAGE = re.compile(r"(?:100|\d{1,2}(?:\.\d{1,3})?)%$")


class S3(Value, populate_by_name=True):
    """S3 credentials for this job only; the field names of RunPod's `s3Config` are accepted, too."""

    access_key_id: Secret = Field(min_length=1, validation_alias=AliasChoices("access_key_id", "accessId"))
    secret_access_key: Secret = Field(min_length=1, validation_alias=AliasChoices("secret_access_key", "accessSecret"))
    session_token: Secret | None = None
    endpoint_url: Text | None = Field(default=None, validation_alias=AliasChoices("endpoint_url", "endpointUrl"))
    region: Text | None = None
    bucket: Text | None = Field(default=None, validation_alias=AliasChoices("bucket", "bucketName"))


class FailedPages(Value):
    """How many failed pages make a document a partial success or a failure; pages that were read are kept."""

    partial_success: int | str = 1
    failure: int | str | None = Field(default=None, description="null: only if no page could be read")

    _refuse_boolean = field_validator("*", mode="before")(refuse_boolean)

    @field_validator("partial_success", "failure")
    @classmethod
    def _check_threshold(cls, threshold: int | str | None) -> int | str | None:
        is_bad_count = isinstance(threshold, int) and threshold < 1
        if is_bad_count or (isinstance(threshold, str) and not _PERCENTAGE.match(threshold)):
            raise ValueError('must be a number of pages, at least 1, or a percentage such as "5%"')
        return threshold

    def is_failure(self, failed: int, total: int) -> bool:
        return self.failure is not None and _reaches(self.failure, failed, total)

    def is_partial_success(self, failed: int, total: int) -> bool:
        return _reaches(self.partial_success, failed, total)


def _reaches(threshold: int | str, failed: int, total: int) -> bool:
    limit = threshold if isinstance(threshold, int) else float(threshold.rstrip("%")) / 100 * total
    return failed > 0 and failed >= limit


class SamplingOptions(Value):
    """Sampling parameters that a caller may override."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1, le=8192)
    ngram: int | None = Field(default=None, ge=0, le=1000)
    window: int | None = Field(default=None, ge=1, le=10000)

    _refuse_boolean = field_validator("*", mode="before")(refuse_boolean)


class Job(Value, populate_by_name=True):
    """One job, parsed from its input. `id`, `entry_point`, `queued_s` and `upload` are not set by the caller."""

    id: str = Field(default="local", exclude=True)
    entry_point: EntryPoint = Field(default=EntryPoint.LOCAL, exclude=True)
    queued_s: float | None = Field(default=None, exclude=True)
    upload: Upload | None = Field(default=None, exclude=True)
    sources: tuple[Text, ...] = Field(min_length=1, max_length=1000)
    output: str | None = Field(
        default=None,
        max_length=_MAX_LOCATION_LENGTH,
        description="s3://bucket/prefix/, a volume path, or a local folder",
    )
    inline: tuple[Inline, ...] | None = Field(
        default=None, description="artefacts returned in the answer itself, up to 1 MB"
    )
    s3: S3 | None = None
    pages: str | None = Field(
        default=None, max_length=_MAX_PAGES_LENGTH, description='"1-5,8,11-"; part of the document id'
    )
    slice: str | None = Field(
        default=None,
        max_length=_MAX_PAGES_LENGTH,
        description='"1-50": read only these pages; not part of the document id',
    )
    mode: Mode = Mode.AUTO
    dpi: int = Field(default=144, ge=36, le=600)
    max_crops: int | None = Field(default=None, ge=2, le=32)
    pass2: Pass2 = Pass2.AUTO
    figure_descriptions: FigureDescriptions = FigureDescriptions.ALL
    task: Task = Task.DOCUMENT
    prompt: str | None = Field(default=None, max_length=4000)
    formats: tuple[Format, ...] = (Format.DOCJSON, Format.MARKDOWN)
    markdown: Markdown | None = Field(
        default=None, description="options of document.md and document.html; null: keep the existing document's"
    )
    chunks: Chunks | None = Field(default=None, description="chunk sizes; null: keep the existing document's")
    furniture: Furniture | None = Field(
        default=None,
        description="headers, footers and page numbers in document.md, document.html and chunks.jsonl; null: as "
        "`markdown` or the existing document says, else auto",
    )
    hidden_text: HiddenText | None = Field(
        default=None,
        description="text that nobody can see on the page, in all formats but DocJSON and the review page: omit, mark "
        "or keep; null: as the existing document says, else omit",
    )
    password: Secret | None = None
    language: str | None = Field(default=None, pattern=r"^[a-z]{2,3}(-[A-Za-z]{2,4})?$")
    sampling: SamplingOptions = SamplingOptions()
    deadline_s: float | None = Field(default=None, gt=0, le=604_800)
    failed_pages: FailedPages = FailedPages()
    strict: bool = Field(default=False, description="a document with a loss, or with a failed page, is a failure")
    resume: bool = True
    idempotency_key: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
        description="of several jobs with the same key and output, only the first one that starts reads",
    )

    _refuse_boolean = field_validator("dpi", "max_crops", "deadline_s", mode="before")(refuse_boolean)
    _accept_boolean = field_validator("furniture", mode="before")(accept_boolean_furniture)

    @model_validator(mode="before")
    @classmethod
    def _normalize_sources(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "source" not in data:
            return data
        if "sources" in data:
            raise ValueError("source: set source or sources, not both")
        rest = {name: value for name, value in data.items() if name != "source"}
        if not isinstance(data["source"], str):
            raise ValueError("source: must be a string")
        return {**rest, "sources": [data["source"]]}

    @field_validator("sources")
    @classmethod
    def _normalize_schemes(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(locations.normalize, sources))

    @field_validator("output")
    @classmethod
    def _normalize_scheme(cls, output: str | None) -> str | None:
        return locations.normalize(output) if output else output

    @field_validator("pages", "slice")
    @classmethod
    def _normalize_range(cls, text: str | None) -> str | None:
        return PageRange.parse(text).text if text is not None else None

    @model_validator(mode="after")
    def _check_field_combinations(self) -> Job:
        needs_prompt = self.task in (Task.LOCATE, Task.CUSTOM)
        if needs_prompt != (self.prompt is not None):
            raise ValueError(f"prompt: {'required' if needs_prompt else 'not used'} with task {self.task}")
        if self.slice and not self.resume:
            raise ValueError("slice: cannot be combined with resume false, which writes to a separate folder")
        if self.furniture and self._markdown_furniture not in (None, self.furniture):
            raise ValueError("furniture: contradicts markdown.furniture; set one of them")
        if self.task is Task.CUSTOM and (self.prompt or "").count("<image>") != 1:
            raise ValueError("prompt: must contain <image> exactly once")
        return self

    @classmethod
    def parse(cls, job: Mapping[str, Any], settings: Settings, entry_point: EntryPoint) -> Job:
        """Parse a delivered job, {"id", "input", "s3Config"?, "upload"?}; raises InvalidJob naming the field."""
        data = job.get("input")
        if not isinstance(data, Mapping):
            _check_size(job)
            raise InvalidJob(Code.INVALID_JOB, _describe_missing_input(job))
        _check_size(data, job.get("s3Config"))
        if reserved := {"id", "entry_point", "queued_s", "upload"} & set(data):
            raise InvalidJob(Code.INVALID_JOB, f"{min(reserved)}: unknown field")
        job_id = str(job.get("id") or "local")
        if entry_point is EntryPoint.LOCAL and data.get("resume") is False:
            job_id += f"-{secrets.token_hex(3)}"  # local ids repeat, and the id selects the folder when resume is false
        extra: dict[str, Any] = {"id": job_id, "entry_point": entry_point}
        if isinstance(delay_ms := job.get("delayTime"), int):  # only some platforms report it
            extra["queued_s"] = delay_ms / 1000
        if isinstance(job.get("s3Config"), Mapping) and "s3" not in data:
            extra["s3"] = dict(job["s3Config"])
        if upload := job.get("upload"):
            if named := {"source", "sources"} & set(data):
                raise InvalidJob(Code.INVALID_JOB, f"{min(named)}: leave it out, because a file is sent with the job")
            extra |= {"upload": upload, "source": upload.uri}
        try:
            parsed = cls.model_validate({**data, **extra})
        except ValidationError as error:
            raise InvalidJob(Code.INVALID_JOB, _describe(error)) from None
        for number, source in enumerate(() if upload else parsed.sources):
            if len(source) > _MAX_LOCATION_LENGTH and not locations.DATA.begins(source):
                raise InvalidJob(Code.INVALID_JOB, f"sources[{number}]: longer than {_MAX_LOCATION_LENGTH} characters")
            _check_location(f"sources[{number}]", source, settings, entry_point, locations.SOURCES)
        return parsed._resolve_output(settings)._check_options_are_used()._use_default_furniture(settings)

    def _resolve_output(self, settings: Settings) -> Job:
        output = self.output
        if output is None and self.entry_point is EntryPoint.SERVER:
            # The server's own folder, from which it answers requests for artefacts.
            return self.model_copy(update={"output": str(settings.output_dir), "inline": self.inline or ()})
        if output is None and self.s3:
            # The job's keys belong to the job's bucket; they have no access to the worker's own.
            output = f"s3://{self.s3.bucket}/{settings.bucket_prefix.strip('/')}/" if self.s3.bucket else None
        elif output is None:
            output = settings.default_output
        if output is None and self.entry_point is EntryPoint.LOCAL and self.inline is None:
            output = str(settings.output_dir)
        if output is not None:
            _check_location("output", output, settings, self.entry_point, locations.OUTPUTS)
            _check_not_below_engine_cache(output, settings)
        if output is None and self.slice:
            raise InvalidJob(Code.OUTPUT_MISSING, "slice: needs an output to store its checkpoints in")
        if output is None and len(self.sources) > RESULT_DOCUMENTS:
            message = f"sources: more than {RESULT_DOCUMENTS} documents do not fit into an answer; set output"
            raise InvalidJob(Code.OUTPUT_MISSING, message)
        inline = self.inline if self.inline is not None else (() if output else (Inline.MARKDOWN,))
        return self.model_copy(update={"output": output, "inline": inline})

    def _check_options_are_used(self) -> Job:
        for field, formats in _OPTION_FORMATS.items():
            if getattr(self, field) is not None and not formats & set(self.formats_needed):
                names = " or ".join(name for name in Format if name in formats)
                raise InvalidJob(Code.INVALID_JOB, f"{field}: has no effect unless formats includes {names}")
        return self

    @property
    def _markdown_furniture(self) -> Furniture | None:
        """The same option where it was before chunks had it."""
        markdown = self.markdown
        return markdown.furniture if markdown and "furniture" in markdown.model_fields_set else None

    def _use_default_furniture(self, settings: Settings) -> Job:
        is_set = self.furniture or self._markdown_furniture
        return self if is_set else self.model_copy(update={"furniture": settings.furniture})

    @property
    def page_range(self) -> PageRange | None:
        return PageRange.parse(self.pages) if self.pages else None

    @property
    def slice_range(self) -> PageRange | None:
        return PageRange.parse(self.slice) if self.slice else None

    @property
    def formats_needed(self) -> tuple[Format, ...]:
        """The requested formats, those returned inline, and those that other formats are built from."""
        wanted = {*self.formats, *(Format(name) for name in self.inline or ())}
        wanted |= _ZIP_CONTENTS if Format.ZIP in wanted else set()
        return tuple(name for name in Format if name in wanted)

    def resolve_format_options(self, previous: FormatOptions | None) -> FormatOptions:
        """The options of artefacts: the job's, where it sets none those of the existing document, else the defaults."""
        fields = [name for name in FormatOptions.model_fields if getattr(self, name) is not None]
        options = (previous or FormatOptions()).model_copy(update={name: getattr(self, name) for name in fields})
        if self.furniture is None:
            return options
        markdown = options.markdown.model_copy(update={"furniture": self.furniture})
        return options.model_copy(update={"markdown": markdown})

    @property
    def reading_options(self) -> dict[str, Any]:
        """The job's part of the document id: every option that affects what is read."""
        return {
            "version": _READING_VERSION,
            "mode": self.mode,
            "dpi": self.dpi,
            "max_crops": self.max_crops,
            "pass2": self.pass2,
            "figure_descriptions": self.figure_descriptions,
            "task": self.task,
            "prompt": self.prompt,
            "sampling": self.sampling.model_dump(exclude_none=True),
            "language": self.language,
            "pages": self.pages,
        }


def document_id(stem: str, sha256: str, options: Mapping[str, Any]) -> str:
    """Build `{file stem, up to 40 characters}-{12 hex digits}` from the source's hash and the reading options."""
    safe = re.sub(r"[^\w.-]+", "-", stem, flags=re.UNICODE).strip("-.")[:40] or "document"
    canonical = json.dumps(options, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return f"{safe}-{hashlib.sha256((sha256 + canonical).encode()).hexdigest()[:12]}"


def _check_not_below_engine_cache(output: str, settings: Settings) -> None:
    """Refuse an output among compiled code, which workers execute; raises InvalidJob."""
    if settings.engine_cache and locations.is_below(output, settings.engine_cache):
        message = "output: it is below ENGINE_CACHE, where only workers write: name another prefix or folder"
        raise InvalidJob(Code.OUTPUT_DENIED, message)


def _check_location(
    field: str, place: str, settings: Settings, entry_point: EntryPoint, schemes: Sequence[Scheme]
) -> None:
    """Check that a job from this entry point may name this URI or path; raises InvalidJob."""
    if locations.find_scheme(place) in schemes:
        return
    if not place or "\0" in place:
        raise InvalidJob(Code.INVALID_JOB, f"{field}: not a URI or path")
    known = ", ".join(scheme.prefix for scheme in schemes)
    if locations.is_uri(place):
        raise InvalidJob(Code.INVALID_JOB, f"{field}: {place.partition(':')[0]} is not one of {known}")
    on_volume = Path(os.path.normpath(place)).is_relative_to(settings.volume)
    # Before touching the file system, which a serverless caller must not probe.
    is_remote = entry_point in (EntryPoint.SERVERLESS, EntryPoint.SERVER)
    if is_remote and not (on_volume and settings.allow_volume):
        raise _volume_disabled(field) if on_volume else _path_not_allowed(field, known)
    if entry_point is EntryPoint.LOCAL:
        return
    try:
        path = locations.resolve(place)
    except OSError:  # a symlink loop
        raise _path_not_allowed(field, known) from None
    if path.is_relative_to(locations.resolve(settings.volume)):
        if not settings.allow_volume:
            raise _volume_disabled(field)
        return
    if entry_point is EntryPoint.API:
        if settings.allowed_dir and path.is_relative_to(locations.resolve(settings.allowed_dir)):
            return
        message = f"{field}: local paths are allowed only below ALLOWED_DIR, a setting of the worker"
        raise InvalidJob(Code.INVALID_JOB, f"{message}; or use one of {known}")
    raise _path_not_allowed(field, known)


def _volume_disabled(field: str) -> InvalidJob:
    return InvalidJob(Code.INVALID_JOB, f"{field}: volume paths are disabled; set ALLOW_VOLUME=true on the endpoint")


def _path_not_allowed(field: str, known: str) -> InvalidJob:
    return InvalidJob(Code.INVALID_JOB, f"{field}: local paths are not allowed here; use one of {known}")


def _check_size(*parts: Any) -> None:
    """Refuse a job with too many values before it is validated, which takes an error object for each wrong one."""
    count, waiting = 0, list(parts)
    while waiting:
        value = waiting.pop()
        if isinstance(value, (Mapping, list, tuple)):
            count += len(value)
            if count > _MAX_VALUES:
                raise InvalidJob(Code.INVALID_JOB, f"input: more than {_MAX_VALUES:,} values; send several jobs")
            waiting += value.values() if isinstance(value, Mapping) else value


def _describe(error: ValidationError) -> str:
    """One error as `field: what is wrong`, and how many more there are. Values may be secret and are left out.

    An unknown field comes first: if it is misspelt, the field that it should be is missing, too.
    """
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    first, *more = sorted(errors, key=lambda problem: problem["type"] != "extra_forbidden")
    path = [str(part) for part in first["loc"]]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown field{suggest(path[-1], _list_fields(path[:-1]))}"
    if path == ["sources"] and first["type"] == "missing":
        message = "missing; name a document with source, or several with sources"
    field = ".".join(path)
    field = field if len(field) <= _MAX_SHOWN else f"{field[:_MAX_SHOWN]}…"
    text = f"{field}: {message}" if field else message
    return f"{text} (and {len(more)} more)" if more else text


def _describe_missing_input(job: Mapping[str, Any]) -> str:
    """Why a delivered job has no input: its name is misspelt, or its fields are not within it."""
    form = '{"input": {"source": "…"}}'
    if "input" in job:
        return f"input: must be an object; write {form}"
    for name in job:
        if question := suggest(name, ["input"]):
            return f"{name}: unknown field{question}"
        if meant := get_close_matches(name, _list_fields(()), n=1):
            return f'{name}: unknown field; did you mean {{"input": {{"{meant[0]}": …}}}}?'
    return f"input: missing; write {form}"


def _list_fields(path: Sequence[str]) -> list[str]:
    """The names that callers may use in a job, or in the object at this path within it."""
    model: type[Value] = Job
    for part in path:
        annotation = model.model_fields[part].annotation
        kinds = (annotation, *get_args(annotation))  # such as S3, or S3 | None
        model = next(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Value))
    names = ["source"] if model is Job else []
    for name, field in model.model_fields.items():
        if not field.exclude:
            alias = field.validation_alias
            names += [name, *(map(str, alias.choices) if isinstance(alias, AliasChoices) else ())]
    return names
