"""Error codes and exceptions.

TwopassError            has a Code and a message that says what to do
├── InvalidJob          the input is wrong; names the field
├── InvalidSetting      a setting of the environment or an argument is wrong; names it
├── SourceError         the document cannot be fetched, opened or used
├── StoreError          artefacts cannot be written or read
├── EngineError         the engine is gone or accepts no more prompts
├── OutOfTime           the job's deadline passed or the worker is shutting down
├── RequestError        a request to `twopass serve` is refused
├── EndpointError       the endpoint that `twopass submit` sends jobs to rejects them or cannot be reached
│   └── AnswerError     its answer about one job cannot be parsed; other jobs go on
├── LimitReached        a limit of `twopass submit` keeps a job from being sent
└── WorkerDied          a page worker crashed, timed out or exceeded its memory limit in one call
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum


class Retry(StrEnum):
    """When another try at the same document may succeed."""

    AT_ONCE = "at_once"  # a page worker or the engine failed, not the page
    LATER = "later"  # on the same worker or on another
    ELSEWHERE = "elsewhere"  # only on another worker
    MENDED = "mended"  # after somebody has changed permissions or given the password


class Code(StrEnum):
    """Stable codes of problems. A new one is needed only where callers react differently."""

    retry: Retry | None  # None: another try would end in the same way
    reason: str  # in words, why an answer could not be used or a page was not read; other codes are shown as they are

    def __new__(cls, value: str, retry: Retry | None = None, reason: str | None = None) -> Code:
        code = str.__new__(cls, value)
        code._value_, code.retry, code.reason = value, retry, reason or value
        return code

    INVALID_JOB = "INVALID_JOB"
    INVALID_SETTING = "INVALID_SETTING"
    SOURCE_NOT_FOUND = "SOURCE_NOT_FOUND"
    SOURCE_DENIED = "SOURCE_DENIED"
    SOURCE_TOO_LARGE = "SOURCE_TOO_LARGE"
    SOURCE_UNSUPPORTED = "SOURCE_UNSUPPORTED"
    DAMAGED = "DAMAGED", None, "the page is damaged"
    ENCRYPTED = "ENCRYPTED", Retry.MENDED
    PAGE_RANGE = "PAGE_RANGE"
    OUTPUT_MISSING = "OUTPUT_MISSING"
    OUTPUT_DENIED = "OUTPUT_DENIED", Retry.MENDED
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE", Retry.LATER, "the storage did not answer"
    PLATFORM = "PLATFORM"
    ENGINE_DEAD = "ENGINE_DEAD", Retry.LATER, "the engine stopped"
    ENGINE_MEMORY = "ENGINE_MEMORY", Retry.LATER, "the engine ran out of memory"
    WEIGHTS_MISSING = "WEIGHTS_MISSING", Retry.ELSEWHERE
    CANARY = "CANARY", Retry.ELSEWHERE
    DEADLINE = "DEADLINE", Retry.LATER, "the job's deadline passed"
    SHUTDOWN = "SHUTDOWN", Retry.LATER, "the worker was shut down"
    ENDPOINT_DENIED = "ENDPOINT_DENIED"
    ENDPOINT_UNAVAILABLE = "ENDPOINT_UNAVAILABLE"
    ENDPOINT_ANSWER = "ENDPOINT_ANSWER"
    JOB_LOST = "JOB_LOST"
    COST_LIMIT = "COST_LIMIT"
    RUN_LIMIT = "RUN_LIMIT"
    IN_USE = "IN_USE"
    DUPLICATE = "DUPLICATE"
    ACCESS_DENIED = "ACCESS_DENIED"
    NOT_FOUND = "NOT_FOUND"
    QUEUE_FULL = "QUEUE_FULL"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    TOO_MANY_CONNECTIONS = "TOO_MANY_CONNECTIONS"
    STARTING = "STARTING"
    INTERNAL = "INTERNAL", Retry.LATER, "there was an unexpected error"

    LOOP = "LOOP", None, "the answer repeated itself"
    TRUNCATED = "TRUNCATED", None, "the answer was cut off at its limit"
    EMPTY = "EMPTY", None, "the answer was empty, but the page is not blank"
    UNGROUNDED = "UNGROUNDED", None, "the answer had no positions"
    RENDER_CRASH = "RENDER_CRASH", Retry.AT_ONCE, "the page crashed the process that renders it"
    RENDER_TIMEOUT = "RENDER_TIMEOUT", Retry.AT_ONCE, "the page took too long"
    ENGINE_CRASH = "ENGINE_CRASH", Retry.AT_ONCE, "the engine crashed on the page"
    RENDER_MEMORY = "RENDER_MEMORY", Retry.AT_ONCE, "the page needed too much memory"
    PIXEL_LIMIT = "PIXEL_LIMIT"
    ENGINE_REFUSED = "ENGINE_REFUSED", None, "the engine rejected the page"
    UNREADABLE_SCRIPT = "UNREADABLE_SCRIPT", None, "the engine cannot read the writing on it"
    DENSE_PAGE = "DENSE_PAGE"
    PARTS_OMITTED = "PARTS_OMITTED", None, "all that it shows was left out: annotations and form fields"
    NO_TEXT = "NO_TEXT"
    UNREADABLE_TEXT = "UNREADABLE_TEXT"
    REGIONS_UNREAD = "REGIONS_UNREAD", None, "none of the page's regions was read"
    REGIONS_DROPPED = "REGIONS_DROPPED"
    ORDER_CORRECTED = "ORDER_CORRECTED"
    MIXED_COLUMNS = "MIXED_COLUMNS"
    MISSED_TEXT = "MISSED_TEXT"
    UNREAD_INK = "UNREAD_INK"
    ANSWER_TOO_LONG = "ANSWER_TOO_LONG"
    CONTENT_LOST = "CONTENT_LOST", None, "the page is damaged, and nothing of it is drawn"
    IMAGE_LOST = "IMAGE_LOST"
    CONTENT_ALTERED = "CONTENT_ALTERED"
    HIDDEN_TEXT = "HIDDEN_TEXT"
    HIDDEN_PARTS = "HIDDEN_PARTS"
    TEXT_NOT_DRAWN = "TEXT_NOT_DRAWN"
    FONT_WRONG = "FONT_WRONG"
    REDACTION_PENDING = "REDACTION_PENDING"
    UNKNOWN_CHARACTERS = "UNKNOWN_CHARACTERS"
    WORDS_LOST = "WORDS_LOST"
    FORMAT_LOST = "FORMAT_LOST"


def suggest(name: str, choices: Sequence[str]) -> str:
    """Ask whether a similar name was meant, as the end of a message; empty if none is similar."""
    similar = get_close_matches(name, choices, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def install_command(extra: str) -> str:
    """The command that installs an extra. Nothing is published, so that it is for a checkout."""
    return f"python -m pip install '.[{extra}]'"


def advise_install(extra: str) -> str:
    """Say how an extra is installed."""
    return f"run `{install_command(extra)}` in the checkout"


class TwopassError(Exception):
    """An error with a code. `str()` gives `CODE: what happened and what to do`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type, tuple[Code, str]]:
        # Errors cross processes pickled, such as those of Ray actors; page workers send code and message as data.
        return type(self), (self.code, self.message)


class InvalidJob(TwopassError):
    """The job's input is wrong; the message names the field."""


class InvalidSetting(TwopassError):
    """A setting of the environment or an argument is wrong; the message names it."""


class SourceError(TwopassError):
    """The document cannot be fetched, opened or used."""


class StoreError(TwopassError):
    """Artefacts cannot be written or read."""


class EngineError(TwopassError):
    """The engine is gone or accepts no more prompts."""


class OutOfTime(TwopassError):
    """The job's deadline passed (DEADLINE) or the worker is shutting down (SHUTDOWN); the work itself is fine."""


class RequestError(TwopassError):
    """A request to `twopass serve` is refused; the job itself may be fine."""


class EndpointError(TwopassError):
    """The endpoint that jobs are submitted to rejects them or cannot be reached."""


class AnswerError(EndpointError):
    """The endpoint's answer about one job cannot be parsed; the message names the field. Other jobs go on."""


class LimitReached(TwopassError):
    """A limit of the campaign keeps a job from being sent (COST_LIMIT)."""


class WorkerDied(TwopassError):
    """A page worker crashed (RENDER_CRASH), timed out (RENDER_TIMEOUT) or used too much memory (RENDER_MEMORY)."""
