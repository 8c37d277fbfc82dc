"""What the stages (a) to (c) need to know of a model: its prompts, its input, and how stock vLLM is asked the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from twopass.acceptance import model_files, reference, vision_inputs
from twopass.acceptance.checks import Check, judge
from twopass.acceptance.drawn_pages import Picture
from twopass.acceptance.greedy_tokens import Request
from twopass.acceptance.records import Record
from twopass.acceptance.vision_inputs import WRONG_INPUT, Agreement, RecordedInput
from twopass.engines.interface import Prompt, Sampling, build_sampling
from twopass.engines.vllm.engine import VllmEngine
from twopass.engines.vllm.images import CropImages, cut_patches
from twopass.engines.vllm.tiling import Array
from twopass.families.interface import PageFeatures, PageRequest
from twopass.families.regions.reader import READERS
from twopass.families.registry import FAMILIES
from twopass.models import CropInput, TileGrid, find_model
from twopass.pages import canary_images, pillow_image
from twopass.pages.shared_pixels import Pixels

_WRONG_CHAT = (
    "chat_template.jinja of the weights writes this prompt in another way than the released one: download the model "
    "again with `twopass download-weights`"
)
_MAX_DIFFERENCE = 1e-4  # of a normalised pixel, in float32: 1 of 255 levels is 0.015 or more

CutPatches = Callable[[CropInput, Array], Array]


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

    def check_inputs(
        self, tokenizer: Any, folder: Path, images: Sequence[Picture], recorded: Sequence[Record]
    ) -> list[Check]:
        """Stage (b): what the model sees of images."""

    async def check_embeddings(self, engine: VllmEngine, images: Sequence[Picture]) -> list[Check]:
        """Stage (b): what the encoder makes of images."""

    def build_prompt(self, request: Request) -> Prompt:
        """The request as our engine gets it."""

    def build_stock_input(self, request: Request) -> tuple[str, Pixels]:
        """The request's text and image as vLLM's own class expects them."""

    def count_image_tokens(self, image: Pixels) -> int: ...


@dataclass(frozen=True)
class WholePageModel(TestedModel):
    """DeepSeek-OCR, DeepSeek-OCR-2 and Unlimited-OCR, which see a page as views and tiles."""

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
                found, *_ = await engine.core.client.collective_rpc(vision_inputs.compare_in_worker, args=arguments)
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


@dataclass(frozen=True)
class RegionReaderModel(TestedModel):
    """GLM-OCR and PaddleOCR-VL, which see a region as one image of patches.

    `cut_patches` is the part of our image input that the tests replace.
    """

    name: str
    max_tiles: None = None
    cut_patches: CutPatches = cut_patches

    @property
    def sampling(self) -> Sampling:  # type: ignore[override]
        return build_sampling(FAMILIES[self.name].sampling)

    @property
    def prompts(self) -> Sequence[str]:  # type: ignore[override]
        return list(READERS[find_model(self.name).family].prompts.values())

    @property
    def _input(self) -> CropInput:
        return find_model(self.name).crop_input

    def check_tokens(self, tokenizer: Any, folder: Path, recorded: Sequence[Record]) -> list[Check]:
        """The ids of each prompt are those of the chat template that lies beside the weights."""
        wrong = [
            prompt
            for prompt in self.prompts
            if self._tokenize(tokenizer, prompt) != _apply_chat_template(tokenizer, prompt)
        ]
        found = wrong or f"{len(self.prompts)} prompts"
        prompts = judge("a", "prompts", not wrong, found, "ids of the chat template", _WRONG_CHAT)
        return [*model_files.check_special_tokens(tokenizer, self._input.token_ids), prompts]

    def _tokenize(self, tokenizer: Any, prompt: str) -> list[int]:
        before, image, after = CropImages(self._input).tokenize(tokenizer, prompt)
        return [*before, image, *after]

    def check_inputs(
        self, tokenizer: Any, folder: Path, images: Sequence[Picture], recorded: Sequence[Record]
    ) -> list[Check]:
        """Compare the size and the pixels of each image's patches with those of the weights' image processor."""
        from transformers import AutoImageProcessor

        processor = AutoImageProcessor.from_pretrained(folder)
        return [self._check_picture(processor, picture) for picture in images]

    def _check_picture(self, processor: Any, picture: Picture) -> Check:
        resized = self._resize(picture.image)
        official = processor(images=[pillow_image.to_image(resized.array()).convert("RGB")], return_tensors="np")
        rows, columns = resized.height // self._input.patch, resized.width // self._input.patch
        frames = official["pixel_values"].reshape(rows * columns, 3, -1, self._input.patch, self._input.patch)
        patches = self.cut_patches(self._input, resized.array())
        mean, std = (np.array(value).reshape(3, 1, 1) for value in (processor.image_mean, processor.image_std))
        ours = (patches / 255 - mean) / std
        name = f"{picture.name}: patches"
        if official["image_grid_thw"].tolist() != [[1, rows, columns]]:
            grid = f"{columns} x {rows}"
            return judge("b", name, False, grid, official["image_grid_thw"].tolist(), WRONG_INPUT)
        difference = float(np.abs(frames - ours[:, :, None]).max())
        value = f"{columns} x {rows}, pixels differ by up to {difference:.1g}"
        return judge("b", name, difference <= _MAX_DIFFERENCE, value, f"at most {_MAX_DIFFERENCE}", WRONG_INPUT)

    def _resize(self, image: Pixels) -> Pixels:
        """The image in the size at which the model sees it."""
        size = self._input.resize.apply(image.width, image.height)
        resized = pillow_image.to_rgb_array(pillow_image.to_image(image.array()).resize(size))
        return Pixels(*size, data=resized.tobytes())

    async def check_embeddings(self, engine: VllmEngine, images: Sequence[Picture]) -> list[Check]:
        """None: the encoder is vLLM's own, and stage (c) compares what is read with it."""
        return []

    def build_prompt(self, request: Request) -> Prompt:
        return Prompt(request.name, request.prompt, request.image, sampling=request.sampling)

    def build_stock_input(self, request: Request) -> tuple[str, Pixels]:
        """The chat, and the image in the size of our input, which vLLM's processor leaves as it is."""
        return self._input.format_prompt(request.prompt), self._resize(request.image)

    def count_image_tokens(self, image: Pixels) -> int:
        planned = CropImages(self._input).plan(Prompt("", "", image))
        assert planned is not None  # only other modes than "auto" have none
        return planned.tokens


def _apply_chat_template(tokenizer: Any, prompt: str) -> list[int]:
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    return list(ids)
