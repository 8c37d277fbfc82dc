"""A page of a PDF in, its views out, the tiles drawn anew instead of enlarged.

Tiles show a page of 144 dpi larger than it was drawn. Drawn in their own size they take a fifth of the time, and no
letter is blurred (docs/log/ has the figures). The whole is smaller than the page, and is resized as ever: small print
drawn anew reads a little worse. Knows files and views. Knows nothing of models or engines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twopass.engines.interface import PagePointer
from twopass.engines.vllm import tiling
from twopass.pages import source_files
from twopass.pages.shared_pixels import PixelBuffer, Pixels

WHITE = 255


def prepare(
    vision: tiling.Vision, pointer: PagePointer, pixels: Pixels, mode: str, tiles: tiling.Tiles, buffer: PixelBuffer
) -> None:
    """In a page worker: the page's views into a slab, as `views.prepare` makes them; raises SourceError."""
    with source_files.upright(pointer.file, pointer.number, pointer.turn, pointer.password) as page:
        listed = page.get_displaylist()

        def enlarged(width: int, height: int) -> tiling.Array:
            return _drawn(listed, width, height)

        made = tiling.views(vision, pixels.array(), mode, tiles, enlarged)
    tiling.put(made, tiling.mapped(vision, buffer, mode, tiles))


def _drawn(listed: Any, width: int, height: int) -> tiling.Array:
    room = listed.rect
    shown = source_files.drawn(listed, width / room.width, height / room.height)[:height, :width]
    # MuPDF may round to a pixel more or less.
    array = np.full((height, width, 3), WHITE, np.uint8)
    array[: shown.shape[0], : shown.shape[1]] = shown
    return array
