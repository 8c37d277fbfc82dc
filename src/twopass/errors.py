"""Every way a job or a page can go wrong: one closed list of codes, one small tree of exceptions.

TwopassError            carries a Code and a message for the person who acts
├── InvalidJob          the input is wrong; names the field
├── SourceError         the document cannot be fetched, opened or used
├── StoreError          artefacts cannot be written or read
├── EngineError         the engine is gone or cannot take more
├── OutOfTime           the deadline or the worker's end came first
├── EndpointError       the endpoint that submit.py sends jobs to refuses them or stays away
└── WorkerDied          a page worker crashed, ran out of time or took too much memory over one piece of work
"""

from enum import StrEnum


class Code(StrEnum):
    """Stable names of problems. Add one when somebody reacts to it differently."""

    INVALID_JOB = "INVALID_JOB"
    SOURCE_NOT_FOUND = "SOURCE_NOT_FOUND"
    SOURCE_DENIED = "SOURCE_DENIED"
    SOURCE_TOO_LARGE = "SOURCE_TOO_LARGE"
    SOURCE_UNSUPPORTED = "SOURCE_UNSUPPORTED"
    DAMAGED = "DAMAGED"
    ENCRYPTED = "ENCRYPTED"
    PAGE_RANGE = "PAGE_RANGE"
    OUTPUT_MISSING = "OUTPUT_MISSING"
    OUTPUT_DENIED = "OUTPUT_DENIED"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    ENGINE_DEAD = "ENGINE_DEAD"
    ENGINE_MEMORY = "ENGINE_MEMORY"
    WEIGHTS_MISSING = "WEIGHTS_MISSING"
    CANARY = "CANARY"
    DEADLINE = "DEADLINE"
    SHUTDOWN = "SHUTDOWN"
    ENDPOINT_DENIED = "ENDPOINT_DENIED"
    ENDPOINT_UNAVAILABLE = "ENDPOINT_UNAVAILABLE"
    JOB_LOST = "JOB_LOST"
    INTERNAL = "INTERNAL"

    LOOP = "LOOP"
    TRUNCATED = "TRUNCATED"
    EMPTY = "EMPTY"
    UNGROUNDED = "UNGROUNDED"
    RENDER_CRASH = "RENDER_CRASH"
    RENDER_TIMEOUT = "RENDER_TIMEOUT"
    ENGINE_CRASH = "ENGINE_CRASH"
    RENDER_MEMORY = "RENDER_MEMORY"
    PIXEL_LIMIT = "PIXEL_LIMIT"
    ENGINE_REFUSED = "ENGINE_REFUSED"
    UNREADABLE_SCRIPT = "UNREADABLE_SCRIPT"
    DENSE_PAGE = "DENSE_PAGE"


class TwopassError(Exception):
    """A failure with a code; `str()` reads `CODE: what happened and what to do`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type, tuple[Code, str]]:
        # Page workers send their errors through a pipe.
        return type(self), (self.code, self.message)


class InvalidJob(TwopassError):
    """The job's input is wrong; the message names the field."""


class SourceError(TwopassError):
    """The document cannot be fetched, opened or used."""


class StoreError(TwopassError):
    """Artefacts cannot be written or read."""


class EngineError(TwopassError):
    """The engine is gone or cannot take more."""


class OutOfTime(TwopassError):
    """The job's deadline (DEADLINE) or the worker's end (SHUTDOWN) came first; nothing is wrong with the work."""


class EndpointError(TwopassError):
    """The endpoint that jobs are sent to refuses them or stays away."""


class WorkerDied(TwopassError):
    """A page worker crashed (RENDER_CRASH), ran out of time (RENDER_TIMEOUT) or took too much (RENDER_MEMORY)."""
