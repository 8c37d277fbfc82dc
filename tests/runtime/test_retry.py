"""Retry policies: attempts, pauses, budgets, and which errors are retried."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from twopass.errors import Code, WorkerDied
from twopass.runtime import retry
from twopass.runtime.retry import Backoff, Busy, RetryPolicy

THREE = RetryPolicy(attempts=3)


class Flaky:
    """A call that raises its errors one after the other and then returns 42. Remembers when it was called."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.times: list[float] = []

    def __call__(self) -> int:
        self.times.append(time.monotonic())
        if self._errors:
            raise self._errors.pop(0)
        return 42

    async def run(self) -> int:
        return self()

    @property
    def pauses(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def run_sync(policy: RetryPolicy, call: Flaky) -> int:
    return policy.run(call)


def run_on_a_loop(policy: RetryPolicy, call: Flaky) -> int:
    return asyncio.run(policy.run_async(call.run))


both_ways = pytest.mark.parametrize("run", [run_sync, run_on_a_loop])
Run = Callable[[RetryPolicy, Flaky], int]


@both_ways
def test_a_call_that_recovers_returns_its_value(run: Run) -> None:
    """A call that fails twice and then succeeds needs three attempts and returns its value."""
    call = Flaky(Busy("one"), Busy("two"))

    assert run(THREE, call) == 42
    assert len(call.times) == 3


@both_ways
def test_the_last_error_is_raised_when_attempts_run_out(run: Run) -> None:
    """After the last attempt the caller gets the call's own last error, not a wrapper."""
    call = Flaky(Busy("one"), Busy("two"), Busy("three"), Busy("four"))

    with pytest.raises(Busy, match="three"):
        run(THREE, call)
    assert len(call.times) == 3


@both_ways
def test_an_error_that_is_not_retryable_is_raised_at_once(run: Run) -> None:
    """Only the errors that the policy names are retried."""
    call = Flaky(ValueError("wrong"), Busy("never reached"))

    with pytest.raises(ValueError, match="wrong"):
        run(THREE, call)
    assert len(call.times) == 1


@both_ways
def test_fixed_delays_are_kept_and_the_last_one_repeats(run: Run) -> None:
    """Three pauses of a policy with two delays: the first, the second, and the second again."""
    call = Flaky(Busy("a"), Busy("b"), Busy("c"))

    run(RetryPolicy(attempts=4, delays=(0.01, 0.1)), call)

    first, *others = call.pauses
    assert first >= 0.01
    assert [pause >= 0.1 for pause in others] == [True, True]


@both_ways
def test_a_budget_ends_the_retries(run: Run) -> None:
    """Without a limit on attempts, no attempt follows once the budget is spent; a budget of 0 allows one attempt."""
    retried = Flaky(*(Busy(str(number)) for number in range(1000)))
    tried_once = Flaky(Busy("only"))

    with pytest.raises(Busy):
        run(RetryPolicy(delays=(0.6,), budget_s=0.5), retried)
    with pytest.raises(Busy, match="only"):
        run(RetryPolicy(budget_s=0.0), tried_once)

    assert len(retried.times) == 2
    assert len(tried_once.times) == 1


@both_ways
def test_a_pause_that_the_other_side_asks_for_is_honoured_up_to_its_limit(run: Run) -> None:
    """`retry_after_s` of a Busy error lengthens the pause, but never beyond the policy's limit."""
    call = Flaky(Busy("short", 0.1), Busy("a day", 86_400.0))

    run(replace(THREE, longest_retry_after_s=0.2), call)

    assert call.pauses[0] >= 0.1
    assert 0.2 <= call.pauses[1] < 60


@both_ways
def test_backoff_pauses_stay_below_their_limit(run: Run) -> None:
    """The limit doubles from the first to the longest pause; jitter only shortens a pause."""
    call = Flaky(*(Busy(str(number)) for number in range(4)))
    policy = RetryPolicy(attempts=5, delays=Backoff(0.01, 0.02))

    started = time.monotonic()
    run(policy, call)

    assert len(call.times) == 5
    assert time.monotonic() - started < 60


def test_a_stop_event_ends_a_pause_and_the_retries() -> None:
    """A thread in a pause of minutes makes one last attempt when the event is set, and ends with that error."""
    stop, call = threading.Event(), Flaky(Busy("down"), Busy("last"), Busy("never reached"))
    threading.Timer(0.05, stop.set).start()

    with pytest.raises(Busy, match="last"):
        RetryPolicy(delays=(600.0,)).run(call, stop)
    assert len(call.times) == 2


async def test_a_cancelled_call_is_not_repeated() -> None:
    """Cancelling the task ends the call and its retries."""
    calls = []

    async def hang() -> None:
        calls.append(1)
        await asyncio.sleep(600)

    task = asyncio.create_task(THREE.run_async(hang))
    await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == [1]


async def test_on_retry_sees_each_error_that_is_retried() -> None:
    """The callback gets an error before the next attempt, and not the one that is raised at the end."""
    seen: list[str] = []
    call = Flaky(Busy("one"), Busy("two"), Busy("three"))

    with pytest.raises(Busy, match="three"):
        await THREE.run_async(call.run, on_retry=lambda error: seen.append(str(error)))

    assert seen == ["one", "two"]


def test_tries_say_which_attempt_is_the_last() -> None:
    """A loop that handles its errors itself gets one flag for each attempt."""
    assert list(THREE.tries()) == [False, False, True]


def test_a_page_worker_that_dies_twice_is_not_called_a_third_time() -> None:
    """One death may be an accident; a second one is the call's fault."""
    call = Flaky(*(WorkerDied(Code.RENDER_CRASH, str(number)) for number in range(3)))

    with pytest.raises(WorkerDied, match="1"):
        retry.PAGE_WORKER_CALL.run(call)


def test_every_policy_ends() -> None:
    """No policy of the program repeats a call forever."""
    policies = {name: value for name, value in vars(retry).items() if isinstance(value, RetryPolicy)}

    assert len(policies) > 8
    assert all(policy.attempts < retry.UNLIMITED or policy.budget_s for policy in policies.values())
