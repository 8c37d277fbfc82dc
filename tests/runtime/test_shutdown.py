"""Work that has to end: at a job's deadline, or within the grace period of a shutdown."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.simulated_time import simulated
from twopass.errors import Code, OutOfTime
from twopass.runtime.shutdown import Shutdown


def deadline_in(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def work(shutdown: Shutdown, deadline: float | None, duration_s: float = 5) -> Code | None:
    """Start new work that takes `duration_s`; returns the code with which it was cut off, None if it completed."""
    try:
        async with shutdown.start_work(deadline):
            await asyncio.sleep(duration_s)
    except OutOfTime as end:
        return end.code
    return None


@simulated
async def test_work_is_cut_off_at_its_deadline() -> None:
    """Work that takes longer than its deadline is cut off with DEADLINE; other work completes."""
    assert await work(Shutdown(), deadline_in(0.05)) is Code.DEADLINE
    assert await work(Shutdown(), deadline_in(5), duration_s=0) is None
    assert await work(Shutdown(), None, duration_s=0) is None


@simulated
async def test_no_work_starts_during_a_shutdown() -> None:
    """Once the shutdown has begun, no new work starts, however short it is and however long the grace period."""
    shutdown = Shutdown()
    shutdown.begin(60)

    assert await work(shutdown, None, duration_s=0) is Code.SHUTDOWN


@simulated
async def test_running_work_has_the_grace_period_to_complete() -> None:
    """Running work that completes within the grace period is kept; longer work is cut off, even without a deadline."""
    shutdown = Shutdown()
    short, long = (asyncio.create_task(work(shutdown, None, duration_s)) for duration_s in (0.05, 5))
    await asyncio.sleep(0)

    shutdown.begin(0.2)

    assert [await short, await long] == [None, Code.SHUTDOWN]


@simulated
async def test_the_earlier_of_deadline_and_grace_period_counts() -> None:
    """A deadline before the end of the grace period cuts off with DEADLINE; a later one does not delay the shutdown."""
    shutdown = Shutdown()
    early, late = (asyncio.create_task(work(shutdown, deadline_in(seconds))) for seconds in (0.05, 10))
    await asyncio.sleep(0)

    shutdown.begin(0.2)

    assert [await early, await late] == [Code.DEADLINE, Code.SHUTDOWN]


@simulated
async def test_a_second_signal_does_not_extend_the_grace_period() -> None:
    """Only the first shutdown counts, because platforms may send SIGTERM more than once."""
    shutdown = Shutdown()
    running = asyncio.create_task(work(shutdown, None))
    await asyncio.sleep(0)
    shutdown.begin(0.05)
    shutdown.begin(60)

    assert await running is Code.SHUTDOWN


@simulated
async def test_started_work_may_be_finished_during_a_shutdown() -> None:
    """A document whose pages are read is still assembled after the shutdown has begun, within the grace period."""
    shutdown = Shutdown()
    shutdown.begin(0.05)

    async with shutdown.finish_work():
        pass
    with pytest.raises(OutOfTime, match="SHUTDOWN"):
        async with shutdown.finish_work():
            await asyncio.sleep(5)


@simulated
async def test_a_timeout_inside_the_work_is_raised_unchanged() -> None:
    """A TimeoutError that the work itself raises is not reported as a passed deadline."""
    with pytest.raises(TimeoutError):
        async with Shutdown().start_work(deadline_in(5)):
            raise TimeoutError


@simulated
async def test_cancelled_work_is_cancelled() -> None:
    """A cancellation by the platform is raised as such and not as a passed deadline."""
    running = asyncio.create_task(work(Shutdown(), deadline_in(5)))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
