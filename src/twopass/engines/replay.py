"""Recorded completions in, the same completions out: an engine without a model, for tests and re-reading."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError
from twopass.runtime.page_pool import PagePool

SEQUENCES = 16
CPU_FAMILY = "layout"  # of checkpoints without a document


class ReplayEngine(Engine):
    """Answers by prompt id. `delay` gives seconds to wait per prompt, for tests of order."""

    kind = "replay"
    precision = "recorded"
    canary = False  # what it answers was read long ago

    def __init__(
        self,
        answers: Mapping[str, Completion],
        family: str = CPU_FAMILY,
        sequences: int = SEQUENCES,
        delay: Callable[[Prompt], float] = lambda prompt: 0.0,
    ) -> None:
        self.family = family
        self.sequences = sequences
        self._answers = answers
        self._delay = delay

    @classmethod
    def from_folder(cls, folder: Path, family: str | None = None) -> Self:
        """From every checkpoint (`pages/NNNN.json`) below a folder; the family is the recorded one if none is named."""
        answers = {}
        for path in sorted(folder.rglob("pages/*.json")):
            for told in json.loads(path.read_text())["completions"]:
                answers[told["prompt_id"]] = Completion(
                    told["text"], told["finish_reason"], told["tokens_in"], told["tokens_out"]
                )
        return cls(answers, family or _family(folder))

    async def generate(self, prompt: Prompt) -> Completion:
        await asyncio.sleep(self._delay(prompt))
        try:
            return self._answers[prompt.id]
        except KeyError:
            raise EngineError(Code.ENGINE_DEAD, f"nothing is recorded for prompt {prompt.id}") from None

    async def open(self, page_pool: PagePool) -> None:
        """Nothing to warm."""

    async def close(self) -> None:
        """Nothing is open."""


def _family(folder: Path) -> str:
    """Who asked when it was recorded, as the first document below the folder tells."""
    for path in sorted(folder.rglob("document.json")):
        return str(json.loads(path.read_text())["run"]["options"].get("family", CPU_FAMILY))
    return CPU_FAMILY
