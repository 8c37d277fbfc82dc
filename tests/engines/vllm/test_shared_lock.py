"""Who shares an engine, and who has it alone."""

from __future__ import annotations

import asyncio

from twopass.engines.vllm.shared_lock import Solitude


async def test_one_who_must_be_alone_is() -> None:
    """It waits for those inside, and who comes later waits for it."""
    solitude, order = Solitude(), list[str]()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def early() -> None:
        async with solitude.among():
            inside.set()
            await go_on.wait()
            order.append("early")

    async def lonely() -> None:
        async with solitude.alone():
            order.append("alone")
            await asyncio.sleep(0.05)
            order.append("alone still")

    async def late() -> None:
        async with solitude.among():
            order.append("late")

    tasks = [asyncio.create_task(early())]
    await inside.wait()
    tasks += [asyncio.create_task(lonely()), asyncio.create_task(lonely())]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(late())]
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)

    assert order[:3] == ["early", "alone", "alone still"]
    assert sorted(order[3:]) == ["alone", "alone still", "late"]
    assert order.index("alone still", 3) == order.index("alone", 3) + 1


async def test_who_gives_up_shuts_nobody_out() -> None:
    """A cancelled wait to be alone lets the others in again."""
    solitude, go_on = Solitude(), asyncio.Event()

    async def early() -> None:
        async with solitude.among():
            await go_on.wait()

    async def lonely() -> None:
        async with solitude.alone():
            raise AssertionError

    first = asyncio.create_task(early())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(lonely())
    await asyncio.sleep(0)
    waiting.cancel()

    async with asyncio.timeout(5), solitude.among():
        go_on.set()
    await first
