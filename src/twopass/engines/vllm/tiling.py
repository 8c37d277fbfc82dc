"""Turn an image into the views that the models encode: one global view, and tiles in modes that cut the image.

Follows the official code pixel for pixel: the tiles are cut out of the stretched image, the global view is padded
with grey, and in modes without tiles a global view of up to 640 pixels is stretched instead of padded. The one
exception: an image that stretching would make illegible is padded there as well. Knows sizes and pixels; knows
nothing of models, engines or the meaning of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.pages import pillow_image
from twopass.pages.shared_pixels import PixelBuffer, Pixels

GREY = 127  # int(0.5 * 255): the mean that pixels are normalised with
MAX_STRETCHED_SIDE = 640  # in modes without tiles, a global view up to this side is stretched, a larger one padded
MAX_STRETCHED_RATIO = 1.5  # long side to short side; a longer image is padded, or its text would become illegible
TOKEN_SIDE = 64  # pixels: a square of this side becomes one token (patches of 16, four to a side)
MIN_CROPS = 2
UNLIMITED_CROPS = 32  # that Unlimited-OCR was trained with (infer.py)

Array = npt.NDArray[np.uint8]
RenderAtSize = Callable[[int, int], Array]
"""Return the image at this width and height in pixels: height × width × 3."""


class ModeSpec(NamedTuple):
    """A resolution mode: the side of the global view in pixels, and whether the image is also cut into tiles."""

    base_size: int
    is_tiled: bool = False


class TileGrid(NamedTuple):
    """Columns and rows of tiles; (1, 1) means that the image is not cut."""

    columns: int
    rows: int

    @property
    def tile_count(self) -> int:
        return self.columns * self.rows if self.columns * self.rows > 1 else 0


@dataclass(frozen=True)
class VisionSpec:
    """How one family of models cuts images: its modes, a tile's side in pixels, and whether a token ends every row.

    `default_crops` are the most tiles of an image unless a request says otherwise, `most_crops` those it may ask for.
    """

    modes: Mapping[str, ModeSpec]
    tile_size: int
    newlines: bool
    default_crops: int = 6
    most_crops: int = 9

    def choose_grid(self, width: int, height: int, mode: str, max_crops: int) -> TileGrid:
        """Choose how an image of this size is cut in this mode."""
        if not self.modes[mode].is_tiled or max(width, height) <= self.tile_size:
            return TileGrid(1, 1)
        return _closest_grid(width, height, self.tile_size, max_crops)

    def grid_size(self, grid: TileGrid) -> tuple[int, int]:
        """Width and height of all tiles together, to which the image is stretched before it is cut."""
        return self.tile_size * grid.columns, self.tile_size * grid.rows

    def is_upscaled(self, width: int, height: int, grid: TileGrid) -> bool:
        """Whether the tiles have more pixels than an image of this size."""
        return grid.tile_count * self.tile_size**2 > width * height

    def count_tokens(self, mode: str, grid: TileGrid) -> int:
        """Count the image tokens in the prompt: those of the tiles, of the global view, and one separator."""
        columns, rows = (grid.columns, grid.rows) if grid.tile_count else (0, 0)
        base_tokens, tile_tokens = self.modes[mode].base_size // TOKEN_SIDE, self.tile_size // TOKEN_SIDE
        return (
            self._count_grid_tokens(base_tokens, base_tokens)
            + self._count_grid_tokens(tile_tokens * columns, tile_tokens * rows)
            + 1
        )

    def _count_grid_tokens(self, columns: int, rows: int) -> int:
        return rows * (columns + (1 if self.newlines and columns else 0))

    def nbytes(self, mode: str, grid: TileGrid) -> int:
        """Size of all views of one image, at three bytes a pixel."""
        return 3 * (self.modes[mode].base_size ** 2 + grid.tile_count * self.tile_size**2)

    @property
    def max_nbytes(self) -> int:
        """The largest size that the views of one image can have, in any mode."""
        return max(
            self.nbytes(name, TileGrid(1, self.most_crops if mode.is_tiled else 1)) for name, mode in self.modes.items()
        )

    @property
    def max_tokens(self) -> int:
        """The most image tokens of one image: in a column of tiles, each row of tokens has one for its end."""
        return max(
            self.count_tokens(name, TileGrid(1, self.most_crops if mode.is_tiled else 1))
            for name, mode in self.modes.items()
        )


DEEPSEEK_OCR = VisionSpec(
    {
        "tiny": ModeSpec(512),
        "small": ModeSpec(640),
        "base": ModeSpec(1024),
        "large": ModeSpec(1280),
        "gundam": ModeSpec(1024, True),
    },
    tile_size=640,
    newlines=True,
)
DEEPSEEK_OCR_2 = VisionSpec({"base": ModeSpec(1024), "gundam": ModeSpec(1024, True)}, tile_size=768, newlines=False)
# Twelve of 32 tiles: views of 18 instead of 42 MB, which every shared buffer can hold, and for a page in 16:9 of any
# size 483 instead of 3,113 image tokens. A4 and Letter up to 225 dpi are cut as with 32.
UNLIMITED_OCR = VisionSpec(DEEPSEEK_OCR_2.modes, tile_size=640, newlines=True, default_crops=12, most_crops=12)


@lru_cache(maxsize=4096)
def _closest_grid(width: int, height: int, tile_size: int, max_crops: int) -> TileGrid:
    """The grid closest in aspect ratio; on a tie, the larger one if the image has pixels for half of it."""
    best, least = TileGrid(1, 1), float("inf")
    for grid in _candidate_grids(max_crops):
        difference = abs(width / height - grid.columns / grid.rows)
        if difference < least:
            best, least = grid, difference
        elif difference == least and width * height > 0.5 * tile_size * tile_size * grid.columns * grid.rows:
            best = grid
    return best


@lru_cache
def _candidate_grids(max_crops: int) -> tuple[TileGrid, ...]:
    """Sorted by number of tiles; equal numbers keep the set's order, as in the official code: ties depend on it."""
    pairs = {
        (columns, rows)
        for most in range(MIN_CROPS, max_crops + 1)
        for columns in range(1, most + 1)
        for rows in range(1, most + 1)
        if MIN_CROPS <= columns * rows <= max_crops
    }
    return tuple(TileGrid(*pair) for pair in sorted(pairs, key=lambda pair: pair[0] * pair[1]))


class Views(NamedTuple):
    """The global view (base × base × 3) and the tiles (count × tile × tile × 3, row by row), uint8."""

    global_view: Array
    tiles: Array


def make_views(
    spec: VisionSpec, image: Array, mode: str, grid: TileGrid, render_at: RenderAtSize | None = None
) -> Views:
    """Make the views of an image; the tiles are cut out of what `render_at` returns, or of the resized image."""
    from PIL import ImageOps

    mode_spec = spec.modes[mode]
    pillow = pillow_image.to_image(image)
    tiles = np.zeros((0, spec.tile_size, spec.tile_size, 3), np.uint8)
    if grid.tile_count:
        size = spec.grid_size(grid)
        tiles = _cut_tiles(
            render_at(*size) if render_at else pillow_image.to_rgb_array(pillow.resize(size)), spec.tile_size
        )
    is_short = max(pillow.size) <= MAX_STRETCHED_RATIO * min(pillow.size)
    if not mode_spec.is_tiled and mode_spec.base_size <= MAX_STRETCHED_SIDE and is_short:
        pillow = pillow.resize((mode_spec.base_size, mode_spec.base_size))
    padded = ImageOps.pad(pillow, (mode_spec.base_size, mode_spec.base_size), color=(GREY,) * len(pillow.getbands()))
    return Views(pillow_image.to_rgb_array(padded), tiles)


def _cut_tiles(image: Array, tile_size: int) -> Array:
    """Cut an image whose sides are multiples of `tile_size` into count × tile × tile × 3."""
    rows, columns = image.shape[0] // tile_size, image.shape[1] // tile_size
    parts = image.reshape(rows, tile_size, columns, tile_size, 3).swapaxes(1, 2)
    return parts.reshape(rows * columns, tile_size, tile_size, 3)


def map_views(spec: VisionSpec, buffer: PixelBuffer, mode: str, grid: TileGrid) -> Views:
    """The views as arrays over the buffer's memory, the global view first."""
    base_size = spec.modes[mode].base_size
    memory = np.frombuffer(buffer.map(spec.nbytes(mode, grid)), np.uint8)
    global_view = memory[: 3 * base_size * base_size].reshape(base_size, base_size, 3)
    return Views(global_view, memory[3 * base_size * base_size :].reshape(-1, spec.tile_size, spec.tile_size, 3))


def write_views(spec: VisionSpec, pixels: Pixels, mode: str, grid: TileGrid, buffer: PixelBuffer) -> None:
    """Write an image's views into a buffer; runs in a page worker."""
    copy_views(make_views(spec, pixels.array(), mode, grid), map_views(spec, buffer, mode, grid))


def copy_views(source: Views, target: Views) -> None:
    target.global_view[:] = source.global_view
    target.tiles[:] = source.tiles
