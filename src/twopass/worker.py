"""Settings in, an open house out: engine, family, page workers and window, once per worker.

One event loop on a thread of its own runs everything here, because RunPod's SDK runs its jobs on a
loop that does not exist yet when the engine starts.
"""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from twopass.document import Canary
from twopass.engines import factory
from twopass.engines.interface import Engine
from twopass.families import registry
from twopass.families.interface import Family
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import gc_tuning, scratch
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.runtime.shutdown import Shutdown
from twopass.settings import Settings
from twopass.steps import canary
from twopass.telemetry.observer import NullObserver, Observer
from twopass.telemetry.stopwatch import Stopwatch

log = structlog.get_logger()

T = TypeVar("T")
AHEAD = 1.25  # pages in flight per sequence of the engine: some render or wait while others are read
LEAST_WINDOW = 2
HEALTH_S = 5.0
CLOSE_S = 60.0  # for an engine whose GPU hangs; vLLM's ends itself within SHUTDOWN_TIMEOUT_S
PAGE_BYTES, LEAST_BYTES = 6 << 20, 2 << 30  # an A4 page in 144 dpi; with fewer places, what a few huge pages take
DESCRIPTORS = 1 << 16  # slabs of two kinds take 1,400 at 512 sequences; many systems begin with 1,024


@dataclass(frozen=True)
class Worker:
    """What all jobs of a worker share. Its coroutines run on `loop`."""

    settings: Settings
    engine: Engine
    family: Family
    page_pool: PagePool
    buffers: PixelBufferPool
    window: PageSlots
    loop: asyncio.AbstractEventLoop
    observer: Observer = field(default_factory=NullObserver)
    canary: Canary | None = None
    closing: Shutdown = field(default_factory=Shutdown)
    started: Mapping[str, float] = field(default_factory=dict)  # seconds of each stage of the start, and of all

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.observer)

    def is_alive(self) -> bool:
        """Whether the loop that reads answers within HEALTH_S; for any thread but its own."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(done.set)
        return done.wait(HEALTH_S)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run on the house's loop; cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop_soon(self) -> None:
        """No page starts any more. Called by a signal handler: it may log nothing, a lock may be held under it."""
        self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        log.warning("told to stop: no page starts any more", grace_s=self.settings.shutdown_grace_s)
        self.closing.announce(self.settings.shutdown_grace_s)


@contextmanager
def open_worker(settings: Settings, observer: Observer | None = None) -> Iterator[Worker]:
    """A warm house; called on the main thread, before the SDK starts. Raises EngineError, a failed canary too."""
    _raise_descriptors()
    if swept := scratch.sweep():
        log.info("swept up after killed workers", folders=swept)
    stages = {"imports_s": _age_s()}
    before = time.monotonic()
    engine = factory.constructed(settings)  # first: an engine may fork, and forks want no threads about
    stages["engine_s"] = time.monotonic() - before
    places = settings.window or max(LEAST_WINDOW, round(AHEAD * (engine.sequences or settings.page_worker_count)))
    buffers = PixelBufferPool(places, settings.window_bytes or max(LEAST_BYTES, places * PAGE_BYTES))
    own = (engine.buffers,) if engine.buffers else ()
    limits = {"memory_bytes": settings.worker_memory_bytes, "calls": settings.worker_calls}
    page_pool = PagePool(settings.page_worker_count, buffers, settings.worker_timeout_s, more_buffers=own, **limits)
    with gc_tuning.seldom(), _running_loop() as loop:
        family, observer = registry.named(engine.family), observer or NullObserver()
        worker = Worker(settings, engine, family, page_pool, buffers, PageSlots(places), loop, observer)
        try:
            seen = worker.submit(_warm(worker, stages)).result()
            stages = {name: round(seconds, 2) for name, seconds in {**stages, "ready_s": _age_s()}.items()}
            log.info("worker ready", **stages)
            yield replace(worker, canary=seen, started=stages)
        finally:
            worker.submit(_close(worker)).result()
            for pool in (buffers, *own):
                pool.close()


def _raise_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _warm(worker: Worker, stages: dict[str, float]) -> Canary | None:
    before = time.monotonic()
    await worker.page_pool.open()
    await worker.engine.open(worker.page_pool)
    opened = time.monotonic()
    verdict = await canary.verdict(worker.engine, worker.family, worker.page_pool, worker.settings)
    stages |= {f"engine_{name}": seconds for name, seconds in worker.engine.started.items()}
    stages |= {"workers_s": opened - before, "canary_s": time.monotonic() - opened}
    return verdict


def _age_s() -> float:
    """Of this process."""
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


async def _close(worker: Worker) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await worker.engine.close()
    except TimeoutError:
        log.error("the engine does not end")
    await worker.page_pool.close()


@contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="twopass", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
