"""Send jobs to an endpoint, follow them to their end, and cancel those that are still open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import typer
from pydantic import ValidationError

from scripts.endpoint_trial import jobs
from scripts.endpoint_trial.endpoint import TrialEndpoint
from scripts.endpoint_trial.jobs import TrialJob
from twopass.errors import Code, EndpointError
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.result import Result

SYNC_WAIT_S = 10.0  # of /runsync: until it answers nobody knows the job's id, so Ctrl-C has to wait for it
SUBMIT_S = 60.0  # after Ctrl-C, for the ids of jobs that are being sent
CANCEL_POLLS = 5
LOST_STATES = ("failed", "unread")  # of pages


@dataclass(frozen=True)
class Trial:
    """A job that was sent: how it ended, and whether we asked to cancel it."""

    job: TrialJob
    id: str | None
    status: JobStatus
    was_cancelled: bool = False

    @property
    def result(self) -> Result | None:
        """The result of a job that did not fail; None if it is not one of the contract."""
        try:
            return None if self.status.error else Result.model_validate(self.status.output)
        except ValidationError:
            return None

    @property
    def pages(self) -> int:
        documents = self.result.documents if self.result else ()
        counts = [count for document in documents for count in document.pages.items()]
        return sum(count for state, count in counts if state not in LOST_STATES)

    @property
    def markdown(self) -> str:
        documents = self.result.documents if self.result else ()
        return "\n".join(str(document.inline.get("markdown", "")) for document in documents)


class JobRunner:
    """Sends jobs and follows them. `open` are the ids of those that may still wait or run."""

    def __init__(self, endpoint: TrialEndpoint, output: str | None, wait_s: float, poll_s: float) -> None:
        """`wait_s` is how long a job may wait and run."""
        self._endpoint, self._output = endpoint, output
        self._wait_s, self._poll_s = wait_s, poll_s
        self._submitting: set[asyncio.Task[tuple[str, JobStatus]]] = set()
        self.open: set[str] = set()
        self.trials: list[Trial] = []

    async def run(self, job: TrialJob) -> Trial:
        """Run the job to its end, or for `wait_s`; an error of the endpoint is the job's status."""
        job_id = None
        try:
            submitting = asyncio.create_task(self._submit(job))
            self._submitting.add(submitting)
            job_id, status = await asyncio.shield(submitting)  # an id that arrives after Ctrl-C is needed to cancel
            trial = await self._follow(Trial(job, job_id, status))
        except EndpointError as error:
            trial = Trial(job, job_id, JobStatus(JobState.GONE, error=str(error)))
        self.trials.append(trial)
        typer.echo(f"{len(self.trials)} of {jobs.COUNT} jobs ended: {job.name}", err=True)
        return trial

    async def _submit(self, job: TrialJob) -> tuple[str, JobStatus]:
        fields = {**job.fields, **({"output": self._output} if self._output else {})}
        if job.waits:
            job_id, status = await self._endpoint.submit_and_wait(fields, SYNC_WAIT_S)
        else:
            job_id, status = await self._endpoint.submit(fields), JobStatus(JobState.WAITING)
        self.open.add(job_id)
        return job_id, status

    async def _follow(self, trial: Trial) -> Trial:
        assert trial.id
        until = time.monotonic() + self._wait_s
        while trial.status.is_open:
            if time.monotonic() > until:
                reason = f"it is still {trial.status.state} after {self._wait_s:g} s"
                advice = f"check max workers, the GPU types and a worker's log; {await self._describe_workers()}"
                error = EndpointError(Code.JOB_LOST, f"{reason}; {advice}")
                return replace(trial, status=JobStatus(JobState.GONE, error=str(error)))
            await asyncio.sleep(self._poll_s)
            status = await self._endpoint.poll(trial.id)
            if trial.job.is_cancelled and status.is_open and status.output and not trial.was_cancelled:
                await self._endpoint.cancel(trial.id)  # it runs, because it reports progress
                trial = replace(trial, was_cancelled=True)
            trial = replace(trial, status=status)
        self.open.discard(trial.id)
        return trial

    async def _describe_workers(self) -> str:
        return describe_counts((await self._endpoint.check_health()).workers) or "no workers"

    async def end_all(self) -> int:
        """Cancel every job that may still wait or run; returns how many. Those that go on stay in `open`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SUBMIT_S):
                await asyncio.gather(*self._submitting, return_exceptions=True)
        open_jobs = tuple(self.open)
        await asyncio.gather(*map(self._end, open_jobs))
        return len(open_jobs)

    async def _end(self, job_id: str) -> None:
        with suppress(EndpointError):
            await self._endpoint.cancel(job_id)
            for _ in range(CANCEL_POLLS):
                if not (await self._endpoint.poll(job_id)).is_open:
                    return self.open.discard(job_id)
                await asyncio.sleep(self._poll_s)


def describe_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)
