"""Render the tiles of a PDF page directly instead of enlarging its pixels.

Tiles show a page of 144 dpi larger than it was rendered. Rendering them at their own size takes a fifth of the time,
and no letter is blurred (docs/log/ has the figures). The global view is smaller than the page and is still resized:
small print rendered at that size reads a little worse. Knows files and views; knows nothing of models or engines.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twopass.engines.vllm import tiling
from twopass.models import TileGrid, VisionSpec
from twopass.pages import source_files
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, Pixels

WHITE = 255


def write_views(
    spec: VisionSpec, pointer: PagePointer, pixels: Pixels, mode: str, grid: TileGrid, buffer: PixelBuffer
) -> None:
    """Write a page's views into a buffer, in the layout of `tiling.write_views`; runs in a page worker.

    Raises SourceError.
    """
    with source_files.open_page(pointer.file, pointer.number, pointer.turn, pointer.password) as page:
        display_list = page.get_displaylist()

        def render_at(width: int, height: int) -> tiling.Array:
            return render_page(display_list, width, height)

        views = tiling.make_views(spec, pixels.array(), mode, grid, render_at)
    tiling.copy_views(views, tiling.map_views(spec, buffer, mode, grid))


def render_page(display_list: Any, width: int, height: int) -> tiling.Array:
    """Render MuPDF's display list of a page to exactly this many pixels: height × width × 3."""
    bounds = display_list.rect
    rendered = source_files.render_display_list(display_list, width / bounds.width, height / bounds.height)[
        :height, :width
    ]
    # MuPDF may round to a pixel more or less.
    pixels = np.full((height, width, 3), WHITE, np.uint8)
    pixels[: rendered.shape[0], : rendered.shape[1]] = rendered
    return pixels
