"""Settings in, an open house out: engine, family, page workers and window, once per worker.

One event loop on a thread of its own runs everything here, because RunPod's SDK runs its jobs on a
loop that does not exist yet when the engine starts.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import structlog

from twopass import canary, engines, families
from twopass.document import Canary
from twopass.engines.seam import Engine
from twopass.families.seam import Family
from twopass.meter import Meter, Silent
from twopass.settings import Settings
from twopass.slabs import Slabs
from twopass.stopwatch import Stopwatch
from twopass.window import Window
from twopass.workers import Workers

log = structlog.get_logger()

T = TypeVar("T")
AHEAD = 1.25  # pages in flight per sequence of the engine: some render or wait while others are read
LEAST_WINDOW = 2
HEALTH_S = 5.0
CLOSE_S = 60.0  # for an engine whose GPU hangs; vLLM's ends itself within SHUTDOWN_TIMEOUT_S
SLABS = 384  # descriptors, not memory: what an H200 keeps in flight, with room


@dataclass(frozen=True)
class House:
    """What all jobs of a worker share. Its coroutines run on `loop`."""

    settings: Settings
    engine: Engine
    family: Family
    workers: Workers
    slabs: Slabs
    window: Window
    loop: asyncio.AbstractEventLoop
    meter: Meter = field(default_factory=Silent)
    canary: Canary | None = None

    def stopwatch(self) -> Stopwatch:
        return Stopwatch(self.meter)

    def is_alive(self) -> bool:
        """Whether the loop that reads answers within HEALTH_S; for any thread but its own."""
        done = threading.Event()
        self.loop.call_soon_threadsafe(done.set)
        return done.wait(HEALTH_S)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run on the house's loop; cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)


@contextmanager
def opened(settings: Settings, meter: Meter | None = None) -> Iterator[House]:
    """A warm house; called on the main thread, before the SDK starts. Raises EngineError, a failed canary too."""
    engine = engines.constructed(settings)  # first: an engine may fork, and forks want no threads about
    slabs = Slabs(settings.window or SLABS, settings.window_bytes)
    own = (engine.slabs,) if engine.slabs else ()
    workers = Workers(settings.workers, slabs, settings.worker_timeout_s, more_slabs=own)
    places = settings.window or min(max(LEAST_WINDOW, round(AHEAD * (engine.sequences or workers.count))), SLABS)
    with _running_loop() as loop:
        family, meter = families.named(engine.family), meter or Silent()
        house = House(settings, engine, family, workers, slabs, Window(places), loop, meter)
        try:
            yield replace(house, canary=house.submit(_warm(house)).result())
        finally:
            house.submit(_close(house)).result()
            for pool in (slabs, *own):
                pool.close()


async def _warm(house: House) -> Canary | None:
    await house.workers.open()
    await house.engine.open(house.workers)
    return await canary.verdict(house.engine, house.family, house.workers, house.settings)


async def _close(house: House) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await house.engine.close()
    except TimeoutError:
        log.error("the engine does not end")
    await house.workers.close()


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
