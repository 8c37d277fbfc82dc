"""A core's life: who may enter it, when it counts as hung, what its process gets, and why it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.simulated_time import simulated
from twopass.engines.vllm.core import SharedExclusiveLock, SilenceMonitor
from twopass.engines.vllm.core_process import set_variables
from twopass.engines.vllm.plugin.core_exit import ExitReport, OutOfMemoryHandler, report_no_graphs

MAX_WAIT_S = 30
BASE_S, FIRST_S, INTERVAL = 120.0, 300.0, 128


# ---- who may enter


@simulated
async def test_an_exclusive_holder_is_alone() -> None:
    """It waits for the current holders, and tasks that come later wait for it; two exclusive ones do not overlap."""
    lock, order = SharedExclusiveLock(), list[str]()
    is_inside, go_on = asyncio.Event(), asyncio.Event()

    async def early() -> None:
        async with lock.shared():
            is_inside.set()
            await go_on.wait()
            order.append("early")

    async def exclusive() -> None:
        async with lock.exclusive():
            order.append("exclusive begins")
            await asyncio.sleep(0.05)
            order.append("exclusive ends")

    async def late() -> None:
        async with lock.shared():
            order.append("late")

    tasks = [asyncio.create_task(early())]
    await is_inside.wait()
    tasks += [asyncio.create_task(exclusive()), asyncio.create_task(exclusive())]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(late())]
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)

    assert order[:3] == ["early", "exclusive begins", "exclusive ends"]
    assert sorted(order[3:]) == ["exclusive begins", "exclusive ends", "late"]
    assert order.index("exclusive ends", 3) == order.index("exclusive begins", 3) + 1


async def test_a_cancelled_exclusive_wait_lets_others_in() -> None:
    """After a task gives up waiting for exclusive access, shared holders are admitted again."""
    lock, go_on = SharedExclusiveLock(), asyncio.Event()

    async def early() -> None:
        async with lock.shared():
            await go_on.wait()

    async def exclusive() -> None:
        async with lock.exclusive():
            raise AssertionError

    first = asyncio.create_task(early())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(exclusive())
    await asyncio.sleep(0)
    waiting.cancel()

    async with asyncio.timeout(5), lock.shared():
        go_on.set()
    await first


# ---- when it is hung


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def monitor(clock: Clock) -> SilenceMonitor:
    return SilenceMonitor(BASE_S, FIRST_S, INTERVAL, clock)


def answer(silence: SilenceMonitor, clock: Clock, step_s: float, outputs: int = 4) -> None:
    """One prompt in an idle core, every step of which takes so long; its first output is one token."""
    silence.begin()
    since = None
    for tokens in [1] + [INTERVAL] * outputs:
        clock.now += tokens * step_s
        assert not silence.is_too_long()
        since = silence.record(tokens, since)


@pytest.mark.parametrize("step_s", [0.02, 0.5, 0.9, 2.0, 30.0])
def test_a_core_is_not_killed_between_two_outputs(step_s: float) -> None:
    """On a slow CPU 128 steps take longer than ENGINE_SILENCE_S; the first step shows how slow it is."""
    clock = Clock()
    silence = monitor(clock)

    answer(silence, clock, step_s, outputs=1)  # asserts that it is never too long


def test_a_fast_core_is_killed_after_the_limit_that_is_set() -> None:
    """With steps of a GPU the limit is ENGINE_SILENCE_S."""
    clock = Clock()
    silence = monitor(clock)
    answer(silence, clock, step_s=0.02)

    clock.now += BASE_S - 1
    before = silence.is_too_long()
    clock.now += 2

    assert (before, silence.is_too_long()) == (False, True)


def test_a_slow_core_that_hangs_is_killed_in_the_end() -> None:
    """After four times the time that its outputs took before."""
    clock = Clock()
    silence = monitor(clock)
    answer(silence, clock, step_s=2.0)
    assert silence.limit_s == 4 * INTERVAL * 2.0

    clock.now += silence.limit_s - 1
    before = silence.is_too_long()
    clock.now += 2

    assert (before, silence.is_too_long()) == (False, True)


def test_the_first_output_may_take_as_long_as_a_start() -> None:
    """Nothing is measured yet, and a new core compiles kernels."""
    clock = Clock()
    silence = monitor(clock)
    silence.begin()

    clock.now += FIRST_S - 1
    before = silence.is_too_long()
    clock.now += 2

    assert (before, silence.is_too_long()) == (False, True)


def test_an_idle_core_is_not_silent() -> None:
    """Time without prompts does not count."""
    clock = Clock()
    silence = monitor(clock)
    answer(silence, clock, step_s=0.02)
    clock.now += 10_000

    silence.begin()

    assert not silence.is_too_long()


def test_one_slow_step_is_forgotten() -> None:
    """A compilation of a minute does not raise the limit for good."""
    clock = Clock()
    silence = monitor(clock)
    silence.begin()
    clock.now += 60
    since = silence.record(1, None)
    slow = silence.limit_s

    for _ in range(200):
        clock.now += 1
        since = silence.record(INTERVAL, since)

    assert slow > 240
    assert silence.limit_s == BASE_S


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 500), st.booleans())))
def test_the_limit_is_never_below_the_one_that_is_set(outputs: list[tuple[float, int, bool]]) -> None:
    """Whatever is measured, and it is finite."""
    clock = Clock()
    silence = monitor(clock)
    since = None

    for seconds, tokens, is_first in outputs:
        clock.now += seconds
        since = silence.record(tokens, None if is_first else since)

    assert BASE_S <= silence.limit_s < float("inf")


# ---- what its process gets, and why it ended


def test_variables_are_set_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards the environment is as before, also after an error."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    with pytest.raises(ValueError), set_variables({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}):
        during = (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
        raise ValueError

    assert during == ("1", "PCI_BUS_ID")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("CUDA_DEVICE_ORDER")) == ("0,1", None)


def test_two_cores_never_get_the_variables_of_each_other() -> None:
    """A second start waits until the first has its process."""
    seen: list[str] = []

    def start(gpu: str) -> None:
        with set_variables({"CUDA_VISIBLE_DEVICES": gpu}):
            seen.append(os.environ["CUDA_VISIBLE_DEVICES"])

    with set_variables({"CUDA_VISIBLE_DEVICES": "0"}):
        other = threading.Thread(target=start, args=("1",))
        other.start()
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    other.join(MAX_WAIT_S)

    assert seen == ["0", "1"]


def test_each_engine_has_its_own_exit_report() -> None:
    """An engine that died is not told of the memory of another one's core."""
    first, second = ExitReport(), ExitReport()

    assert first.variables.keys() == second.variables.keys()
    assert first.variables != second.variables


def report_as_core(report: ExitReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process write into the report."""
    for name, value in report.variables.items():
        monkeypatch.setenv(name, value)


def log_end(error: Exception) -> None:
    """Log the exception that ends a core, as vLLM does."""
    OutOfMemoryHandler().emit(logging.LogRecord("vllm", logging.ERROR, "", 0, "died", None, (type(error), error, None)))


@pytest.mark.parametrize("message", ["CUDA out of memory", "operation not permitted when stream is capturing"])
def test_a_failed_capture_is_reported_whatever_the_error(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that the core logs afterwards does not replace the report; reading it clears it."""
    report = ExitReport()
    report_as_core(report, monkeypatch)

    @report_no_graphs()
    def capture() -> None:
        raise RuntimeError(message)

    for _ in range(2):  # once to measure the memory of graphs, once for those that stay
        with pytest.raises(RuntimeError) as caught:
            capture()
    log_end(caught.value)

    assert [report.pop_out_of_memory(), report.pop_no_graphs(), report.pop_no_graphs()] == [False, True, False]


def test_asking_for_graphs_keeps_a_report_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted core that runs out of memory as it starts is asked for its graphs first; the next one gets less."""
    report = ExitReport()
    report_as_core(report, monkeypatch)

    log_end(RuntimeError("CUDA out of memory"))

    assert [report.pop_no_graphs(), report.pop_out_of_memory(), report.pop_out_of_memory()] == [False, True, False]
