"""An engine that does what the vLLM engine does on the host, and whose tokens are made up."""

from __future__ import annotations

import asyncio

from scripts.bench.workload import STREAM_INTERVAL
from twopass.engines.interface import Completion, GroupMember, Prompt
from twopass.engines.vllm.engine import BUFFERS_PER_SEQUENCE
from twopass.engines.vllm.images import TiledImages
from twopass.models import MODELS
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings


class HostEngine(GroupMember):
    """Lets page workers write images as views into buffers of its own, and generates `tokens_per_s` in total.

    Without `tokens_per_s`, tokens cost no time. It never dies.
    """

    kind, precision, family = "vllm", "scripted", "deepseek_ocr"
    needs_canary = False
    uses_drafts = True  # page workers write their texts; tokenizing these is left out, for lack of a tokenizer

    def __init__(self, gpus: str, settings: Settings, tokens_per_s: float | None = None) -> None:
        assert settings.max_num_seqs
        self.gpus, self.sequences = gpus, settings.max_num_seqs
        self._images = TiledImages(MODELS["deepseek_ocr"].vision)
        self._buffers = PixelBufferPool(
            round(BUFFERS_PER_SEQUENCE * self.sequences) + settings.page_worker_count,
            1 << 62,
            fixed_size=self._images.max_nbytes,
        )
        self.buffer_pools = (self._buffers,)
        self._tokens_per_s = tokens_per_s
        self._sequences = asyncio.Semaphore(self.sequences)
        self._active = 0
        self._page_pool: PagePool | None = None
        self.statuses = (EngineStatus(gpus, self.sequences),)

    async def open(self, page_pool: PagePool) -> None:
        self._page_pool = page_pool

    async def generate(self, prompt: Prompt) -> Completion:
        return await self.attempt(prompt)

    async def attempt(self, prompt: Prompt, is_alone: bool = False) -> Completion:
        image = self._images.plan(prompt)
        tokens = prompt.sampling.max_tokens
        assert self._page_pool and image and tokens, "prompts of the mix have a mode and a length"
        async with self._buffers.lend(image.nbytes) as buffer:
            await image.write(buffer, self._page_pool)
            async with self._sequences:
                await self._generate(prompt, tokens)
        return Completion("", "length", tokens_out=tokens)

    async def wait_for_restart(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        """Nothing to close."""

    async def _generate(self, prompt: Prompt, tokens: int) -> None:
        """Emit tokens in pieces; all answers in the engine share its speed equally."""
        self._active += 1
        try:
            for first in range(0, tokens, STREAM_INTERVAL):
                piece = min(STREAM_INTERVAL, tokens - first)
                await asyncio.sleep(piece * self._active / self._tokens_per_s if self._tokens_per_s else 0)
                if prompt.loop_check and first + piece < tokens:
                    prompt.loop_check("")
        finally:
            self._active -= 1
