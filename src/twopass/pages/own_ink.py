"""Draw single words of a PDF page alone, and compare their shapes with the pixels of the page.

Where words lie on other words, on rules or on patterns, the ink in a word's box may be that of others. A word that is
seen has its own shape there, in whatever colour.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.pages.source_files import copy_pixels

Array = npt.NDArray[np.uint8]
Box = npt.NDArray[np.float64]  # x0, y0, x1, y1 in pixels

_MARGIN = 2  # pixels around a box, in which its letters may stand, and in which the page shows what is around them
_BESIDE = 2  # pixels beside a stroke that are compared with it: further away, the edge of a cell may be
_LEAST_OWN = 0.3  # of these pixels: with fewer that no other letter covers, all are compared
_MAX_COPIES = 3  # of a word in one place that are compared: some programs print bold text several times
_NO_GLYPH = -1  # of the second letter of a ligature


class _Letter(NamedTuple):
    """A glyph as the page draws it: its character, its font and number, and its matrix from type sizes to pixels.

    The number is None if its outline is drawn.
    """

    character: str
    font: Any
    glyph: int | None
    matrix: Any


def measure(display_list: Any, zoom: float, array: Array, texts: Sequence[str], boxes: Sequence[Box]) -> list[float]:
    """How far the pixels in each box have the shape of its word: 1 for exactly that shape, 0 for another or none.

    1 also for a word whose letters are not found or only outlined. Of a word that is drawn several times, the copy that
    is seen best.
    """
    letters = _collect(display_list, zoom)
    places = np.array([(letter.matrix.e, letter.matrix.f) for letter in letters]).reshape(-1, 2)
    found = []
    for text, box in zip(texts, boxes, strict=True):
        near = _list_within(letters, places, box, box[3] - box[1])
        copies = _find_copies(text, _list_within(letters, places, box, _MARGIN))
        found.append(max((_compare(copy, near, box, array) for copy in copies), default=1.0))
    return found


def _collect(display_list: Any, zoom: float) -> list[_Letter]:
    """The glyphs of a page in the order in which they are drawn."""
    import pymupdf

    mupdf = pymupdf.mupdf
    letters: list[_Letter] = []

    class Collector(mupdf.FzDevice2):  # type: ignore[misc, name-defined]  # MuPDF has no types
        def __init__(self) -> None:
            super().__init__()
            self.use_virtual_fill_text()
            self.use_virtual_stroke_text()

        def fill_text(self, context: Any, text: Any, matrix: Any, *_: Any) -> None:
            letters.extend(_iterate(text, matrix))

        def stroke_text(self, context: Any, text: Any, stroke: Any, matrix: Any, *_: Any) -> None:
            letters.extend(letter._replace(glyph=None) for letter in _iterate(text, matrix))

    device, everywhere = Collector(), mupdf.FzRect(mupdf.FzRect.Fixed_INFINITE)
    scale = mupdf.FzMatrix(zoom, 0, 0, zoom, 0, 0)
    mupdf.fz_run_display_list(display_list.this, device, scale, everywhere, mupdf.FzCookie())
    mupdf.fz_close_device(device)
    return letters


def _iterate(text: Any, matrix: Any) -> Iterator[_Letter]:
    import pymupdf

    mupdf, node = pymupdf.mupdf, text.head
    to_page = mupdf.FzMatrix(matrix)
    while node:
        span = mupdf.FzTextSpan(node)
        font, own = mupdf.FzFont(mupdf.ll_fz_keep_font(node.font)), node.trm
        for n in range(node.len):
            item = span.items(n)
            placed = mupdf.FzMatrix(own.a, own.b, own.c, own.d, item.x, item.y)
            yield _Letter(
                chr(item.ucs) if 0 <= item.ucs <= sys.maxunicode else "\ufffd",
                font,
                item.gid,
                mupdf.fz_concat(placed, to_page),
            )
        node = node.next


def _list_within(letters: Sequence[_Letter], places: npt.NDArray[np.float64], box: Box, margin: float) -> list[_Letter]:
    """The letters that begin in the box or so many pixels around it."""
    x0, y0, x1, y1 = box + (-margin, -margin, margin, margin)
    x, y = places.T
    return [letters[n] for n in np.flatnonzero((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)).tolist()]


def _find_copies(text: str, inside: Sequence[_Letter]) -> Iterator[Sequence[_Letter]]:
    """Yield the letters of a word for each time that it is drawn among those in its box."""
    drawn, start = "".join(letter.character for letter in inside), -1
    for _ in range(_MAX_COPIES):
        start = drawn.find(text, start + 1)
        if start < 0:
            return
        yield inside[start : start + len(text)]


def _compare(letters: Sequence[_Letter], near_letters: Sequence[_Letter], box: Box, array: Array) -> float:
    """The correlation of the shape of the letters with the colours of the page at their strokes and beside them.

    What other letters cover says nothing about these.
    """
    import cv2

    height, width = array.shape[:2]
    x0, y0 = (max(int(value) - _MARGIN, 0) for value in box[:2])
    x1, y1 = min(int(box[2]) + _MARGIN + 1, width), min(int(box[3]) + _MARGIN + 1, height)
    if x1 <= x0 or y1 <= y0 or any(letter.glyph is None for letter in letters):
        return 1.0
    drawn = _draw(letters, (x0, y0, x1, y1))
    near = cv2.dilate(drawn, np.ones((2 * _BESIDE + 1, 2 * _BESIDE + 1), np.uint8)) > 0
    if not near.any():
        return 1.0
    own = {id(letter) for letter in letters}
    others = [letter for letter in near_letters if id(letter) not in own]
    is_free = near & (_draw(others, (x0, y0, x1, y1)) == 0)
    near = is_free if is_free.sum() >= _LEAST_OWN * near.sum() else near
    shape, page = drawn[near].astype(np.float64), array[y0:y1, x0:x1][near].astype(np.float64)
    shape -= shape.mean()
    page -= page.mean(0)
    scales = np.sqrt((shape**2).sum() * (page**2).sum(0))
    return float((np.abs(shape @ page) / np.maximum(scales, 1e-6)).max())


def _draw(letters: Sequence[_Letter], part: tuple[int, int, int, int]) -> Array:
    """The letters in white on black, in this part of the page."""
    import pymupdf

    mupdf = pymupdf.mupdf
    text = mupdf.FzText()
    for letter in letters:
        if letter.glyph not in (None, _NO_GLYPH):
            code = ord(letter.character)
            mupdf.fz_show_glyph(text, letter.font, letter.matrix, letter.glyph, code, 0, 0, mupdf.FZ_BIDI_NEUTRAL, 0)
    grey = mupdf.FzColorspace(mupdf.FzColorspace.Fixed_GRAY)
    pixels = mupdf.fz_new_pixmap_with_bbox(grey, mupdf.FzIrect(*part), mupdf.FzSeparations(), 0)
    mupdf.fz_clear_pixmap_with_value(pixels, 0)
    device = mupdf.fz_new_draw_device(mupdf.FzMatrix(), pixels)
    mupdf.fz_fill_text(device, text, mupdf.FzMatrix(), grey, [1.0], 1.0, mupdf.FzColorParams())
    mupdf.fz_close_device(device)
    return copy_pixels(pymupdf.Pixmap("raw", pixels))[:, :, 0]
