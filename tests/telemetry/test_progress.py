"""Progress: what is reported, in which order, and that nothing is sent after the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.errors import Code, StoreError
from twopass.telemetry.progress import Phase, Progress, Sender, Tracker

STEPS = st.sampled_from(["add_pages", "finish_pages", "add_elements", "finish_elements", "enter_phase"])


@given(st.lists(STEPS, max_size=40))
def test_percent_never_falls_and_seq_always_rises(steps: list[str]) -> None:
    """In whatever order pages and elements are counted, a reader sees a bar that only grows."""
    reports: list[Progress] = []
    tracker = Tracker(reports.append)

    for step in steps:
        if step == "finish_pages":
            tracker.finish_pages(1)
        elif step == "enter_phase":
            tracker.enter_phase(Phase.ASSEMBLING)
        else:
            getattr(tracker, step)(2)

    assert [p.seq for p in reports] == list(range(1, len(reports) + 1))
    assert all(earlier.percent <= later.percent for earlier, later in zip(reports, reports[1:], strict=False))


async def test_slow_posts_are_coalesced_and_stay_in_order() -> None:
    """While one post is under way newer progress replaces what waits; the last one is sent."""
    sent: list[dict[str, Any]] = []
    through: asyncio.Queue[None] = asyncio.Queue()

    async def slow(now: dict[str, Any]) -> None:
        await through.get()
        sent.append(now)

    async with Sender(slow, interval_s=0.0, drain_s=60.0) as sender:
        tracker = Tracker(sender.offer)
        tracker.add_pages(50)
        for page in range(50):
            tracker.finish_pages(1)
            if page % 10 == 9:
                through.put_nowait(None)
            for _ in range(10):
                await asyncio.sleep(0)  # lets the sender run
        tracker.enter_phase(Phase.DONE)
        for _ in range(100):
            through.put_nowait(None)

    sequence = [now["seq"] for now in sent]
    assert sequence == sorted(set(sequence))
    assert [now["pages_done"] for now in sent] == [1, 10, 20, 30, 40, 50, 50]
    assert sent[-1]["phase"] == "done"


async def test_nothing_is_sent_after_the_drain() -> None:
    """A post that hangs is given up after the drain time, because the result must come last."""
    sent: list[int] = []

    async def hangs(now: dict[str, Any]) -> None:
        await asyncio.sleep(60)
        sent.append(now["seq"])

    async with Sender(hangs, interval_s=0.0, drain_s=0.05) as sender:
        Tracker(sender.offer).enter_phase(Phase.DONE)

    assert not sent


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), StoreError(Code.STORE_UNAVAILABLE, "gone")])
async def test_a_failed_post_fails_neither_the_job_nor_the_next_post(error: Exception) -> None:
    """A platform or store that does not answer for a moment is logged, and newer progress is sent."""
    sent: list[int] = []

    async def post(now: dict[str, Any]) -> None:
        if now["seq"] == 1:
            raise error
        sent.append(now["seq"])

    async with Sender(post, interval_s=0.0, drain_s=1.0) as sender:
        tracker = Tracker(sender.offer)
        tracker.add_pages(1)
        await asyncio.sleep(0.01)
        tracker.enter_phase(Phase.DONE)

    assert sent == [2]


async def test_a_cancelled_job_posts_nothing_more() -> None:
    """Leaving through an exception sends nothing that still waits."""
    sent: list[dict[str, Any]] = []

    async def post(now: dict[str, Any]) -> None:
        sent.append(now)

    with pytest.raises(RuntimeError):
        async with Sender(post, interval_s=60.0, drain_s=1.0) as sender:
            tracker = Tracker(sender.offer)
            tracker.add_pages(3)
            await asyncio.sleep(0.01)
            tracker.finish_pages(1)
            raise RuntimeError("stopped")

    assert [now["pages_done"] for now in sent] == [0]


async def test_the_interval_delays_posts_but_not_a_new_phase() -> None:
    """Within the interval only a change of phase is sent."""
    sent: list[str] = []

    async def post(now: dict[str, Any]) -> None:
        sent.append(now["phase"])

    async with Sender(post, interval_s=60.0, drain_s=1.0) as sender:
        tracker = Tracker(sender.offer)
        tracker.add_pages(3)
        await asyncio.sleep(0.01)
        tracker.finish_pages(1)
        await asyncio.sleep(0.01)
        tracker.enter_phase(Phase.ASSEMBLING)
        await asyncio.sleep(0.01)

    assert sent == ["reading", "assembling"]
