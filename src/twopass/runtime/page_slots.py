"""Pages wait here for a place in flight; jobs share the places equally.

Knows owners and places. Knows nothing of pages.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from twopass.runtime import task_group

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class PageSlots:
    """So many places; a free one goes to the waiting owner that holds the fewest."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def in_flight(self) -> int:
        return self._held.total()

    @property
    def waiting(self) -> int:
        return sum(map(len, list(self._waiting.values())))  # a list: metrics ask from their own thread

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(owner)
            raise
        try:
            yield
        finally:
            self._leave(owner)

    def _leave(self, owner: str) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._held.total() < self.places:
            owner = min(self._waiting, key=lambda owner: self._held[owner])  # of equals, who waits longest
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns  # behind those who wait as long
            if not turn.done():  # else it was given up
                self._held[owner] += 1
                turn.set_result(None)


async def windowed(
    work: Callable[[Item], Awaitable[Outcome]], items: Iterable[Item], window: PageSlots, owner: str
) -> list[Outcome]:
    """`work` on every item, at most the window at once; outcomes in the items' order.

    The first failure cancels the rest and is raised as it is.
    """
    tasks: list[asyncio.Task[Outcome]] = []
    places = asyncio.Semaphore(window.places)  # no more tasks than could ever hold a place

    async def one(item: Item) -> Outcome:
        try:
            async with window.place(owner):
                return await work(item)
        finally:
            places.release()

    async with task_group.group() as group:
        for item in items:
            await places.acquire()
            tasks.append(group.create_task(one(item)))
    return [task.result() for task in tasks]
