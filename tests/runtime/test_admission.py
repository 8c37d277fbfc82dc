"""Admission: which documents of a job are fetched and started, by their pages, their bytes and the free disk."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import simulated_time
from tests.fakes.simulated_time import simulated
from twopass.runtime.admission import MAX_FETCHES, MAX_FINISHING, MIN_FETCHES, AdmissionLimits, Ticket, admit_all
from twopass.runtime.page_slots import PageSlots, run_all

SLOTS = 20
MAX_BYTES = 1000  # of one source
MAX_WAITING = SLOTS // 4  # pages of documents that are fetched and not started


def make_limits(free_bytes: int = 1 << 40, slots: int = SLOTS) -> AdmissionLimits:
    return AdmissionLimits(slots, MAX_BYTES, lambda: free_bytes)


@dataclass
class SimulatedJob:
    """A job with documents of (pages, bytes). Pages wait for `allow_pages`, then documents wait for `allow_end`.

    `counts` holds the documents started, the bytes on disk, and the large documents in progress, which have more
    unread pages than there are slots; `peaks` holds the highest counts so far.
    """

    documents: Sequence[tuple[int, int]]
    limits: AdmissionLimits = field(default_factory=make_limits)
    allow_pages: asyncio.Event = field(default_factory=asyncio.Event)
    allow_end: asyncio.Event = field(default_factory=asyncio.Event)
    counts: Counter[str] = field(default_factory=Counter)
    peaks: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.page_slots = PageSlots(self.limits.page_slots)
        self.allow_end.set()

    async def __aenter__(self) -> SimulatedJob:
        self.running = asyncio.create_task(admit_all(self.read, range(len(self.documents)), self.limits))
        await self.settle()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.allow_pages.set()
        self.allow_end.set()
        async with asyncio.timeout(60):
            assert await self.running == list(range(len(self.documents)))

    async def settle(self) -> None:
        """Run until all tasks wait."""
        for _ in range(500):
            await asyncio.sleep(0)

    async def read(self, number: int, ticket: Ticket) -> int:
        pages, size = self.documents[number]
        self._count("bytes", size)
        ticket.mark_fetched(size)
        await ticket.wait_to_start(pages)
        self._count("started", 1)
        self._count("large", pages > self.limits.page_slots)
        remaining = pages

        async def read_page(_: int) -> None:
            nonlocal remaining
            await self.allow_pages.wait()
            ticket.finish_page()
            remaining -= 1
            self._count("large", -(remaining == self.limits.page_slots))

        await run_all(read_page, range(pages), self.page_slots, "job")
        await self.allow_end.wait()
        self._count("bytes", -size)
        return number

    def _count(self, name: str, change: int) -> None:
        self.counts[name] += change
        self.peaks[name] = max(self.peaks[name], self.counts[name])


@pytest.mark.parametrize(
    ("pages", "started", "waiting"),
    [
        (1, SLOTS, MAX_WAITING),  # one page each: as many documents as slots, and a few that wait
        (5, 4, 1),
        (7, 3, 1),
        (100, 1, 1),  # a large document fills the slots alone; the next one is fetched
    ],
)
@simulated
async def test_documents_start_until_their_pages_fill_the_slots(pages: int, started: int, waiting: int) -> None:
    """Documents start while a slot is free: many small ones or few large ones, and every slot is in use."""
    async with SimulatedJob([(pages, 1)] * 60) as job:
        assert job.page_slots.in_flight == SLOTS
        assert job.counts["started"] == started
        # One byte each, so this counts documents. Those whose fetch was running when the slots filled up are extra.
        assert started + waiting <= job.counts["bytes"] <= started + waiting + MAX_FETCHES


@simulated
async def test_large_documents_behind_small_ones_start_one_at_a_time() -> None:
    """Large documents start one by one, even if many were fetched at once.

    With pages of ten large documents in the slots, page workers would close and open files for nearly every page.
    """
    job = SimulatedJob([(1, 1)] * 40 + [(100, 1)] * 20)
    job.allow_pages.set()
    async with job:
        await job.running

    assert job.counts["started"] == 60
    assert job.peaks["large"] == 1


@simulated
async def test_the_next_document_starts_before_the_last_one_ends() -> None:
    """A document starts once the one before has fewer unread pages than slots; the end of that one needs no slot."""
    started: list[int] = []

    async def read(number: int, ticket: Ticket) -> None:
        ticket.mark_fetched(1)
        await ticket.wait_to_start(100)
        started.append(number)
        for _ in range(100 - SLOTS):
            ticket.finish_page()
        await asyncio.sleep(0.01)
        assert started[-1] == number  # its unread pages still fill the slots
        ticket.finish_page()
        await asyncio.sleep(0.01)
        assert started[-1] == number + 1 or number == 4
        for _ in range(SLOTS - 1):
            ticket.finish_page()

    await admit_all(read, range(5), make_limits())

    assert started == [0, 1, 2, 3, 4]


@simulated
async def test_concurrent_fetches_increase_with_each_source_that_arrives() -> None:
    """A job starts with two fetches at once, may run one more with each source that arrives, up to MAX_FETCHES."""
    fetches, counts = list[asyncio.Event](), list[int]()

    async def read(number: int, ticket: Ticket) -> None:
        arrival = asyncio.Event()
        fetches.append(arrival)
        await arrival.wait()
        ticket.mark_fetched(1)
        await ticket.wait_to_start(1)

    running = asyncio.create_task(admit_all(read, range(100), make_limits(slots=500)))
    while not running.done():
        for _ in range(50):
            await asyncio.sleep(0)
        counts.append(len(fetches))
        if fetches:
            fetches.pop(0).set()

    assert counts[:3] == [MIN_FETCHES, MIN_FETCHES + 1, MIN_FETCHES + 2]
    assert max(counts) == MAX_FETCHES


@pytest.mark.parametrize(
    ("free_bytes", "most"),
    [(1 << 40, MAX_FETCHES), (5 * MAX_BYTES, 5), (2 * MAX_BYTES, MIN_FETCHES), (0, MIN_FETCHES)],
)
@simulated
async def test_the_free_disk_limits_concurrent_fetches(free_bytes: int, most: int) -> None:
    """Only as many sources are fetched at once as fit on the disk if each has the largest size.

    Sizes are unknown before a fetch. Two sources are fetched in any case, so that a full disk is reported.
    """
    allow_fetches = asyncio.Event()
    fetching = 0
    counts = []

    async def read(number: int, ticket: Ticket) -> None:
        nonlocal fetching
        if number >= MAX_FETCHES:
            fetching += 1
            counts.append(fetching)
            await allow_fetches.wait()
            fetching -= 1
        ticket.mark_fetched(1)
        await ticket.wait_to_start(1)

    running = asyncio.create_task(admit_all(read, range(100), make_limits(free_bytes)))
    for _ in range(2000):
        await asyncio.sleep(0)
    assert max(counts) == most
    allow_fetches.set()
    await running


@simulated
async def test_large_sources_on_disk_stop_further_fetches() -> None:
    """No source is fetched while two of the largest size are on disk; a running fetch counts as one of that size."""
    async with SimulatedJob([(1, MAX_BYTES)] * 40) as job:
        assert job.counts["started"] == 2
    assert job.peaks["bytes"] == 2 * MAX_BYTES


@simulated
async def test_the_number_of_documents_that_are_being_finished_is_limited() -> None:
    """Documents whose pages are read quickly do not pile up in front of a slow store."""
    job = SimulatedJob([(1, 1)] * 200)
    job.allow_pages.set()
    job.allow_end.clear()
    async with job:
        assert job.counts["started"] <= MAX_FINISHING + SLOTS
        assert job.counts["started"] >= MAX_FINISHING


@simulated
async def test_failed_fetches_make_room_for_others() -> None:
    """A failed fetch counts as completed: a job that names a hundred missing objects soon requests many at once."""
    allow_end, fetches = asyncio.Event(), 0

    async def read(number: int, ticket: Ticket) -> None:
        nonlocal fetches
        fetches += 1
        if number >= MAX_FETCHES:
            await allow_end.wait()

    running = asyncio.create_task(admit_all(read, range(100), make_limits()))
    for _ in range(500):
        await asyncio.sleep(0)
    assert fetches == 2 * MAX_FETCHES
    allow_end.set()
    await running


@simulated
async def test_documents_with_one_id_are_read_one_after_another() -> None:
    """Equal documents wait for each other and not for other documents; each learns whether it is the first."""
    read_ids: set[str] = set()
    reading: Counter[str] = Counter()
    peaks: Counter[str] = Counter()

    async def read(document_id: str, ticket: Ticket) -> None:
        ticket.mark_fetched(1)
        async with ticket.exclusive(document_id) as was_read:
            assert was_read == (document_id in read_ids)
            read_ids.add(document_id)
            await ticket.wait_to_start(1)
            reading[document_id] += 1
            peaks[document_id] = max(peaks[document_id], reading[document_id])
            peaks["all"] = max(peaks["all"], reading.total())
            await asyncio.sleep(0.001)
            reading[document_id] -= 1
            ticket.finish_page()

    await admit_all(read, "aaaabbbb", make_limits())

    assert peaks["a"] == peaks["b"] == 1 and peaks["all"] == 2


@simulated
async def test_duplicates_do_not_keep_other_documents_from_being_fetched() -> None:
    """However many documents wait for an equal one, others are fetched; only the number of open ones is limited."""
    allow_end, others, duplicates = asyncio.Event(), 0, 0

    async def read(document_id: str, ticket: Ticket) -> None:
        nonlocal others, duplicates
        ticket.mark_fetched(1)
        duplicates += document_id == "equal"
        async with ticket.exclusive(document_id):
            if document_id == "equal":
                await allow_end.wait()
            else:
                others += 1

    ids = ["equal"] * 40 + list(map(str, range(30))) + ["equal"] * 200
    running = asyncio.create_task(admit_all(read, ids, make_limits()))
    for _ in range(3000):
        await asyncio.sleep(0)
    assert others == 30
    assert 40 < duplicates <= SLOTS + MAX_FINISHING
    allow_end.set()
    await running


@simulated
async def test_a_document_cancelled_in_the_queue_lets_the_next_one_start() -> None:
    """If a deadline cancels a document that waits for its turn, those behind it still start."""
    events = []

    async def read(number: int, ticket: Ticket) -> None:
        ticket.mark_fetched(1)
        try:
            async with asyncio.timeout(0.02 if number == 1 else 60):
                await ticket.wait_to_start(100)
        except TimeoutError:
            events.append(f"{number} gave up")
            return
        events.append(str(number))
        await asyncio.sleep(0.05)

    await admit_all(read, range(3), make_limits())

    assert events == ["0", "1 gave up", "2"]


@simulated
async def test_the_first_failure_cancels_the_rest() -> None:
    """The first failure is raised unchanged, running documents are cancelled, and no further one is opened."""
    opened, ended = 0, 0

    async def read(number: int, _: Ticket) -> None:
        nonlocal opened, ended
        opened += 1
        try:
            if number == 1:
                raise OSError("gone")
            await asyncio.sleep(60)
        finally:
            ended += 1

    with pytest.raises(OSError, match="gone"):
        await admit_all(read, range(100), make_limits())

    assert opened == ended == MIN_FETCHES


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, MAX_BYTES), st.floats(0, 0.002)), max_size=12),
    st.integers(1, SLOTS),
    st.sampled_from((0, MAX_BYTES, 1 << 40)),
)
def test_every_mix_of_documents_is_read(documents: list[tuple[int, int, float]], slots: int, free_bytes: int) -> None:
    """No mix of sizes, delays and limits makes a job wait forever, and outcomes are in the order of the documents."""
    page_slots = PageSlots(slots)

    async def read(numbered: tuple[int, tuple[int, int, float]], ticket: Ticket) -> int:
        number, (pages, size, delay) = numbered
        await asyncio.sleep(delay)
        if not pages + size:
            return number  # the fetch failed
        ticket.mark_fetched(size)
        if not pages:
            return number  # the document was finished before
        await ticket.wait_to_start(pages)

        async def read_page(_: int) -> None:
            await asyncio.sleep(delay / 10)
            ticket.finish_page()

        await run_all(read_page, range(pages), page_slots, "job")
        return number

    async def run() -> list[int]:
        async with asyncio.timeout(60):
            return await admit_all(read, enumerate(documents), make_limits(free_bytes, slots))

    assert simulated_time.run(run()) == list(range(len(documents)))
