"""Run jobs in this process, with an engine of the test and shared page workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from twopass import pipeline
from twopass.document import Canary
from twopass.engines.interface import Engine
from twopass.families import registry
from twopass.families.interface import Family
from twopass.job import EntryPoint, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.runtime.shutdown import Shutdown
from twopass.settings import Settings
from twopass.telemetry.observer import CompositeObserver, Observer
from twopass.telemetry.progress import Tracker
from twopass.worker import EngineStart, Worker


@dataclass
class Reader:
    """Runs each job in a new worker that shares the page pool, the pixel buffers and the shutdown."""

    page_pool: PagePool
    buffers: PixelBufferPool
    engine: Engine
    settings: Settings = field(default_factory=Settings)
    canary: Canary | None = None
    shutdown: Shutdown = field(default_factory=Shutdown)
    observer: Observer = field(default_factory=CompositeObserver)
    pick_start: Callable[[int], int] = lambda count: 0  # read pages in their order
    dpi: int = 144  # of jobs that name none; fewer save time where a test does not look at pixels

    async def run(
        self,
        page_slots: int = 4,
        engine: Engine | None = None,
        progress: Tracker | None = None,
        job_id: str = "job",
        family: Family | None = None,
        **fields: Any,
    ) -> Result:
        engine = engine or self.engine
        await engine.open(self.page_pool)
        loop = asyncio.get_running_loop()
        family = family or registry.get_family(engine.family)
        slots = PageSlots(page_slots, max_slow=self.page_pool.count)
        worker = Worker(self.settings, engine, family, self.page_pool, self.buffers, slots, loop)
        worker = replace(worker, start=EngineStart(self.canary), shutdown=self.shutdown, observer=self.observer)
        worker = replace(worker, pick_start=self.pick_start)
        job = Job.parse({"id": job_id, "input": {"dpi": self.dpi, **fields}}, worker.settings, EntryPoint.LOCAL)
        return await pipeline.run(job, worker, progress or Tracker())
