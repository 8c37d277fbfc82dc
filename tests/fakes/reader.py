"""Jobs run in this process, in a house of shared workers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from twopass import pipeline
from twopass.document import Canary
from twopass.engines.interface import Engine
from twopass.families import registry
from twopass.job import Door, Job, Result
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.runtime.shutdown import Shutdown
from twopass.settings import Settings
from twopass.telemetry.observer import NullObserver, Observer
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker


@dataclass
class Reader:
    """Runs jobs in a house of shared workers."""

    page_pool: PagePool
    buffers: PixelBufferPool
    engine: Engine
    settings: Settings = field(default_factory=Settings)
    canary: Canary | None = None
    closing: Shutdown = field(default_factory=Shutdown)
    observer: Observer = field(default_factory=NullObserver)

    async def run(
        self,
        window: int = 4,
        engine: Engine | None = None,
        progress: Tracker | None = None,
        job_id: str = "job",
        **fields: Any,
    ) -> Result:
        chosen = engine or self.engine
        await chosen.open(self.page_pool)
        loop = asyncio.get_running_loop()
        family = registry.named(chosen.family)
        worker = Worker(self.settings, chosen, family, self.page_pool, self.buffers, PageSlots(window), loop)
        worker = replace(worker, canary=self.canary, closing=self.closing, observer=self.observer)
        job = Job.parse({"id": job_id, "input": fields}, worker.settings, Door.LOCAL)
        return await pipeline.run(job, worker, progress or Tracker())
