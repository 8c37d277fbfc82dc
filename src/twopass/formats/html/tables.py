"""Render tables as HTML: with header cells for rows and columns, spans, and the table's caption."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from markupsafe import Markup

from twopass.document import Cell
from twopass.formats.html.page import tag
from twopass.formats.markdown_tables import MAX_COLUMNS
from twopass.text.table_markup import group_rows

Row = Sequence[Cell]


def render(
    cells: Sequence[Cell], caption: Markup, render_text: Callable[[str], Markup], **attributes: object
) -> Markup:
    """Render a table; `render_text` renders one line of a cell, `attributes` are those of the table."""
    rows = group_rows(_close_row_gaps(cells))
    is_header = [all(cell.header for cell in row) for row in rows]
    head = len(list(takewhile(bool, is_header)))
    lines = [
        _render_row(row, gaps, "col" if is_header[n] else "row", render_text)
        for n, (row, gaps) in enumerate(zip(rows, _count_gaps(rows), strict=True))
    ]
    if head == len(rows) or _has_span_below(rows[:head], rows[head:]):  # a row group would cut the span
        head = 0
    parts = [tag("thead", _join(lines[:head])) if head else "", tag("tbody", _join(lines[head:]))]
    return tag("table", _join([caption, *parts]), **attributes)


def _close_row_gaps(cells: Sequence[Cell]) -> list[Cell]:
    """Number the rows that have cells without gaps: HTML has no row without cells that a span could count."""
    numbers = sorted({cell.row for cell in cells})
    closed = []
    for cell in cells:
        row = bisect_left(numbers, cell.row)
        row_span = bisect_left(numbers, cell.row + cell.row_span) - row
        closed.append(cell.model_copy(update={"row": row, "row_span": row_span}))
    return closed


def _render_row(row: Row, gaps: Sequence[int], scope: str, render_text: Callable[[str], Markup]) -> Markup:
    rendered: list[Markup] = []
    for cell, gap in zip(row, gaps, strict=True):
        rendered += [tag("td")] * gap
        rendered.append(_render_cell(cell, scope, render_text))
    return tag("tr", _join(rendered))


def _render_cell(cell: Cell, scope: str, render_text: Callable[[str], Markup]) -> Markup:
    lines = [" ".join(line.split()) for line in cell.text.splitlines() if line.strip()]
    return tag(
        "th" if cell.header else "td",
        Markup("<br>").join(render_text(line) for line in lines),
        scope=scope if cell.header else None,
        rowspan=cell.row_span if cell.row_span > 1 else None,
        colspan=cell.col_span if cell.col_span > 1 else None,
    )


def _count_gaps(rows: Sequence[Row]) -> Iterator[list[int]]:
    """Yield for each cell of a row how many columns before it no cell occupies, also none that spans from above."""
    free_from: dict[int, int] = {}  # column -> the first row that no span from above reaches
    for row in rows:
        gaps, column = [], 0
        for cell in row:
            occupied = sum(free_from.get(n, 0) > cell.row for n in range(column, min(cell.col, MAX_COLUMNS)))
            gaps.append(max(min(cell.col, MAX_COLUMNS) - column - occupied, 0))
            column = max(column, cell.col + cell.col_span)
        for cell in row:
            for n in range(cell.col, min(cell.col + cell.col_span, MAX_COLUMNS)):
                free_from[n] = max(free_from.get(n, 0), cell.row + cell.row_span)
        yield gaps


def _has_span_below(head: Sequence[Row], body: Sequence[Row]) -> bool:
    return bool(head and body) and any(cell.row + cell.row_span > body[0][0].row for row in head for cell in row)


def _join(parts: Sequence[str]) -> Markup:
    return Markup("").join(parts)
