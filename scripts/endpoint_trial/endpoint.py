"""The endpoint that is tried: RunPod's, with /runsync and /health, which no campaign needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints import answers
from twopass.fleet.endpoints.interface import JobStatus
from twopass.fleet.endpoints.runpod import RunPod, parse_status

NO_CAPACITY = ("throttled", "unhealthy")  # states of workers that take no jobs


@dataclass(frozen=True)
class EndpointHealth:
    """How many workers and jobs are in each state, by RunPod's names: `idle`, `running`, `throttled`, `inQueue`, …"""

    workers: Mapping[str, int]
    jobs: Mapping[str, int]

    @property
    def is_blocked(self) -> bool:
        """Whether there are workers and none can take jobs. An endpoint without workers starts one for a job."""
        return any(self.workers.values()) and not any(
            count for state, count in self.workers.items() if state not in NO_CAPACITY
        )


class TrialEndpoint(RunPod):
    """RunPod deletes each job `ttl_s` after it was sent, whatever its state."""

    def __init__(self, endpoint: str, key: str, execution_s: float, ttl_s: float) -> None:
        super().__init__(endpoint, key, execution_s)
        self._policy["ttl"] = round(ttl_s * 1000)

    async def submit_and_wait(self, job_input: Mapping[str, Any], wait_s: float) -> tuple[str, JobStatus]:
        """Start a job and wait at most `wait_s` for its end; returns its id and status."""
        answer = await self._send(f"/runsync?wait={round(wait_s * 1000)}", job_input)
        return self._parse_id(answer), parse_status(answer)

    async def check_health(self) -> EndpointHealth:
        """Count workers and jobs; raises EndpointError where there is no such endpoint."""
        answer = self._require(await self._api.request("GET", "/health"))
        return parse_health(answers.decode(answer, f"{self.url}: the answer"), self.url)


def parse_health(answer: Any, url: str) -> EndpointHealth:
    """Parse the answer of /health; raises EndpointError for one that counts no workers."""
    if not isinstance(answer, dict) or not isinstance(answer.get("workers"), dict):
        message = f"{url} does not count its workers; use an endpoint with a queue, not a load balancing one"
        raise EndpointError(Code.ENDPOINT_DENIED, message)
    return EndpointHealth(_parse_counts(answer["workers"]), _parse_counts(answer.get("jobs")))


def _parse_counts(counts: Any) -> dict[str, int]:
    """The values that are numbers of something."""
    pairs = counts.items() if isinstance(counts, dict) else ()
    return {state: count for state, count in pairs if isinstance(count, int) and not isinstance(count, bool)}
