"""A worker's local API, `handler.py --rp_serve_api`, as an endpoint.

Its /run does not run anything, so jobs are sent to /runsync, which reports no progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints import http_api
from twopass.fleet.endpoints.http_api import ApiClient
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy


class LocalApi:
    """Holds one open request for each job; jobs end with the `with` block."""

    def __init__(self, url: str, retry_policy: RetryPolicy = retry.ENDPOINT_REQUEST) -> None:
        self._api = ApiClient(url, None, retry_policy, read_s=None)  # the answer comes when the job has ended
        self._jobs: dict[str, asyncio.Task[JobStatus]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job_id in self._jobs:
            await self.cancel(job_id)
        await self._api.close()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        job_id = f"local-{uuid4().hex}"  # unique beyond this process, because the ledger remembers it
        self._jobs[job_id] = asyncio.create_task(self._run(job_input))
        return job_id

    async def _run(self, job_input: Mapping[str, Any]) -> JobStatus:
        started = time.monotonic()
        answer = await self._api.request("POST", "/runsync", {"input": job_input})
        if answer is None:
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self._api.url}: no worker's local API; see --rp_serve_api")
        return http_api.parse_status({**answer, "executionTime": 1000 * (time.monotonic() - started)})

    async def poll(self, job_id: str) -> JobStatus:
        job = self._jobs.get(job_id)
        if job is None:
            return JobStatus(JobState.GONE, error="the job belongs to an earlier run")
        return await job if job.done() else JobStatus(JobState.RUNNING)

    async def cancel(self, job_id: str) -> None:
        if job := self._jobs.get(job_id):
            job.cancel()
            with suppress(asyncio.CancelledError, EndpointError):
                await job
