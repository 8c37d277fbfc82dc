"""What the stages (a) to (c) need to know of a model: its prompts, its input, and how stock vLLM is asked the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from twopass.acceptance.checks import Check
from twopass.acceptance.greedy_requests import Request
from twopass.acceptance.pictures import Picture
from twopass.acceptance.records import Record
from twopass.engines.interface import Prompt, Sampling
from twopass.engines.vllm.engine import VllmEngine
from twopass.pages.shared_pixels import Pixels


class TestedModel(Protocol):
    """One model. `prompts` are those of the family, `sampling` is the family's.

    `max_tiles` is the limit that vLLM's own class has, None for a model without tiles. `check_tokens` and
    `check_inputs` run in a child process, which may use PyTorch.
    """

    prompts: Sequence[str]
    sampling: Sampling
    max_tiles: int | None

    def check_tokens(self, tokenizer: Any, folder: Path, recorded: Sequence[Record]) -> list[Check]:
        """Stage (a): special tokens, and the ids of every prompt."""
        ...

    def check_inputs(
        self, tokenizer: Any, folder: Path, images: Sequence[Picture], recorded: Sequence[Record]
    ) -> list[Check]:
        """Stage (b): what the model sees of images."""
        ...

    async def check_embeddings(self, engine: VllmEngine, images: Sequence[Picture]) -> list[Check]:
        """Stage (b): what the encoder makes of images."""
        ...

    def build_prompt(self, request: Request) -> Prompt:
        """The request as our engine gets it."""
        ...

    def build_stock_input(self, request: Request) -> tuple[str, Pixels]:
        """The request's text and image as vLLM's own class expects them."""
        ...

    def count_image_tokens(self, image: Pixels) -> int: ...
