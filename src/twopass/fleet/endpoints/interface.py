"""The protocol of an endpoint: submit a job, poll it, cancel it. Jobs that live in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from uuid import uuid4

from twopass.errors import EndpointError


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


class LocalJobs:
    """Jobs of this process: each is a task that ends with its status, and all end with the command.

    Use it on one event loop. `prefix` begins the id of each job.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._tasks: dict[str, asyncio.Task[JobStatus]] = {}

    def create_id(self) -> str:
        """An id that is unique beyond this process, because the ledger remembers it."""
        return f"{self._prefix}-{uuid4().hex}"

    def start(self, job_id: str, work: Coroutine[Any, Any, JobStatus]) -> None:
        self._tasks[job_id] = asyncio.create_task(work)

    async def find_end(self, job_id: str) -> JobStatus | None:
        """The status of a job that has ended or is not known; None while it runs. Raises what the job raised."""
        task = self._tasks.get(job_id)
        if task is None:
            return JobStatus(JobState.GONE, error="the job belongs to an earlier run")
        return await task if task.done() else None

    async def cancel(self, job_id: str) -> None:
        if task := self._tasks.get(job_id):
            task.cancel()
            with suppress(asyncio.CancelledError, EndpointError):
                await task

    async def cancel_all(self) -> None:
        for job_id in self._tasks:
            await self.cancel(job_id)
