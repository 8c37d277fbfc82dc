"""Find headers that are centred over several columns of a table that is not ruled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from twopass.engines.cpu.geometry import Rect
from twopass.engines.cpu.tables.phrases import MAX_HEADER_LINES, Phrase, find_slot

CENTRE_TOLERANCE = 0.12  # of the width of the columns, between a centred text and their middle
CENTRE_STEP = 0.02  # of that width: smaller differences are not compared
MIN_OFF_CENTRE = 6.0  # points between a header over several columns and the middle of the column that it stands in
OVERHANG = 6.0  # points by which a header may be wider than its columns

Span = tuple[int, int]  # the first and the last column


class Text(NamedTuple):
    """A text of a table at a level: a row of its grid, or a line of text where rows are not known yet."""

    level: int
    col: int
    box: Rect


def find_spans(
    texts: Sequence[Text], cols: int, levels: int, known: Mapping[tuple[int, int], Span] | None = None
) -> dict[Text, Span]:
    """Return the columns of each text of the first levels that is a header of several.

    `known` are spans by level and column, such as those of rules below a header.
    """
    spans: dict[Text, Span] = {}
    for level in reversed(range(levels)):
        own = sorted(text for text in texts if text.level == level)
        start = 0
        for number, text in enumerate(own):
            stop = own[number + 1].col if number + 1 < len(own) else cols
            free = range(start, stop)
            span = (known or {}).get((level, text.col))
            if not (span and span[0] in free and span[1] in free):
                span = _find_span(text, free, texts, spans)
            start = text.col + 1
            if span:
                spans[text] = span
                start = span[1] + 1
    return spans


def _find_span(text: Text, free: range, texts: Sequence[Text], spans: Mapping[Text, Span]) -> Span | None:
    """Return the free columns over which a text is centred, if the next level below has text in each of them."""
    below = [other for other in texts if other.level > text.level and other.col in free]
    if not below:
        return None
    next_level = min(other.level for other in below)
    under = [list_columns(other, spans) for other in below if other.level == next_level]
    extents = {c: extent for c in free if (extent := _measure_extent(below, c)) is not None}
    own = extents.get(text.col)
    if own and abs(text.box.centre[0] - sum(own) / 2) < MIN_OFF_CENTRE:
        return None
    best = min(_rate_spans(text, free, under, extents), default=None)
    return best[-1] if best else None


def list_columns(text: Text, spans: Mapping[Text, Span]) -> range:
    """Return the columns that a text stands over."""
    first, last = spans.get(text, (text.col, text.col))
    return range(first, last + 1)


def _measure_extent(below: Sequence[Text], col: int) -> tuple[float, float] | None:
    boxes = [text.box for text in below if text.col == col]
    return (min(box.x0 for box in boxes), max(box.x1 for box in boxes)) if boxes else None


def _rate_spans(
    text: Text, free: range, under: Sequence[range], extents: Mapping[int, tuple[float, float]]
) -> Iterator[tuple[int, int, Span]]:
    """Yield possible spans with how far the text is from their middle, as a share of their width; wider ones first.

    They cover whole headers below, and not the first column, which names the rows, unless the text stands in it.
    """
    for first in range(max(free.start, min(text.col, 1)), text.col + 1):
        for last in range(max(text.col, first + 1), free.stop):
            inside = [cols for cols in under if cols.start <= last and first < cols.stop]
            if sum(map(len, inside)) != last - first + 1 or not {first, last} <= extents.keys():
                continue
            left, right = extents[first][0], extents[last][1]
            offset = abs(text.box.centre[0] - (left + right) / 2) / max(right - left, 1.0)
            is_inside = left - OVERHANG <= text.box.x0 and text.box.x1 <= right + OVERHANG
            if is_inside and offset <= CENTRE_TOLERANCE:
                yield round(offset / CENTRE_STEP), first - last, (first, last)


def find_row_gaps(phrases: Sequence[Phrase], xs: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the space between a header over several columns and the texts below it: its top and its bottom."""
    lines = max((phrase.line for phrase in phrases), default=-1) + 1
    texts = [Text(p.line, find_slot(xs, p.centre), Rect(p.x0, p.y0, p.x1, p.y1)) for p in phrases]
    for text, (first, last) in find_spans(texts, len(xs) - 1, min(MAX_HEADER_LINES, lines // 2)).items():
        below = [other.box.y0 for other in texts if other.level > text.level and first <= other.col <= last]
        yield text.box.y1, min(below)
