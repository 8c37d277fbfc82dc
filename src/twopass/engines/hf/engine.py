"""A prompt in, a completion out, from Transformers in this process: the slow, plain yardstick for the others.

One prompt at a time, in one thread. Knows when to stop; how a model is loaded and asked is hf_models'.
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
from twopass.errors import Code, EngineError
from twopass.runtime.page_pool import PagePool

if TYPE_CHECKING:
    from twopass.engines.hf.models import Model


class HfEngine(Engine):
    """DeepSeek-OCR or its second version as Transformers runs it."""

    kind = "hf"
    canary = True
    sequences = 1

    def __init__(self, model: str, folder: Path, dtype: str) -> None:
        try:
            from twopass.engines.hf import models
        except ImportError as error:
            message = f"engine hf needs {error.name}: pip install 'twopass[hf]'"
            raise EngineError(Code.ENGINE_DEAD, message) from error
        self.family = model
        self.precision = dtype
        self._load = partial(models.load, model, folder, dtype)
        self._model: Model | None = None
        self._thread = ThreadPoolExecutor(1, "twopass-hf")  # one sequence: the next waits for the thread

    async def open(self, page_pool: PagePool) -> None:
        """Load the weights."""
        self._model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer; a cancelled prompt ends with its next token, and the thread is free."""
        if self._model is None:
            raise EngineError(Code.ENGINE_DEAD, "the hf engine is asked after `open`")
        given_up = threading.Event()
        work = partial(_timed, self._model, prompt, given_up)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            given_up.set()

    async def close(self) -> None:
        """Waits for a last token, off the loop."""
        await asyncio.to_thread(self._thread.shutdown)
        self._model = None


def _timed(model: Model, prompt: Prompt, given_up: threading.Event) -> Completion:
    if given_up.is_set():  # cancelled while it waited
        return Completion("", "abort")
    started = time.monotonic()
    completion = model.answer(prompt, given_up.is_set)
    return replace(completion, seconds=time.monotonic() - started)
