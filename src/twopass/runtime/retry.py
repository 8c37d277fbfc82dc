"""Retry policies: how often a failing call is repeated and with which pauses. The program's policies are named here."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import tenacity

from twopass.errors import AnswerError, Code, WorkerDied

T = TypeVar("T")

UNLIMITED = sys.maxsize  # attempts; the budget ends the retries


class Busy(Exception):
    """The other side cannot serve a call now. `retry_after_s` is the pause it asks for, 0 when it names none."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, Busy)


def is_worker_death(error: BaseException) -> bool:
    """Whether a page worker died and may succeed in another attempt: it would use up its processor time again."""
    return isinstance(error, WorkerDied) and error.code is not Code.RENDER_TIMEOUT


def _is_answer_error(error: BaseException) -> bool:
    return isinstance(error, AnswerError)


@dataclass(frozen=True)
class Backoff:
    """Random pauses between 0 and a limit that doubles from `first_s` to `longest_s` (full jitter).

    Without the jitter, workers that failed together would all retry at the same moment.
    """

    first_s: float
    longest_s: float

    def draw(self, attempt: int) -> float:
        """Seconds to wait after this attempt; the first is 1."""
        doublings = min(attempt - 1, 60)  # a float would overflow at 1,024
        return random.uniform(0, min(self.first_s * 2**doublings, self.longest_s))


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed call is repeated.

    `attempts` counts the first call too. `delays` are the seconds between attempts: the last one repeats, and an
    empty tuple means no pause. After `budget_s` seconds no further attempt is planned; None: no limit.
    A pause that a Busy error asks for is honoured up to `longest_retry_after_s`.
    """

    attempts: int = UNLIMITED
    delays: tuple[float, ...] | Backoff = ()
    budget_s: float | None = None
    longest_retry_after_s: float = 0.0
    is_retryable: Callable[[BaseException], bool] = _is_busy

    def run(self, call: Callable[[], T], stop: threading.Event | None = None) -> T:
        """The call's value; raises its last error. Setting `stop` ends a pause; one last attempt follows."""
        stop = stop or threading.Event()
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self.is_retryable),
            stop=lambda state: self._is_exhausted(state) or stop.is_set(),
            wait=self._wait,
            sleep=tenacity.sleep_using_event(stop),
            reraise=True,
        )
        return retrying(call)

    async def run_async(
        self, call: Callable[[], Awaitable[T]], on_retry: Callable[[BaseException], None] | None = None
    ) -> T:
        """The call's value; raises its last error. `on_retry` gets the error before each further attempt."""

        async def attempt() -> T:
            return await call()

        def notify(state: tenacity.RetryCallState) -> None:
            if on_retry:
                on_retry(_get_error(state))

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(self.is_retryable),
            stop=self._is_exhausted,
            wait=self._wait,
            before_sleep=notify,
            reraise=True,
        )
        return await retrying(attempt)

    def shorten(self, budget_s: float | None) -> RetryPolicy:
        """The policy with at most this budget."""
        budgets = [budget for budget in (self.budget_s, budget_s) if budget is not None]
        return replace(self, budget_s=min(budgets, default=None))

    def tries(self) -> Iterator[bool]:
        """Yield for each attempt whether it is the last. For loops that decide themselves what to repeat."""
        for number in range(self.attempts):
            yield number + 1 == self.attempts

    def _is_exhausted(self, state: tenacity.RetryCallState) -> bool:
        if state.attempt_number >= self.attempts:
            return True
        return self.budget_s is not None and (state.seconds_since_start or 0.0) >= self.budget_s

    def delay(self, attempt: int) -> float:
        """Seconds to wait after this attempt; the first is 1. Random with a Backoff."""
        if isinstance(self.delays, Backoff):
            return self.delays.draw(attempt)
        return self.delays[min(attempt, len(self.delays)) - 1] if self.delays else 0.0

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = _get_error(state)
        requested = min(error.retry_after_s, self.longest_retry_after_s) if isinstance(error, Busy) else 0.0
        return max(requested, self.delay(state.attempt_number))


def _get_error(state: tenacity.RetryCallState) -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None  # only failed attempts are retried
    return error


ONCE = RetryPolicy(attempts=1)

# Stores. Only storage/ knows which errors are transient: it replaces `is_retryable`.
S3_REQUEST = RetryPolicy(attempts=2)  # within botocore, and for an object whose connection breaks while it is read
STORE_CALL = RetryPolicy(delays=Backoff(0.3, 10.0), budget_s=60.0)  # STORE_PATIENCE_S replaces the budget
STORE_PREPARE = RetryPolicy(delays=Backoff(0.3, 10.0), budget_s=10.0)  # the first call: the address may be wrong
S3_CONFLICT = RetryPolicy(attempts=5, delays=(0.05, 0.2, 0.8, 2.0))  # 409: another conditional PUT is under way

WEBHOOK = RetryPolicy(attempts=3, delays=(10.0,))  # of `twopass serve`; as RunPod does for jobs
HTTPS_SOURCE = RetryPolicy(attempts=3, delays=(0.3, 1.0))

OPENAI_REQUEST = RetryPolicy(attempts=8, delays=Backoff(0.5, 30.0), longest_retry_after_s=60.0)  # OPENAI_TRIES
DETECTOR_PAGE = RetryPolicy(attempts=2, is_retryable=is_worker_death)  # a page whose detector process died
VLLM_PROMPT = RetryPolicy(attempts=3)  # a prompt whose engine core died; the last attempt runs alone

PAGE = RetryPolicy(attempts=2, is_retryable=is_worker_death)  # a page whose page worker died
PAGE_WORKER_CALL = RetryPolicy(attempts=2, is_retryable=is_worker_death)  # one death may be an accident
SCRATCH_FOLDER = RetryPolicy(attempts=5)  # another worker may remove a folder as an orphan before it is locked
MANIFEST_WRITE = RetryPolicy(attempts=8)  # workers that finish one document at the same moment

ENDPOINT_REQUEST = RetryPolicy(attempts=8, delays=Backoff(0.5, 30.0), longest_retry_after_s=120.0)
ENDPOINT_ANSWER = RetryPolicy(attempts=3, delays=(0.5, 2.0), is_retryable=_is_answer_error)  # a proxy's page, once
FLEET_JOB = RetryPolicy(attempts=4, delays=(1.0,))  # attempts in a row that stored no new page
ACTOR_START = RetryPolicy(attempts=3, delays=(2.0, 10.0, 60.0))  # of a Ray actor; more attempts while others serve
