"""A prompt with a page pointer in, the page's layout and text as JSON out: the engine of any laptop.

Knows page workers. What a page worker does is `cpu_page.read_page`; the JSON it writes is the
grammar that families/layout.py documents and parses. Does no sampling, so it answers the same
bytes for the same page.
"""

from __future__ import annotations

import asyncio
import time

from twopass.engines.cpu.page import load, read_page
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError
from twopass.runtime.page_pool import PagePool


class CpuEngine(Engine):
    """PyMuPDF's layout model and text layer, RapidOCR on pages without one."""

    kind = "cpu"
    canary = False
    precision = "float32"
    family = "layout"

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self._page_pool: PagePool | None = None

    async def open(self, page_pool: PagePool) -> None:
        """Load the layout model in every page worker; calls made at once go to different ones."""
        self._page_pool = page_pool
        await asyncio.gather(*(page_pool.call(load) for _ in range(page_pool.count)))

    async def generate(self, prompt: Prompt) -> Completion:
        if self._page_pool is None or prompt.page is None:
            raise EngineError(Code.ENGINE_DEAD, "the cpu engine reads pages of files and is asked after `open`")
        started = time.monotonic()
        text = await self._page_pool.call(read_page, prompt.page, prompt.image, prompt.language)
        return Completion(text, seconds=time.monotonic() - started)

    async def close(self) -> None:
        """The page workers belong to the house."""
        self._page_pool = None
