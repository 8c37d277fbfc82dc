"""Write the text layer of a page in the form in which a model's answer about the page probably contains it.

Every token of it is verified, so MuPDF's order is good enough: headings may come before all paragraphs. Its lines are
joined as those of one paragraph. Where a model begins a block or a cell instead, only the first token differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from twopass.pages.text_layer import TextLayer
from twopass.text import prose

MAX_CHARACTERS = 16_000  # about 4,000 tokens: the answer about a very full page
MAX_WORDS = MAX_CHARACTERS // 2  # each has a character and is followed by a space
# Models write the letters for which fonts have one glyph.
_LIGATURES = {0xFB00: "ff", 0xFB01: "fi", 0xFB02: "fl", 0xFB03: "ffi", 0xFB04: "ffl", 0xFB05: "st", 0xFB06: "st"}


def write(layer: TextLayer, places: Sequence[tuple[int, int]]) -> str:
    """Return the text of the layer in the layer's order, at most MAX_CHARACTERS; empty if the layer is garbage.

    `places` are the block and the line of each word, as MuPDF counts them. Words lose the hyphen of a line's end.
    """
    texts = layer.texts[:MAX_WORDS]
    if prose.is_garbage(" ".join(texts)):
        return ""
    by_line = groupby(zip(texts, places, strict=False), key=lambda word: word[1])
    lines = [" ".join(text for text, _ in words) for _, words in by_line]
    parts = [part for line, following in pairwise(lines) for part in prose.join_lines(line, following)[:2]]
    return "".join([*parts, *lines[-1:]]).translate(_LIGATURES)[:MAX_CHARACTERS]
