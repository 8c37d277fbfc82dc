"""An engine that does the real work of every prompt but returns a scripted answer, and a meter of its tokens."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from scripts.bench.mix import PHOTO_TOKENS, SENTENCE, ScriptedAnswer
from scripts.bench.usage import read_cpu_seconds
from scripts.bench.workload import STREAM_INTERVAL
from twopass.detection import region
from twopass.detection.region import DETECT
from twopass.document import Box
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.families import registry

_LABELS = {"equation": "display_formula"}  # of DeepSeek-OCR and of the detector, where they differ
_TAGS = re.compile(r"<\|ref\|>(.*?)<\|/ref\|><\|det\|>\[(\[.*?\])\]<\|/det\|>")


class Snapshot(NamedTuple):
    at: float  # on the monotonic clock
    tokens: int
    cpu_seconds: dict[str, float]


@dataclass
class TokenMeter:
    """Count tokens generated between two moments: when `first` pages have begun, and when all `pages` have."""

    first: int
    pages: int
    begun: int = 0
    tokens: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    last_page_begun: asyncio.Event = field(default_factory=asyncio.Event)

    def begin_page(self) -> None:
        self.begun += 1
        if self.begun in (min(self.first, self.pages - 1), self.pages):
            self.snapshots.append(Snapshot(time.monotonic(), self.tokens, read_cpu_seconds()))
        if self.begun == self.pages:
            self.last_page_begun.set()

    @property
    def period(self) -> tuple[float, float]:
        """Start and end of the measurement, on the monotonic clock."""
        return self.snapshots[0].at, self.snapshots[-1].at

    @property
    def tokens_per_s(self) -> float:
        first, last = self.snapshots[0], self.snapshots[-1]
        return (last.tokens - first.tokens) / (last.at - first.at)

    @property
    def pages_begun_per_s(self) -> float:
        """Unlike tokens, pages compare models that ask about different crops."""
        start, end = self.period
        return (self.pages - min(self.first, self.pages - 1)) / (end - start)

    def cpu_ms(self, tokens: float) -> dict[str, float]:
        """The CPU milliseconds that so many tokens took, by kind of process."""
        first, last = self.snapshots[0], self.snapshots[-1]
        per_token = 1000 * tokens / (last.tokens - first.tokens)
        return {
            kind: round(per_token * (seconds - first.cpu_seconds[kind]), 1)
            for kind, seconds in last.cpu_seconds.items()
        }


class ScriptedAnswerEngine(Engine):
    """Let the inner engine generate as many tokens as the mix says, and return the scripted text instead of its own."""

    def __init__(self, inner: Engine, answers: Mapping[str, ScriptedAnswer], meter: TokenMeter) -> None:
        self._inner, self._answers, self.meter = inner, answers, meter
        self.kind, self.precision, self.family = inner.kind, inner.precision, inner.family
        self.sequences, self.needs_canary, self.buffer_pools = inner.sequences, inner.needs_canary, inner.buffer_pools
        self.uses_drafts = inner.uses_drafts
        self._page_prompt = registry.get_family(inner.family).prompts.get("document")  # readers have none
        self.asked: list[Prompt] = []
        self.unknown: Counter[str] = Counter()  # prompts without a scripted answer, by page and element

    async def open(self, page_pool: Any) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, prompt: Prompt) -> Completion:
        answer = self._answers.get(prompt.id)
        if answer is None:
            self.unknown[prompt.id.rpartition("/")[2]] += 1
            answer = ScriptedAnswer(SENTENCE, PHOTO_TOKENS)
        self.asked.append(prompt)
        if prompt.text == DETECT:
            self.meter.begin_page()
            return replace(await self._inner.generate(prompt), text=write_detection(answer.text), finish_reason="stop")
        completion = await self._generate_tokens(prompt, answer)
        return replace(completion, text=write_tags(answer.text, self.family), finish_reason="stop")

    async def _generate_tokens(self, prompt: Prompt, answer: ScriptedAnswer) -> Completion:
        counted = 0

        def count(_: str) -> bool:
            """Count streamed tokens and run the pipeline's loop check on the scripted text; never end the answer."""
            nonlocal counted
            step = min(STREAM_INTERVAL, answer.tokens - counted)
            counted += step
            self.meter.tokens += step
            if prompt.loop_check:
                prompt.loop_check(answer.text[: round(len(answer.text) * counted / answer.tokens)])
            return False

        sampling = replace(prompt.sampling, max_tokens=answer.tokens, ignore_eos=True)
        if prompt.text == self._page_prompt and "-e" not in prompt.id:
            self.meter.begin_page()
        completion = await self._inner.generate(replace(prompt, sampling=sampling, loop_check=count))
        if completion.finish_reason != "length":
            raise RuntimeError(f"{prompt.id}: {completion.finish_reason} after {completion.tokens_out} tokens")
        self.meter.tokens += completion.tokens_out - counted
        return completion


def write_tags(answer: str, family: str) -> str:
    """Write an answer of DeepSeek-OCR with the tags of another family: Unlimited-OCR has the label beside the box."""
    return _TAGS.sub(r"<|det|>\1 \2<|/det|>", answer) if family == "unlimited_ocr" else answer


def write_detection(answer: str) -> str:
    """What a layout detector finds where DeepSeek-OCR answers this about a page: the same blocks."""
    regions = [
        region.make_region(_LABELS.get(label, label), Box(*(at / 999 for at in json.loads(box))), order=order)
        for order, (label, box) in enumerate(_TAGS.findall(answer))
    ]
    return region.to_json(region.Detection(regions=tuple(regions)))
