"""Write the text layer of a page in the form in which a model's answer about the page probably contains it.

Every token of it is verified, so MuPDF's order is good enough: headings may come before all paragraphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from twopass.document import Box
from twopass.pages.text_layer import TextLayer
from twopass.text import prose

MAX_CHARACTERS = 16_000  # about 4,000 tokens: the answer about a very full page
MAX_WORDS = MAX_CHARACTERS // 2  # each has a character and is followed by a space
# Times a line's height: a wider gap separates cells, a narrower one words. The gap is measured as a share of the page's
# width and the height as one of its height, so that the limit in points is wider on a landscape page.
WORD_GAP = 2.0
# Models write the letters for which fonts have one glyph.
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}


class _Line(NamedTuple):
    block: int
    text: str
    box: Box


def write(layer: TextLayer, places: Sequence[tuple[int, int]]) -> str:
    """Return the text of the layer in the layer's order, at most MAX_CHARACTERS; empty if the layer is garbage.

    `places` are the block and the line of each word, as MuPDF counts them. The lines of a block are joined as those of
    a paragraph, without the hyphens of broken words. Each block begins after a newline, and so does a line that is not
    below the one before it, such as the next cell of a table.
    """
    layer, places = layer[:MAX_WORDS], places[:MAX_WORDS]
    if not layer or prose.is_garbage(" ".join(layer.texts)):
        return ""
    parts: list[str] = []
    previous: _Line | None = None
    for line in _split_lines(layer, places):
        if previous:
            parts[-1], separator = _separate(previous, line)
            parts.append(separator)
        parts.append(line.text)
        previous = line
    return "".join(parts).translate(_LIGATURES)[:MAX_CHARACTERS]


def _split_lines(layer: TextLayer, places: Sequence[tuple[int, int]]) -> Iterator[_Line]:
    """Yield the lines; their boxes are computed for all at once, because a newspaper has 2,000 of them."""
    is_same = (np.diff(np.array(places), axis=0) == 0).all(axis=1)
    starts = np.flatnonzero(np.append(False, is_same) == 0)
    low = np.minimum.reduceat(layer.corners[:, :2], starts)
    high = np.maximum.reduceat(layer.corners[:, 2:], starts)
    boxes = np.concatenate((low, high), axis=1).tolist()
    for (start, end), box in zip(pairwise([*starts.tolist(), len(layer)]), boxes, strict=True):
        yield _Line(places[start][0], " ".join(layer.texts[start:end]), Box(*box))


def _separate(first: _Line, second: _Line) -> tuple[str, str]:
    """Return the text of the first line, without the hyphen of a broken word, and what separates the lines."""
    (x0, y0, x1, y1), left, right = second.box, first.box.x0, first.box.x1
    if first.block != second.block:
        return first.text, "\n"
    if (y0 + y1) / 2 <= first.box.y1:  # beside it
        return first.text, " " if 0 <= x0 - right <= WORD_GAP * (y1 - y0) else "\n"
    if x0 >= right or x1 <= left:
        return first.text, "\n"
    text, separator, _ = prose.join_lines(first.text, second.text)
    return text, separator
