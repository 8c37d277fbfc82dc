"""An endpoint of RunPod: /run, /runsync, /status, /cancel and /health of its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from twopass import locations
from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints import answers, http_api
from twopass.fleet.endpoints.answers import SubmittedJob
from twopass.fleet.endpoints.http_api import ApiClient, Pace
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy

API_URL = "https://api.runpod.ai/v2"
# RunPod answers 1,000 requests to /run and 2,000 to /status in ten seconds, and 429 to more.
SUBMITS_PER_S, POLLS_PER_S = 90.0, 180.0
NO_CAPACITY = ("throttled", "unhealthy")  # states of workers that take no jobs


@dataclass(frozen=True)
class Health:
    """How many workers and jobs are in each state, by RunPod's names: `idle`, `running`, `throttled`, `inQueue`, …"""

    workers: Mapping[str, int]
    jobs: Mapping[str, int]

    @property
    def is_blocked(self) -> bool:
        """Whether there are workers and none can take jobs. An endpoint without workers starts one for a job."""
        return any(self.workers.values()) and not any(
            count for state, count in self.workers.items() if state not in NO_CAPACITY
        )


class RunPod:
    """An endpoint of RunPod's queue."""

    def __init__(
        self,
        endpoint: str,
        key: str | None,
        execution_s: float,
        ttl_s: float | None = None,
        answer_policy: RetryPolicy = retry.ENDPOINT_ANSWER,
    ) -> None:
        """`endpoint` is an id or a complete address. RunPod ends a job that runs longer than `execution_s`.

        It deletes a job `ttl_s` after it was sent, whatever its state; None: after a day. `answer_policy` is for polls
        whose answer cannot be parsed.
        """
        self._answer_policy = answer_policy
        self._api = ApiClient(endpoint if locations.is_uri(endpoint) else f"{API_URL}/{endpoint}", key)
        self._submit_pace, self._poll_pace = Pace(SUBMITS_PER_S), Pace(POLLS_PER_S)
        self._policy = {"executionTimeout": round(execution_s * 1000)}
        if ttl_s is not None:
            self._policy["ttl"] = round(ttl_s * 1000)

    @property
    def url(self) -> str:
        return self._api.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._api.close()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        await self._submit_pace.wait()
        return self._parse_id(await self._send("/run", job_input))

    async def submit_and_wait(self, job_input: Mapping[str, Any], wait_s: float) -> tuple[str, JobStatus]:
        """Start a job and wait at most `wait_s` for its end; returns its id and status."""
        answer = await self._send(f"/runsync?wait={round(wait_s * 1000)}", job_input)
        return self._parse_id(answer), http_api.parse_status(answer)

    async def _send(self, path: str, job_input: Mapping[str, Any]) -> bytes:
        answer = await self._api.request("POST", path, {"input": job_input, "policy": self._policy})
        if answer is None:
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self.url}: {http_api.ADVICE[404]}")
        return answer

    def _parse_id(self, answer: bytes) -> str:
        """The id of a job that was sent. It is not sent again if that fails: there may be a job all the same."""
        return answers.parse(SubmittedJob, answer, f"{self.url}: the answer to a job that was sent").id

    async def check_health(self) -> Health:
        """Count workers and jobs; raises EndpointError where there is no such endpoint."""
        answer = await self._api.request("GET", "/health")
        if answer is None:
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self.url}: {http_api.ADVICE[404]}")
        return parse_health(answers.decode(answer, f"{self.url}: the answer"), self.url)

    async def poll(self, job_id: str) -> JobStatus:
        return await self._answer_policy.run_async(partial(self._poll_once, job_id))

    async def _poll_once(self, job_id: str) -> JobStatus:
        await self._poll_pace.wait()
        answer = await self._api.request("GET", f"/status/{quote(job_id, safe='')}")
        if answer is None:
            return JobStatus(JobState.GONE, error="the endpoint does not know the job any more")
        return http_api.parse_status(answer)

    async def cancel(self, job_id: str) -> None:
        await self._api.request("POST", f"/cancel/{quote(job_id, safe='')}")


def parse_health(answer: Any, url: str) -> Health:
    """Parse the answer of /health; raises EndpointError for one that counts no workers."""
    if not isinstance(answer, dict) or not isinstance(answer.get("workers"), dict):
        message = f"{url} does not count its workers; use an endpoint with a queue, not a load balancing one"
        raise EndpointError(Code.ENDPOINT_DENIED, message)
    return Health(_parse_counts(answer["workers"]), _parse_counts(answer.get("jobs")))


def _parse_counts(counts: Any) -> dict[str, int]:
    """The values that are numbers of something."""
    pairs = counts.items() if isinstance(counts, dict) else ()
    return {state: count for state, count in pairs if isinstance(count, int) and not isinstance(count, bool)}
