"""Page workers that crash, hang or use too much memory, and the pixel buffers that they share with this process."""

from __future__ import annotations

import asyncio
import ctypes
import operator
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes import taken_over
from tests.fakes.simulated_time import simulated
from twopass.errors import Code, SourceError, WorkerDied
from twopass.pages import source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.runtime import confinement, page_protocol, vendor_reports
from twopass.runtime.page_pool import PagePool, cpu_time_callback, open_page_pool
from twopass.settings import Settings
from twopass.steps import fetch, render
from twopass.steps.render import DrawRequest

PAGE_BYTES = 30


def has_landlock(version: int) -> bool:
    """Whether the kernel has this version of Landlock."""
    return bool(ctypes.CDLL(None).syscall(confinement.CREATE_RULESET, None, 0, confinement.QUERY_VERSION) >= version)


@pytest.fixture(scope="module")
async def buffers() -> AsyncIterator[PixelBufferPool]:
    buffers = PixelBufferPool(2, budget=PAGE_BYTES * 2)
    yield buffers
    buffers.close()


@pytest.fixture(scope="module")
async def page_pool(buffers: PixelBufferPool) -> AsyncIterator[PagePool]:
    """One page worker; the tests leave it, or its successor, idle."""
    page_pool = PagePool(1, buffers, timeout_s=60.0)
    await page_pool.open()
    yield page_pool
    await page_pool.close()


def measure_huge_pages(nbytes: int) -> int:
    """In a page worker: fill memory of malloc's, and return how much of this process's memory is in huge pages."""
    filled = b"x" * nbytes  # NumPy asks for huge pages itself, onnxruntime does not
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * len(filled[:1]) * int(rollup.partition("AnonHugePages:")[2].split()[0])


async def test_large_blocks_are_mapped_in_huge_pages(page_pool: PagePool) -> None:
    """OCR maps gigabytes for each page; in pages of 4 KiB that takes a third of its processor time."""
    choice = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not choice.exists() or "[never]" in choice.read_text():
        pytest.skip("this machine has no huge pages")

    assert await page_pool.call(measure_huge_pages, 64 << 20) >= 32 << 20


async def test_a_call_runs_in_another_process(page_pool: PagePool) -> None:
    """A call runs in a child process and returns its value here."""
    assert await page_pool.call(os.getpid) != os.getpid()


async def test_a_coded_error_keeps_its_code(page_pool: PagePool) -> None:
    """A TwopassError that is raised in a child is raised here with the same code."""
    with pytest.raises(SourceError) as caught:
        await page_pool.call(fetch.inspect, "/nowhere.pdf", "application/pdf", None, fetch.Limits(1, 1))

    assert caught.value.code is Code.DAMAGED


async def test_a_crash_loses_one_call(page_pool: PagePool) -> None:
    """A child that crashes fails its own call only; another child takes the next call."""
    with pytest.raises(WorkerDied) as caught:
        await page_pool.call(os._exit, 1)

    assert caught.value.code is Code.RENDER_CRASH
    assert await page_pool.call(operator.add, 1, 2) == 3


async def test_children_start_as_calls_need_them() -> None:
    """`twopass reparse` of one page starts one child and not one for each core.

    Nor does a call wait for the successor of a dead child while another one is idle.
    """
    before = find_children()

    async with open_page_pool(Settings(page_workers=3), PixelBufferPool(0, 0)) as page_pool:
        at_first = find_children() - before
        one_by_one = {await page_pool.call(os.getpid) for _ in range(3)}
        together = set(await asyncio.gather(page_pool.call(os.getpid), page_pool.call(os.getpid)))
        with suppress(WorkerDied):
            await page_pool.call(os._exit, 1)
        left = {await page_pool.call(os.getpid) for _ in range(3)}

    assert (len(at_first), len(one_by_one), len(together), len(left)) == (0, 1, 2, 1)
    assert one_by_one < together > left


async def test_a_child_that_died_while_idle_loses_no_call(page_pool: PagePool) -> None:
    """If a child died while idle, the next call runs in another child and succeeds."""
    child = await page_pool.call(os.getpid)
    (idle,) = page_pool._children
    os.kill(child, signal.SIGKILL)
    await idle.process.wait()

    assert await page_pool.call(operator.add, 1, 2) == 3
    assert await page_pool.call(os.getpid) != child


async def test_a_pool_closes_with_answers_that_nobody_reads(buffers: PixelBufferPool, tmp_path: Path) -> None:
    """A pool closes while more bytes arrive than its stream keeps, as when a call with a large answer was cancelled."""
    page_pool, sent = PagePool(1, buffers, timeout_s=60.0), tmp_path / "sent"
    await page_pool.open()
    assert await page_pool.call(taken_over.send_more, (2 << 20) + (32 << 10), str(sent))  # the pipe holds 64 KiB
    async with asyncio.timeout(60):
        while not sent.exists():
            await asyncio.sleep(0.01)

        await page_pool.close()


async def test_a_call_that_hangs_is_ended(buffers: PixelBufferPool) -> None:
    """A call that exceeds its timeout fails with RENDER_TIMEOUT, and the pool takes further calls."""
    page_pool = PagePool(1, buffers, timeout_s=0.2)
    await page_pool.open()

    with pytest.raises(WorkerDied) as caught:
        await page_pool.call(time.sleep, 60.0)

    assert caught.value.code is Code.RENDER_TIMEOUT
    assert await page_pool.call(operator.add, 1, 2) == 3
    await page_pool.close()


def grow(size: int) -> int:
    """In a page worker: allocate so many bytes in small pieces, as a decoder does; returns the number of pieces."""
    kept = []
    while sum(map(len, kept)) < size:
        kept.append(os.urandom(1 << 20))
        time.sleep(0.001)
    return len(kept)


async def test_a_call_that_uses_too_much_memory_is_ended(
    buffers: PixelBufferPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page worker that exceeds its memory limit is killed, and its call fails with RENDER_MEMORY."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    page_pool = PagePool(1, buffers, memory_bytes=128 << 20)
    await page_pool.open()
    pieces = await page_pool.call(grow, 16 << 20)

    with pytest.raises(WorkerDied, match="RENDER_MEMORY: grow used more than 128 MiB of memory; raise WORKER_MEMORY"):
        await page_pool.call(grow, 1 << 30)

    assert pieces == 16
    assert await page_pool.call(operator.add, 1, 2) == 3
    await page_pool.close()


async def test_an_answer_larger_than_any_page_needs_is_refused(page_pool: PagePool) -> None:
    """The size of answers is limited, because they fill the memory of the worker process; the page worker survives."""
    before = await page_pool.call(os.getpid)

    with pytest.raises(WorkerDied, match="RENDER_MEMORY: an answer of 256 MiB"):
        await page_pool.call(bytes, page_protocol.MAX_BYTES + 1)

    assert await page_pool.call(os.getpid) == before


async def test_a_page_worker_inherits_no_credentials(buffers: PixelBufferPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that exploits a decoder finds no keys of stores, engines or the platform in its environment."""
    for name in ("BUCKET_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "RUNPOD_AI_API_KEY"):
        monkeypatch.setenv(name, "hunter2")
    page_pool = PagePool(1, buffers)
    await page_pool.open()

    child = await page_pool.call(os.getpid)

    environment = Path(f"/proc/{child}/environ").read_bytes()
    assert b"PATH=" in environment and b"hunter2" not in environment
    await page_pool.close()


async def test_libraries_in_children_report_nothing(monkeypatch: pytest.MonkeyPatch, buffers: PixelBufferPool) -> None:
    """Page workers and children with a model have every switch, whatever the environment of the parent says."""
    for name in vendor_reports.SWITCHES:
        monkeypatch.setenv(name, "neither")
    page_pool = PagePool(1, buffers)
    children = (page_pool, page_pool.create_sibling(1, 60.0, 1 << 30, tuple(vendor_reports.SWITCHES)))

    for child in children:
        await child.open()
        assert {name: await child.call(os.getenv, name) for name in vendor_reports.SWITCHES} == vendor_reports.SWITCHES
        await child.close()


async def test_a_page_worker_inherits_nothing_but_its_buffers(page_pool: PagePool) -> None:
    """No socket, file or pipe of the worker process is open in a page worker, except for its calls and answers."""
    descriptors = await page_pool.call(taken_over.list_open_files)

    kinds = sorted(name.partition(":")[0].rstrip("0123456789-") for name in descriptors if "/fd" not in name)
    assert kinds == ["/memfd", "/memfd", "pipe"]


async def test_a_page_worker_gains_no_privileges(page_pool: PagePool) -> None:
    """A page worker that was taken over can use no setuid program, and has no capabilities beyond reading files."""
    child = await page_pool.call(os.getpid)

    status = dict(line.split(":\t") for line in Path(f"/proc/{child}/status").read_text().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) & ~0b110 == int(status["CapPrm"], 16) & ~0b110 == 0


@pytest.mark.skipif(not has_landlock(version=6), reason="the kernel has no Landlock, or an older one")
async def test_a_page_worker_reaches_no_other_process(page_pool: PagePool) -> None:
    """A page worker that was taken over reads no credentials from the worker process, stops none, and connects to none.

    It runs as the same user, so that Linux would allow it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = os.getpid(), server.getsockname()[1]
        possible = taken_over.attack(*target)
        succeeded = await page_pool.call(taken_over.attack, *target)

    assert len(possible) == 5
    assert succeeded == []


def test_a_process_that_hides_its_memory_does_not_hide_its_programs() -> None:
    """Programs that it starts, such as engines, can share their memory."""
    code = "from twopass.runtime import confinement; import ctypes, os, subprocess, sys\n"
    code += "confinement.hide_memory(); dumpable = 'import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))'\n"
    code += "exec(dumpable); sys.stdout.flush(); subprocess.run([sys.executable, '-c', dumpable])"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.split() == ["0", "1"]


async def test_the_kernel_kills_a_page_worker_before_its_parent(page_pool: PagePool) -> None:
    """If the machine runs out of memory, the kernel kills a page worker and not the process that runs the jobs."""
    child = await page_pool.call(os.getpid)

    assert Path(f"/proc/{child}/oom_score_adj").read_text().strip() == "1000"


async def test_cancelling_a_call_kills_its_child(page_pool: PagePool) -> None:
    """A cancelled call leaves no child running, because it might write into a buffer that is lent to another page."""
    before = await page_pool.call(os.getpid)
    call = asyncio.create_task(page_pool.call(time.sleep, 60.0))
    await asyncio.sleep(0.1)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert await page_pool.call(os.getpid) != before
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


async def test_a_call_cancelled_more_than_once_is_cleaned_up(page_pool: PagePool) -> None:
    """However often a call is cancelled, its child is dead when it ends, and another child takes its place."""
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


def find_children() -> set[int]:
    """The ids of living processes that this one started."""
    pids = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            if path.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                pids.add(int(path.parent.name))
    return pids


async def test_a_call_cancelled_while_a_child_starts_leaves_none(page_pool: PagePool) -> None:
    """A child that is still starting when its call is cancelled is killed."""
    with pytest.raises(WorkerDied):
        await page_pool.call(os._exit, 1)
    before = find_children()
    call = asyncio.create_task(page_pool.call(operator.add, 1, 2))
    async with asyncio.timeout(60):
        while find_children() == before:
            await asyncio.sleep(0.001)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert find_children() == before


async def test_a_child_that_does_not_start_in_time_is_killed(buffers: PixelBufferPool) -> None:
    """A child that does not start in time is killed; the error names the start and not the timeout of a call."""
    before = find_children()
    page_pool = PagePool(1, buffers, start_timeout_s=0.01)

    with pytest.raises(WorkerDied, match="RENDER_TIMEOUT.*did not start within 0.01 s"):
        await page_pool.open()

    assert find_children() == before


async def test_a_child_that_cannot_be_started_loses_one_call(
    page_pool: PagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the machine cannot start another process, the call fails with WorkerDied and the next call tries again."""
    with pytest.raises(WorkerDied):
        await page_pool.call(os._exit, 1)
    with monkeypatch.context() as patch, pytest.raises(WorkerDied, match="RENDER_CRASH.*cannot start a page worker"):
        patch.setattr(sys, "executable", "/nowhere/python")
        await page_pool.call(operator.add, 1, 2)

    assert await page_pool.call(operator.add, 1, 2) == 3


async def test_a_crash_logs_no_text_of_the_document(
    buffers: PixelBufferPool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Frames and type of an unexpected error are logged, and not its message, which may quote the document."""
    page_pool = PagePool(1, buffers)
    await page_pool.open()  # not in a fixture: a child inherits the stderr of the moment, which capfd replaces

    with pytest.raises(WorkerDied):
        await page_pool.call(int, "CONFIDENTIAL")
    await page_pool.close()

    stderr = capfd.readouterr().err
    assert "ValueError" in stderr and "page_worker.py" in stderr
    assert "CONFIDENTIAL" not in stderr


def list_open_files(process: int) -> list[str]:
    paths = []
    for path in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # the descriptor of this listing itself
            paths.append(os.readlink(path))
    return paths


async def test_an_idle_page_worker_closes_a_deleted_pdf(
    page_pool: PagePool, buffers: PixelBufferPool, sample: Path, tmp_path: Path
) -> None:
    """A page worker without a call closes a document whose file is gone: it frees the disk and forgets the password."""
    pdf = tmp_path / "job" / "source"
    pdf.parent.mkdir()
    shutil.copy(sample, pdf)
    child = await page_pool.call(os.getpid)
    async with buffers.lend(10_000) as buffer:
        await page_pool.call(render.draw_pdf, DrawRequest(PagePointer(str(pdf), 1), 0.05, buffer, 10_000))
    open_before = list_open_files(child)
    shutil.rmtree(pdf.parent)

    assert str(pdf) in open_before
    async with asyncio.timeout(60):
        while any(str(pdf) in name for name in list_open_files(child)):
            await asyncio.sleep(0.05)


def test_opening_a_pdf_closes_deleted_ones(sample: Path, tmp_path: Path) -> None:
    """Opening another document closes those whose file was deleted; those that still exist stay open."""
    deleted, existing, another = (shutil.copy(sample, tmp_path / name) for name in ("deleted", "existing", "another"))
    for path in (existing, deleted):
        with source_files.open_shared_pdf(str(path), None):
            pass
    deleted.unlink()

    with source_files.open_shared_pdf(str(another), None):
        open_paths = list_open_files(os.getpid())

    assert str(existing) in open_paths and str(another) in open_paths
    assert not any(str(deleted) in name for name in open_paths)


async def test_processor_seconds_reach_the_callback_of_the_caller(page_pool: PagePool) -> None:
    """The processor time of a call is passed to the callback of the context that made the call."""
    seconds: list[float] = []
    cpu_time_callback.set(seconds.append)

    await page_pool.call(sum, range(2_000_000))

    assert 0 < seconds[0] < 10


async def test_pixels_written_by_a_child_are_read_here(page_pool: PagePool, buffers: PixelBufferPool) -> None:
    """A buffer is the same memory in both processes."""
    async with buffers.lend(PAGE_BYTES) as buffer:
        pixels = Pixels(5, 2, buffer)
        pixels.array()[:] = 7
        in_child = await page_pool.call(_copy, pixels)

    assert in_child == bytes([7]) * PAGE_BYTES


def _copy(pixels: Pixels) -> bytes:
    return pixels.array().tobytes()


async def test_a_sibling_pool_has_the_same_buffers_and_other_children(
    page_pool: PagePool, buffers: PixelBufferPool
) -> None:
    """Its calls run in a process of its own, on the same pixels."""
    sibling = page_pool.create_sibling(1, timeout_s=60.0, memory_bytes=1 << 32)
    await sibling.open()
    try:
        async with buffers.lend(PAGE_BYTES) as buffer:
            buffer.map(PAGE_BYTES)[:] = bytes(range(PAGE_BYTES))
            seen = await sibling.call(_read_sum, Pixels(5, 2, buffer))
        processes = {await page_pool.call(os.getpid), await sibling.call(os.getpid)}
    finally:
        await sibling.close()

    assert seen == sum(range(PAGE_BYTES))
    assert len(processes) == 2


def _read_sum(pixels: Pixels) -> int:
    return int(pixels.array().sum())


@simulated
async def test_a_third_page_waits_for_the_budget() -> None:
    """Buffers are lent within the budget of bytes, in the order of the requests."""
    buffers = PixelBufferPool(3, budget=PAGE_BYTES * 2)
    order: list[str] = []

    async def use(name: str, seconds: float) -> None:
        async with buffers.lend(PAGE_BYTES):
            order.append(name)
            await asyncio.sleep(seconds)

    await asyncio.gather(use("first", 0.02), use("second", 0.05), use("third", 0))
    buffers.close()

    assert order == ["first", "second", "third"]


async def test_a_page_larger_than_the_budget_gets_a_buffer(buffers: PixelBufferPool) -> None:
    """A page larger than the whole budget is not refused, but gets its buffer when no other is lent."""
    async with buffers.lend(PAGE_BYTES * 10) as buffer:
        assert isinstance(buffer, PixelBuffer)


async def test_a_cancelled_wait_takes_no_buffer(buffers: PixelBufferPool) -> None:
    """A caller that is cancelled while it waits for a buffer leaves the whole budget to the next one."""
    async with buffers.lend(PAGE_BYTES * 10):
        waiting = asyncio.create_task(buffers.lend(PAGE_BYTES).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async with buffers.lend(PAGE_BYTES * 10) as buffer:
        assert buffer


@simulated
async def test_cancelling_a_large_page_serves_the_smaller_ones_behind_it() -> None:
    """If the first in the queue is cancelled, the next is served at once, not only when a buffer is returned."""
    buffers = PixelBufferPool(3, budget=PAGE_BYTES * 2)
    async with buffers.lend(PAGE_BYTES):
        large = asyncio.create_task(buffers.lend(PAGE_BYTES * 2).__aenter__())
        small = asyncio.create_task(buffers.lend(PAGE_BYTES).__aenter__())
        await asyncio.sleep(0)
        large.cancel()

        assert await asyncio.wait_for(small, 1)
    buffers.close()


async def test_a_page_worker_is_replaced_after_its_last_call(buffers: PixelBufferPool) -> None:
    """A page worker is replaced after `calls` calls, which frees memory that libraries leak; no call is lost."""
    page_pool = PagePool(1, buffers, calls=3)
    await page_pool.open()
    pids = [await page_pool.call(os.getpid) for _ in range(7)]
    await page_pool.close()

    assert [pids.index(pid) for pid in pids] == [0, 0, 0, 3, 3, 3, 6]


async def test_a_page_worker_starts_without_the_layout_model_of_pymupdf(page_pool: PagePool) -> None:
    """Importing PyMuPDF would load it, a second and 35 MB in every page worker, and only the cpu engine uses it."""
    loaded = await page_pool.call(eval, "set(__import__('sys').modules)")

    assert "pymupdf" in loaded and "pymupdf.layout" not in loaded


async def test_an_idle_page_worker_imports_what_calls_will_need(buffers: PixelBufferPool) -> None:
    """The first name is imported before any call, the others between calls; what fails is left out."""
    page_pool = PagePool(1, buffers, preload=("colorsys", "not_installed", "os:abort_", "gc:collect", "sched"))
    await page_pool.open()
    try:
        loaded = "set(__import__('sys').modules)"

        assert "colorsys" in await page_pool.call(eval, loaded)
        async with asyncio.timeout(60):
            while "sched" not in await page_pool.call(eval, loaded):
                await asyncio.sleep(0.05)
    finally:
        await page_pool.close()
