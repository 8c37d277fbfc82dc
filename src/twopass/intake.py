"""Documents of one job begin here, as many as it takes to fill the places for pages, and no more.

Knows how many pages and bytes the open ones have. Knows nothing of what is done with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from twopass import together

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

LEAST_OPEN = 2  # the next is fetched while the last pages of this one are read, however large they are
FETCHES = 16  # at once: a store far away takes 0.3 s to answer, and an H200 reads thirty small documents a second


class Arrival:
    """One open document: unknown until it is fetched, and worth a page at least until it ends."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.is_found = False
        self.pages = self.bytes = 0  # left to read; on the disk

    def found(self, pages: int, size: int) -> None:
        self.is_found, self.pages, self.bytes = True, pages, size
        self._intake.found(pages, size)

    def page_read(self) -> None:
        self.pages -= 1
        self._intake.changed.set()


class Intake:
    """Says when one more may begin: while the pages of the open ones leave places free, and their bytes room.

    One that is being fetched is taken for the mean of those before it; the first, for half of everything.
    """

    def __init__(self, places: int, room: int) -> None:
        self._places, self._room = places, room
        self._open: set[Arrival] = set()
        self._found = self._found_pages = self._found_bytes = 0
        self.changed = asyncio.Event()

    async def next(self) -> Arrival:
        """Waits until there is room. For one caller at a time."""
        while not self._has_room():
            self.changed.clear()
            await self.changed.wait()
        arrival = Arrival(self)
        self._open.add(arrival)
        return arrival

    def found(self, pages: int, size: int) -> None:
        self._found += 1
        self._found_pages += pages
        self._found_bytes += size
        self.changed.set()

    def ended(self, arrival: Arrival) -> None:
        if not arrival.is_found:
            arrival.found(0, 0)  # a missing one keeps nobody busy, nor will the next
        self._open.remove(arrival)
        self.changed.set()

    def _has_room(self) -> bool:
        if len(self._open) < LEAST_OPEN:
            return True
        known = [one for one in self._open if one.is_found]
        fetches = len(self._open) - len(known)
        if fetches >= min(FETCHES, LEAST_OPEN + self._found):
            return False
        pages = sum(max(one.pages, 1) for one in known) + fetches * self._expected(self._found_pages, self._places)
        size = sum(one.bytes for one in known) + fetches * self._expected(self._found_bytes, self._room)
        return pages < self._places and size < self._room

    def _expected(self, found: int, all_of_it: int) -> float:
        return found / self._found if self._found else all_of_it / LEAST_OPEN


async def taken_in(
    work: Callable[[Item, Arrival], Awaitable[Outcome]], items: Iterable[Item], places: int, room: int
) -> list[Outcome]:
    """`work` on every item, begun in their order as there is room; outcomes in the items' order.

    `room` is in bytes. The first failure cancels the rest and is raised as it is.
    """
    intake, tasks = Intake(places, room), list[asyncio.Task[Outcome]]()

    async def one(item: Item, arrival: Arrival) -> Outcome:
        try:
            return await work(item, arrival)
        finally:
            intake.ended(arrival)

    async with together.group() as group:
        for item in items:
            tasks.append(group.create_task(one(item, await intake.next())))
    return [task.result() for task in tasks]
