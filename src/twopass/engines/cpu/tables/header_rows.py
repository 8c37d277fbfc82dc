"""Find how many rows of a table are its header: by shading, bold type, the rule below, or spanning cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_HEADER_ROWS = 5
MAX_HEADER_SHARE = 0.5  # of the table's rows
FULL_RULE = 0.9  # of the table's width, for a rule that separates header and body
MAX_FULL_RULES = 0.34  # of the rows: where more rows have a rule below them, these do not mark a header


@dataclass(frozen=True)
class RowFacts:
    """What one row of the grid looks like; `starts` are the rows at which its cells begin."""

    texts: tuple[str, ...]
    is_bold: bool
    color: int | None  # of the shade behind most of it
    is_ruled_below: bool  # across the whole table
    depth: int  # rows that its tallest cell spans
    has_spanning: bool  # a cell over columns that the next row divides


def count_header_rows(rows: Sequence[RowFacts]) -> int:
    """Return the number of header rows, 0 for none."""
    if len(rows) < 2 or not any(rows[0].texts):
        return 0
    most = max(min(MAX_HEADER_ROWS, int(MAX_HEADER_SHARE * len(rows))), 1)
    marked = max(_count_shaded(rows), _count_bold(rows))
    if marked > most:
        marked = 0
    if not marked and _is_data(rows[0]):
        return 0
    depth = max(rows[0].depth, marked)
    if not marked:
        depth = max(depth, _count_ruled(rows, most))
    while depth < most and rows[depth - 1].has_spanning:
        depth += 1
    return min(depth, len(rows))


def _is_data(row: RowFacts) -> bool:
    texts = [text for text in row.texts if text]
    return bool(texts) and all(any(letter.isdigit() for letter in text) for text in texts)


def _count_shaded(rows: Sequence[RowFacts]) -> int:
    """Count the first rows that have one shade, unless the rows below have it too."""
    color = rows[0].color
    count = _count_while([row.color == color for row in rows])
    return count if color is not None and all(row.color != color for row in rows[count:]) else 0


def _count_bold(rows: Sequence[RowFacts]) -> int:
    """Count the first rows that are bold, if most of the others are not."""
    count = _count_while([row.is_bold for row in rows])
    others = [row.is_bold for row in rows[count:]]
    return count if sum(others) < max(len(others), 1) / 2 else 0


def _count_ruled(rows: Sequence[RowFacts], most: int) -> int:
    """Count the rows above the first rule across the table, where only few rows have one below them."""
    ruled = [number for number, row in enumerate(rows[:-1], 1) if row.is_ruled_below]
    is_mark = bool(ruled) and len(ruled) <= max(MAX_FULL_RULES * len(rows), 1) and ruled[0] <= most
    return ruled[0] if is_mark else 0


def _count_while(flags: Sequence[bool]) -> int:
    return next((index for index, flag in enumerate(flags) if not flag), len(flags))
