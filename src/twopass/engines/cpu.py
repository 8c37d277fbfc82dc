"""A prompt with a page pointer in, the page's layout and text as JSON out: the engine of any laptop.

Knows page workers. What a page worker does is `cpu_page.read_page`; the JSON it writes is the
grammar that families/layout.py documents and parses. Does no sampling, so it answers the same
bytes for the same page.
"""

from __future__ import annotations

import time

from twopass.engines.cpu_page import read_page
from twopass.engines.seam import Completion, Prompt
from twopass.errors import Code, EngineError
from twopass.workers import Workers


class CpuEngine:
    """PyMuPDF's layout model and text layer, RapidOCR on pages without one."""

    kind = "cpu"
    precision = "float32"
    family = "layout"

    def __init__(self, sequences: int) -> None:
        self.sequences = sequences
        self._workers: Workers | None = None

    async def open(self, workers: Workers) -> None:
        """Nothing to warm: every page worker loads its models with its first page (1-2 s)."""
        self._workers = workers

    async def generate(self, prompt: Prompt) -> Completion:
        if self._workers is None or prompt.page is None:
            raise EngineError(Code.ENGINE_DEAD, "the cpu engine reads pages of files and is asked after `open`")
        started = time.monotonic()
        text = await self._workers.call(read_page, prompt.page, prompt.image, prompt.language)
        return Completion(text, seconds=time.monotonic() - started)

    async def close(self) -> None:
        """The page workers belong to the house."""
        self._workers = None
