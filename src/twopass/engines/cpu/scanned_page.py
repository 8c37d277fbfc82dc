"""Straighten the lines of a skewed scan, split them into words and draw the page for the layout model."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from twopass.engines.cpu.geometry import Rect, StyledWord, enclose
from twopass.pages import ocr
from twopass.pages.strips import Array
from twopass.text import direction, prose

MIN_SKEW = 0.2  # degrees: a smaller skew does not change the order of lines
TYPE_SIZE_SHARE = 0.75  # of the height of a line's box
BASELINE_SHARE = 0.22  # of that height, from the bottom
_EAST_ASIAN = re.compile(f"[{prose.HAN}{prose.KANA}{prose.HANGUL}]")
_HANGUL = re.compile(f"[{prose.HANGUL}]")


def estimate_skew(lines: Sequence[ocr.Line]) -> float:
    """Return the median skew in degrees clockwise; 0 if it is small or fewer than three lines are long enough."""
    angles = [line.angle for line in lines if line.length > 5 * line.height and abs(line.angle) < 20]
    skew = statistics.median(angles) if len(angles) >= 3 else 0.0
    return skew if abs(skew) >= MIN_SKEW else 0.0


def split_into_words(
    lines: Sequence[ocr.Line], scale: float, skew: float, width: float, height: float
) -> Iterator[StyledWord]:
    """Straighten the lines and split them into words, whose widths are estimated from their letters.

    `scale` is points per pixel; `width` and `height` of the page are in points.
    """
    for number, line in enumerate(lines):
        corners = [rotate_point(x * scale, y * scale, -skew, width, height) for x, y in line.corners]
        xs, ys = zip(*corners, strict=True)
        box = Rect(min(xs), min(ys), max(xs), max(ys))
        upright = box.x1 - box.x0 >= box.height or len(line.text) < 3
        size = TYPE_SIZE_SHARE * (box.height if upright else box.x1 - box.x0)
        is_rtl = direction.is_rtl(line.text)
        line_width, end = max(_measure_width(line.text), 1), 0
        for text in line.text.split(" "):
            start, end = end, end + _measure_width(text) + 1
            if text:
                x0 = box.x0 + (box.x1 - box.x0) * start / line_width
                x1 = box.x0 + (box.x1 - box.x0) * min(end - 1, line_width) / line_width
                if is_rtl:  # the first word is the right one
                    x0, x1 = box.x0 + box.x1 - x1, box.x0 + box.x1 - x0
                word_box = box._replace(x0=x0, x1=x1) if upright else box
                yield StyledWord(word_box, text, number, size, upright=upright, score=line.score)


def straighten(words: Sequence[StyledWord], skew: float, width: float, height: float) -> Iterator[StyledWord]:
    """Move the lines of a text layer to where their places on the straightened page are; they stay as they are set."""
    for _, group in groupby(words, key=lambda word: word.line):
        line = list(group)
        x, y = enclose([word.box for word in line]).centre
        new_x, new_y = rotate_point(x, y, -skew, width, height)
        for word in line:
            yield replace(word, box=word.box.move(new_x - x, new_y - y))


def _measure_width(text: str) -> int:
    """Return the width in letters; East Asian letters count twice."""
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
    for _, group in groupby(words, key=lambda word: word.line):
        line = list(group)
        box = enclose([word.box for word in line])
        _write_hidden_line(page, box, " ".join(word.text for word in line))


def _write_hidden_line(page: Any, box: Rect, text: str) -> None:
    """Write one invisible line, stretched to its box; the layout model uses only its shape and position."""
    import pymupdf

    text, font = _choose_letters(text)
    size = max(TYPE_SIZE_SHARE * box.height, 1.0)
    length = pymupdf.get_text_length(text, font, size) or 1.0
    start = pymupdf.Point(box.x0, box.y1 - BASELINE_SHARE * box.height)
    stretch = pymupdf.Matrix((box.x1 - box.x0) / length, 0, 0, 1, 0, 0)
    page.insert_text(start, text, fontsize=size, fontname=font, render_mode=3, morph=(start, stretch))


def _choose_letters(text: str) -> tuple[str, str]:
    """Return letters of about the same width that a built-in font has, and the font; missing ones have no width."""
    if _EAST_ASIAN.search(text):
        return _HANGUL.sub("\u56fd", text), "china-s"
    return "".join(letter if letter.isascii() else "x" for letter in text), "helv"
