"""The window: how many pages are in flight, and whose."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.window import Window, windowed


@given(st.lists(st.floats(0, 0.003), max_size=12), st.integers(1, 5))
def test_order_is_kept_under_any_delays(delays: list[float], places: int) -> None:
    """Outcomes stand in the order of the items, whichever finishes first."""

    async def work(item: tuple[int, float]) -> int:
        await asyncio.sleep(item[1])
        return item[0]

    async def run() -> list[int]:
        return await windowed(work, enumerate(delays), Window(places), "job")

    assert asyncio.run(run()) == list(range(len(delays)))


async def test_no_more_than_the_window_is_in_flight() -> None:
    """A window of three never holds a fourth."""
    now = most = 0

    async def work(_: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    await windowed(work, range(20), Window(3), "job")

    assert most == 3


async def test_two_jobs_share_the_window_equally() -> None:
    """A small job beside a large one holds half of the places while both have pages."""
    window, order = Window(2), list[str]()

    async def work(owner: str) -> None:
        order.append(owner)
        await asyncio.sleep(0.001)

    await asyncio.gather(
        windowed(lambda _: work("large"), range(20), window, "large"),
        windowed(lambda _: work("small"), range(5), window, "small"),
    )

    assert order[:12].count("small") == 5


async def test_the_first_failure_is_raised_as_it_is_and_ends_the_rest() -> None:
    """A store that is gone ends the document at once, with its own error."""
    finished: list[int] = []

    async def work(item: int) -> None:
        if item == 1:
            raise LookupError("gone")
        await asyncio.sleep(5)
        finished.append(item)

    with pytest.raises(LookupError):
        await windowed(work, range(3), Window(3), "job")

    assert not finished
