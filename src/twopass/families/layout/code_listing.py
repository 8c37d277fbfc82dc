"""Find code listings by their fonts, and write them with their indentation and blank lines.

A listing is in a font with one width for all letters. Pages typed on a typewriter are, too: their prose stays prose.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from itertools import pairwise

from twopass.families.layout.page_layout import LayoutLine, LayoutRegion, PageLayout
from twopass.text import prose

_TEXT_LABELS = frozenset({"text", "list-item", "orphan", "formula", "section-header", "caption", "footnote"})
HEADINGS = frozenset({"section-header"})
_MAX_INDENT = 80  # letters; more is a column of its own
_MAX_BLANK_LINES = 2  # between two lines of a listing
_MAX_REGION_GAP = 3.0  # of the line's height, between two regions of one listing
_SAME_SIZE = 1.05  # ratio of type sizes
_MIN_PROSE_WORDS = 8  # fewer words may be a command
_MAX_PROSE_SIGNS = 0.02  # of prose's characters: signs that programs use
_MIN_FUNCTION_WORDS = 0.15  # of prose's words
_CODE_SIGN = re.compile(r"[{}\[\]<>=;_\\|$#@&*+^~`]|\w\(|\"{3}|'{3}|\w\.\w{2,}[.(]")
_FUNCTION_WORDS = frozenset().union(*prose.FUNCTION_WORDS.values())


def merge_regions(layout: PageLayout) -> list[LayoutRegion]:
    """The regions of the page; neighbours that are parts of one listing are one region, labelled `text`."""
    merged: list[LayoutRegion] = []
    for region in layout.boxes:
        if merged and _belong_together(merged[-1], region, layout):
            merged[-1] = _join_regions(merged[-1], region)
        else:
            merged.append(region)
    return merged


def is_listing(region: LayoutRegion, layout: PageLayout) -> bool:
    """Whether all lines of a region are in such a font and not prose; the fonts of an invisible layer say nothing."""
    if layout.via == "hidden_layer" or region.label not in _TEXT_LABELS or not _is_mono(region.lines):
        return False
    text = _join(region)
    return not _is_typewritten_prose(text) and (_has_code_signs(text) or not _is_typewritten(layout))


def _is_typewritten(layout: PageLayout) -> bool:
    """Whether most text in such fonts is prose: then a date or an address in it is no listing either."""
    texts = [_join(region) for region in layout.boxes if region.lines and _is_mono(region.lines)]
    typed = sum(len(text) for text in texts if _is_typewritten_prose(text))
    return 2 * typed > sum(map(len, texts))


def _join(region: LayoutRegion) -> str:
    return " ".join(line.text for line in region.lines)


def _has_code_signs(text: str) -> bool:
    return len(_CODE_SIGN.findall(text)) > _MAX_PROSE_SIGNS * len(text)


def _is_mono(lines: Sequence[LayoutLine]) -> bool:
    """Whether all lines are in such a font; numbers of lines in the margin may be in another."""
    mono = sum(line.mono for line in lines)
    return 2 * mono > len(lines) and all(line.mono or line.text.strip().isdecimal() for line in lines)


def _is_typewritten_prose(text: str) -> bool:
    """Whether a text has the words and signs of prose and not those of a program."""
    words = prose.split_words(text)
    if len(words) < _MIN_PROSE_WORDS or _has_code_signs(text):
        return False
    return sum(word in _FUNCTION_WORDS for word in words) >= _MIN_FUNCTION_WORDS * len(words)


def _belong_together(first: LayoutRegion, second: LayoutRegion, layout: PageLayout) -> bool:
    if not (is_listing(first, layout) and is_listing(second, layout)):
        return False
    sizes = sorted(max(line.size for line in region.lines) for region in (first, second))
    if {first.label, second.label} & HEADINGS and sizes[1] > _SAME_SIZE * sizes[0]:
        return False
    height = statistics.median(line.box[3] - line.box[1] for line in (*first.lines, *second.lines))
    gap = second.box[1] - first.box[3]
    is_below = -height / 2 <= gap <= _MAX_REGION_GAP * height
    return is_below and min(first.box[2], second.box[2]) > max(first.box[0], second.box[0])


def _join_regions(first: LayoutRegion, second: LayoutRegion) -> LayoutRegion:
    (a0, b0, a1, b1), (c0, d0, c1, d1) = first.box, second.box
    box = min(a0, c0), min(b0, d0), max(a1, c1), max(b1, d1)
    return LayoutRegion(label="text", box=box, lines=(*first.lines, *second.lines))


def write(lines: Sequence[LayoutLine]) -> str:
    """Join the lines, with indentation from their left edges and the width of a letter, and with blank lines."""
    left = min(line.box[0] for line in lines)
    widths = [(line.box[2] - line.box[0]) / len(line.text) for line in lines if line.text]
    width = statistics.median(widths) if widths else 0.0
    indents = [round(min((line.box[0] - left) / width, _MAX_INDENT)) if width > 0 else 0 for line in lines]
    blanks = [0, *_count_blank_lines(lines)]
    return "".join(
        "\n" * (blank + (index > 0)) + " " * indent + line.text
        for index, (line, indent, blank) in enumerate(zip(lines, indents, blanks, strict=True))
    ).rstrip()


def _count_blank_lines(lines: Sequence[LayoutLine]) -> list[int]:
    """How many blank lines stand between each line and the next, from their distance."""
    steps = [second.box[1] - first.box[1] for first, second in pairwise(lines)]
    down = [step for step in steps if step > 0]
    pitch = statistics.median_low(down) if down else 0.0
    if pitch <= 0:
        return [0] * len(steps)
    return [round(min(max(step / pitch, 1), _MAX_BLANK_LINES + 1)) - 1 for step in steps]
