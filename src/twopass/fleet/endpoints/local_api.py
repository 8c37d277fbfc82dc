"""A worker's local API, `handler.py --rp_serve_api`, as an endpoint.

Its /run does not run anything, so jobs are sent to /runsync, which reports no progress.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints import http_api
from twopass.fleet.endpoints.http_api import ApiClient
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.fleet.endpoints.local_jobs import LocalJobs
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy


class LocalApi:
    """Holds one open request for each job; jobs end with the `with` block."""

    def __init__(self, url: str, retry_policy: RetryPolicy = retry.ENDPOINT_REQUEST) -> None:
        self._api = ApiClient(url, None, retry_policy, read_s=None)  # the answer comes when the job has ended
        self._jobs = LocalJobs("local")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._jobs.cancel_all()
        await self._api.close()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        job_id = self._jobs.create_id()
        self._jobs.start(job_id, self._run(job_input))
        return job_id

    async def _run(self, job_input: Mapping[str, Any]) -> JobStatus:
        started = time.monotonic()
        answer = await self._api.request("POST", "/runsync", {"input": job_input})
        if answer is None:
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self._api.url}: no worker's local API; see --rp_serve_api")
        return replace(http_api.parse_status(answer), seconds=time.monotonic() - started)

    async def poll(self, job_id: str) -> JobStatus:
        return await self._jobs.find_end(job_id) or JobStatus(JobState.RUNNING)

    async def cancel(self, job_id: str) -> None:
        await self._jobs.cancel(job_id)
