"""When work has to end: deadlines, and the worker's own end with its grace."""

from __future__ import annotations

import asyncio

import pytest

from twopass.errors import Code, OutOfTime
from twopass.runtime.shutdown import Shutdown


def soon(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def ended(closing: Shutdown, deadline: float | None, takes_s: float = 5) -> Code | None:
    """With which code the work was cut off; None when it came to its own end."""
    try:
        async with closing.before(deadline):
            await asyncio.sleep(takes_s)
    except OutOfTime as end:
        return end.code
    return None


async def test_a_deadline_cuts_off_what_takes_longer() -> None:
    """Work within its time is left alone."""
    assert await ended(Shutdown(), soon(0.05)) is Code.DEADLINE
    assert await ended(Shutdown(), soon(5), takes_s=0) is None
    assert await ended(Shutdown(), None, takes_s=0) is None


async def test_after_the_end_was_announced_nothing_begins() -> None:
    """Not even what would be quick, however long the grace."""
    closing = Shutdown()
    closing.announce(60)

    assert await ended(closing, None, takes_s=0) is Code.SHUTDOWN


async def test_what_is_under_way_has_the_grace_to_finish() -> None:
    """Of two, one is quick enough; the other is cut off, though it had no deadline of its own."""
    closing = Shutdown()
    quick, slow = (asyncio.create_task(ended(closing, None, takes)) for takes in (0.05, 5))
    await asyncio.sleep(0)

    closing.announce(0.2)

    assert [await quick, await slow] == [None, Code.SHUTDOWN]


async def test_the_earlier_end_counts() -> None:
    """A deadline before the grace is over is still the deadline; one after it is not waited for."""
    closing = Shutdown()
    early, late = (asyncio.create_task(ended(closing, soon(when))) for when in (0.05, 10))
    await asyncio.sleep(0)

    closing.announce(0.2)

    assert [await early, await late] == [Code.DEADLINE, Code.SHUTDOWN]


async def test_a_second_announcement_gives_no_more_time() -> None:
    """SIGTERM is sent again by impatient platforms."""
    closing = Shutdown()
    work = asyncio.create_task(ended(closing, None))
    await asyncio.sleep(0)
    closing.announce(0.05)
    closing.announce(60)

    assert await work is Code.SHUTDOWN


async def test_what_follows_from_finished_work_may_still_begin() -> None:
    """A document whose pages are all read is assembled after the announcement, within the grace."""
    closing = Shutdown()
    closing.announce(0.05)

    async with closing.finishing():
        pass
    with pytest.raises(OutOfTime, match="SHUTDOWN"):
        async with closing.finishing():
            await asyncio.sleep(5)


async def test_a_timeout_of_the_work_itself_stays_one() -> None:
    """Only our own clock makes an OutOfTime."""
    with pytest.raises(TimeoutError):
        async with Shutdown().before(soon(5)):
            raise TimeoutError


async def test_a_cancelled_work_is_cancelled() -> None:
    """A stop from the platform is no end of time."""
    work = asyncio.create_task(ended(Shutdown(), soon(5)))
    await asyncio.sleep(0)
    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        await work
