"""DeepSeek-OCR, DeepSeek-OCR-2 and Unlimited-OCR in the acceptance run: models that see a page as views and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twopass.acceptance import model_files, reference, vision_inputs
from twopass.acceptance.checks import Check
from twopass.acceptance.greedy_requests import Request
from twopass.acceptance.pictures import Picture
from twopass.acceptance.records import Record
from twopass.acceptance.tested_model import TestedModel
from twopass.acceptance.vision_inputs import Agreement, RecordedInput
from twopass.engines.interface import Prompt, Sampling
from twopass.engines.vllm.engine import VllmEngine
from twopass.families.interface import PageFeatures, PageRequest
from twopass.families.registry import FAMILIES
from twopass.models import TileGrid, find_model
from twopass.pages import canary_images
from twopass.pages.shared_pixels import Pixels


@dataclass(frozen=True)
class WholePageModel(TestedModel):
    name: str
    sampling: Sampling = Sampling()

    @property
    def prompts(self) -> Sequence[str]:  # type: ignore[override]
        """The prompts with which the model reads whole pages."""
        ladder = FAMILIES[self.name].ladder(PageFeatures(*canary_images.PAGE_SIZE), PageRequest())
        return list(dict.fromkeys(rung.prompt for rung in ladder))

    @property
    def max_tiles(self) -> int:  # type: ignore[override]
        return find_model(self.name).vision.official_crops

    def check_tokens(self, tokenizer: Any, folder: Path, recorded: Sequence[Record]) -> list[Check]:
        lengths = [(one.prompt, one.prompt_tokens - one.image_tokens) for one in recorded if one.prompt_tokens]
        return [
            *model_files.check_special_tokens(tokenizer, model_files.TOKEN_IDS),
            model_files.check_ends(tokenizer),
            *model_files.check_prompts(tokenizer, folder, self.prompts),
            *model_files.check_prompt_lengths(tokenizer, lengths),
        ]

    def check_inputs(
        self, tokenizer: Any, folder: Path, images: Sequence[Picture], recorded: Sequence[Record]
    ) -> list[Check]:
        inputs = {
            one.image: RecordedInput(
                one.image, one.width, one.height, TileGrid(one.columns, one.rows), one.image_tokens
            )
            for one in recorded
        }
        views = vision_inputs.check_views(self.name, tokenizer, self.prompts[0], images)
        return [*vision_inputs.check_recorded_inputs(self.name, inputs.values()), *views]

    async def check_embeddings(self, engine: VllmEngine, images: Sequence[Picture]) -> list[Check]:
        async def compare(picture: Picture) -> Agreement:
            image = picture.image
            arguments = (self.name, image.width, image.height, image.array().tobytes())
            try:
                found, *_ = await engine.core.collective_rpc(vision_inputs.compare_in_worker, args=arguments)
            except Exception as error:  # vLLM raises a plain Exception for whatever fails in its worker
                return Agreement(error=f"{type(error).__name__}: {error}")
            return Agreement(*found)

        return await vision_inputs.check_embeddings(images, compare)

    def build_prompt(self, request: Request) -> Prompt:
        return Prompt(
            request.name,
            request.prompt,
            request.image,
            mode=reference.MODE,
            max_crops=self.max_tiles,
            sampling=request.sampling,
            draft=request.draft,
        )

    def build_stock_input(self, request: Request) -> tuple[str, Pixels]:
        return request.prompt, request.image

    def count_image_tokens(self, image: Pixels) -> int:
        spec = find_model(self.name).vision
        grid = spec.choose_grid(image.width, image.height, reference.MODE, self.max_tiles)
        return spec.count_tokens(reference.MODE, grid)
