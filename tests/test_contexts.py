"""The order in which a worker reads the pages of a document that other workers read, too."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.contexts import PageOrder
from twopass.steps.document_folder import DocumentFolder, page_name
from twopass.storage.outputs import MemoryStore

JSON = "application/json"


class SharedStore(MemoryStore):
    """A store in memory that several workers see."""

    is_persistent = True


class SimulatedWorker:
    """Reads `slots` pages at a time. Every page takes one round, and is stored at the end of the round."""

    def __init__(self, folder: DocumentFolder, pages: int, slots: int, start: float) -> None:
        self.read: list[int] = []
        self._folder, self._slots = folder, slots
        self._order = PageOrder(folder, frozenset(), lambda count: int(start * count))
        self._numbers: Iterator[int] = self._order.order(range(1, pages + 1))

    async def begin_round(self) -> list[int]:
        """The pages that are not stored yet and that this worker reads now."""
        started: list[int] = []
        for number in self._numbers:
            if await self._folder.store.get(self._folder.key(page_name(number))):
                await self._order.record_other(number)
                continue
            started.append(number)
            if len(started) == self._slots:
                break
        self.read += started
        return started


async def simulate(pages: int, slots: int, starts: list[float]) -> list[SimulatedWorker]:
    """Workers that begin together, each at its share of the pages, until all pages are stored."""
    folder = DocumentFolder(SharedStore(), "document")
    workers = [SimulatedWorker(folder, pages, slots, start) for start in starts]
    while started := [number for worker in workers for number in await worker.begin_round()]:
        for number in started:
            await folder.store.create(folder.key(page_name(number)), b"", JSON)
    return workers


def count_extra(workers: list[SimulatedWorker]) -> int:
    read = [number for worker in workers for number in worker.read]
    return len(read) - len(set(read))


@pytest.mark.parametrize(
    ("pages", "slots", "count", "most"),
    [(12, 2, 2, 3), (60, 2, 2, 3), (60, 4, 2, 6), (12, 2, 4, 8), (60, 2, 4, 10), (60, 4, 4, 16)],
)
async def test_workers_that_begin_together_meet_late(pages: int, slots: int, count: int, most: float) -> None:
    """Workers that start at random pages read few pages twice, although none of them knows what the others read now."""
    generator = random.Random(7)

    runs = [await simulate(pages, slots, [generator.random() for _ in range(count)]) for _ in range(100)]

    assert all({number for worker in run for number in worker.read} == set(range(1, pages + 1)) for run in runs)
    assert sum(map(count_extra, runs)) / len(runs) <= most


async def test_workers_that_start_far_apart_read_no_page_twice() -> None:
    """Two workers, one of which starts in the middle, divide the document between them."""
    workers = await simulate(60, 3, [0, 0.5])

    assert [len(worker.read) for worker in workers] == [30, 30]


async def test_one_worker_alone_reads_all_pages_in_order() -> None:
    """Without another worker, pages are read in ascending order from the start on, and then those before it."""
    (worker,) = await simulate(7, 2, [0.5])

    assert worker.read == [4, 5, 6, 7, 1, 2, 3]


async def test_stored_pages_come_first() -> None:
    """Pages that are stored when the document is started are loaded first, so that a deadline does not lose them."""
    folder = DocumentFolder(SharedStore(), "document")
    order = PageOrder(folder, frozenset({page_name(3), page_name(5)}), lambda count: count - 1)

    assert list(order.order(range(1, 7))) == [3, 5, 6, 1, 2, 4]


async def test_a_document_that_no_other_worker_sees_is_read_from_its_first_page_on() -> None:
    """A job without an output reads pages in their order, so that a deadline leaves the last ones unread."""
    order = PageOrder(DocumentFolder(MemoryStore(), "document"), frozenset(), lambda count: count - 1)

    assert list(order.order(range(1, 5))) == [1, 2, 3, 4]


@given(
    st.lists(st.integers(1, 30), unique=True),
    st.sets(st.integers(1, 30)),
    st.lists(st.integers(1, 30)),
    st.randoms(use_true_random=False),
)
async def test_every_page_is_yielded_once(
    numbers: list[int], stored: set[int], others: list[int], generator: random.Random
) -> None:
    """Whatever is stored before and whatever other workers store meanwhile, each selected page is yielded once."""
    folder = DocumentFolder(SharedStore(), "document")
    order = PageOrder(folder, frozenset(map(page_name, stored)), generator.randrange)
    yielded = []

    for number in order.order(sorted(numbers)):
        yielded.append(number)
        if others:
            other = others.pop()
            await folder.store.create(folder.key(page_name(other)), b"", JSON)
            await order.record_other(other)

    assert sorted(yielded) == sorted(numbers)
