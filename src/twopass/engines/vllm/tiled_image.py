"""Images as a global view and tiles, the input of DeepSeek-OCR and Unlimited-OCR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from twopass.engines.interface import Prompt
from twopass.engines.vllm import prompt_tokens, render_tiles, tiling
from twopass.engines.vllm.image_input import ImageInput, PlannedImage
from twopass.errors import TwopassError
from twopass.models import TileGrid, VisionSpec
from twopass.pages.shared_pixels import PixelBuffer
from twopass.runtime.page_pool import PagePool

log = structlog.get_logger()


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

    def plan(self, prompt: Prompt) -> TiledImage | None:
        mode = "gundam" if prompt.mode == "auto" else prompt.mode
        if mode not in self.spec.modes:
            return None
        grid = self.spec.choose_grid(prompt.image.width, prompt.image.height, mode, prompt.max_crops)
        return TiledImage(self.spec, prompt, mode, grid, self.draw_views)

    def tokenize(self, tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
        return prompt_tokens.tokenize(tokenizer, text)


@dataclass(frozen=True)
class TiledImage(PlannedImage):
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
        if self.draw_views and page and page.is_scalable and spec.is_upscaled(image.width, image.height, self.grid):
            try:
                return await page_pool.call(render_tiles.write_views, spec, page, image, self.mode, self.grid, buffer)
            except TwopassError as error:
                log.warning("tiles resized, not rendered", prompt=self.prompt.id, code=error.code, reason=error.message)
        await page_pool.call(tiling.write_views, spec, image, self.mode, self.grid, buffer)

    def build_item(self, buffer: PixelBuffer) -> Any:
        from twopass.engines.vllm.plugin import inputs

        return inputs.build_views(buffer, self.spec.modes[self.mode].base_size, self.spec.tile_size, self.grid)
