"""RunPod's job API: an endpoint with its queue, or the local API of one worker.

Requests are repeated while the other side is busy, and spread as RunPod's limits demand.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from twopass import locations
from twopass.errors import AnswerError, Code, EndpointError
from twopass.fleet.endpoints import answers
from twopass.fleet.endpoints.answers import StatusAnswer, SubmittedJob
from twopass.fleet.endpoints.interface import JobState, JobStatus, LocalJobs
from twopass.runtime import retry
from twopass.runtime.retry import Busy, RetryPolicy

_API_URL = "https://api.runpod.ai/v2"
# RunPod answers 1,000 requests to /run and 2,000 to /status in ten seconds, and 429 to more.
SUBMITS_PER_S, POLLS_PER_S = 90.0, 180.0
_CONNECT_S, _READ_S = 10.0, 60.0
_MAX_ANSWER_BYTES = 64 << 20  # RunPod keeps results of up to 20 MB
_ADVICE = {
    401: "check RUNPOD_API_KEY",
    403: "the key may not use this endpoint; check RUNPOD_API_KEY",
    404: "there is no such endpoint; check its id",
    413: "the job is too large; put the source on S3 with --upload",
}

STATES: Mapping[str, JobState] = {
    "IN_QUEUE": JobState.WAITING,
    "IN_PROGRESS": JobState.RUNNING,
    "RUNNING": JobState.RUNNING,
    "COMPLETED": JobState.ENDED,
    "FAILED": JobState.ENDED,
    "CANCELLED": JobState.ENDED,  # on purpose, so it is not sent again
    "TIMED_OUT": JobState.GONE,
}


class RunPod:
    """An endpoint of RunPod's queue."""

    def __init__(
        self,
        endpoint: str,
        key: str | None,
        execution_s: float,
        answer_policy: RetryPolicy = retry.ENDPOINT_ANSWER,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`endpoint` is an id or a complete address. RunPod ends a job that runs longer than `execution_s`.

        `answer_policy` is for polls whose answer cannot be parsed. `transport` sends the requests; None: over HTTP.
        """
        self._answer_policy = answer_policy
        url = endpoint if locations.is_uri(endpoint) else f"{_API_URL}/{endpoint}"
        self._api = _ApiClient(url, key, transport=transport)
        self._submit_pace, self._poll_pace = Pace(SUBMITS_PER_S), Pace(POLLS_PER_S)
        self._policy = {"executionTimeout": round(execution_s * 1000)}

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

    async def _send(self, path: str, job_input: Mapping[str, Any]) -> bytes:
        return self._require(await self._api.request("POST", path, {"input": job_input, "policy": self._policy}))

    def _require(self, answer: bytes | None) -> bytes:
        """The answer; raises EndpointError if there is no such endpoint."""
        if answer is None:
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self.url}: {_ADVICE[404]}")
        return answer

    def _parse_id(self, answer: bytes) -> str:
        """The id of a job that was sent. It is not sent again if that fails: there may be a job all the same."""
        return answers.parse(SubmittedJob, answer, f"{self.url}: the answer to a job that was sent").id

    async def poll(self, job_id: str) -> JobStatus:
        return await self._answer_policy.run_async(partial(self._poll_once, job_id))

    async def _poll_once(self, job_id: str) -> JobStatus:
        await self._poll_pace.wait()
        answer = await self._api.request("GET", f"/status/{quote(job_id, safe='')}")
        if answer is None:
            return JobStatus(JobState.GONE, error="the endpoint does not know the job any more")
        return parse_status(answer)

    async def cancel(self, job_id: str) -> None:
        await self._api.request("POST", f"/cancel/{quote(job_id, safe='')}")


class LocalApi:
    """A worker's local API, `handler.py --rp_serve_api`. It holds one open request for each job.

    Its /run does not run anything, so jobs are sent to /runsync, which reports no progress. They end with the `with`
    block.
    """

    def __init__(self, url: str, retry_policy: RetryPolicy = retry.ENDPOINT_REQUEST) -> None:
        self._api = _ApiClient(url, None, retry_policy, read_s=None)  # the answer comes when the job has ended
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
        return replace(parse_status(answer), seconds=time.monotonic() - started)

    async def poll(self, job_id: str) -> JobStatus:
        return await self._jobs.find_end(job_id) or JobStatus(JobState.RUNNING)

    async def cancel(self, job_id: str) -> None:
        await self._jobs.cancel(job_id)


class Pace:
    """Spreads calls: none waits while they are few, and no more than `per_s` begin in a second."""

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._next = 0.0

    async def wait(self) -> None:
        """Wait for the turn of a call."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next)
        self._next = turn + self._interval_s
        if turn > now:
            await asyncio.sleep(turn - now)


class _ApiClient:
    """One HTTP client. A 429 delays all of its requests: the limit is the endpoint's, not the job's."""

    def __init__(
        self,
        url: str,
        key: str | None,
        retry_policy: RetryPolicy = retry.ENDPOINT_REQUEST,
        read_s: float | None = _READ_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`read_s` is the time limit for an answer, None for no limit."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(_READ_S, connect=_CONNECT_S, read=read_s, pool=None)
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout, transport=transport)
        self._retry_policy = retry_policy
        self._blocked_until = 0.0

    async def close(self) -> None:
        await self._client.aclose()

    async def request(self, method: str, path: str, body: Any = None) -> bytes | None:
        """The answer, None for a 404; raises EndpointError."""
        try:
            return await self._retry_policy.run_async(partial(self._request_once, method, path, body))
        except Busy as error:
            message = f"{self.url} {error}, {self._retry_policy.attempts} times; repeat the command to continue"
            raise EndpointError(Code.ENDPOINT_UNAVAILABLE, message) from error

    async def _request_once(self, method: str, path: str, body: Any) -> bytes | None:
        while (remaining := self._blocked_until - time.monotonic()) > 0:
            await asyncio.sleep(remaining)
        try:
            async with self._client.stream(method, path, json=body) as response:
                return self._check(response, await self._read(response))
        except httpx.TransportError as error:
            raise Busy(f"cannot be reached ({type(error).__name__})") from error
        except httpx.DecodingError as error:
            raise AnswerError(Code.ENDPOINT_ANSWER, f"{self.url}: the answer cannot be decompressed: {error}") from None

    async def _read(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > _MAX_ANSWER_BYTES:
                message = f"{self.url}: an answer is longer than {_MAX_ANSWER_BYTES:,} bytes"
                raise AnswerError(Code.ENDPOINT_ANSWER, message)
        return bytes(content)

    def _check(self, response: httpx.Response, content: bytes) -> bytes | None:
        """The content of a successful answer, None for a 404; raises Busy or EndpointError."""
        if response.status_code in (408, 425, 429) or response.status_code >= 500:
            retry_after_s = _parse_retry_after(response.headers.get("Retry-After"))
            if response.status_code == 429:
                pause_s = min(retry_after_s, self._retry_policy.longest_retry_after_s)
                self._blocked_until = time.monotonic() + pause_s
            raise Busy(f"answers {response.status_code}", retry_after_s)
        if response.status_code == 404:
            return None
        if response.is_error:
            advice = _ADVICE.get(response.status_code, content[:200].decode(errors="replace"))
            raise EndpointError(Code.ENDPOINT_DENIED, f"{self.url} answers {response.status_code}: {advice}")
        return content


def _parse_retry_after(header: str | None) -> float:
    """The seconds of a Retry-After header; 0 without one, or for a date, which RunPod does not send."""
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def parse_status(answer: Any) -> JobStatus:
    """Parse a status answer, JSON or an object; raises AnswerError. A state that is not known may be an open job's."""
    parsed = answers.parse(StatusAnswer, answer, "the job's status")
    status, output = parsed.status, parsed.output
    state = STATES.get(status)
    if state is None:
        raise AnswerError(Code.ENDPOINT_ANSWER, f"the job's status cannot be parsed: {status[:50]!r} is unknown")
    error = None if parsed.error is None else str(parsed.error)
    if state is JobState.GONE:
        error = f"the endpoint ended the job: {status}"
    elif status == "CANCELLED":
        error = f"{Code.JOB_LOST}: the job was cancelled at the endpoint"
    elif status == "FAILED" and not error:
        error = f"{Code.INTERNAL}: the job failed without an error message"
    elif status == "COMPLETED" and output is None:
        # A result that was too large is COMPLETED without output (runpod-python #309).
        state, error = JobState.GONE, "the endpoint lost the job's result"
    return JobStatus(state, output, error, _to_seconds(parsed.executionTime), _to_seconds(parsed.delayTime))


def _to_seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
