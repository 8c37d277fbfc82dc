"""SharedExclusiveLock: many tasks may hold it together, or one alone."""

from __future__ import annotations

import asyncio

from twopass.engines.vllm.shared_lock import SharedExclusiveLock


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
