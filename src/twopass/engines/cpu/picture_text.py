"""Find the lines that the images of a page show and its visible text layer lacks, for OCR to read.

A line that the layer has is not read. Where the layer has a part of a line, such as the value in a scanned form, only
the rest is read. So no word is there twice, and the words of both are simply added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from twopass.document import Rect
from twopass.engines.cpu.content import StyledWord
from twopass.pages import ocr
from twopass.pages.source_files import FULL_IMAGE_SHARE
from twopass.pages.strips import Array

MIN_IMAGE_SHARE = 0.1  # of the page: smaller images are logos, icons and small figures, whose labels cost a second
MAX_IMAGES = 4  # of a page, the largest ones
QUICK_SIDE = 1000  # pixels: the quick detector makes a larger image so small that it misses or joins lines
MAX_LINES = 40  # in images that do not fill the page: up to 0.1 s of processor time each
TOUCH = 1.0  # points between the strips that some programs cut an image into
MIN_PICTURE_SCORE = 0.8  # of a line in a picture: shapes and textures are read as letters with less

# A layer's word is that of a detected line if its height has this ratio to the line's; a watermark is larger.
MIN_HEIGHT_RATIO, MAX_HEIGHT_RATIO = 0.3, 2.5
WORD_MARGIN = 0.25  # of a line's height, around a word of the layer
MIN_GAP = 0.8  # of a line's height: white space and the margins of detected lines are narrower
INK_CONTRAST, MIN_INK = 40, 0.02  # grey levels from the background, and share of the pixels, of a gap with text
MAX_ANGLE = 10.0  # degrees: lines at a larger angle are not cut into parts
MIN_COVER = 0.5  # of such a line's box: then the layer has the line


def find_lines(blocks: Sequence[Any], words: Sequence[StyledWord], page: Rect, array: Array) -> list[ocr.Corners]:
    """Find the lines of the page's large images that the words of its layer do not cover, in pixels of the page.

    A quick detector says first whether there are any. In a small image it sees all of them; for larger ones the
    whole page is searched once, because the full detector enlarges small images and takes a second for each.
    """
    scale = array.shape[1] / page.x1
    images = [Rect(*(value * scale for value in image)) for image in find_images(blocks, page)]
    if not images:
        return []
    own = [replace(word, box=Rect(*(value * scale for value in word.box))) for word in words]
    seen = [(image, quads) for image in images if (quads := _detect_quickly(image, own, array))]
    is_large = any(max(image.width, image.height) > QUICK_SIDE for image, _ in seen)
    page_quads = ocr.detect_lines(array) if is_large else None
    area = array.shape[0] * array.shape[1]
    lines: list[ocr.Corners] = []
    for image, quads in seen:
        inside = (
            quads if page_quads is None else [quad for quad in page_quads if image.contains(Rect.around(quad).centre)]
        )
        parts = [part for quad in inside for part in find_uncovered(quad, own, array)]
        limit = None if image.area >= FULL_IMAGE_SHARE * area else max(MAX_LINES - len(lines), 0)
        lines += parts[:limit]
    return lines


def drop_shapes(result: ocr.OcrResult, is_scan: bool) -> tuple[ocr.OcrLine, ...]:
    """Drop lines without letters or digits, and in pictures those that may be shapes."""
    min_score = 0.0 if is_scan else MIN_PICTURE_SCORE
    return tuple(line for line in result.lines if line.score >= min_score and any(map(str.isalnum, line.text)))


def find_images(blocks: Sequence[Any], page: Rect) -> list[Rect]:
    """The page's images of some size, the largest first; images that touch are one."""
    merged: list[Rect] = []
    for block in blocks:
        if block["type"] != 1:
            continue
        x0, y0, x1, y1 = block["bbox"]
        box = Rect(max(x0, page.x0), max(y0, page.y0), min(x1, page.x1), min(y1, page.y1))
        while touching := [other for other in merged if other.intersects(box.grow(TOUCH))]:
            for other in touching:
                box = box.union(other)
                merged.remove(other)
        merged += [box] if box.area > 0 else []
    large = [box for box in merged if box.area >= MIN_IMAGE_SHARE * page.area]
    return sorted(large, key=lambda box: -box.area)[:MAX_IMAGES]


def _detect_quickly(image: Rect, words: Sequence[StyledWord], array: Array) -> list[ocr.Corners]:
    """The lines in an image, all in pixels of the page; none if the words cover all that look like script."""
    x0, y0, x1, y1 = (round(value) for value in image)
    crop = array[y0:y1, x0:x1]
    if not crop.size:
        return []
    quads = [_move(quad, x0, y0) for quad in ocr.detect_quickly(crop)]
    parts = (part for quad in quads for part in find_uncovered(quad, words, array))
    return quads if any(ocr.is_line_of_script(array, ocr.OcrLine(part, "", 0.0)) for part in parts) else []


def _move(quad: ocr.Corners, dx: float, dy: float) -> ocr.Corners:
    return tuple((x + dx, y + dy) for x, y in quad)  # type: ignore[return-value]


def find_uncovered(quad: ocr.Corners, words: Sequence[StyledWord], array: Array) -> list[ocr.Corners]:
    """The parts of a detected line that have ink and no word of the layer, from left to right; all in pixels."""
    line = ocr.OcrLine(quad, "", 0.0)
    box = line.box
    if abs(line.angle) > MAX_ANGLE or line.length < line.height:
        covered = sum(box.overlap(word.box) for word in words)
        return [] if covered >= MIN_COVER * box.area else [quad]
    margin = WORD_MARGIN * line.height
    spans = sorted((w.box.x0 - margin, w.box.x1 + margin) for w in words if _is_in_line(w, line, box))
    if not spans:
        return [quad]
    parts, start = [], box.x0
    for left, right in [*spans, (box.x1, box.x1)]:
        if left - start >= MIN_GAP * line.height:
            parts.append(_cut(quad, start, left))
        start = max(start, right)
    return [part for part in parts if _has_ink(part, array)]


def _is_in_line(word: StyledWord, line: ocr.OcrLine, box: Rect) -> bool:
    """Whether a word of the layer lies in a detected line, which may rise or fall a little."""
    if not word.upright or not MIN_HEIGHT_RATIO <= word.box.height / max(line.height, 1.0) <= MAX_HEIGHT_RATIO:
        return False
    if word.box.x1 <= box.x0 or word.box.x0 >= box.x1:
        return False
    x, y = word.box.centre
    (x0, y0), (x1, y1) = _axis(line)
    middle = y0 + (y1 - y0) * min(max((x - x0) / max(x1 - x0, 1.0), 0.0), 1.0)
    return abs(y - middle) <= max(line.height, word.box.height) / 2


def _axis(line: ocr.OcrLine) -> tuple[ocr.Point, ocr.Point]:
    """The middle of a line's left and right side."""
    a, b, c, d = line.corners
    return ((a[0] + d[0]) / 2, (a[1] + d[1]) / 2), ((b[0] + c[0]) / 2, (b[1] + c[1]) / 2)


def _cut(quad: ocr.Corners, left: float, right: float) -> ocr.Corners:
    """The part of a nearly horizontal line between two positions."""
    a, b, c, d = quad
    return _along(a, b, left), _along(a, b, right), _along(d, c, right), _along(d, c, left)


def _along(start: ocr.Point, end: ocr.Point, x: float) -> ocr.Point:
    share = min(max((x - start[0]) / max(end[0] - start[0], 1.0), 0.0), 1.0)
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def _has_ink(part: ocr.Corners, array: Array) -> bool:
    x0, y0, x1, y1 = (max(round(value), 0) for value in Rect.around(part))
    grey = array[y0:y1, x0:x1].mean(axis=2)
    return bool(grey.size) and float((np.abs(grey - np.median(grey)) > INK_CONTRAST).mean()) >= MIN_INK
