"""Page workers and slabs: what a dying child costs, and who owns the memory."""

from __future__ import annotations

import asyncio
import operator
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests import ROOT
from twopass.engines.interface import PagePointer
from twopass.errors import Code, SourceError, WorkerDied
from twopass.pages import source_files
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.runtime.page_pool import ANSWER_BYTES, PagePool, cpu_meter
from twopass.steps import fetch, render

PAGE = 30


@pytest.fixture
async def buffers() -> AsyncIterator[PixelBufferPool]:
    buffers = PixelBufferPool(2, budget=PAGE * 2)
    yield buffers
    buffers.close()


@pytest.fixture
async def page_pool(buffers: PixelBufferPool) -> AsyncIterator[PagePool]:
    page_pool = PagePool(1, buffers, timeout_s=60.0)
    await page_pool.open()
    yield page_pool
    await page_pool.close()


async def test_a_value_comes_back_from_another_process(page_pool: PagePool) -> None:
    """A call runs in a child, not here."""
    assert await page_pool.call(os.getpid) != os.getpid()


async def test_a_coded_error_comes_through_whole(page_pool: PagePool) -> None:
    """What a step raises in a child is raised here with its code."""
    with pytest.raises(SourceError) as caught:
        await page_pool.call(fetch.inspect, "/nowhere.pdf", "application/pdf", None, fetch.Limits(1, 1))

    assert caught.value.code is Code.DAMAGED


async def test_a_crash_costs_one_call(page_pool: PagePool) -> None:
    """A child that dies is replaced alone; the next call is answered."""
    with pytest.raises(WorkerDied) as caught:
        await page_pool.call(os._exit, 1)

    assert caught.value.code is Code.RENDER_CRASH
    assert await page_pool.call(operator.add, 1, 2) == 3


async def test_a_child_that_died_while_idle_costs_no_call(page_pool: PagePool) -> None:
    """Whoever comes next gets another child and its answer."""
    child = await page_pool.call(os.getpid)
    os.kill(child, signal.SIGKILL)
    async with asyncio.timeout(60):
        while psutil.pid_exists(child):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)  # its end reaches the loop

    assert await page_pool.call(operator.add, 1, 2) == 3
    assert await page_pool.call(os.getpid) != child


async def test_a_call_that_hangs_is_killed(buffers: PixelBufferPool) -> None:
    """A call beyond its time ends with a code and the worker is usable again."""
    page_pool = PagePool(1, buffers, timeout_s=1.0)
    await page_pool.open()

    with pytest.raises(WorkerDied) as caught:
        await page_pool.call(time.sleep, 60.0)

    assert caught.value.code is Code.RENDER_TIMEOUT
    assert await page_pool.call(operator.add, 1, 2) == 3
    await page_pool.close()


def hoard(size: int) -> int:
    """In a page worker: take so much memory, a piece at a time as a decoder does."""
    kept = []
    while sum(map(len, kept)) < size:
        kept.append(os.urandom(1 << 20))
        time.sleep(0.001)
    return len(kept)


async def test_a_call_that_takes_too_much_memory_is_killed(
    buffers: PixelBufferPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb ends its page worker with a code of its own, long before the machine has no memory left."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    page_pool = PagePool(1, buffers, memory_bytes=128 << 20)
    await page_pool.open()
    within = await page_pool.call(hoard, 16 << 20)

    with pytest.raises(WorkerDied, match="RENDER_MEMORY: hoard took over 128 MiB of memory; raise WORKER_MEMORY"):
        await page_pool.call(hoard, 1 << 30)

    assert within == 16
    assert await page_pool.call(operator.add, 1, 2) == 3
    await page_pool.close()


async def test_an_answer_that_no_page_has_is_refused(page_pool: PagePool) -> None:
    """What a page worker hands over fills the memory of the process that takes the jobs, so it is bounded."""
    before = await page_pool.call(os.getpid)

    with pytest.raises(WorkerDied, match="RENDER_MEMORY: an answer of 256 MiB"):
        await page_pool.call(bytes, ANSWER_BYTES)

    assert await page_pool.call(os.getpid) == before


async def test_a_page_worker_knows_no_key(buffers: PixelBufferPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who breaks out of a decoder finds no key of a store, an engine or the platform in the environment."""
    for name in ("BUCKET_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "RUNPOD_AI_API_KEY"):
        monkeypatch.setenv(name, "hunter2")
    page_pool = PagePool(1, buffers)
    await page_pool.open()

    child = await page_pool.call(os.getpid)

    environment = Path(f"/proc/{child}/environ").read_bytes()
    assert b"PATH=" in environment and b"hunter2" not in environment
    await page_pool.close()


async def test_a_page_worker_is_the_first_to_go_where_memory_ends(page_pool: PagePool) -> None:
    """The kernel, which ends a process where the machine has no memory left, takes this one and not its parent."""
    child = await page_pool.call(os.getpid)

    assert Path(f"/proc/{child}/oom_score_adj").read_text().strip() == "1000"


async def test_a_cancelled_call_leaves_no_child_at_work(page_pool: PagePool) -> None:
    """Cancelling kills the child that was at it, because it might write into a slab lent on."""
    before = await page_pool.call(os.getpid)
    call = asyncio.create_task(page_pool.call(time.sleep, 60.0))
    await asyncio.sleep(0.1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert await page_pool.call(os.getpid) != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


async def test_a_place_outlives_a_second_cancellation(page_pool: PagePool) -> None:
    """However often a call is cancelled, its child is dead when it ends and its place is filled again."""
    before = await page_pool.call(os.getpid)
    call = asyncio.create_task(page_pool.call(time.sleep, 60.0))
    await asyncio.sleep(0.1)

    for _ in range(3):
        call.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await call

    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert await asyncio.wait_for(page_pool.call(operator.add, 1, 2), 30) == 3


def children() -> set[int]:
    """Living processes that this one started."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            if path.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(int(path.parent.name))
    return found


async def test_a_call_cancelled_while_a_child_starts_leaves_none(page_pool: PagePool) -> None:
    """A child that nobody waits for any more is not left behind half started."""
    with pytest.raises(WorkerDied):
        await page_pool.call(os._exit, 1)
    before = children()
    call = asyncio.create_task(page_pool.call(operator.add, 1, 2))
    async with asyncio.timeout(60):
        while children() == before:
            await asyncio.sleep(0.001)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert children() == before


async def test_a_child_that_does_not_start_in_time_is_killed(buffers: PixelBufferPool) -> None:
    """The error names the start and not the call's time, and no child is left."""
    before = children()
    page_pool = PagePool(1, buffers, start_s=0.01)

    with pytest.raises(WorkerDied, match="RENDER_TIMEOUT.*did not start within 0.01 s"):
        await page_pool.open()

    assert children() == before


async def test_a_child_that_cannot_be_started_is_a_dead_worker(
    page_pool: PagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without room for another process costs the page and not the job."""
    with pytest.raises(WorkerDied):
        await page_pool.call(os._exit, 1)
    with monkeypatch.context() as broken, pytest.raises(WorkerDied, match="RENDER_CRASH.*no page worker"):
        broken.setattr(sys, "executable", "/nowhere/python")
        await page_pool.call(operator.add, 1, 2)

    assert await page_pool.call(operator.add, 1, 2) == 3


async def test_a_crash_tells_no_text_of_the_document(
    buffers: PixelBufferPool, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unexpected error's frames and type reach the log, and nothing that it quotes."""
    page_pool = PagePool(1, buffers)
    await page_pool.open()  # here: a child inherits the stderr of its time

    with pytest.raises(WorkerDied):
        await page_pool.call(int, "CONFIDENTIAL")
    await page_pool.close()

    told = capfd.readouterr().err
    assert "ValueError" in told and "page_worker.py" in told
    assert "CONFIDENTIAL" not in told


def open_files(process: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # the listing's own
            found.append(os.readlink(path))
    return found


async def test_a_finished_jobs_pdf_is_closed_by_the_next_call(
    page_pool: PagePool, buffers: PixelBufferPool, sample: Path, tmp_path: Path
) -> None:
    """A worker holds no deleted document open, nor its password, once it is called for anything else."""
    pdf = tmp_path / "job" / "source"
    pdf.parent.mkdir()
    shutil.copy(sample, pdf)
    child = await page_pool.call(os.getpid)
    async with buffers.lend(10_000) as buffer:
        await page_pool.call(render.draw_pdf, PagePointer(str(pdf), 1), 0.05, buffer, 10_000)
    kept = open_files(child)
    shutil.rmtree(pdf.parent)

    await page_pool.call(operator.add, 1, 2)

    assert str(pdf) in kept
    assert not any(str(pdf) in name for name in open_files(child))


def test_another_pdf_closes_those_that_are_gone(sample: Path, tmp_path: Path) -> None:
    """Who asks for a second document lets go of a first that was deleted; one that is there stays open."""
    gone, there, asked = (shutil.copy(sample, tmp_path / name) for name in ("gone", "there", "asked"))
    for path in (there, gone):
        with source_files.shared_pdf(str(path), None):
            pass
    gone.unlink()

    with source_files.shared_pdf(str(asked), None):
        held = open_files(os.getpid())

    assert str(there) in held and str(asked) in held
    assert not any(str(gone) in name for name in held)


async def test_processor_seconds_reach_the_meter_of_the_caller(page_pool: PagePool) -> None:
    """A child's processor time is told in the context that asked."""
    told: list[float] = []
    cpu_meter.set(told.append)

    await page_pool.call(sum, range(2_000_000))

    assert 0 < told[0] < 10


async def test_pixels_written_by_a_child_are_read_here(page_pool: PagePool, buffers: PixelBufferPool) -> None:
    """A slab is one memory in both processes."""
    async with buffers.lend(PAGE) as buffer:
        pixels = Pixels(5, 2, buffer)
        pixels.array()[:] = 7
        total = await page_pool.call(np.sum, pixels.array())
        seen_there = await page_pool.call(Pixels.array, pixels)

    assert total == 7 * PAGE
    assert seen_there.tolist() == [[[7, 7, 7]] * 5] * 2


async def test_a_third_page_waits_until_the_budget_allows() -> None:
    """No more bytes are lent than the budget, first come first served."""
    buffers = PixelBufferPool(3, budget=PAGE * 2)
    order: list[str] = []

    async def use(name: str, seconds: float) -> None:
        async with buffers.lend(PAGE):
            order.append(name)
            await asyncio.sleep(seconds)

    await asyncio.gather(use("first", 0.02), use("second", 0.05), use("third", 0))
    buffers.close()

    assert order == ["first", "second", "third"]


async def test_a_page_beyond_the_budget_is_lent_alone(buffers: PixelBufferPool) -> None:
    """A page larger than the whole budget is not refused: it waits until nothing else is lent."""
    async with buffers.lend(PAGE * 10) as buffer:
        assert isinstance(buffer, PixelBuffer)


async def test_a_cancelled_wait_takes_nothing_with_it(buffers: PixelBufferPool) -> None:
    """Whoever stops waiting for a slab leaves it to the next."""
    async with buffers.lend(PAGE * 10):
        waiting = asyncio.create_task(buffers.lend(PAGE).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async with buffers.lend(PAGE * 10) as buffer:
        assert buffer


async def test_a_large_page_that_gives_up_lets_smaller_ones_through() -> None:
    """Cancelling the first in the queue grants the next at once, not only when a slab comes back."""
    buffers = PixelBufferPool(3, budget=PAGE * 2)
    async with buffers.lend(PAGE):
        large = asyncio.create_task(buffers.lend(PAGE * 2).__aenter__())
        small = asyncio.create_task(buffers.lend(PAGE).__aenter__())
        await asyncio.sleep(0)
        large.cancel()

        assert await asyncio.wait_for(small, 1)
    buffers.close()


async def test_a_worn_out_worker_is_replaced_by_a_fresh_one(buffers: PixelBufferPool) -> None:
    """After so many calls: what libraries never give back goes with the process; no call is lost."""
    page_pool = PagePool(1, buffers, calls=3)
    await page_pool.open()
    pids = [await page_pool.call(os.getpid) for _ in range(7)]
    await page_pool.close()

    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6]
