"""Turn an image into the views that the models encode: one global view, and tiles in modes that cut the image.

Follows the official code pixel for pixel: the tiles are cut out of the stretched image, the global view is padded
with grey, and in modes without tiles a global view of up to 640 pixels is stretched instead of padded. The one
exception: an image that stretching would make illegible is padded there as well. Knows sizes and pixels; knows
nothing of models, engines or the meaning of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.models import TileGrid, VisionSpec
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import PixelBuffer

GREY = 127  # int(0.5 * 255): the mean that pixels are normalised with
MAX_STRETCHED_SIDE = 640  # in modes without tiles, a global view up to this side is stretched, a larger one padded
MAX_STRETCHED_RATIO = 1.5  # long side to short side; a longer image is padded, or its text would become illegible

Array = npt.NDArray[np.uint8]
RenderAtSize = Callable[[int, int], Array]
"""The image at this width and height in pixels: height × width × 3."""


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
