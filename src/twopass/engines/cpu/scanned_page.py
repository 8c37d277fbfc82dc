"""Lines that OCR read in, straightened words and a page for the layout model to look at out.

Knows where letters stand on a page that leans. Knows nothing of files or of the answer's grammar.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from twopass.engines.cpu import reading_order
from twopass.engines.cpu.reading_order import Rect, Word
from twopass.pages import ocr

LEAST_SKEW = 0.2  # degrees worth straightening before lines are put in order
TYPE_SIZE = 0.75  # of the height of a line's box
BASELINE = 0.22  # of that height, from its foot


def skew(lines: Sequence[ocr.Line]) -> float:
    """Degrees clockwise that the lines lean; 0 when too few say so."""
    angles = [line.angle for line in lines if line.length > 5 * line.height and abs(line.angle) < 20]
    lean = statistics.median(angles) if len(angles) >= 3 else 0.0
    return lean if abs(lean) >= LEAST_SKEW else 0.0


def words_of(lines: Sequence[ocr.Line], scale: float, lean: float, width: float, height: float) -> Iterator[Word]:
    """The lines straightened, cut into words in proportion to their letters."""
    for number, line in enumerate(lines):
        corners = [turned(x * scale, y * scale, -lean, width, height) for x, y in line.corners]
        xs, ys = zip(*corners, strict=True)
        box = Rect(min(xs), min(ys), max(xs), max(ys))
        upright = box.x1 - box.x0 >= box.height or len(line.text) < 3
        size = TYPE_SIZE * (box.height if upright else box.x1 - box.x0)
        whole, at = max(_wide(line.text), 1), 0
        for text in line.text.split(" "):
            start, at = at, at + _wide(text) + 1
            if text:
                x0 = box.x0 + (box.x1 - box.x0) * start / whole
                x1 = box.x0 + (box.x1 - box.x0) * min(at - 1, whole) / whole
                place = box._replace(x0=x0, x1=x1) if upright else box
                yield Word(place, text, number, size, upright=upright, score=line.score)


def _wide(text: str) -> int:
    """Letters, East Asian ones twice."""
    return len(text) + sum("\u2e80" <= letter <= "\uffef" for letter in text)


def turned(x: float, y: float, degrees: float, width: float, height: float) -> tuple[float, float]:
    """A point turned clockwise about the page's centre."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    dx, dy = x - width / 2, y - height / 2
    return width / 2 + dx * cosine - dy * sine, height / 2 + dx * sine + dy * cosine


def draw(page: Any, array: ocr.Array, words: Sequence[Word], lean: float) -> None:
    """The straightened picture with its words unseen over it, for the layout model to look at."""
    import pymupdf
    from PIL import Image

    picture = Image.fromarray(array)
    if lean:
        picture = picture.rotate(lean, Image.Resampling.BILINEAR, fillcolor="white")
    pixmap = pymupdf.Pixmap(pymupdf.csRGB, picture.width, picture.height, picture.tobytes(), False)
    page.insert_image(page.rect, pixmap=pixmap)
    for _, group in groupby(words, key=lambda word: word.line):
        own = list(group)
        _write(page, reading_order.around([word.box for word in own]), " ".join(word.text for word in own))


def _write(page: Any, box: Rect, text: str) -> None:
    """One unseen line, stretched to its box; the model looks at shapes and places, the text is kept elsewhere."""
    import pymupdf

    font = "helv" if text.isascii() else "china-s"
    size = max(TYPE_SIZE * box.height, 1.0)
    length = pymupdf.get_text_length(text, font, size) or 1.0
    start = pymupdf.Point(box.x0, box.y1 - BASELINE * box.height)
    stretch = pymupdf.Matrix((box.x1 - box.x0) / length, 0, 0, 1, 0, 0)
    page.insert_text(start, text, fontsize=size, fontname=font, render_mode=3, morph=(start, stretch))
