"""Documents of one job are fetched here a little ahead, and begun as long as their pages find places.

    fetched, a few at once  ->  waiting, some pages' worth  ->  begun, until the places are full  ->  ending

Knows how many pages and bytes open documents have. Knows nothing of what is done with them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from weakref import WeakValueDictionary

from twopass.runtime import task_group

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

LEAST_FETCHES, FETCHES = 2, 16  # at once: at first, and when it is known that they come
WAITING = 0.25  # of the places: fetched documents with so many pages wait for them, and no more are fetched
ENDING = 32  # documents that are assembled and stored at once: a store has sixteen threads
LARGEST_TOGETHER = 2  # sources of the largest size: so many bytes on the disk, and nothing more is fetched


class Step(Enum):
    FETCHING, TWIN, WAITING, BEGUN = range(4)  # a twin waits for an equal document to be read


@dataclass(frozen=True)
class Room:
    """What a job may take. `free_bytes` tells what is left of its share of the disk at the moment."""

    places: int
    largest_bytes: int  # of a source
    free_bytes: Callable[[], int]


class Arrival:
    """One open document on its way through."""

    def __init__(self, intake: Admission) -> None:
        self._intake = intake
        self.step, self.pages, self.bytes = Step.FETCHING, 0, 0
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fetched(self, size: int) -> None:
        """Its source lies on the disk until the document ends."""
        self.step, self.bytes = Step.WAITING, size
        self._intake.came(size)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """While no other document of this name is read; whether one was, by this job."""
        lock = self._intake.locks.setdefault(name, asyncio.Lock())
        if lock.locked():
            self.step = Step.TWIN
            self._intake.moved()
        async with lock:
            self.step = Step.WAITING
            yield name in self._intake.read
            self._intake.read.add(name)

    async def begin(self, pages: int) -> bool:
        """Comes back when places are left for some of so many pages; whether that took a while."""
        self.pages = pages
        self._intake.queue(self)
        waited = not self.turn.done()
        await self.turn
        return waited

    def page_read(self) -> None:
        self.pages -= 1
        self._intake.moved()


class Admission:
    """Of one job. Everything it decides by is counted anew each time: there are a few hundred at most."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._open: set[Arrival] = set()
        self._queue: deque[Arrival] = deque()
        self._came = 0
        self._sizes: deque[int] = deque(maxlen=FETCHES)
        self._change = asyncio.Event()
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.read: set[str] = set()  # names

    async def next(self) -> Arrival:
        """One more that may be fetched. For one caller at a time."""
        while not self._may_fetch():
            self._change.clear()
            await self._change.wait()
        arrival = Arrival(self)
        self._open.add(arrival)
        return arrival

    def came(self, size: int) -> None:
        self._came += 1
        self._sizes.append(size)
        self.moved()

    def queue(self, arrival: Arrival) -> None:
        self._queue.append(arrival)
        self.moved()

    def ended(self, arrival: Arrival) -> None:
        if arrival.step is Step.FETCHING:
            self._came += 1  # one that cannot be had keeps nobody busy
        self._open.discard(arrival)
        self.moved()

    def moved(self) -> None:
        while self._queue and self._may_begin():
            first = self._queue.popleft()
            if not first.turn.done():  # else its document was given up
                first.step = Step.BEGUN
                first.turn.set_result(None)
        self._change.set()

    def _may_begin(self) -> bool:
        begun = [one.pages for one in self._open if one.step is Step.BEGUN]
        return sum(begun) < self._room.places and begun.count(0) < ENDING

    def _may_fetch(self) -> bool:
        fetches = sum(one.step is Step.FETCHING for one in self._open)
        waiting = [max(one.pages, 1) for one in self._open if one.step is Step.WAITING]
        if len(self._open) < LEAST_FETCHES:
            return True
        if fetches >= min(FETCHES, LEAST_FETCHES + self._came) or sum(waiting) >= WAITING * self._room.places:
            return False
        if len(self._open) >= self._room.places + ENDING:  # equal ones, which wait for the first
            return False
        largest = self._room.largest_bytes
        coming = fetches * max(self._sizes, default=0)  # as large as the largest of the last
        if coming + sum(one.bytes for one in self._open) >= LARGEST_TOGETHER * largest:
            return False
        return (fetches + 1) * largest <= self._room.free_bytes()


async def taken_in(
    work: Callable[[Item, Arrival], Awaitable[Outcome]], items: Iterable[Item], room: Room
) -> list[Outcome]:
    """`work` on every item, fetched in their order as there is room; outcomes in the items' order.

    The first failure cancels the rest and is raised as it is.
    """
    intake, tasks = Admission(room), list[asyncio.Task[Outcome]]()

    async def one(item: Item, arrival: Arrival) -> Outcome:
        try:
            return await work(item, arrival)
        finally:
            intake.ended(arrival)

    async with task_group.group() as group:
        for item in items:
            tasks.append(group.create_task(one(item, await intake.next())))
    return [task.result() for task in tasks]
