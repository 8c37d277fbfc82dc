"""An endpoint of RunPod: /run, /status and /cancel of its queue."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints import http_api
from twopass.fleet.endpoints.http_api import ApiClient
from twopass.fleet.endpoints.interface import JobState, JobStatus

API_URL = "https://api.runpod.ai/v2"


class RunPod:
    """An endpoint of RunPod's queue."""

    def __init__(self, endpoint: str, key: str | None, execution_s: float) -> None:
        """`endpoint` is an id or a complete address. RunPod ends a job that runs longer than `execution_s`."""
        self._api = ApiClient(endpoint if "://" in endpoint else f"{API_URL}/{endpoint}", key)
        self._policy = {"executionTimeout": round(execution_s * 1000)}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._api.close()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        answer = await self._api.request("POST", "/run", {"input": job_input, "policy": self._policy})
        if answer is None or not isinstance(answer.get("id"), str):
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self._api.url}: {http_api.ADVICE[404]}")
        return str(answer["id"])

    async def poll(self, job_id: str) -> JobStatus:
        answer = await self._api.request("GET", f"/status/{job_id}")
        if answer is None:
            return JobStatus(JobState.GONE, error="the endpoint does not know the job any more")
        return http_api.parse_status(answer)

    async def cancel(self, job_id: str) -> None:
        await self._api.request("POST", f"/cancel/{job_id}")
