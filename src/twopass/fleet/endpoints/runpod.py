"""A job's input in, what became of the job out, over HTTP: a RunPod endpoint, or a worker's local API.

Knows requests, rate limits and when to ask again. Knows nothing of documents.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import uuid4

import httpx
import structlog
import tenacity

from twopass.errors import Code, EndpointError

log = structlog.get_logger()

RUNPOD = "https://api.runpod.ai/v2"
BACK_OFF = tenacity.wait_random_exponential(multiplier=0.5, max=30)
LONGEST_WAIT_S = 120.0  # whatever a Retry-After says
CONNECT_S, READ_S = 10.0, 60.0
ADVICE = {
    401: "check RUNPOD_API_KEY",
    403: "the key may not use this endpoint; check RUNPOD_API_KEY",
    404: "there is no such endpoint; check its id",
    413: "the job is too large; put the source on S3 with --upload",
}


class Phase(StrEnum):
    """Where a job is; GONE: the endpoint knows it no longer, or ended it before it had a result."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


PHASES: Mapping[str, Phase] = {
    "IN_QUEUE": Phase.WAITING,
    "IN_PROGRESS": Phase.RUNNING,
    "RUNNING": Phase.RUNNING,
    "COMPLETED": Phase.ENDED,
    "FAILED": Phase.ENDED,
    "CANCELLED": Phase.ENDED,  # somebody meant it
}


@dataclass(frozen=True)
class Seen:
    """A job at one look: its progress while it runs, its output or error at the end; seconds on a worker if told."""

    phase: Phase
    output: Any = None
    error: str | None = None
    seconds: float | None = None


class Endpoint(Protocol):
    """Takes jobs; every call raises EndpointError when the endpoint refuses or stays away."""

    async def submit(self, job_input: Mapping[str, Any]) -> str: ...

    async def look(self, job_id: str) -> Seen: ...

    async def cancel(self, job_id: str) -> None: ...


class _Busy(Exception):
    """Not now: `after` is the endpoint's Retry-After in seconds."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    after = error.after if isinstance(error, _Busy) else 0.0
    return max(min(after, LONGEST_WAIT_S), BACK_OFF(state))


class _Line:
    """One HTTP client. A 429 holds back every request of it: the limit is the endpoint's, not the job's."""

    def __init__(self, url: str, key: str | None, tries: int, read_s: float | None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S, read=read_s, pool=None)
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout)
        self._tries = tries
        self._held_until = 0.0

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, method: str, path: str, body: Any = None) -> Any | None:
        """The JSON answer, None for 404; raises EndpointError."""
        trying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_Busy),
            wait=_wait,
            stop=tenacity.stop_after_attempt(self._tries),
            reraise=True,
        )
        try:
            return await trying(self._once, method, path, body)
        except _Busy as error:
            message = f"{self.url} {error}, {self._tries} times; the same command again goes on"
            raise EndpointError(Code.ENDPOINT_UNAVAILABLE, message) from error

    async def _once(self, method: str, path: str, body: Any) -> Any | None:
        while (left := self._held_until - time.monotonic()) > 0:
            await asyncio.sleep(left)
        try:
            response = await self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            raise _Busy(f"cannot be reached ({type(error).__name__})") from error
        if response.status_code in (408, 425, 429) or response.status_code >= 500:
            after = _seconds(response.headers.get("Retry-After"))
            if response.status_code == 429:
                self._held_until = time.monotonic() + min(after, LONGEST_WAIT_S)
            raise _Busy(f"answers {response.status_code}", after)
        if response.status_code == 404:
            return None
        if response.is_error:
            advice = ADVICE.get(response.status_code, response.text[:200])
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self.url} answers {response.status_code}: {advice}")
        try:
            return response.json()
        except ValueError:
            raise _Busy("answers something that is no JSON") from None


def _seconds(retry_after: str | None) -> float:
    """Of a Retry-After in seconds; a date, which nobody here sends, counts as none."""
    try:
        return max(float(retry_after or 0), 0.0)
    except ValueError:
        return 0.0


class RunPod:
    """An endpoint of RunPod's queue: /run, /status, /cancel."""

    def __init__(self, endpoint: str, key: str | None, execution_s: float, tries: int = 8) -> None:
        """`endpoint` is an id or a whole address. A job that runs longer than `execution_s` is ended by RunPod."""
        url = endpoint if "://" in endpoint else f"{RUNPOD}/{endpoint}"
        self._line = _Line(url, key, tries, READ_S)
        self._policy = {"executionTimeout": round(execution_s * 1000)}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._line.close()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        answer = await self._line.ask("POST", "/run", {"input": job_input, "policy": self._policy})
        if answer is None or not isinstance(answer.get("id"), str):
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self._line.url}: {ADVICE[404]}")
        return str(answer["id"])

    async def look(self, job_id: str) -> Seen:
        answer = await self._line.ask("GET", f"/status/{job_id}")
        return seen(answer) if answer is not None else Seen(Phase.GONE, error="the endpoint knows the job no longer")

    async def cancel(self, job_id: str) -> None:
        await self._line.ask("POST", f"/cancel/{job_id}")


def seen(answer: Mapping[str, Any]) -> Seen:
    """What a status says; an error may stand beside the output or, as a result's field, inside it."""
    status, output = str(answer.get("status")), answer.get("output")
    phase = PHASES.get(status, Phase.GONE)
    error = answer.get("error")
    if phase is Phase.GONE:
        error = f"the endpoint ended the job: {status}"
    elif status == "CANCELLED":
        error = f"{Code.JOB_LOST}: the job was cancelled at the endpoint"
    elif status == "FAILED" and not error:
        error = f"{Code.INTERNAL}: the job failed without a word"
    elif status == "COMPLETED" and not isinstance(output, dict):
        # A result that was too large is COMPLETED without output (runpod-python #309).
        phase, error = Phase.GONE, "the endpoint lost the job's result"
    spent = answer.get("executionTime")
    seconds = spent / 1000 if isinstance(spent, int | float) else None
    return Seen(phase, output, None if error is None else str(error), seconds)


class LocalApi:
    """`handler.py --rp_serve_api`: its /run runs nothing, so jobs wait in /runsync and tell no progress."""

    def __init__(self, url: str, tries: int = 8) -> None:
        self._line = _Line(url, None, tries, None)  # a job takes as long as it takes
        self._jobs: dict[str, asyncio.Task[Seen]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job_id in self._jobs:
            await self.cancel(job_id)
        await self._line.close()

    async def submit(self, job_input: Mapping[str, Any]) -> str:
        job_id = f"local-{uuid4().hex}"  # its own for ever: a ledger remembers it beyond this process
        self._jobs[job_id] = asyncio.create_task(self._run(job_input))
        return job_id

    async def _run(self, job_input: Mapping[str, Any]) -> Seen:
        began = time.monotonic()
        answer = await self._line.ask("POST", "/runsync", {"input": job_input})
        if answer is None:
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self._line.url}: no worker's local API; see --rp_serve_api")
        return seen({**answer, "executionTime": 1000 * (time.monotonic() - began)})

    async def look(self, job_id: str) -> Seen:
        job = self._jobs.get(job_id)
        if job is None:
            return Seen(Phase.GONE, error="of an earlier run")
        return await job if job.done() else Seen(Phase.RUNNING)

    async def cancel(self, job_id: str) -> None:
        if job := self._jobs.get(job_id):
            job.cancel()
            with suppress(asyncio.CancelledError, EndpointError):
                await job
