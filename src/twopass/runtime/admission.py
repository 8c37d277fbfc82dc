"""Decide which documents of a job are fetched and started, by their pages, their bytes and the free disk.

fetching, a few at once  ->  waiting, up to a share of the page slots  ->  started, until the slots are full
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from weakref import WeakValueDictionary

from twopass.runtime import task_group
from twopass.runtime.page_pool import watch_slow_calls

Item = TypeVar("Item")
T = TypeVar("T")

MIN_FETCHES, MAX_FETCHES = 2, 16  # concurrent fetches: at first, and once fetches have succeeded
_WAITING_SHARE = 0.25  # of the page slots: no more is fetched while fetched documents with so many pages wait
MAX_FINISHING = 32  # documents assembled and stored at once; a store has sixteen threads
_MAX_LARGE_SOURCES = 2  # sources of the largest size: no more is fetched while so many bytes are on disk


class _TicketState(Enum):
    """The progress of one document. DUPLICATE: waits while the job reads a document of the same id."""

    FETCHING, DUPLICATE, WAITING, STARTED = range(4)


@dataclass(frozen=True)
class AdmissionLimits:
    """What one job may use. `free_bytes` returns the job's share of the disk that is free now."""

    page_slots: int
    max_source_bytes: int
    free_bytes: Callable[[], int]


class Ticket:
    """One open document, from its fetch to its end."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.state, self.pages, self.bytes = _TicketState.FETCHING, 0, 0
        self.slow_tasks = 0
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def mark_fetched(self, size: int) -> None:
        """The source is on disk, where it stays until the document ends."""
        self.state, self.bytes = _TicketState.WAITING, size
        self._admission.count_fetch(size)

    @asynccontextmanager
    async def exclusive(self, document_id: str) -> AsyncIterator[bool]:
        """Wait until the job reads no other document of this id; yields whether it has read one before."""
        lock = self._admission.locks.setdefault(document_id, asyncio.Lock())
        if lock.locked():
            self.state = _TicketState.DUPLICATE
            self._admission.update()
        async with lock:
            self.state = _TicketState.WAITING
            yield document_id in self._admission.finished_ids
            self._admission.finished_ids.add(document_id)

    async def wait_to_start(self, pages: int) -> bool:
        """Wait until page slots are free for some of these pages; returns whether it had to wait."""
        self.pages = pages
        self._admission.enqueue(self)
        had_to_wait = not self.turn.done()
        await self.turn
        return had_to_wait

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Let other documents start in place of work that is done inside and turns out to be slow."""
        is_slow = False

        def mark_slow() -> None:
            nonlocal is_slow
            if not is_slow:
                is_slow, self.slow_tasks = True, self.slow_tasks + 1
                self._admission.update()

        try:
            with watch_slow_calls(mark_slow):
                yield
        finally:
            self.slow_tasks -= is_slow

    def finish_page(self) -> None:
        self.pages -= 1
        self._admission.update()


class Admission:
    """The open documents of one job. Each decision counts all of them: there are a few hundred at most."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._open: set[Ticket] = set()
        self._queue: deque[Ticket] = deque()
        self._fetched = 0
        self._recent_sizes: deque[int] = deque(maxlen=MAX_FETCHES)
        self._changed = asyncio.Event()
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.finished_ids: set[str] = set()

    async def next_ticket(self) -> Ticket:
        """Wait until one more document may be fetched. For one caller at a time."""
        while not self._may_fetch():
            self._changed.clear()
            await self._changed.wait()
        ticket = Ticket(self)
        self._open.add(ticket)
        return ticket

    def count_fetch(self, size: int) -> None:
        self._fetched += 1
        self._recent_sizes.append(size)
        self.update()

    def enqueue(self, ticket: Ticket) -> None:
        self._queue.append(ticket)
        self.update()

    def close(self, ticket: Ticket) -> None:
        if ticket.state is _TicketState.FETCHING:
            self._fetched += 1  # a fetch that failed no longer uses the network
        self._open.discard(ticket)
        self.update()

    def update(self) -> None:
        """Start queued documents while slots are free, and let `next_ticket` decide again."""
        while self._queue and self._may_start():
            first = self._queue.popleft()
            if not first.turn.done():  # done: its document was cancelled
                first.state = _TicketState.STARTED
                first.turn.set_result(None)
        self._changed.set()

    def _may_start(self) -> bool:
        started = [ticket for ticket in self._open if ticket.state is _TicketState.STARTED]
        pages = sum(max(ticket.pages - ticket.slow_tasks, 0) for ticket in started)
        return pages < self._limits.page_slots and sum(not ticket.pages for ticket in started) < MAX_FINISHING

    def _may_fetch(self) -> bool:
        fetches = sum(ticket.state is _TicketState.FETCHING and not ticket.slow_tasks for ticket in self._open)
        waiting = [max(ticket.pages, 1) for ticket in self._open if ticket.state is _TicketState.WAITING]
        limits = self._limits
        if len(self._open) < MIN_FETCHES:
            return True
        if fetches >= min(MAX_FETCHES, MIN_FETCHES + self._fetched):
            return False
        if sum(waiting) >= _WAITING_SHARE * limits.page_slots:
            return False
        if len(self._open) >= limits.page_slots + MAX_FINISHING:  # many duplicates that wait for the first
            return False
        expected_bytes = fetches * max(self._recent_sizes, default=0)  # assume the largest of the recent sizes
        if expected_bytes + sum(ticket.bytes for ticket in self._open) >= _MAX_LARGE_SOURCES * limits.max_source_bytes:
            return False
        return (fetches + 1) * limits.max_source_bytes <= limits.free_bytes()


async def admit_all(
    work: Callable[[Item, Ticket], Awaitable[T]], items: Iterable[Item], limits: AdmissionLimits
) -> list[T]:
    """Run `work` on every item, in their order and as the limits allow; results in the order of the items.

    The first failure cancels the rest and is raised unchanged.
    """
    admission, tasks = Admission(limits), list[asyncio.Task[T]]()

    async def run(item: Item, ticket: Ticket) -> T:
        try:
            return await work(item, ticket)
        finally:
            admission.close(ticket)

    async with task_group.open_group() as group:
        for item in items:
            tasks.append(group.create_task(run(item, await admission.next_ticket())))
    return [task.result() for task in tasks]
