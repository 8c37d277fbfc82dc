"""Limit how many pages are in flight, and share the slots equally between jobs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from twopass.runtime import task_group
from twopass.runtime.page_pool import watch_slow_calls

Item = TypeVar("Item")
T = TypeVar("T")


class PageSlots:
    """A fixed number of slots. A free slot goes to the waiting owner that holds the fewest.

    An item whose page worker is slow gives its slot away and goes on without one; at most `max_slow` do at once.
    """

    def __init__(self, count: int, max_slow: int = 0) -> None:
        self.count = count
        self._max_slow = max_slow
        self._slow = 0
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def max_in_flight(self) -> int:
        return self.count + self._max_slow

    @property
    def in_flight(self) -> int:
        return self._held.total() + self._slow

    @property
    def waiting(self) -> int:
        return sum(map(len, list(self._waiting.values())))  # copied, because metrics read it from another thread

    @asynccontextmanager
    async def acquire(self, owner: str) -> AsyncIterator[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(owner)
            raise
        is_slow = False

        def give_away() -> None:
            nonlocal is_slow
            if not is_slow and self._slow < self._max_slow:
                is_slow, self._slow = True, self._slow + 1
                self._release(owner)

        try:
            with watch_slow_calls(give_away):
                yield
        finally:
            if is_slow:
                self._slow -= 1
            else:
                self._release(owner)

    def _release(self, owner: str) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._held.total() < self.count:
            owner = min(self._waiting, key=lambda owner: self._held[owner])  # ties: the owner that waits longest
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns  # reinserted at the end, behind owners that wait as long
            if not turn.done():  # a cancelled waiter takes no slot
                self._held[owner] += 1
                turn.set_result(None)


async def run_all(
    work: Callable[[Item], Awaitable[T]], items: Iterable[Item], page_slots: PageSlots, owner: str
) -> list[T]:
    """Run `work` on every item, each in a slot of its own; results in the order of the items.

    The first failure cancels the rest and is raised unchanged.
    """
    tasks: list[asyncio.Task[T]] = []
    task_limit = asyncio.Semaphore(page_slots.max_in_flight)  # more tasks could only wait

    async def run(item: Item) -> T:
        try:
            async with page_slots.acquire(owner):
                return await work(item)
        finally:
            task_limit.release()

    async with task_group.open_group() as group:
        for item in items:
            await task_limit.acquire()
            tasks.append(group.create_task(run(item)))
    return [task.result() for task in tasks]
