"""Progress: what is reported, in which order, and that nothing is sent after the end."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.simulated_time import simulated
from twopass.errors import Code, StoreError
from twopass.telemetry.progress import PageProgress, Phase, Progress, Sender, Tracker

# What happens in turn: to which document, how many pages it has if they are counted now, else whether a page is read.
Step = tuple[int, int, bool]
STEPS: st.SearchStrategy[Step] = st.tuples(st.integers(0, 5), st.integers(1, 40), st.booleans())


def follow_job(documents: int, steps: list[Step]) -> tuple[list[Progress], list[bool]]:
    """Progress of a job whose documents are counted, read, skipped and left in some order, and when pages were left.

    The second list says for each report whether a page of any document could still be read.
    """
    reports: list[Progress] = []
    is_open: list[bool] = []
    left: dict[int, int | None] = dict.fromkeys(range(documents))  # None: not counted yet

    def listen(now: Progress) -> None:
        reports.append(now)
        is_open.append(any(pages is None or pages for pages in left.values()))

    tracker = Tracker(listen)
    tracker.expect_documents(documents)
    with ExitStack() as jobs:
        stacks = [jobs.enter_context(ExitStack()) for _ in range(documents)]
        pages = [stack.enter_context(tracker.track_document()) for stack in stacks]
        for document, count, is_read in steps:
            if document not in left:
                continue
            remaining = left[document]
            if remaining is None and not is_read and count == 1:  # it cannot be opened
                del left[document]
                stacks[document].close()
            elif remaining is None:
                left[document] = count
                pages[document].count(count)
            elif remaining:
                left[document] = remaining - 1
                pages[document].finish() if is_read else pages[document].skip()
            else:
                del left[document]
                stacks[document].close()
        for document in list(left):
            del left[document]
            stacks[document].close()
    tracker.finish()
    return reports, is_open


@given(st.integers(1, 6), st.lists(STEPS, max_size=200))
def test_percent_never_falls_and_is_100_only_at_the_end(documents: int, steps: list[Step]) -> None:
    """In whatever order documents and pages are counted and finished, a reader sees a bar that only grows."""
    reports, _ = follow_job(documents, steps)

    assert [report.seq for report in reports] == list(range(1, len(reports) + 1))
    assert all(earlier.percent <= later.percent for earlier, later in pairwise(reports))
    assert all(report.percent < 100 for report in reports[:-1])
    assert reports[-1].phase is Phase.DONE
    if reports[-1].percent == 100:
        assert reports[-1].pages_done == reports[-1].pages_total > 0


@given(st.integers(1, 6), st.lists(STEPS, max_size=200))
def test_a_job_assembles_when_no_page_is_left(documents: int, steps: list[Step]) -> None:
    """The phase is `assembling` only when no page of any document is still to be read, and no phase returns."""
    reports, is_open = follow_job(documents, steps)

    phases = list(Phase)
    order = [phases.index(report.phase) for report in reports]
    assert order == sorted(order)
    assert not any(open_ and report.phase is Phase.ASSEMBLING for report, open_ in zip(reports, is_open, strict=True))
    assert not any(not open_ and report.phase is Phase.READING for report, open_ in zip(reports, is_open, strict=True))


def test_documents_that_are_not_counted_yet_weigh_like_the_others() -> None:
    """A resumed job whose first 16 of 27 one-page documents are stored is not almost done."""
    tracker = Tracker()
    tracker.expect_documents(27)

    for _ in range(16):
        with tracker.track_document() as pages:
            pages.count(1)
            pages.finish()

    assert (tracker.now.pages_done, tracker.now.pages_total) == (16, 16)
    assert (tracker.now.percent, tracker.now.phase) == (59.2, Phase.READING)


def test_pages_that_stay_unread_do_not_count_as_read() -> None:
    """A job that ends at its deadline reports the share that it read."""
    tracker = Tracker()
    tracker.expect_documents(1)

    with tracker.track_document() as pages:
        pages.count(3)
        pages.finish()
        pages.skip()
        pages.skip()
    phase = tracker.now.phase
    tracker.finish()

    assert (phase, tracker.now.phase, tracker.now.percent) == (Phase.ASSEMBLING, Phase.DONE, 33.3)


def test_the_last_phase_has_a_pace_of_its_own() -> None:
    """The time left is that of the parts that are written, not that of pages, of which none is left."""
    time = [0.0]
    tracker = Tracker(clock=lambda: time[0])
    pages = start_document(tracker, 2)
    time[0] = 10.0
    pages.finish(2)

    with tracker.track_parts(5) as finish_part:
        assert (tracker.now.phase, tracker.now.eta_s) == (Phase.ASSEMBLING, None)
        time[0] = 12.0
        finish_part()
        assert (tracker.now.parts_done, tracker.now.parts_total, tracker.now.eta_s) == (1, 5, 8.0)

    assert tracker.now.parts_total == 1  # the others were given up
    assert tracker.now.percent == 99.9


def test_the_start_of_an_engine_does_not_slow_the_pace() -> None:
    """Pages that waited for it are counted from its end, as if it had been ready before the job."""
    time = [0.0]
    tracker = Tracker(clock=lambda: time[0])
    pages = start_document(tracker, 12)
    time[0] = 60.0
    tracker.begin_reading()
    time[0] = 62.0
    pages.finish(4)

    assert (tracker.now.pages_per_s, tracker.now.eta_s) == (2.0, 4.0)


@given(st.integers(1, 500), st.integers(1, 60), st.integers(1, 5))
def test_pace_and_time_left_count_what_is_read_now(found: int, load_s: int, documents: int) -> None:
    """A resumed job that reads 2 pages a second says so, however many stored pages it loads before, in any time."""
    now = [0.0]
    tracker = Tracker(clock=lambda: now[0])
    tracker.expect_documents(documents)
    with ExitStack() as stack:
        pages = [stack.enter_context(tracker.track_document()) for _ in range(documents)]
        for one in pages:
            one.count(found + 40)
        for one in pages:
            for _ in range(found):
                now[0] += load_s / found
                one.finish(stored=True)
        before = tracker.now
        for one in pages[:1]:
            for _ in range(10):
                now[0] += 0.5
                one.finish()
        after = tracker.now

    assert (before.pages_per_s, before.eta_s, before.pages_done) == (0.0, None, found * documents)
    assert (after.pages_per_s, after.pages_stored) == (2.0, found * documents)
    assert after.eta_s == (40 * documents - 10) / 2


def start_document(tracker: Tracker, count: int) -> PageProgress:
    """A document of this many pages, the only one of its job."""
    tracker.expect_documents(1)
    pages = PageProgress(tracker)
    pages.count(count)
    return pages


@simulated
async def test_slow_posts_are_coalesced_and_stay_in_order() -> None:
    """While one post is under way newer progress replaces what waits; the last one is sent."""
    sent: list[dict[str, Any]] = []
    through: asyncio.Queue[None] = asyncio.Queue()

    async def slow(now: dict[str, Any]) -> None:
        await through.get()
        sent.append(now)

    async with Sender(slow, interval_s=0.0, drain_s=60.0) as sender:
        tracker = Tracker(sender.offer)
        pages = start_document(tracker, 50)
        for page in range(50):
            pages.finish()
            if page % 10 == 9:
                through.put_nowait(None)
            for _ in range(10):
                await asyncio.sleep(0)  # lets the sender run
        tracker.finish()
        for _ in range(100):
            through.put_nowait(None)

    sequence = [now["seq"] for now in sent]
    assert sequence == sorted(set(sequence))
    assert [now["pages_done"] for now in sent] == [1, 10, 20, 30, 40, 50, 50]
    assert sent[-1]["phase"] == "done"


@simulated
async def test_nothing_is_sent_after_the_drain() -> None:
    """A post that hangs is given up after the drain time, because the result must come last."""
    sent: list[int] = []

    async def hangs(now: dict[str, Any]) -> None:
        await asyncio.sleep(60)
        sent.append(now["seq"])

    async with Sender(hangs, interval_s=0.0, drain_s=0.05) as sender:
        Tracker(sender.offer).finish()

    assert not sent


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), StoreError(Code.STORE_UNAVAILABLE, "gone")])
@simulated
async def test_a_failed_post_fails_neither_the_job_nor_the_next_post(error: Exception) -> None:
    """A platform or store that does not answer for a moment is logged, and newer progress is sent."""
    sent: list[int] = []

    async def post(now: dict[str, Any]) -> None:
        if now["seq"] == 1:
            raise error
        sent.append(now["seq"])

    async with Sender(post, interval_s=0.0, drain_s=1.0) as sender:
        tracker = Tracker(sender.offer)
        start_document(tracker, 1)
        await asyncio.sleep(0.01)
        tracker.finish()

    assert sent == [2]


@simulated
async def test_a_cancelled_job_posts_nothing_more() -> None:
    """Leaving through an exception sends nothing that still waits."""
    sent: list[dict[str, Any]] = []

    async def post(now: dict[str, Any]) -> None:
        sent.append(now)

    with pytest.raises(RuntimeError):
        async with Sender(post, interval_s=60.0, drain_s=1.0) as sender:
            tracker = Tracker(sender.offer)
            pages = start_document(tracker, 3)
            await asyncio.sleep(0.01)
            pages.finish()
            raise RuntimeError("stopped")

    assert [now["pages_done"] for now in sent] == [0]


@pytest.mark.parametrize("turns", range(6))
@simulated
async def test_a_job_cancelled_during_a_change_ends(turns: int) -> None:
    """A change that is reported just before the cancellation does not keep the sender waiting for the next one."""

    async def post(now: dict[str, Any]) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError):
        async with asyncio.timeout(10) as guard, Sender(post, interval_s=60.0, drain_s=1.0) as sender:
            pages = start_document(Tracker(sender.offer), 3)
            await asyncio.sleep(0.01)
            pages.finish()
            await asyncio.sleep(0.01)
            pages.finish()
            for _ in range(turns):
                await asyncio.sleep(0)
            raise RuntimeError("stopped")

    assert not guard.expired()


def test_a_stopped_job_does_not_claim_to_assemble() -> None:
    """The pages that a cancelled document leaves unread are still to be read."""
    tracker = Tracker()
    tracker.expect_documents(1)

    with pytest.raises(KeyboardInterrupt), tracker.track_document() as pages:
        pages.count(3)
        raise KeyboardInterrupt

    assert tracker.now.phase is Phase.READING


@simulated
async def test_the_interval_delays_posts_but_not_a_new_phase() -> None:
    """Within the interval only a change of phase is sent."""
    sent: list[str] = []

    async def post(now: dict[str, Any]) -> None:
        sent.append(now["phase"])

    async with Sender(post, interval_s=60.0, drain_s=1.0) as sender:
        tracker = Tracker(sender.offer)
        pages = start_document(tracker, 3)
        await asyncio.sleep(0.01)
        pages.finish()
        await asyncio.sleep(0.01)
        for _ in range(2):
            pages.skip()
        await asyncio.sleep(0.01)

    assert sent == ["reading", "assembling"]


@simulated
async def test_a_short_job_sends_only_its_end_if_each_post_costs_money() -> None:
    """Neither the first report nor a new phase is sent before the interval is over; the last one always is."""
    sent: list[str] = []

    async def post(now: dict[str, Any]) -> None:
        sent.append(now["phase"])

    async with Sender(post, interval_s=60.0, drain_s=1.0, spares_phases=True) as sender:
        tracker = Tracker(sender.offer)
        pages = start_document(tracker, 1)
        await asyncio.sleep(0.01)
        pages.finish()
        await asyncio.sleep(0.01)
        tracker.finish()

    assert sent == ["done"]
