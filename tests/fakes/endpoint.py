"""An endpoint in memory whose workers know idempotency keys, and that loses answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints.interface import JobState, JobStatus


def succeed(job: Mapping[str, Any]) -> JobStatus:
    """The status of a job whose worker read its document."""
    document = {"id": "one-0123456789ab", "source": job["source"], "status": "success", "pages": {"read": 1}}
    output = {"status": "success", "documents": [document], "usage": {"pages_read_now": 1, "engine_s": 2.0}}
    return JobStatus(JobState.ENDED, output, seconds=3.0)


@dataclass
class ScriptedEndpoint:
    """Jobs end at their first poll, as `answer` says. Of the next `lost_answers` jobs the client gets no id.

    Of jobs with the same key only the first one reads; its id is in the others' output. `reads` lists the ids of jobs
    that read, `cancelled` those that were cancelled.
    """

    answer: Callable[[Mapping[str, Any]], JobStatus] = succeed
    lost_answers: int = 0
    inputs: list[Mapping[str, Any]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        self.inputs.append(job_input)
        if self.lost_answers:
            self.lost_answers -= 1
            raise EndpointError(Code.ENDPOINT_UNAVAILABLE, "the connection was cut")
        return str(len(self.inputs))

    async def poll(self, job_id: str) -> JobStatus:
        job = self.inputs[int(job_id) - 1]
        key = job.get("idempotency_key")
        owner = next((number for number, other in enumerate(self.inputs, 1) if key == other.get("idempotency_key")), 0)
        if key and str(owner) != job_id:
            error = f"{Code.DUPLICATE}: job {owner}"
            return JobStatus(JobState.ENDED, {"detail": {"status": "failure", "duplicate_of": str(owner)}}, error)
        self.reads.append(job_id)
        return self.answer(job)

    async def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)
