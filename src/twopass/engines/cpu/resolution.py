"""Render a page again where its lines are too small for OCR to read them surely."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from twopass.pages import ocr, source_files
from twopass.pages.strips import Array

MIN_LINE_HEIGHT = 16.0  # pixels, median: lines of 11-12 lost up to 6 % of their words, lines of 13 and more none
GOOD_LINE_HEIGHT = 30.0  # pixels; 24 and 40 read equally well
MAX_SCALE = 4.0  # a line of less than 8 pixels is a speck, or was not legible in the file either
MIN_SCALE = 1.2  # less is not worth rendering the page
MAX_PIXELS = 20e6  # 60 MB


def render_sharper(page: Any, array: Array, quads: Sequence[ocr.Corners]) -> Array | None:
    """Return the page with more pixels than `array` if its detected lines are small, else None."""
    scale = choose_scale([math.dist(quad[0], quad[3]) for quad in quads], array.shape[0] * array.shape[1])
    if scale is None:
        return None
    zoom = scale * array.shape[1] / page.rect.width
    return source_files.render_display_list(page.get_displaylist(), zoom, zoom)


def choose_scale(heights: Sequence[float], pixels: int) -> float | None:
    """How much larger a page of so many pixels is rendered again, from its lines' heights; None if it is not."""
    height = statistics.median(heights) if heights else MIN_LINE_HEIGHT
    if height >= MIN_LINE_HEIGHT:
        return None
    scale = min(GOOD_LINE_HEIGHT / max(height, 1.0), MAX_SCALE, math.sqrt(MAX_PIXELS / pixels))
    return scale if scale >= MIN_SCALE else None
