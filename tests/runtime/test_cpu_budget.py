"""Budgets of processor time for calls that belong together."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests import ROOT
from twopass.errors import Code, WorkerDied
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.cpu_budget import WALL_FACTOR, StepTimeout, limit_cpu_time, limit_share, limit_step
from twopass.runtime.page_pool import PagePool, cpu_time_callback, watch_slow_calls


def wait_for(path: Path) -> None:
    """Wait until the file exists, without using the processor."""
    while not path.exists():
        time.sleep(0.05)


def spin(seconds: float) -> float:
    """Use so many seconds of processor time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return seconds


@pytest.fixture(scope="module")
async def page_pool() -> AsyncIterator[PagePool]:
    """One page worker; a call is slow after a tenth of a second."""
    buffers = PixelBufferPool(1, 1)
    page_pool = PagePool(1, buffers, timeout_s=60.0, slow_call_s=0.1)
    await page_pool.open()
    yield page_pool
    await page_pool.close()
    buffers.close()


async def test_a_call_that_uses_too_much_processor_time_is_ended(page_pool: PagePool) -> None:
    """A call is killed at its limit of processor time, with RENDER_TIMEOUT, and charges what it has used."""
    with limit_cpu_time(0.3) as budget, pytest.raises(WorkerDied) as caught:
        await page_pool.call(spin, 30.0)

    assert caught.value.code is Code.RENDER_TIMEOUT
    assert -5.0 < budget.remaining_s <= 0


async def test_the_time_of_a_killed_call_is_reported(page_pool: PagePool) -> None:
    """The processor time of a call that is killed reaches the callback, too: timings leave nothing out."""
    seconds: list[float] = []
    token = cpu_time_callback.set(seconds.append)
    with limit_cpu_time(0.5), pytest.raises(WorkerDied):
        await page_pool.call(spin, 30.0)
    cpu_time_callback.reset(token)

    assert len(seconds) == 1 and 0 < seconds[0] < 10


async def test_waiting_uses_no_processor_time(page_pool: PagePool) -> None:
    """A call that waits longer than its limit is not ended: on a busy host, ordinary calls wait."""
    with limit_cpu_time(2.0) as budget:
        await page_pool.call(time.sleep, 2.5)

    assert budget.remaining_s > 0


async def test_a_blocked_call_is_ended_after_several_times_its_limit(page_pool: PagePool) -> None:
    """A call that is blocked for good uses no processor; its elapsed time counts at a fraction and ends it."""
    began = time.monotonic()
    with limit_cpu_time(0.2), pytest.raises(WorkerDied) as caught:
        await page_pool.call(time.sleep, 600.0)

    assert caught.value.code is Code.RENDER_TIMEOUT
    assert time.monotonic() - began >= 0.2 * WALL_FACTOR


async def test_calls_share_the_budget_around_them(page_pool: PagePool) -> None:
    """What one call has used is missing for the next one; a spent budget starts no further call."""
    with limit_cpu_time(1.2) as budget:  # 6 s of elapsed time, which the first call does not take on a busy host
        await page_pool.call(spin, 0.1)
        with pytest.raises(WorkerDied):
            await page_pool.call(spin, 30.0)
        spent = budget.remaining_s
        with pytest.raises(WorkerDied):
            await page_pool.call(os.getpid)

    assert budget.remaining_s == spent <= 0
    assert await page_pool.call(spin, 0.0) == 0.0


async def test_a_share_of_a_budget_leaves_the_rest_for_a_fallback(page_pool: PagePool) -> None:
    """A call that uses up its share is ended, and the fallback has the rest."""
    with limit_cpu_time(2.0):
        with limit_share(0.2), pytest.raises(WorkerDied):
            await page_pool.call(spin, 30.0)

        assert await page_pool.call(spin, 0.1) == 0.1


async def test_a_separate_budget_does_not_count_against_the_one_around_it(page_pool: PagePool) -> None:
    """A budget that is not nested has its own time, also where the one around it is spent."""
    with limit_cpu_time(0.0) as spent, limit_cpu_time(5.0, nested=False):
        await page_pool.call(spin, 0.1)

    assert spent.remaining_s == 0.0


async def test_a_slow_call_does_not_hold_up_others(page_pool: PagePool) -> None:
    """The only page worker has a slow call: a substitute takes the calls behind it, and its caller is told."""
    slow: list[bool] = []
    with watch_slow_calls(lambda: slow.append(True)):
        hung = asyncio.create_task(page_pool.call(time.sleep, 600.0))
    await asyncio.sleep(0)  # it takes the only page worker
    async with asyncio.timeout(60):
        await page_pool.call(spin, 0.0)

    assert slow == [True] and not hung.done()
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
    assert await page_pool.call(spin, 0.0) == 0.0


async def test_a_page_worker_whose_substitute_was_not_needed_is_kept(page_pool: PagePool, tmp_path: Path) -> None:
    """After a slow call that nobody waited for, the same child takes the next call, with its libraries loaded."""
    child = await page_pool.call(os.getpid)

    with watch_slow_calls((tmp_path / "slow").touch):
        await page_pool.call(wait_for, tmp_path / "slow")

    assert await page_pool.call(os.getpid) == child


async def test_no_more_substitutes_are_started_than_there_are_page_workers(page_pool: PagePool) -> None:
    """A pool of one page worker has two at most, so that memory stays bounded."""
    slow: list[bool] = []
    with watch_slow_calls(lambda: slow.append(True)):
        hung = [asyncio.create_task(page_pool.call(time.sleep, 600.0)) for _ in range(2)]
    waiting = asyncio.create_task(page_pool.call(spin, 0.0))
    async with asyncio.timeout(60):
        while len(slow) < 2:
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)  # a third page worker would start at once

    assert len(page_pool._children) == 2 and not waiting.done()
    for call in hung:
        call.cancel()
    await asyncio.gather(*hung, return_exceptions=True)
    assert await waiting == 0.0


PARENT = """
import asyncio, time
from tests.runtime.test_cpu_budget import spin
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

async def main():
    page_pool = PagePool(1, PixelBufferPool(1, 1))
    await page_pool.open()
    print(next(iter(page_pool._children)).process.pid, flush=True)
    await page_pool.call(spin, 600.0)

asyncio.run(main())
"""


def test_page_workers_die_with_their_parent() -> None:
    """If the worker's process is killed, the kernel kills its page workers too, in the middle of a call."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        until = sum(child.cpu_times()[:2]) + 0.1
        while sum(child.cpu_times()[:2]) < until:  # until it is in the middle of its call
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)
        parent.wait()

        psutil.wait_procs([child], timeout=30)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the limit may end Hypothesis's GC hook
def test_a_step_that_takes_too_long_is_interrupted() -> None:
    """A step is interrupted at its limit of processor time; afterwards nothing is interrupted."""
    with pytest.raises(StepTimeout), limit_step(0.2):
        spin(60.0)

    assert spin(0.3) == 0.3


def test_a_step_within_its_limit_is_not_interrupted() -> None:
    """A step that ends in time is not disturbed."""
    with limit_step(60.0):
        assert spin(0.01) == 0.01


def test_a_step_is_stopped_inside_a_callback_of_a_library() -> None:
    """Where a built-in function reports the exception of its callback as a SystemError, the step ends as any other."""
    with pytest.raises(StepTimeout), limit_step(60.0):
        raise SystemError("returned a result with an exception set") from StepTimeout()
    with pytest.raises(StepTimeout), limit_step(60.0):
        inner = SystemError("returned a result with an exception set")
        inner.__cause__ = StepTimeout()
        raise SystemError("a callback inside a callback") from inner
    with pytest.raises(SystemError, match="another"), limit_step(60.0):
        raise SystemError("another")
