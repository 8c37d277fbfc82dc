"""The protocol of an endpoint: submit a job, poll it, cancel it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class JobState(StrEnum):
    """Where a job is. GONE: the endpoint does not know it any more, or ended it before it had a result."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True)
class JobStatus:
    """The answer to one poll. `output` is the progress of a running job and the result of one that ended.

    `seconds` on a worker, and `queued_s` before that, are None where the endpoint does not report them.
    """

    state: JobState
    output: Any = None
    error: str | None = None
    seconds: float | None = None
    queued_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in (JobState.WAITING, JobState.RUNNING)


class Endpoint(Protocol):
    """Runs jobs. Every call raises EndpointError when the endpoint refuses it or stays unavailable."""

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        """Start a job; returns its id."""

    async def poll(self, job_id: str) -> JobStatus: ...

    async def cancel(self, job_id: str) -> None: ...
