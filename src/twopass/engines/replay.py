"""An engine without a model that answers with recorded completions, for tests and re-parsing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code, EngineError
from twopass.runtime.page_pool import PagePool

SEQUENCES = 16
RECORDS = "records.json"  # of the acceptance run: a list of answers, each in a file beside it
DEFAULT_FAMILY = "layout"  # of checkpoints that have no document


class ReplayEngine(Engine):
    """Answers by prompt id. `delay` returns the seconds to wait before an answer; tests order answers with it."""

    kind = "replay"
    precision = "recorded"
    needs_canary = False  # recorded answers need no check of the model

    def __init__(
        self,
        answers: Mapping[str, Completion],
        family: str = DEFAULT_FAMILY,
        sequences: int = SEQUENCES,
        delay: Callable[[Prompt], float] = lambda prompt: 0.0,
    ) -> None:
        self.family = family
        self.sequences = sequences
        self._answers = answers
        self._delay = delay

    @classmethod
    def from_folder(cls, folder: Path, family: str | None = None) -> Self:
        """Load every checkpoint (`pages/NNNN.json`) and every list of records below a folder.

        `family` defaults to the recorded one.
        """
        answers = {}
        for path in sorted(folder.rglob("pages/*.json")):
            for recorded in json.loads(path.read_text())["completions"]:
                answers[recorded["prompt_id"]] = _to_completion(recorded["text"], recorded)
        for path in sorted(folder.rglob(RECORDS)):
            for recorded in json.loads(path.read_text())["records"]:
                text = (path.parent / recorded["answer"]).read_bytes().decode()  # with its line ends as they are
                answers[record_prompt_id(recorded["name"])] = _to_completion(text, recorded)
        return cls(answers, family or _read_recorded_family(folder))

    async def generate(self, prompt: Prompt) -> Completion:
        await asyncio.sleep(self._delay(prompt))
        try:
            return self._answers[prompt.id]
        except KeyError:
            raise EngineError(Code.ENGINE_DEAD, f"no completion is recorded for prompt {prompt.id}") from None

    async def open(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


def record_prompt_id(name: str) -> str:
    """The id of the prompt that a record of the acceptance run answers."""
    return f"record/{name}"


def _to_completion(text: str, recorded: Mapping[str, Any]) -> Completion:
    tokens_in = recorded.get("tokens_in", recorded.get("prompt_tokens", 0))
    tokens_out = recorded.get("tokens_out", recorded.get("output_tokens", 0))
    return Completion(text, recorded["finish_reason"] or "stop", tokens_in, tokens_out)


def _read_recorded_family(folder: Path) -> str:
    """The family that the first document below the folder was read with."""
    for path in sorted(folder.rglob("document.json")):
        return str(json.loads(path.read_text())["run"]["options"].get("family", DEFAULT_FAMILY))
    return DEFAULT_FAMILY
