"""What the server answers: jobs, errors with their HTTP status, and security headers."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import Field

from twopass.errors import Code, TwopassError
from twopass.job import Format, Mode
from twopass.values import Value

STATUS = MappingProxyType(
    {
        Code.ACCESS_DENIED: 401,
        Code.NOT_FOUND: 404,
        Code.REQUEST_TIMEOUT: 408,
        Code.SOURCE_TOO_LARGE: 413,
        Code.QUEUE_FULL: 429,
        Code.TOO_MANY_CONNECTIONS: 429,
        Code.INTERNAL: 500,
        **dict.fromkeys((Code.STARTING, Code.SHUTDOWN, Code.ENGINE_DEAD, Code.STORE_UNAVAILABLE), 503),
    }
)
BAD_REQUEST = 422  # all other codes: the job is wrong
RETRY_AFTER_S = 10  # with 429 and 503

# Scripts of a stored page run without an origin: they cannot reach the key or the API.
SANDBOX = "sandbox allow-scripts allow-popups; frame-ancestors 'self'"
_FIELD = re.compile(r"[A-Za-z_][\w.\[\]]*(?=: )")


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # by the end of the server, which continues the job when it starts again
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_active(self) -> bool:
        """Whether this server still works on the job."""
        return self in (State.QUEUED, State.RUNNING)

    @property
    def is_final(self) -> bool:
        return self in (State.DONE, State.FAILED, State.CANCELLED)


class ErrorAnswer(Value, extra="ignore"):
    """Why a request was refused or a job failed."""

    code: Code
    message: str
    field: str | None = Field(None, description="the field of the job that the message is about")

    @classmethod
    def of(cls, error: TwopassError) -> ErrorAnswer:
        field = _FIELD.match(error.message) if error.code is Code.INVALID_JOB else None
        return cls(code=error.code, message=error.message, field=field[0] if field else None)


class JobAnswer(Value, extra="ignore"):
    """One job."""

    id: str
    name: str = Field(description="the file's name, or the first source without its query")
    state: State
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    progress: dict[str, Any] | None = Field(None, description="as RunPod's progress: phase, pages, percent, eta_s")
    result: dict[str, Any] | None = Field(None, description="as RunPod's result; addresses of artefacts are paths here")
    error: ErrorAnswer | None = None
    links: dict[str, str] = Field(
        description="`files` needs no key: it contains a secret for this job that is valid until the server restarts. "
        "`resume` is there while the job can be run again to read what is missing"
    )


class JobList(Value, extra="ignore"):
    jobs: tuple[JobAnswer, ...]


class PageAnswer(Value, extra="ignore"):
    """A page that was read."""

    document: str
    number: int
    state: str


class JobPageAnswer(PageAnswer):
    """A page that was read, and the id of its job."""

    job: str


class Health(Value, extra="ignore"):
    """`gpus` says for each GPU whether its engine runs; it is empty for engines without one.

    `formats` and `modes` are those that a job may ask of this server.
    """

    status: str
    running: int
    queued: int
    engine: str
    gpus: dict[str, bool]
    max_source_bytes: int
    formats: tuple[Format, ...]
    modes: tuple[Mode, ...]


def error_response(error: TwopassError, status: int | None = None) -> JSONResponse:
    """The answer to a refused request: code, message and field."""
    status = status or STATUS.get(error.code, BAD_REQUEST)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(ErrorAnswer.of(error).model_dump(mode="json"), status, headers)
