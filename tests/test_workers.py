"""Page workers and slabs: what a dying child costs, and who owns the memory."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

from twopass.errors import Code, SourceError, WorkerDied
from twopass.slabs import Pixels, Slab, Slabs
from twopass.steps import fetch
from twopass.workers import Workers, cpu_meter

PAGE = 30


@pytest.fixture
async def slabs() -> AsyncIterator[Slabs]:
    slabs = Slabs(2, budget=PAGE * 2)
    yield slabs
    slabs.close()


@pytest.fixture
async def workers(slabs: Slabs) -> AsyncIterator[Workers]:
    workers = Workers(1, slabs, timeout_s=1.0)
    await workers.open()
    yield workers
    await workers.close()


async def test_a_value_comes_back_from_another_process(workers: Workers) -> None:
    """A call runs in a child, not here."""
    assert await workers.call(os.getpid) != os.getpid()


async def test_a_coded_error_comes_through_whole(workers: Workers) -> None:
    """What a step raises in a child is raised here with its code."""
    with pytest.raises(SourceError) as caught:
        await workers.call(fetch.inspect, "/nowhere.pdf", "application/pdf", None, fetch.Limits(1, 1))

    assert caught.value.code is Code.DAMAGED


async def test_a_crash_costs_one_call(workers: Workers) -> None:
    """A child that dies is replaced alone; the next call is answered."""
    with pytest.raises(WorkerDied) as caught:
        await workers.call(os._exit, 1)

    assert caught.value.code is Code.RENDER_CRASH
    assert await workers.call(operator.add, 1, 2) == 3


async def test_a_call_that_hangs_is_killed(workers: Workers) -> None:
    """A call beyond its time ends with a code and the worker is usable again."""
    with pytest.raises(WorkerDied) as caught:
        await workers.call(time.sleep, 60.0)

    assert caught.value.code is Code.RENDER_TIMEOUT
    assert await workers.call(operator.add, 1, 2) == 3


async def test_a_cancelled_call_leaves_no_child_at_work(workers: Workers) -> None:
    """Cancelling kills the child that was at it, because it might write into a slab lent on."""
    before = await workers.call(os.getpid)
    call = asyncio.create_task(workers.call(time.sleep, 60.0))
    await asyncio.sleep(0.1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert await workers.call(os.getpid) != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


async def test_processor_seconds_reach_the_meter_of_the_caller(workers: Workers) -> None:
    """A child's processor time is told in the context that asked."""
    told: list[float] = []
    cpu_meter.set(told.append)

    await workers.call(sum, range(2_000_000))

    assert 0 < told[0] < 10


async def test_pixels_written_by_a_child_are_read_here(workers: Workers, slabs: Slabs) -> None:
    """A slab is one memory in both processes."""
    async with slabs.lend(PAGE) as slab:
        pixels = Pixels(5, 2, slab)
        pixels.array()[:] = 7
        total = await workers.call(np.sum, pixels.array())
        seen_there = await workers.call(Pixels.array, pixels)

    assert total == 7 * PAGE
    assert seen_there.tolist() == [[[7, 7, 7]] * 5] * 2


async def test_a_third_page_waits_until_the_budget_allows() -> None:
    """No more bytes are lent than the budget, first come first served."""
    slabs = Slabs(3, budget=PAGE * 2)
    order: list[str] = []

    async def use(name: str, seconds: float) -> None:
        async with slabs.lend(PAGE):
            order.append(name)
            await asyncio.sleep(seconds)

    await asyncio.gather(use("first", 0.02), use("second", 0.05), use("third", 0))
    slabs.close()

    assert order == ["first", "second", "third"]


async def test_a_page_beyond_the_budget_is_lent_alone(slabs: Slabs) -> None:
    """A page larger than the whole budget is not refused: it waits until nothing else is lent."""
    async with slabs.lend(PAGE * 10) as slab:
        assert isinstance(slab, Slab)


async def test_a_cancelled_wait_takes_nothing_with_it(slabs: Slabs) -> None:
    """Whoever stops waiting for a slab leaves it to the next."""
    async with slabs.lend(PAGE * 10):
        waiting = asyncio.create_task(slabs.lend(PAGE).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async with slabs.lend(PAGE * 10) as slab:
        assert slab
