"""HTTP requests to RunPod's job API, with retries and rate limits, and the status format of its answers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx

from twopass.errors import AnswerError, Code, EndpointError
from twopass.fleet.endpoints import answers
from twopass.fleet.endpoints.answers import StatusAnswer
from twopass.fleet.endpoints.interface import JobState, JobStatus
from twopass.runtime import retry
from twopass.runtime.retry import Busy, RetryPolicy

CONNECT_S, READ_S = 10.0, 60.0
MAX_ANSWER_BYTES = 64 << 20  # RunPod keeps results of up to 20 MB
ADVICE = {
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


class ApiClient:
    """One HTTP client. A 429 delays all of its requests: the limit is the endpoint's, not the job's."""

    def __init__(
        self,
        url: str,
        key: str | None,
        retry_policy: RetryPolicy = retry.ENDPOINT_REQUEST,
        read_s: float | None = READ_S,
    ) -> None:
        """`read_s` is the time limit for an answer, None for no limit."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S, read=read_s, pool=None)
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout)
        self._retry_policy = retry_policy
        self._blocked_until = 0.0

    async def close(self) -> None:
        await self._client.aclose()

    async def request(self, method: str, path: str, body: Any = None) -> bytes | None:
        """Return the answer, None for a 404; raises EndpointError."""
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
            if len(content) > MAX_ANSWER_BYTES:
                message = f"{self.url}: an answer is longer than {MAX_ANSWER_BYTES:,} bytes"
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
            advice = ADVICE.get(response.status_code, content[:200].decode(errors="replace"))
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
