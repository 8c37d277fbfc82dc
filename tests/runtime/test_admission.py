"""The intake: which documents of a job are fetched, and which begun, by their pages and bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.runtime.admission import ENDING, FETCHES, LEAST_FETCHES, Arrival, Room, taken_in
from twopass.runtime.page_slots import PageSlots, windowed

PLACES, LARGEST = 20, 1000
WAITING = PLACES // 4  # pages


def room(free: int = 1 << 40, places: int = PLACES) -> Room:
    return Room(places, LARGEST, lambda: free)


@dataclass
class Shelf:
    """Documents as (pages, bytes): fetched at `let`, their pages read at `go`, ended at `end`."""

    documents: Sequence[tuple[int, int]]
    room: Room = field(default_factory=room)
    let: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    counts: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.window = PageSlots(self.room.places)
        self.let.set()
        self.end.set()

    async def __aenter__(self) -> Shelf:
        self.running = asyncio.create_task(taken_in(self.read, range(len(self.documents)), self.room))
        await self.settled()
        return self

    async def __aexit__(self, *error: object) -> None:
        for event in (self.let, self.go, self.end):
            event.set()
        async with asyncio.timeout(60):
            assert await self.running == list(range(len(self.documents)))

    async def settled(self) -> None:
        """Until everybody waits for something."""
        for _ in range(500):
            await asyncio.sleep(0)

    async def read(self, number: int, arrival: Arrival) -> int:
        pages, size = self.documents[number]
        self._count("fetching", 1)
        await self.let.wait()
        self._count("fetching", -1)
        self._count("bytes", size)
        arrival.fetched(size)
        await arrival.begin(pages)
        self._count("begun", 1)
        self._count("books", pages > self.room.places)
        left = pages

        async def page(_: int) -> None:
            nonlocal left
            await self.go.wait()
            arrival.page_read()
            left -= 1
            self._count("books", -(left == self.room.places))

        await windowed(page, range(pages), self.window, "job")
        await self.end.wait()
        self._count("bytes", -size)
        return number

    def _count(self, name: str, change: int) -> None:
        self.counts[name] += change
        self.most[name] = max(self.most[name], self.counts[name])


@pytest.mark.parametrize(
    ("pages", "begun", "ahead"),
    [
        (1, PLACES, WAITING),  # one page each: as many as there are places, and a few behind them
        (5, 4, 1),
        (7, 3, 1),
        (100, 1, 1),  # a book fills the places alone; the next one is fetched
    ],
)
async def test_documents_begin_until_their_pages_fill_the_places(pages: int, begun: int, ahead: int) -> None:
    """Of small ones many are open, of large ones few, and the places are full."""
    async with Shelf([(pages, 1)] * 60) as shelf:
        assert shelf.window.in_flight == PLACES
        assert shelf.counts["begun"] == begun
        # Those that were being fetched when places filled up come on top.
        assert begun + ahead <= shelf.counts["bytes"] <= begun + ahead + FETCHES


async def test_books_behind_small_documents_begin_one_by_one() -> None:
    """However many were being fetched together: a window with ten books in it opens and closes their files by turns."""
    shelf = Shelf([(1, 1)] * 40 + [(100, 1)] * 20)
    shelf.go.set()
    async with shelf:
        await shelf.running

    assert shelf.counts["begun"] == 60
    assert shelf.most["books"] == 1


async def test_a_book_begins_when_the_last_ones_pages_run_out() -> None:
    """Not at its end, which needs no place."""
    turns: list[int] = []

    async def read(number: int, arrival: Arrival) -> None:
        arrival.fetched(1)
        await arrival.begin(100)
        turns.append(number)
        for _ in range(100 - PLACES):
            arrival.page_read()
        await asyncio.sleep(0.01)
        assert turns[-1] == number  # twenty are left, which is as many as there are places
        arrival.page_read()
        await asyncio.sleep(0.01)
        assert turns[-1] == number + 1 or number == 4
        for _ in range(PLACES - 1):
            arrival.page_read()

    await taken_in(read, range(5), room())

    assert turns == [0, 1, 2, 3, 4]


async def test_few_are_fetched_at_once_until_some_have_come() -> None:
    """Two, then one more with each that came, and never more than a store likes to be asked."""
    fetching, most = list[asyncio.Event](), list[int]()

    async def read(number: int, arrival: Arrival) -> None:
        there = asyncio.Event()
        fetching.append(there)
        await there.wait()
        arrival.fetched(1)
        await arrival.begin(1)

    running = asyncio.create_task(taken_in(read, range(100), room(places=500)))
    while not running.done():
        for _ in range(50):
            await asyncio.sleep(0)
        most.append(len(fetching))
        if fetching:
            fetching.pop(0).set()

    assert most[:3] == [LEAST_FETCHES, LEAST_FETCHES + 1, LEAST_FETCHES + 2]
    assert max(most) == FETCHES


@pytest.mark.parametrize(
    ("free", "most"), [(1 << 40, FETCHES), (5 * LARGEST, 5), (2 * LARGEST, LEAST_FETCHES), (0, LEAST_FETCHES)]
)
async def test_no_more_are_fetched_than_the_disk_could_hold_were_they_the_largest(free: int, most: int) -> None:
    """What comes is not known before. Two are open all the same, as a full disk is told by who meets it."""
    let = asyncio.Event()
    counts: Counter[str] = Counter()
    at_once = []

    async def read(number: int, arrival: Arrival) -> None:
        if number >= FETCHES:
            counts["fetching"] += 1
            at_once.append(counts["fetching"])
            await let.wait()
            counts["fetching"] -= 1
        arrival.fetched(1)
        await arrival.begin(1)

    running = asyncio.create_task(taken_in(read, range(100), room(free)))
    for _ in range(2000):
        await asyncio.sleep(0)
    assert max(at_once) == most
    let.set()
    await running


async def test_sources_that_fill_the_disk_keep_the_next_one_out() -> None:
    """Two of the largest do, and what is being fetched is taken for as large as what came."""
    async with Shelf([(1, LARGEST)] * 40) as shelf:
        assert shelf.counts["begun"] == 2
    assert shelf.most["bytes"] == 2 * LARGEST


async def test_only_so_many_documents_end_at_once() -> None:
    """Documents whose pages are read in no time and whose store is slow do not pile up."""
    shelf = Shelf([(1, 1)] * 200)
    shelf.go.set()
    shelf.end.clear()
    async with shelf:
        assert shelf.counts["begun"] <= ENDING + PLACES
        assert shelf.counts["begun"] >= ENDING


async def test_what_cannot_be_fetched_keeps_nobody_out() -> None:
    """A job that names a hundred missing objects asks for many of them at once."""
    let, begun = asyncio.Event(), 0

    async def read(number: int, arrival: Arrival) -> None:
        nonlocal begun
        begun += 1
        if number >= FETCHES:
            await let.wait()

    running = asyncio.create_task(taken_in(read, range(100), room()))
    for _ in range(500):
        await asyncio.sleep(0)
    assert begun == 2 * FETCHES
    let.set()
    await running


async def test_documents_of_one_name_are_read_one_after_the_other() -> None:
    """And keep nobody of another name out; all but the first are told that there was one."""
    known: set[str] = set()
    reading: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def read(name: str, arrival: Arrival) -> None:
        arrival.fetched(1)
        async with arrival.alone(name) as was_read:
            assert was_read == (name in known)
            known.add(name)
            await arrival.begin(1)
            reading[name] += 1
            most[name] = max(most[name], reading[name])
            most["all"] = max(most["all"], reading.total())
            await asyncio.sleep(0.001)
            reading[name] -= 1
            arrival.page_read()

    await taken_in(read, "aaaabbbb", room())

    assert most["a"] == most["b"] == 1 and most["all"] == 2


async def test_equal_documents_do_not_keep_others_from_being_fetched() -> None:
    """However many pages the one has that they wait for, and however many they are; but there is an end to that."""
    read_it, others, twins = asyncio.Event(), 0, 0

    async def read(name: str, arrival: Arrival) -> None:
        nonlocal others, twins
        arrival.fetched(1)
        twins += name == "book"
        async with arrival.alone(name):
            if name == "book":
                await read_it.wait()
            else:
                others += 1

    running = asyncio.create_task(taken_in(read, ["book"] * 40 + list(map(str, range(30))) + ["book"] * 200, room()))
    for _ in range(3000):
        await asyncio.sleep(0)
    assert others == 30
    assert 40 < twins <= PLACES + ENDING
    read_it.set()
    await running


async def test_who_gives_up_waiting_lets_the_next_one_by() -> None:
    """A deadline cuts off a document that waits for its turn; it goes on without, and those behind it come."""
    came = []

    async def read(number: int, arrival: Arrival) -> None:
        arrival.fetched(1)
        try:
            async with asyncio.timeout(0.02 if number == 1 else 60):
                await arrival.begin(100)
        except TimeoutError:
            came.append(f"{number} gave up")
            return
        came.append(str(number))
        await asyncio.sleep(0.05)

    await taken_in(read, range(3), room())

    assert came == ["0", "1 gave up", "2"]


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
        await taken_in(read, range(100), room())

    assert begun == ended == LEAST_FETCHES


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, LARGEST), st.floats(0, 0.002)), max_size=12),
    st.integers(1, PLACES),
    st.sampled_from((0, LARGEST, 1 << 40)),
)
def test_all_are_read_whatever_their_size(shelf: list[tuple[int, int, float]], places: int, free: int) -> None:
    """No mixture of sizes, delays and room makes the intake wait for ever, and the order of outcomes is kept."""
    window = PageSlots(places)

    async def read(told: tuple[int, tuple[int, int, float]], arrival: Arrival) -> int:
        number, (pages, size, delay) = told
        await asyncio.sleep(delay)
        if not pages + size:
            return number  # could not be fetched
        arrival.fetched(size)
        if not pages:
            return number  # finished before
        await arrival.begin(pages)

        async def page(_: int) -> None:
            await asyncio.sleep(delay / 10)
            arrival.page_read()

        await windowed(page, range(pages), window, "job")
        return number

    async def run() -> list[int]:
        async with asyncio.timeout(60):
            return await taken_in(read, enumerate(shelf), room(free, places))

    assert asyncio.run(run()) == list(range(len(shelf)))
