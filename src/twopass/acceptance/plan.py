"""What an acceptance run is asked to do, and reasons why a part of it is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twopass.acceptance import pictures
from twopass.acceptance.checks import Check
from twopass.acceptance.pictures import Picture
from twopass.acceptance.records import Record
from twopass.engines import gpus
from twopass.models import MODELS
from twopass.settings import Settings

RANDOM_WEIGHTS = "random weights (LOAD_FORMAT=dummy)"
NEEDS_VLLM = "needs ENGINE=vllm"
NEEDS_MODEL = "needs an engine that runs a model: ENGINE=vllm, hf or openai"
NEEDS_GPU = "needs a GPU: without one, speed says nothing"


@dataclass(frozen=True)
class RequestCounts:
    """How many requests stage (c) makes at once, and how many of them also one at a time.

    `block_tokens` are the tokens of a block of the KV cache, `max_tokens` those of an answer.
    """

    together: int
    alone: int
    block_tokens: int
    max_tokens: int


ON_GPU, ON_CPU = RequestCounts(64, 16, 16, 256), RequestCounts(6, 2, 128, 32)


@dataclass(frozen=True)
class Plan:
    """What to run: `report` gets the checks of each stage as soon as it ends.

    `records` are compared with; to `recording`, if a folder is named, the answers to the pictures are written.
    `tune` and `rates` ask for the stages (e) and (f), which also read the documents below `files`, if a folder is
    named; with `artefacts`, the rates are those of that folder. `announce` gets lines about what the stages are doing.
    """

    settings: Settings
    report: Callable[[Sequence[Check]], None] = lambda checks: None
    pictures: Sequence[Picture] = field(default_factory=pictures.draw_all)
    records: Sequence[Record] = ()
    recording: Path | None = None
    counts: RequestCounts = field(default_factory=lambda: ON_GPU if gpus.detect_gpus().count else ON_CPU)
    tune: bool = False
    rates: bool = False
    files: Path | None = None
    artefacts: Path | None = None
    announce: Callable[[str], None] = lambda line: None

    @property
    def is_random(self) -> bool:
        return self.settings.load_format == "dummy"

    @property
    def family(self) -> str:
        return self.settings.openai_family if self.settings.engine == "openai" else self.settings.model

    @property
    def reads_regions(self) -> bool:
        """Whether the model reads single regions, so that it has no answers about pages that could be recorded."""
        return self.family in MODELS and MODELS[self.family].reads_regions

    @property
    def usable_records(self) -> list[Record]:
        """The records of the model that is tested."""
        repo = MODELS[self.family].weights.repo if self.family in MODELS else None
        return [record for record in self.records if record.model == repo and not self.is_random]
