"""Jobs that live in this process: each is a task that ends with its status, and all end with the command."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any
from uuid import uuid4

from twopass.errors import EndpointError
from twopass.fleet.endpoints.interface import JobState, JobStatus


class LocalJobs:
    """Use it on one event loop. `prefix` begins the id of each job."""

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
