"""An engine with a layout detector in front: prompts to detect regions go to the detector, all others to the reader."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from twopass.detection.region import DETECT
from twopass.engines.detector.batches import Batcher
from twopass.engines.interface import Completion, Engine, Incident, Prompt
from twopass.errors import Code, EngineError, WorkerDied
from twopass.pages.shared_pixels import Pixels
from twopass.runtime import retry, task_group
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool

BATCH = 64  # pages: a batch of more is no faster per page
REGIONS_AT_ONCE = 4  # prompts of a page: half of what a page of text has, because some pages render or wait

log = structlog.get_logger()


class Detector(Protocol):
    """Finds the regions of pages. The texts that it returns are JSON (detection/region.py), "" for a failure."""

    async def prepare(self, page_pool: PagePool) -> None:
        """Begin to open without the GPU; raises EngineError and WorkerDied, as `open` does."""
        ...

    async def open(self, page_pool: PagePool) -> None: ...

    async def detect(self, pages: Sequence[Pixels]) -> Sequence[str]: ...

    async def close(self) -> None: ...


class DetectorFirstEngine(Engine):
    """The reader's engine in all but the prompts to detect. A batch holds at most `batch` pages, of any job.

    `name` is what documents say of the detector. What the reader changes while it runs is passed on as it is then.
    """

    def __init__(
        self,
        detector: Detector,
        reader: Engine,
        family: str,
        batch: int = BATCH,
        name: str | None = None,
        prompts_per_page: int = 1,
    ) -> None:
        self._detector = detector
        self._reader = reader
        self._batcher: Batcher[Pixels, str] = Batcher(detector.detect, batch)
        self._stage_ends: Mapping[str, float] = {}
        self.kind = reader.kind
        self.family = family
        self.needs_canary = reader.needs_canary
        self.has_ngram_ban = reader.has_ngram_ban
        self.uses_drafts = reader.uses_drafts
        self.buffer_pools = reader.buffer_pools
        self.detector = name
        self.prompts_per_page = prompts_per_page

    @property
    def is_gone(self) -> bool:  # type: ignore[override]
        return self._reader.is_gone

    @property
    def fallbacks(self) -> Sequence[str]:  # type: ignore[override]
        return self._reader.fallbacks

    @property
    def incidents(self) -> Sequence[Incident]:  # type: ignore[override]
        return self._reader.incidents

    @property
    def precision(self) -> str:  # type: ignore[override]
        return self._reader.precision

    @property
    def sequences(self) -> int:  # type: ignore[override]
        return self._reader.sequences

    @property
    def members(self) -> Sequence[Engine]:  # type: ignore[override]
        """The reader's members, each with this detector in front."""
        return [self._put_before(member) for member in self._reader.members]

    @property
    def statuses(self) -> Sequence[EngineStatus]:  # type: ignore[override]
        return self._reader.statuses

    @property
    def stage_ends(self) -> Mapping[str, float]:  # type: ignore[override]
        return {**self._reader.stage_ends, **self._stage_ends}

    async def open(self, page_pool: PagePool) -> None:
        """The detector uses the GPU once the reader has measured its free memory; it needs little of that."""
        try:
            async with task_group.open_group() as group:
                group.create_task(self._detector.prepare(page_pool))
                await self._reader.open(page_pool)
                reader_opened = time.monotonic()
            await self._detector.open(page_pool)
        except WorkerDied as error:
            message = f"the layout detector did not start; see stderr ({error.message})"
            raise EngineError(Code.ENGINE_DEAD, message) from error
        self._stage_ends = {"open_s": reader_opened, "detector_s": time.monotonic()}

    async def generate(self, prompt: Prompt) -> Completion:
        if prompt.text != DETECT:
            return await self._reader.generate(prompt)
        started = time.monotonic()
        try:
            text = await retry.DETECTOR_PAGE.run_async(lambda: self._batcher.ask(prompt.image))
        except WorkerDied as error:
            log.error("the layout detector failed on a page", prompt=prompt.id, code=error.code, reason=error.message)
            return Completion("", "crash", seconds=time.monotonic() - started)
        if not text:
            log.error("the layout detector's outputs for a page are no numbers", prompt=prompt.id)
        return Completion(text, "stop" if text else "error", seconds=time.monotonic() - started)

    async def after_ready(self, is_warmed_up: bool = False) -> None:
        await self._reader.after_ready(is_warmed_up)

    def _put_before(self, reader: Engine) -> Engine:
        engine = copy.copy(self)
        engine._reader = reader
        return engine

    async def close(self) -> None:
        await self._detector.close()
        await self._reader.close()
