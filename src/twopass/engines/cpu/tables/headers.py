"""Find the header of a table: how many rows it has, and which of its texts are centred over several columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twopass.document import Rect
from twopass.engines.cpu.tables.phrases import MAX_HEADER_LINES, Phrase, find_slot

# ---- header rows ----

MAX_HEADER_ROWS = 5
MAX_HEADER_SHARE = 0.5  # of the table's rows
MIN_KEY_VALUES = 3  # rows of names and values
FULL_RULE = 0.9  # of the table's width, for a rule that separates header and body
MAX_FULL_RULES = 0.34  # of the rows: where more rows have a rule below them, these do not mark a header

_YEAR = re.compile(r"(?:19|20)\d\d")
_NUMBER = re.compile(r"[^\w]*(?:\d[^\w]*)*")


class CellStyle(NamedTuple):
    """Whether a cell's text is bold, and the color of the shade behind it."""

    is_bold: bool
    color: int | None


@dataclass(frozen=True)
class RowFacts:
    """What one row of the grid looks like."""

    texts: tuple[str, ...]
    is_bold: bool
    color: int | None  # of the shade behind most of it
    is_ruled_below: bool  # across the whole table
    depth: int  # rows that its tallest cell spans
    has_spanning: bool  # a cell over columns that the next row divides
    styles: tuple[CellStyle, ...] = ()  # of the texts
    has_value: bool = False  # of a field of a form


def count_header_rows(rows: Sequence[RowFacts]) -> int:
    """The number of header rows, 0 for none."""
    if len(rows) < 2 or not any(rows[0].texts) or rows[0].has_value:
        return 0
    most = max(min(MAX_HEADER_ROWS, int(MAX_HEADER_SHARE * len(rows))), 1)
    marked = max(_count_shaded(rows), _count_bold(rows))
    if marked > most:
        marked = 0
    if marked < 2 and _have_colons(rows):
        return 0
    ruled = 0 if marked else _count_ruled(rows, most)
    has_names = _are_labels_styled(rows) or (_are_key_values(rows) and (not ruled or len(rows) < MIN_KEY_VALUES))
    if not marked and (_is_data(rows[0]) or has_names):
        return 0
    depth = max(rows[0].depth, marked, ruled)
    while depth < most and rows[depth - 1].has_spanning:
        depth += 1
    return min(depth, len(rows))


def _is_data(row: RowFacts) -> bool:
    texts = [text for text in row.texts if text]
    return bool(texts) and all(map(_has_digits, texts))


def _has_digits(text: str) -> bool:
    """Whether a text has digits that are no superscripts, the marks of notes."""
    return any(letter.isdecimal() for letter in text)


def _are_key_values(rows: Sequence[RowFacts]) -> bool:
    """Whether rows are names, without digits, and values: the first value has digits and is no year.

    In two columns, it may have none if those below it are mixed. In more, numbers below it show that it is a header.
    """
    pairs = list(_list_pairs(rows))
    if not pairs or any(_has_digits(name) or (value and not name) for row in pairs for name, value in row):
        return False
    columns = [[row[number][1] for row in pairs] for number in range(len(pairs[0]))]
    if len(columns) > 1:
        return any(_has_digits(first) and not _may_head(first, others) for first, *others in columns)
    first, *others = columns[0]
    kinds = {_has_digits(value) for value in others if value}
    is_first_a_value = _has_digits(first) and not _YEAR.fullmatch(first)
    return is_first_a_value or (len(rows) >= MIN_KEY_VALUES and len(kinds) == 2)


def _may_head(first: str, others: Sequence[str]) -> bool:
    """Whether a text may name the numbers below it, as years and dates do."""
    is_name = bool(_YEAR.fullmatch(first) or not _NUMBER.fullmatch(first))
    return is_name and all(map(_NUMBER.fullmatch, filter(None, others)))


def _list_pairs(rows: Sequence[RowFacts]) -> Iterator[list[tuple[str, str]]]:
    """Yield the names and values of each row, which stand in turns; nothing if a row has a cell without another."""
    if all(len(row.texts) == len(rows[0].texts) and len(row.texts) % 2 == 0 for row in rows):
        yield from (list(zip(row.texts[::2], row.texts[1::2], strict=True)) for row in rows)


def _have_colons(rows: Sequence[RowFacts]) -> bool:
    """Whether each text of a column is followed by a colon, from the first row on: it names the one beside it."""
    columns = zip(*(row.texts[:-1] for row in rows), strict=False)
    return any(all(text.endswith((":", "：")) for text in column) for column in columns)


def _are_labels_styled(rows: Sequence[RowFacts]) -> bool:
    """Whether all names have one look, bold or shaded or neither, and the values beside them another one."""
    if not all(_list_pairs(rows)) or not all(row.styles for row in rows):
        return False
    names = {style for row in rows for style in row.styles[::2]}
    values = {style for row in rows for style, text in zip(row.styles[1::2], row.texts[1::2], strict=True) if text}
    return len(names) == 1 and bool(values) and not names & values


def _count_shaded(rows: Sequence[RowFacts]) -> int:
    """Count the first rows that have one shade, unless the rows below have it too."""
    color = rows[0].color
    count = _count_while([row.color == color for row in rows])
    return count if color is not None and all(row.color != color for row in rows[count:]) else 0


def _count_bold(rows: Sequence[RowFacts]) -> int:
    """Count the first rows that are bold, if most of the others are not; labels of the rows below them are none."""
    count = _count_while([row.is_bold for row in rows])
    while count > 1 and _is_label(rows[count - 1]) and any(rows[count - 2].texts[:1]):
        count -= 1
    others = [row.is_bold for row in rows[count:]]
    return count if sum(others) < max(len(others), 1) / 2 else 0


def _is_label(row: RowFacts) -> bool:
    return any(row.texts[:1]) and not any(row.texts[1:])


def _count_ruled(rows: Sequence[RowFacts], most: int) -> int:
    """Count the rows above the first rule across the table, where only few rows have one below them."""
    ruled = [number for number, row in enumerate(rows[:-1], 1) if row.is_ruled_below]
    is_mark = bool(ruled) and len(ruled) <= max(MAX_FULL_RULES * len(rows), 1) and ruled[0] <= most
    return ruled[0] if is_mark else 0


def _count_while(flags: Sequence[bool]) -> int:
    return next((index for index, flag in enumerate(flags) if not flag), len(flags))


# ---- headers over several columns ----

CENTRE_TOLERANCE = 0.12  # of the width of the columns, between a centred text and their middle
SHARED_TOLERANCE = 0.2  # the same where the texts of a level divide all columns among them
CENTRE_STEP = 0.02  # of that width: smaller differences are not compared
MIN_OFF_CENTRE = 6.0  # points between a header over several columns and the middle of the column that it stands in
OVERHANG = 6.0  # points by which a header may be wider than its columns

Span = tuple[int, int]  # the first and the last column
_Extent = tuple[float, float]  # where the texts of a column begin and end


class Text(NamedTuple):
    """A text of a table at a level: a row of its grid, or a line of text where rows are not known yet."""

    level: int
    col: int
    box: Rect


def find_spans(
    texts: Sequence[Text], cols: int, levels: int, known: Mapping[tuple[int, int], Span] | None = None
) -> dict[Text, Span]:
    """The columns of each text of the first levels that is a header of several.

    `known` are spans by level and column, such as those of rules below a header.
    """
    spans: dict[Text, Span] = {}
    for level in reversed(range(levels)):
        own = sorted(text for text in texts if text.level == level)
        found = _find_level_spans(own, cols, texts, spans, known or {})
        headers = [text for text in own if text.col]
        if not (known or found.keys() >= set(headers)):
            found = _share_columns(headers, cols, texts, spans) or found
        spans |= found
    return spans


def _find_level_spans(
    own: Sequence[Text],
    cols: int,
    texts: Sequence[Text],
    spans: Mapping[Text, Span],
    known: Mapping[tuple[int, int], Span],
) -> dict[Text, Span]:
    """The columns of each text of one level, of those that no text before it has taken."""
    found: dict[Text, Span] = {}
    start = 0
    for number, text in enumerate(own):
        stop = own[number + 1].col if number + 1 < len(own) else cols
        free = range(start, stop)
        span = known.get((text.level, text.col))
        if not (span and span[0] in free and span[1] in free):
            span = _find_span(text, free, texts, spans)
        start = text.col + 1
        if span:
            found[text] = span
            start = span[1] + 1
    return found


def _share_columns(
    own: Sequence[Text], cols: int, texts: Sequence[Text], spans: Mapping[Text, Span]
) -> dict[Text, Span]:
    """Divide all columns but the first among the texts of a level, so that each stands in the middle of its own.

    Empty where this is not possible, or where the level below has no text in some column.
    """
    below = [other for other in texts if own and other.level == own[0].level + 1]
    under = [list_columns(other, spans) for other in below if other.col]
    if (
        len(own) < 2
        or sorted(col for group in under for col in group) != list(range(1, cols))
        or len(under) <= len(own)
    ):
        return {}
    starts = sorted(group.start for group in under) + [cols]
    lower = [text for text in texts if text.level > own[0].level]
    extents = {col: _measure_extent(lower, col) for col in range(cols)}
    wide = _divide_columns(own, starts, _fill_gaps(extents))
    return _divide_columns(own, starts, extents) or (wide if len(wide) == len(own) else {})


def _fill_gaps(extents: Mapping[int, _Extent | None]) -> dict[int, _Extent | None]:
    """The extents of columns from the end of the ones before them: numbers stand at the right of theirs."""
    filled = dict(extents)
    for col, extent in extents.items():
        before = extents.get(col - 1)
        if extent and before:
            filled[col] = min(before[1], extent[0]), extent[1]
    return filled


def _divide_columns(
    own: Sequence[Text], starts: Sequence[int], extents: Mapping[int, _Extent | None]
) -> dict[Text, Span]:
    """The columns of each text where the texts divide all columns among them; empty if they do not."""
    best: dict[int, tuple[float, tuple[Span, ...]]] = {1: (0.0, ())}
    for text in own:
        reached: dict[int, tuple[float, tuple[Span, ...]]] = {}
        for first, (cost, before) in best.items():
            for stop in (stop for stop in starts if stop > first):
                offset = _measure_offset(text, extents[first], extents[stop - 1])
                if offset is not None and (stop not in reached or cost + offset < reached[stop][0]):
                    reached[stop] = cost + offset, (*before, (first, stop - 1))
        best = reached
    _, found = best.get(starts[-1], (0.0, ()))
    return {text: span for text, span in zip(own, found, strict=False) if span[1] > span[0]}


def _measure_offset(text: Text, first: _Extent | None, last: _Extent | None) -> float | None:
    """How far a text is from the middle of its columns, as a share of their width; None if it is too far."""
    if first is None or last is None:
        return None
    left, right = first[0], last[1]
    offset = abs(text.box.centre[0] - (left + right) / 2)
    is_inside = left - OVERHANG <= text.box.x0 and text.box.x1 <= right + OVERHANG
    is_near = offset <= max(SHARED_TOLERANCE * (right - left), 2 * OVERHANG)
    return offset / max(right - left, 1.0) if is_inside and is_near else None


def _find_span(text: Text, free: range, texts: Sequence[Text], spans: Mapping[Text, Span]) -> Span | None:
    """The free columns over which a text is centred, if the next level below has text in each of them."""
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
    """The columns that a text stands over."""
    first, last = spans.get(text, (text.col, text.col))
    return range(first, last + 1)


def _measure_extent(below: Sequence[Text], col: int) -> _Extent | None:
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
    texts = [Text(p.line, find_slot(xs, p.centre), p.box) for p in phrases]
    for text, (first, last) in find_spans(texts, len(xs) - 1, min(MAX_HEADER_LINES, lines // 2)).items():
        below = [other.box.y0 for other in texts if other.level > text.level and first <= other.col <= last]
        yield text.box.y1, min(below)
