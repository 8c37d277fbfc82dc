"""Prepare a scan: render it sharper, straighten its lines, split them into words, draw it for the layout model."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from twopass.document import Rect, enclose
from twopass.engines.cpu import reading_order
from twopass.engines.cpu.content import StyledWord
from twopass.pages import columns, ocr, source_files
from twopass.pages.strips import Array
from twopass.text import direction, prose

MIN_LINE_HEIGHT = 16.0  # pixels, median: lines of 11-12 lost up to 6 % of their words, lines of 13 and more none
GOOD_LINE_HEIGHT = 30.0  # pixels; 24 and 40 read equally well
MAX_SCALE = 4.0  # a line of less than 8 pixels is a speck, or was not legible in the file either
MIN_SCALE = 1.2  # less is not worth rendering the page
MAX_PIXELS = 20e6  # 60 MB
SCAN_SHARE = 0.6  # of the page that the image of a scan covers
MIN_OWN_SCALE = 1.02  # less is rounding
MAX_OWN_SCALE = 1.5  # times the pixels of the rendering: from there on, smaller letters are whole, too


def render_sharper(page: Any, array: Array, quads: Sequence[ocr.Corners]) -> Array | None:
    """The page with more pixels than `array` if its detected lines are small, or with those of its scan, else None."""
    scale = choose_scale([math.dist(quad[0], quad[3]) for quad in quads], array.shape[0] * array.shape[1])
    zoom = _choose_own_zoom(page, array) if scale is None else scale * array.shape[1] / page.rect.width
    return source_files.render_display_list(page.get_displaylist(), zoom, zoom) if zoom else None


def _choose_own_zoom(page: Any, array: Array) -> float | None:
    """That of a scan that has hardly more pixels than `array`, in which thin strokes are broken."""
    zoom = measure_own_zoom(page) or 0.0
    ratio = zoom * page.rect.width / array.shape[1]
    is_small = ratio**2 * array.shape[0] * array.shape[1] <= MAX_PIXELS
    return zoom if is_small and MIN_OWN_SCALE < ratio <= MAX_OWN_SCALE else None


def measure_own_zoom(page: Any) -> float | None:
    """Pixels per point of the one image that covers the page; None if it is no scan."""
    images = [
        image for image in page.get_image_info() if Rect(*image["bbox"]).area >= SCAN_SHARE * page.rect.get_area()
    ]
    return images[0]["width"] / max(Rect(*images[0]["bbox"]).width, 1.0) if len(images) == 1 else None


def choose_scale(heights: Sequence[float], pixels: int) -> float | None:
    """How much larger a page of so many pixels is rendered again, from its lines' heights; None if it is not."""
    height = statistics.median(heights) if heights else MIN_LINE_HEIGHT
    if height >= MIN_LINE_HEIGHT:
        return None
    scale = min(GOOD_LINE_HEIGHT / max(height, 1.0), MAX_SCALE, math.sqrt(MAX_PIXELS / pixels))
    return scale if scale >= MIN_SCALE else None


MIN_SKEW = 0.2  # degrees: a smaller skew does not change the order of lines
TYPE_SIZE_SHARE = 0.75  # of the height of a line's box
BASELINE_SHARE = 0.22  # of that height, from the bottom
_EAST_ASIAN = re.compile(f"[{prose.HAN}{prose.KANA}{prose.HANGUL}]")
_HANGUL = re.compile(f"[{prose.HANGUL}]")


def estimate_skew(lines: Sequence[ocr.OcrLine], array: Array) -> float:
    """The median skew in degrees clockwise; 0 if it is small, or if turning the scan makes no rows sharper.

    The box of a short line is slanted where only one of its ends has letters with descenders.
    """
    angles = [line.angle for line in lines if line.length > 5 * line.height and abs(line.angle) < 20]
    skew = statistics.median(angles) if len(angles) >= 3 else 0.0
    return skew if abs(skew) >= MIN_SKEW and _is_sharper(array, skew) else 0.0


def _is_sharper(array: Array, skew: float) -> bool:
    """Whether the brightness of a scan's rows changes more from row to row once the scan is turned back."""
    from PIL import Image

    grey = Image.fromarray(array).convert("L")
    turned = grey.rotate(skew, Image.Resampling.BILINEAR, fillcolor=int(np.median(np.asarray(grey))))
    sharpness = [float(np.square(np.diff(np.asarray(image).mean(axis=1))).sum()) for image in (grey, turned)]
    return sharpness[1] > sharpness[0]


def split_into_words(
    lines: Sequence[ocr.OcrLine], scale: float, skew: float, width: float, height: float
) -> Iterator[StyledWord]:
    """Straighten the lines and split them into words; where their places are not known, widths follow from letters.

    `scale` is points per pixel; `width` and `height` of the page are in points.
    """
    for number, line in enumerate(lines):
        box = place(line.corners, scale, skew, width, height)
        upright = box.width >= box.height or len(line.text) < 3
        size = TYPE_SIZE_SHARE * (box.height if upright else box.width)
        extents = line.extents or list(_estimate_extents(line.text))
        for text, (start, stop) in zip(line.text.split(), extents, strict=True):
            x0, x1 = (box.x0 + box.width * share for share in (start, stop))
            word_box = box._replace(x0=x0, x1=x1) if upright else box
            yield StyledWord(word_box, text, number, size, upright=upright, score=line.score)


def place(corners: ocr.Corners, scale: float, skew: float, width: float, height: float) -> Rect:
    """The box of a line on the straightened page, in points."""
    return Rect.around(rotate_point(x * scale, y * scale, -skew, width, height) for x, y in corners)


def _estimate_extents(text: str) -> Iterator[tuple[float, float]]:
    """Yield where each word of a line is, as shares of its width from the left, from the numbers of letters."""
    is_rtl = direction.is_rtl(text)
    words = text.split()
    width, stop = sum(map(_measure_width, words)) + len(words) - 1, -1
    for word in words:
        start, stop = stop + 1, stop + 1 + _measure_width(word)
        # The first word of a right-to-left line is the right one.
        yield ((width - stop) / width, (width - start) / width) if is_rtl else (start / width, stop / width)


def straighten(words: Sequence[StyledWord], skew: float, width: float, height: float) -> Iterator[StyledWord]:
    """Move the lines of a text layer to where their places on the straightened page are; they stay as they are set."""
    for _, group in groupby(words, key=lambda word: word.line):
        line = list(group)
        x, y = enclose([word.box for word in line]).centre
        new_x, new_y = rotate_point(x, y, -skew, width, height)
        for word in line:
            yield replace(word, box=word.box.move(new_x - x, new_y - y))


def find_gutters(words: Sequence[StyledWord]) -> list[Rect]:
    """The gutters between the lines of straightened words."""
    return columns.find_gutters([enclose(line) for line in _list_lines(words)])


def cut_lines(words: Sequence[StyledWord]) -> list[StyledWord]:
    """The straightened words, with lines that were detected across columns of running text cut into one for each."""
    return reading_order.cut_lines(words, find_bands(words))


def find_bands(words: Sequence[StyledWord]) -> list[Rect]:
    """The white between columns of straightened words, of which some lines may be one."""
    return columns.find_bands(_list_lines(words))


def _list_lines(words: Sequence[StyledWord]) -> list[list[Rect]]:
    """The boxes of the words of each upright line."""
    upright = (word for word in words if word.upright)
    return [[word.box for word in group] for _, group in groupby(upright, key=lambda word: word.line)]


def _measure_width(text: str) -> int:
    """The width in letters; East Asian letters count twice."""
    return len(text) + sum("\u2e80" <= letter <= "\uffef" for letter in text)


def rotate_point(x: float, y: float, degrees: float, width: float, height: float) -> tuple[float, float]:
    """Rotate a point clockwise about the page's centre."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    dx, dy = x - width / 2, y - height / 2
    return width / 2 + dx * cosine - dy * sine, height / 2 + dx * sine + dy * cosine


def draw_page(page: Any, array: Array, words: Sequence[StyledWord], skew: float) -> None:
    """Draw the straightened scan with its words as invisible text over it, as input of the layout model."""
    import pymupdf
    from PIL import Image

    image = Image.fromarray(array)
    if skew:
        image = image.rotate(skew, Image.Resampling.BILINEAR, fillcolor="white")
    pixmap = pymupdf.Pixmap(pymupdf.csRGB, image.width, image.height, image.tobytes(), False)
    page.insert_image(page.rect, pixmap=pixmap)
    shape = page.new_shape()  # written at once: MuPDF reads the whole page again for each text that is inserted
    for _, group in groupby(words, key=lambda word: word.line):
        line = list(group)
        box = enclose([word.box for word in line])
        _write_hidden_line(shape, box, " ".join(word.text for word in line))
    shape.commit()


def _write_hidden_line(shape: Any, box: Rect, text: str) -> None:
    """Write one invisible line, stretched to its box; the layout model uses only its shape and position."""
    import pymupdf

    text, font = _choose_letters(text)
    size = max(TYPE_SIZE_SHARE * box.height, 1.0)
    length = pymupdf.get_text_length(text, font, size) or 1.0
    start = pymupdf.Point(box.x0, box.y1 - BASELINE_SHARE * box.height)
    stretch = pymupdf.Matrix(box.width / length, 0, 0, 1, 0, 0)
    shape.insert_text(start, text, fontsize=size, fontname=font, render_mode=3, morph=(start, stretch))


def _choose_letters(text: str) -> tuple[str, str]:
    """Letters of about the same width that a built-in font has, and the font; missing ones have no width."""
    if _EAST_ASIAN.search(text):
        return _HANGUL.sub("\u56fd", text), "china-s"
    return "".join(letter if letter.isascii() else "x" for letter in text), "helv"
