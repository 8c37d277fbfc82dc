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
from twopass.pages.shared_pixels import Slabs
from twopass.runtime.page_pool import Workers
from twopass.runtime.page_slots import Window
from twopass.runtime.shutdown import Closing
from twopass.settings import Settings
from twopass.telemetry.observer import Meter, Silent
from twopass.telemetry.progress import Tracker
from twopass.worker import House


@dataclass
class Reader:
    """Runs jobs in a house of shared workers."""

    workers: Workers
    slabs: Slabs
    engine: Engine
    settings: Settings = field(default_factory=Settings)
    canary: Canary | None = None
    closing: Closing = field(default_factory=Closing)
    meter: Meter = field(default_factory=Silent)

    async def run(
        self,
        window: int = 4,
        engine: Engine | None = None,
        progress: Tracker | None = None,
        job_id: str = "job",
        **fields: Any,
    ) -> Result:
        chosen = engine or self.engine
        await chosen.open(self.workers)
        loop = asyncio.get_running_loop()
        family = registry.named(chosen.family)
        house = House(self.settings, chosen, family, self.workers, self.slabs, Window(window), loop)
        house = replace(house, canary=self.canary, closing=self.closing, meter=self.meter)
        job = Job.parse({"id": job_id, "input": fields}, house.settings, Door.LOCAL)
        return await pipeline.run(job, house, progress or Tracker())
