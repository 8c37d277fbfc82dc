"""A picture in, the views of it that DeepSeek-OCR looks at out: one of the whole, and tiles where it is cut.

What the official code does, pixel for pixel: tiles are stretched, the whole is padded with grey, and where
nothing is cut up to 640 pixels the whole is stretched too. The one exception: what stretching would make
illegible is padded there as well. Knows sizes and pixels; knows nothing of models, tokens' meaning or engines.
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
STRETCHED = 640  # a whole view without tiles up to this size is stretched, a larger one padded
STRAIGHT = 1.5  # times as long as wide: beyond that it is padded, or a line of text would be drawn out beyond reading
CELL = 64  # pixels of a view that become one token: patches of 16, four to a side
LEAST_CROPS = 2
MOST_CROPS = 9

Array = npt.NDArray[np.uint8]
InSize = Callable[[int, int], Array]
"""A picture in so many pixels across and down: height × width × 3."""


class Shape(NamedTuple):
    """A mode: the side of the whole view in pixels, and whether the picture is cut into tiles."""

    base: int
    cut: bool = False


class Tiles(NamedTuple):
    """How a picture is cut: so many tiles across and down; (1, 1) is not cut."""

    across: int
    down: int

    @property
    def number(self) -> int:
        return self.across * self.down if self.across * self.down > 1 else 0


@dataclass(frozen=True)
class Vision:
    """How one line of models cuts pictures. `tile` is a tile's side; `newlines`: a token ends every row."""

    modes: Mapping[str, Shape]
    tile: int
    newlines: bool

    def tiles(self, width: int, height: int, mode: str, max_crops: int) -> Tiles:
        """How a picture of this size is cut in this mode."""
        if not self.modes[mode].cut or max(width, height) <= self.tile:
            return Tiles(1, 1)
        return _closest(width, height, self.tile, max_crops)

    def grid(self, tiles: Tiles) -> tuple[int, int]:
        """Width and height of all tiles together, which is what the picture is stretched to."""
        return self.tile * tiles.across, self.tile * tiles.down

    def enlarges(self, width: int, height: int, tiles: Tiles) -> bool:
        """Whether the tiles have more pixels than a picture of this size."""
        return tiles.number * self.tile**2 > width * height

    def tokens(self, mode: str, tiles: Tiles) -> int:
        """Places in the prompt: the tiles' grid, the whole view's, and one separator."""
        across, down = (tiles.across, tiles.down) if tiles.number else (0, 0)
        side, cells = self.modes[mode].base // CELL, self.tile // CELL
        return self._grid(side, side) + self._grid(cells * across, cells * down) + 1

    def _grid(self, across: int, down: int) -> int:
        return down * (across + (1 if self.newlines and across else 0))

    def nbytes(self, mode: str, tiles: Tiles) -> int:
        """Of all views, three bytes a pixel."""
        return 3 * (self.modes[mode].base ** 2 + tiles.number * self.tile**2)

    @property
    def most_bytes(self) -> int:
        """That the views of one picture can have, in any mode."""
        return max(self.nbytes(mode, Tiles(1, MOST_CROPS if shape.cut else 1)) for mode, shape in self.modes.items())


DEEPSEEK_OCR = Vision(
    {
        "tiny": Shape(512),
        "small": Shape(640),
        "base": Shape(1024),
        "large": Shape(1280),
        "gundam": Shape(1024, True),
    },
    tile=640,
    newlines=True,
)
DEEPSEEK_OCR_2 = Vision({"base": Shape(1024), "gundam": Shape(1024, True)}, tile=768, newlines=False)


@lru_cache(maxsize=4096)
def _closest(width: int, height: int, tile: int, max_crops: int) -> Tiles:
    """The grid nearest in shape; of two as near, the larger where the picture has pixels for half of it."""
    best, least = Tiles(1, 1), float("inf")
    for grid in _grids(max_crops):
        far = abs(width / height - grid.across / grid.down)
        if far < least:
            best, least = grid, far
        elif far == least and width * height > 0.5 * tile * tile * grid.across * grid.down:
            best = grid
    return best


@lru_cache
def _grids(max_crops: int) -> tuple[Tiles, ...]:
    """By number of tiles; inside a number in a set's order, as the official code has it (ties depend on it)."""
    pairs = {
        (across, down)
        for most in range(LEAST_CROPS, max_crops + 1)
        for across in range(1, most + 1)
        for down in range(1, most + 1)
        if LEAST_CROPS <= across * down <= max_crops
    }
    return tuple(Tiles(*pair) for pair in sorted(pairs, key=lambda pair: pair[0] * pair[1]))


class Views(NamedTuple):
    """The whole (base × base × 3) and its tiles (count × tile × tile × 3, row by row), uint8."""

    whole: Array
    tiles: Array


def views(vision: Vision, picture: Array, mode: str, tiles: Tiles, enlarged: InSize | None = None) -> Views:
    """What the model looks at; `tiles` as `Vision.tiles` says, cut out of the resized picture or of one `enlarged`."""
    from PIL import ImageOps

    shape = vision.modes[mode]
    image = pillow_image.image(picture)
    cut = np.zeros((0, vision.tile, vision.tile, 3), np.uint8)
    if tiles.number:
        grid = vision.grid(tiles)
        cut = _cut(enlarged(*grid) if enlarged else pillow_image.rgb(image.resize(grid)), vision.tile)
    if not shape.cut and shape.base <= STRETCHED and max(image.size) <= STRAIGHT * min(image.size):
        image = image.resize((shape.base, shape.base))
    whole = ImageOps.pad(image, (shape.base, shape.base), color=(GREY,) * len(image.getbands()))
    return Views(pillow_image.rgb(whole), cut)


def _cut(grid: Array, tile: int) -> Array:
    """A grid of tiles as a row of them."""
    down, across = grid.shape[0] // tile, grid.shape[1] // tile
    parts = grid.reshape(down, tile, across, tile, 3).swapaxes(1, 2)
    return parts.reshape(down * across, tile, tile, 3)


def mapped(vision: Vision, buffer: PixelBuffer, mode: str, tiles: Tiles) -> Views:
    """Views that lie in a slab, the whole first."""
    base = vision.modes[mode].base
    memory = np.frombuffer(buffer.map(vision.nbytes(mode, tiles)), np.uint8)
    whole = memory[: 3 * base * base].reshape(base, base, 3)
    return Views(whole, memory[3 * base * base :].reshape(-1, vision.tile, vision.tile, 3))


def prepare(vision: Vision, pixels: Pixels, mode: str, tiles: Tiles, buffer: PixelBuffer) -> None:
    """In a page worker: the picture's views into a slab."""
    put(views(vision, pixels.array(), mode, tiles), mapped(vision, buffer, mode, tiles))


def put(made: Views, there: Views) -> None:
    there.whole[:] = made.whole
    there.tiles[:] = made.tiles
