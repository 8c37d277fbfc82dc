"""Find the rules of tables in the pixels of a scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twopass.engines.cpu.geometry import Rect
from twopass.engines.cpu.tables.rules import MAX_RULE_WIDTH
from twopass.pages.ocr import Array

MIN_LENGTH = 12.0  # points: shorter strokes may be letters
DRIFT = 1.0  # points across a rule within MIN_LENGTH, for paper that is not quite straight
NEIGHBOURHOOD = 12.0  # points around a pixel, whose mean brightness it is compared with
CONTRAST = 18  # grey levels that a rule is darker than its surroundings


def find_rules(array: Array, scale: float, skew: float) -> list[Rect]:
    """Return the rules in points; `scale` is points per pixel, `skew` the scan's rotation in degrees clockwise.

    The rules are straightened like the words of the scan.
    """
    import cv2  # only scans need it

    grey = cv2.cvtColor(array, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    if skew:
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), skew, 1.0)
        grey = cv2.warpAffine(grey, turn, (width, height), borderValue=255)
    block = int(NEIGHBOURHOOD / scale) | 1
    ink = cv2.adaptiveThreshold(grey, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, max(block, 3), CONTRAST)
    return [*_find_lines(ink, scale, horizontal=True), *_find_lines(ink, scale, horizontal=False)]


def _find_lines(ink: Any, scale: float, horizontal: bool) -> Iterator[Rect]:
    """Yield long straight strokes that are no thicker than a rule."""
    import cv2

    def make_kernel(length: float, thickness: int = 1) -> Array:
        pixels = max(round(length / scale), 1)
        return np.ones((thickness, pixels) if horizontal else (pixels, thickness), np.uint8)

    thick = cv2.dilate(ink, make_kernel(scale, max(round(DRIFT / scale), 1)))
    lines = cv2.morphologyEx(thick, cv2.MORPH_OPEN, make_kernel(MIN_LENGTH))
    count, _, stats, _ = cv2.connectedComponentsWithStats(lines)
    for x, y, width, height, _ in stats[1:count].tolist():
        box = Rect(x * scale, y * scale, (x + width) * scale, (y + height) * scale)
        if min(width, height) * scale <= MAX_RULE_WIDTH + DRIFT:
            yield _thin(box, horizontal)


def _thin(box: Rect, horizontal: bool) -> Rect:
    """Return the middle of a rule, whose thickness dilation has changed."""
    x, y = box.centre
    return Rect(box.x0, y, box.x1, y) if horizontal else Rect(x, box.y0, x, box.y1)
