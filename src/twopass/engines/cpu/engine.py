"""The CPU engine: read text and layout of a page in a page worker, without a GPU.

`page.read_page` does the work there. families/layout/ documents and parses the JSON that it returns. The engine does
not sample, so the same page always gives the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from twopass.engines.cpu.layout_regions import load_layout_model
from twopass.engines.cpu.page import read_page, read_page_simply
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError, WorkerDied
from twopass.pages import scripts
from twopass.pages.rendered_page import PagePointer
from twopass.runtime.cpu_budget import limit_share
from twopass.runtime.page_pool import PagePool

FIRST_TRY_SHARE = 0.5  # of the page's processor time; the rest is for reading it without the layout model

log = structlog.get_logger()


class CpuEngine(Engine):
    """PyMuPDF's layout model with the text layer, or with RapidOCR on pages without one."""

    kind = "cpu"
    needs_canary = False
    precision = "float32"
    family = "layout"

    def __init__(self, sequences: int, tessdata: Path | None = None) -> None:
        """`tessdata` is the folder of Tesseract's language files, None without any."""
        self.sequences = sequences
        self._tesseract = scripts.open_tesseract(tessdata)
        if self._tesseract:  # part of documents' ids: without it, other scripts are not read
            self.precision = f"{self.precision}+tesseract"
        self._page_pool: PagePool | None = None
        self._reading = 0  # pages that are read now

    async def open(self, page_pool: PagePool) -> None:
        """Load the layout model in every page worker; concurrent calls go to different workers."""
        self._page_pool = page_pool
        await asyncio.gather(*(page_pool.call(load_layout_model) for _ in range(page_pool.count)))

    async def generate(self, prompt: Prompt) -> Completion:
        if self._page_pool is None or prompt.page is None:
            raise EngineError(Code.ENGINE_DEAD, "the cpu engine needs a page of a file, and `open` before `generate`")
        started = time.monotonic()
        with self._count_page():
            text = await self._read(self._page_pool, prompt, prompt.page)
        return Completion(text, seconds=time.monotonic() - started)

    @contextmanager
    def _count_page(self) -> Iterator[None]:
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    async def _read(self, page_pool: PagePool, prompt: Prompt, page: PagePointer) -> str:
        # With fewer pages than page workers, each page has some of the idle cores.
        threads = max(page_pool.count // self._reading, 1)
        inputs = (page, prompt.image, prompt.language, self._tesseract, threads)
        try:
            with limit_share(FIRST_TRY_SHARE):
                return await page_pool.call(read_page, *inputs)
        except WorkerDied as error:
            log.warning("page is read again without the layout model", page=page.number, code=error.code)
            return await page_pool.call(read_page_simply, *inputs)

    async def close(self) -> None:
        """Release the page pool, which the worker owns and closes."""
        self._page_pool = None
