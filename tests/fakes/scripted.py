"""An engine that answers prompts with a function of the test, and remembers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from twopass.detection.region import DETECT, Detection, Region, make_region, to_json
from twopass.document import Box
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import EngineError
from twopass.runtime.page_pool import PagePool

Answer = Callable[[Prompt], Completion | str]


class ScriptedEngine(Engine):
    """`answer` returns the completion to a prompt, or its text."""

    kind = "scripted"
    precision = "none"
    sequences = 8
    needs_canary = False

    def __init__(self, family: str, answer: Answer, needs_canary: bool = False, has_ngram_ban: bool = True) -> None:
        self.family = family
        self.prompts: list[Prompt] = []
        self.needs_canary = needs_canary
        self.has_ngram_ban = has_ngram_ban
        self._answer = answer

    async def open(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def generate(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        answer = self._answer(prompt)
        return Completion(answer) if isinstance(answer, str) else answer

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


def answer_detections(detection: str, answer: Answer) -> Answer:
    """Answer prompts to detect regions with this JSON, all others with `answer`."""
    return lambda prompt: detection if prompt.text == DETECT else answer(prompt)


def stack_regions(*labels: str) -> list[Region]:
    """Regions of these labels from top to bottom."""
    return [
        make_region(label, Box(0.1, round(0.03 * n + 0.02, 5), 0.9, round(0.03 * n + 0.04, 5)), order=n)
        for n, label in enumerate(labels)
    ]


def detect(*labels: str) -> str:
    """The detection of a page with such regions."""
    return detect_regions(stack_regions(*labels))


def detect_regions(regions: Sequence[Region]) -> str:
    return to_json(Detection(regions=tuple(regions)))


class OpeningEngine(CpuEngine):
    """The cpu engine, which opens once it `may_open`, or fails then. `steps` are what became of it, in order."""

    def __init__(self, may_open: Callable[[], bool], failure: EngineError | None = None) -> None:
        super().__init__(2)
        self.steps: list[str] = []
        self._may_open, self._failure = may_open, failure

    async def open(self, page_pool: PagePool) -> None:
        self.steps.append("opening")
        while not self._may_open():
            await asyncio.sleep(0.01)
        if self._failure:
            raise self._failure
        await super().open(page_pool)
        self.steps.append("open")

    async def generate(self, prompt: Prompt) -> Completion:
        self.steps.append("asked")
        return await super().generate(prompt)

    async def close(self) -> None:
        await super().close()
        self.steps.append("closed")
