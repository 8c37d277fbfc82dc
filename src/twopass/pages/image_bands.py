"""Convert an image of a file to upright RGB pixels in another size, band by band.

A small file can have 250 million pixels, and every copy of them takes a gigabyte. There is one, which Pillow decodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twopass.pages.source_files import get_orientation

BAND_PIXELS = 8_000_000  # converted at once: 32 MB for each copy
DRAFT_PIXELS = 50_000_000  # a JPEG with more is decoded at a half, a quarter or an eighth, if that is large enough
BICUBIC_SUPPORT = 2.0  # rows of the filter above and below each row of the result, in its own scale
WIDE_GREY = ("I;16", "I;16B", "I;16L", "I", "F")  # modes of grey with more than 8 bits

Array = npt.NDArray[np.uint8]


def draw(image: Any, size: tuple[int, int], band_pixels: int = BAND_PIXELS) -> Array:
    """The open image, upright and resized to `size`, the width and height of the upright page.

    The pixels are those that Pillow gives for the whole image, however many rows a band has.
    """
    if image.format == "JPEG" and image.width * image.height > DRAFT_PIXELS:
        image.draft(None, size[::-1] if get_orientation(image) >= 5 else size)
    image.load()
    orientation = get_orientation(image)  # Pillow has turned a TIFF
    upright = image.size[::-1] if orientation >= 5 else image.size
    highest = float(np.float32(image.getextrema()[1])) if image.mode in WIDE_GREY else None
    array = np.empty((size[1], size[0], 3), np.uint8)
    rows = max(band_pixels * size[1] // (max(upright[0], size[0]) * max(upright[1], size[1])), 1)
    for top in range(0, size[1], rows):
        band = _Band(top, min(top + rows, size[1]), size, upright)
        strip = flatten(_cut(image, orientation, *band.source_rows), highest)
        array[band.top : band.bottom] = np.asarray(band.resize(strip))
    return array


@dataclass(frozen=True)
class _Band:
    """Rows `top` to `bottom` of an image that is resized from `source` to `size`."""

    top: int
    bottom: int
    size: tuple[int, int]
    source: tuple[int, int]

    @property
    def scale(self) -> float:
        return self.source[1] / self.size[1]

    @property
    def source_rows(self) -> tuple[int, int]:
        """The rows of the source that these depend on."""
        margin = 0 if self.source == self.size else math.ceil(BICUBIC_SUPPORT * max(self.scale, 1.0)) + 1
        first, last = math.floor(self.top * self.scale) - margin, math.ceil(self.bottom * self.scale) + margin
        return max(first, 0), min(last, self.source[1])

    def resize(self, strip: Any) -> Any:
        """The band of the result, from the rows of the source."""
        if self.source == self.size:
            return strip
        first = self.source_rows[0]
        box = (0, self.top * self.scale - first, strip.width, min(self.bottom * self.scale - first, strip.height))
        return strip.resize((self.size[0], self.bottom - self.top), box=box)


def _cut(image: Any, orientation: int, first: int, last: int) -> Any:
    """Rows `first` to `last` of the image as it is displayed."""
    from PIL import Image

    across, methods = orientation >= 5, Image.Transpose
    length = image.width if across else image.height
    if orientation in (3, 4, 7, 8):  # the first row of the upright image is the last row or column of the file
        first, last = length - last, length - first
    strip = image.crop((first, 0, last, image.height) if across else (0, first, image.width, last))
    turns = {
        2: methods.FLIP_LEFT_RIGHT,
        3: methods.ROTATE_180,
        4: methods.FLIP_TOP_BOTTOM,
        5: methods.TRANSPOSE,
        6: methods.ROTATE_270,
        7: methods.TRANSVERSE,
        8: methods.ROTATE_90,
    }
    return strip.transpose(turns[orientation]) if orientation in turns else strip


def flatten(image: Any, highest: float | None = None) -> Any:
    """Convert an image to RGB on a white background. 16-bit grey is scaled to 8 bits, not clipped.

    `highest` is the largest value of the whole, of which the image is a part.
    """
    from PIL import Image

    if image.mode in WIDE_GREY:
        values = np.array(image, np.float32)
        highest = float(values.max(initial=0)) if highest is None else highest
        is_unit_range = image.mode == "F" and 0 < highest <= 1  # as scientific programs write
        values *= 255 / (1.0 if is_unit_range else max(highest, 255.0))
        image = Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")
