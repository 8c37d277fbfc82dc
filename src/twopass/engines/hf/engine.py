"""The hf engine: answer prompts with Transformers in this process, as a slow reference for the other engines.

It answers one prompt at a time, in one thread. models.py loads the models and generates the answers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError, install_command
from twopass.runtime.page_pool import PagePool

if TYPE_CHECKING:
    from twopass.engines.hf.models import LoadedModel


class HfEngine(Engine):
    """DeepSeek-OCR, DeepSeek-OCR-2 or Unlimited-OCR, run by Transformers."""

    kind = "hf"
    needs_canary = True
    sequences = 1

    def __init__(self, model: str, folder: Path, dtype: str) -> None:
        try:
            from twopass.engines.hf import models
        except ImportError as error:  # of a package that is installed, but not with all that it needs
            message = f"engine hf needs {error.name}: {install_command('hf')}"
            raise EngineError(Code.PLATFORM, message) from error
        self.family = model
        self.precision = dtype
        self._load = partial(models.load, model, folder, dtype)
        self._model: LoadedModel | None = None
        self._thread = ThreadPoolExecutor(1, "twopass-hf")  # one prompt at a time: the next one waits for the thread

    async def open(self, page_pool: PagePool) -> None:
        """Load the weights."""
        self._model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer one prompt; after a cancellation, generation ends at the next token, which frees the thread."""
        if self._model is None:
            raise EngineError(Code.ENGINE_DEAD, "the hf engine needs `open` before `generate`")
        cancelled = threading.Event()
        work = partial(_generate_timed, self._model, prompt, cancelled)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            cancelled.set()

    async def close(self) -> None:
        """Wait for the current prompt to end, without blocking the event loop."""
        await asyncio.to_thread(self._thread.shutdown)
        self._model = None


def _generate_timed(model: LoadedModel, prompt: Prompt, cancelled: threading.Event) -> Completion:
    if cancelled.is_set():  # while it waited for the thread
        return Completion("", "abort")
    started = time.monotonic()
    completion = model.answer(prompt, cancelled.is_set)
    return replace(completion, seconds=time.monotonic() - started)
