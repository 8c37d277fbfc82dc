"""Images resized to one view and cut into patches, the input of models that read one region at a time.

A page worker resizes a crop and writes its patches in the order in which the model reads them. The model joins those of
all crops of a step and computes their values, so that nothing is left to do for each crop alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twopass.engines.interface import Prompt
from twopass.engines.vllm.image_input import ImageInput, PlannedImage
from twopass.models import CropInput
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import PixelBuffer, Pixels
from twopass.runtime.page_pool import PagePool

CHANNELS = 3

Array = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CropImages(ImageInput):
    spec: CropInput

    @property
    def max_nbytes(self) -> int:
        return CHANNELS * self.spec.resize.most

    @property
    def max_tokens(self) -> int:
        return self.spec.resize.most // (self.spec.patch * self.spec.merge) ** 2

    @property
    def precision(self) -> str:
        return ""

    def plan(self, prompt: Prompt) -> CropImage | None:
        if prompt.mode != "auto":
            return None
        width, height = self.spec.resize.apply(prompt.image.width, prompt.image.height)
        return CropImage(self.spec, prompt.image, width, height)

    def tokenize(self, tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
        """All in one piece, because a tokenizer may treat the beginning of a text differently."""
        image_token = tokenizer.convert_tokens_to_ids(self.spec.image_token)
        ids = tokenizer.encode(self.spec.format_prompt(text), add_special_tokens=False)
        place = ids.index(image_token)
        return ids[:place], image_token, ids[place + 1 :]


@dataclass(frozen=True)
class CropImage(PlannedImage):
    """A crop that is seen at `width` × `height`."""

    spec: CropInput
    image: Pixels
    width: int
    height: int

    @property
    def nbytes(self) -> int:
        return CHANNELS * self.width * self.height

    @property
    def tokens(self) -> int:
        return self.width * self.height // (self.spec.patch * self.spec.merge) ** 2

    async def write(self, buffer: PixelBuffer, page_pool: PagePool) -> None:
        await page_pool.call(write_patches, self.spec, self.image, self.width, self.height, buffer)

    def build_item(self, buffer: PixelBuffer) -> Any:
        from twopass.engines.vllm.plugin import inputs

        return inputs.build_patches(buffer, self.height // self.spec.patch, self.width // self.spec.patch)


def write_patches(spec: CropInput, pixels: Pixels, width: int, height: int, buffer: PixelBuffer) -> None:
    """Resize a crop, bicubic, and write its patches into a buffer; runs in a page worker."""
    image = pillow_image.to_image(pixels.array())
    patches = cut_patches(spec, pillow_image.to_rgb_array(image.resize((width, height))))
    np.frombuffer(buffer.map(patches.nbytes), np.uint8)[:] = patches.ravel()


def cut_patches(spec: CropInput, image: Array) -> Array:
    """Height × width × 3 to patches × 3 × side × side, in the model's order."""
    height, width, _ = image.shape
    side, merge = spec.patch, spec.merge if spec.is_merged_order else 1
    blocks = image.reshape(height // (side * merge), merge, side, width // (side * merge), merge, side, CHANNELS)
    # rows and columns of blocks, of patches in a block; channels; rows and columns of pixels
    return np.ascontiguousarray(blocks.transpose(0, 3, 1, 4, 6, 2, 5)).reshape(-1, CHANNELS, side, side)
