"""The intake: how many documents of a job are open at once, by their pages and bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.intake import FETCHES, LEAST_OPEN, Arrival, taken_in
from twopass.window import Window, windowed

PLACES, ROOM = 20, 1000


@dataclass
class Shelf:
    """Documents of so many pages and bytes; none of their pages is read before `go`."""

    pages: int
    size: int = 1
    go: asyncio.Event = field(default_factory=asyncio.Event)
    window: Window = field(default_factory=lambda: Window(PLACES))
    begun: list[int] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    async def read(self, number: int, arrival: Arrival) -> int:
        self.begun.append(number)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0)
        arrival.found(self.pages, self.size)

        async def page(_: int) -> None:
            await self.go.wait()
            arrival.page_read()

        await windowed(page, range(self.pages), self.window, "job")
        self.open -= 1
        return number


async def _until_all_wait() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("pages", "size", "most_open"),
    [
        (1, 1, PLACES),  # one page each: as many as places
        (5, 1, PLACES // 5 + LEAST_OPEN),
        (100, 1, LEAST_OPEN),  # more pages than places: the next one only is fetched
        (0, 1, PLACES),  # nothing to read in them, and yet they end some time
        (1, ROOM // 2, LEAST_OPEN),  # the disk is full of them
    ],
)
async def test_documents_begin_until_their_pages_fill_the_places(pages: int, size: int, most_open: int) -> None:
    """Of small ones many are open, of large ones few; in the end all are read, and told in their order."""
    shelf = Shelf(pages, size)
    running = asyncio.create_task(taken_in(shelf.read, range(50), PLACES, ROOM))
    await _until_all_wait()

    if pages:
        assert shelf.window.in_flight == min(PLACES, pages * len(shelf.begun))
    assert LEAST_OPEN <= shelf.most_open <= most_open
    shelf.go.set()
    assert await running == list(range(50))
    assert shelf.begun == list(range(50))


async def test_few_are_fetched_at_once_until_it_is_known_how_large_they_are() -> None:
    """Before the first is there two; then more with each, and never more than a store likes to be asked."""
    fetching, most = list[asyncio.Event](), list[int]()

    async def read(number: int, arrival: Arrival) -> None:
        there = asyncio.Event()
        fetching.append(there)
        await there.wait()
        arrival.found(1, 1)

    running = asyncio.create_task(taken_in(read, range(100), 500, ROOM))
    while not running.done():
        await _until_all_wait()
        most.append(len(fetching))
        fetching.pop(0).set()
        await _until_all_wait()

    assert most[0] == LEAST_OPEN
    assert max(most) == FETCHES


async def test_the_next_begins_when_the_pages_of_the_last_run_out() -> None:
    """Not at its end: its assembling and uploads need no place."""
    ends, begun = asyncio.Event(), list[int]()

    async def read(number: int, arrival: Arrival) -> None:
        begun.append(number)
        arrival.found(PLACES, 1)
        for _ in range(PLACES - 1):
            arrival.page_read()
        await ends.wait()

    running = asyncio.create_task(taken_in(read, range(10), PLACES, ROOM))
    await _until_all_wait()

    assert begun == list(range(10))  # each holds one page, which leaves places for more
    ends.set()
    await running


async def test_what_cannot_be_fetched_keeps_nobody_out() -> None:
    """A job that names a hundred missing objects asks for many at once."""
    begun = 0

    async def read(_: int, arrival: Arrival) -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)

    await taken_in(read, range(100), PLACES, ROOM)

    assert begun == 100


async def test_the_first_failure_cancels_the_rest() -> None:
    """And it is raised as it is; what had not begun never does."""
    begun, ended = 0, 0

    async def read(number: int, _: Arrival) -> None:
        nonlocal begun, ended
        begun += 1
        try:
            if number == 1:
                raise OSError("gone")
            await asyncio.sleep(60)
        finally:
            ended += 1

    with pytest.raises(OSError, match="gone"):
        await taken_in(read, range(100), PLACES, ROOM)

    assert begun == ended == LEAST_OPEN


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 800), st.floats(0, 0.002)), max_size=12))
def test_all_are_read_whatever_their_size(shelf: list[tuple[int, int, float]]) -> None:
    """No mixture of sizes and delays makes the intake wait for ever, and the order is kept."""
    window = Window(PLACES)

    async def read(told: tuple[int, tuple[int, int, float]], arrival: Arrival) -> int:
        number, (pages, size, delay) = told
        await asyncio.sleep(delay)
        if pages + size:
            arrival.found(pages, size)

        async def page(_: int) -> None:
            await asyncio.sleep(delay / 10)
            arrival.page_read()

        await windowed(page, range(pages), window, "job")
        return number

    async def run() -> list[int]:
        async with asyncio.timeout(60):
            return await taken_in(read, enumerate(shelf), PLACES, ROOM)

    assert asyncio.run(run()) == list(range(len(shelf)))
