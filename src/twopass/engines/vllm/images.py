"""How an image becomes a model's input: cut into views (DeepSeek-OCR, Unlimited-OCR) or into patches (region readers).

A page worker writes views or patches into shared memory, in the order in which the model reads them; the prompt carries
a reference to them. The model computes the values of all images of a step together, so that nothing is left to do for
each image alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import structlog

from twopass.engines.interface import Prompt
from twopass.engines.vllm import tiling
from twopass.engines.vllm.tiling import Array, Views, make_views
from twopass.errors import TwopassError
from twopass.models import CropInput, TileGrid, VisionSpec, find_model
from twopass.pages import pillow_image, source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

IMAGE = "<image>"  # where a prompt about a page has its image
CHANNELS, WHITE = 3, 255

log = structlog.get_logger()


class PlannedImage(Protocol):
    """One prompt's image, of which the size is known: `nbytes` in a buffer, and `tokens` in the prompt."""

    @property
    def nbytes(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    async def write(self, buffer: PixelBuffer, page_pool: PagePool) -> None:
        """Let a page worker write the image into a shared buffer, as the model reads it there."""
        ...

    def build_item(self, buffer: PixelBuffer) -> Any:
        """The item with which vLLM carries a reference to the buffer to the model."""
        ...


class ImageInput(Protocol):
    """What a model makes of images. `max_nbytes` and `max_tokens` are those of the largest image."""

    @property
    def max_nbytes(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def precision(self) -> str:
        """What changes answers, for a document's identity; empty for the official way."""
        ...

    def plan(self, prompt: Prompt) -> PlannedImage | None:
        """How this prompt's image is written; None if the model does not have the prompt's mode."""
        ...

    def tokenize(self, tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
        """Token ids before the image, the image token, and ids after it."""
        ...


def choose(settings: Settings) -> ImageInput:
    """How the settings' model takes images; raises InvalidSetting for an unknown model."""
    image = find_model(settings.model).image
    if isinstance(image, CropInput):
        return CropImages(image)
    return TiledImages(image.with_crops(settings.max_tiles), settings.draw_views)


# ---- views ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TiledImages(ImageInput):
    """With `draw_views`, the tiles of scalable pages are rendered from the PDF."""

    spec: VisionSpec
    draw_views: bool = False

    @property
    def max_nbytes(self) -> int:
        return self.spec.max_nbytes

    @property
    def max_tokens(self) -> int:
        return self.spec.max_tokens

    @property
    def precision(self) -> str:
        return "rendered-tiles" if self.draw_views else ""

    def plan(self, prompt: Prompt) -> _TiledImage | None:
        mode = "gundam" if prompt.mode == "auto" else prompt.mode
        if mode not in self.spec.modes:
            return None
        grid = self.spec.choose_grid(prompt.image.width, prompt.image.height, mode, prompt.max_crops)
        return _TiledImage(self.spec, prompt, mode, grid, self.draw_views)

    @staticmethod
    def tokenize(tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
        """Ids as in the official code, with BOS in front; a text without <image> gets the image before it."""
        before, marker, after = text.partition(IMAGE)
        if not marker:
            before, after = "", f"\n{text}"
        prefix = [tokenizer.bos_token_id, *tokenizer.encode(before, add_special_tokens=False)]
        return prefix, tokenizer.convert_tokens_to_ids(IMAGE), tokenizer.encode(after, add_special_tokens=False)


@dataclass(frozen=True)
class _TiledImage(PlannedImage):
    spec: VisionSpec
    prompt: Prompt
    mode: str
    grid: TileGrid
    draw_views: bool

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes(self.mode, self.grid)

    @property
    def tokens(self) -> int:
        return self.spec.count_tokens(self.mode, self.grid)

    async def write(self, buffer: PixelBuffer, page_pool: PagePool) -> None:
        """Write the views; tiles of a scalable page are rendered, if that fails, resized."""
        spec, page, image = self.spec, self.prompt.page, self.prompt.image
        views = (spec, image, self.mode, self.grid, buffer)
        if self.draw_views and page and page.is_scalable and spec.is_upscaled(image.width, image.height, self.grid):
            try:
                return await page_pool.call(write_views, *views, page)
            except TwopassError as error:
                log.warning("tiles resized, not rendered", prompt=self.prompt.id, code=error.code, reason=error.message)
        await page_pool.call(write_views, *views)

    def build_item(self, buffer: PixelBuffer) -> Any:
        from twopass.engines.vllm.plugin import shared_images

        return shared_images.build_views(buffer, self.spec.modes[self.mode].base_size, self.spec.tile_size, self.grid)


def write_views(
    spec: VisionSpec, pixels: Pixels, mode: str, grid: TileGrid, buffer: PixelBuffer, page: PagePointer | None = None
) -> None:
    """Write an image's views into a buffer; runs in a page worker.

    The tiles of a `page` are rendered directly instead of enlarged: they show a page of 144 dpi larger than it was
    rendered. That takes a fifth of the time, and no letter is blurred (docs/log/speed.md has the figures). The
    global view is smaller than the page and is still resized: small print rendered at that size reads a little
    worse. Raises SourceError.
    """
    views = _render_views(spec, pixels, mode, grid, page) if page else make_views(spec, pixels.array(), mode, grid)
    target = tiling.map_views(spec, buffer, mode, grid)
    target.global_view[:] = views.global_view
    target.tiles[:] = views.tiles


def _render_views(spec: VisionSpec, pixels: Pixels, mode: str, grid: TileGrid, page: PagePointer) -> Views:
    with source_files.open_page(page.file, page.number, page.turn, page.password) as opened:
        render_at = partial(render_page, opened.get_displaylist())
        return make_views(spec, pixels.array(), mode, grid, render_at)


def render_page(display_list: Any, width: int, height: int) -> Array:
    """Render MuPDF's display list of a page to exactly this many pixels: height × width × 3."""
    bounds = display_list.rect
    rendered = source_files.render_display_list(display_list, width / bounds.width, height / bounds.height)
    rendered = rendered[:height, :width]  # MuPDF may round to a pixel more or less
    pixels = np.full((height, width, 3), WHITE, np.uint8)
    pixels[: rendered.shape[0], : rendered.shape[1]] = rendered
    return pixels


# ---- patches -------------------------------------------------------------------------------------


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

    def plan(self, prompt: Prompt) -> _CropImage | None:
        if prompt.mode != "auto":
            return None
        width, height = self.spec.resize.apply(prompt.image.width, prompt.image.height)
        return _CropImage(self.spec, prompt.image, width, height)

    def tokenize(self, tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
        """All in one piece, because a tokenizer may treat the beginning of a text differently."""
        image_token = tokenizer.convert_tokens_to_ids(self.spec.image_token)
        ids = tokenizer.encode(self.spec.format_prompt(text), add_special_tokens=False)
        place = ids.index(image_token)
        return ids[:place], image_token, ids[place + 1 :]


@dataclass(frozen=True)
class _CropImage(PlannedImage):
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
        from twopass.engines.vllm.plugin import shared_images

        return shared_images.build_patches(buffer, self.height // self.spec.patch, self.width // self.spec.patch)


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
