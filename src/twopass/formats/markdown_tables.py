"""Render tables as GFM or HTML, and tables that continue over several pages as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise, takewhile

from twopass.document import Cell, Table
from twopass.format_options import Markdown, Maths, Tables
from twopass.formats import escaping
from twopass.text import prose, table_markup

MAX_COLUMNS = 200  # of a GFM table, counting empty columns


def render_table(table: Table, options: Markdown) -> str:
    """Render a table as the options ask; by default as GFM, or as HTML if a cell spans rows or columns."""
    if not table.cells:
        return escaping.escape_paragraph(escaping.html_to_text(table.markdown or table.html), options.maths)
    return _render_cells(table.cells, table.cols, options)


def _render_cells(cells: Sequence[Cell], cols: int, options: Markdown) -> str:
    has_spans = any(cell.row_span > 1 or cell.col_span > 1 for cell in cells)
    is_huge = len({cell.row for cell in cells}) * len({cell.col for cell in cells}) > table_markup.MAX_GRID
    if options.tables is Tables.HTML or is_huge or (has_spans and options.tables is Tables.AUTO):
        return table_markup.to_html(cells, partial(escaping.escape_html_cell, style=options.maths))
    return _render_gfm(cells, cols, options.maths)


def _render_gfm(cells: Sequence[Cell], cols: int, style: Maths) -> str:
    rows = sorted({cell.row for cell in cells})
    columns = sorted({cell.col for cell in cells} | set(range(min(cols, MAX_COLUMNS))))
    texts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for cell in cells:
        texts[cell.row, cell.col].append(cell.text)
    escaped = [[escaping.escape_gfm_cell(" ".join(texts[row, column]), style) for column in columns] for row in rows]
    return table_markup.to_gfm(escaped, len(columns))


def render_joined_tables(parts: Sequence[Table], options: Markdown) -> tuple[list[str], str]:
    """Render tables as one. Returns the lines that each part contributes, and the text that closes the table."""
    joined, counts = join_tables(parts)
    lines = _render_cells(joined, max(part.cols for part in parts), options).split("\n")  # each row is one line
    # The first part has one line more: GFM's delimiter row below the head, or HTML's <table> above it.
    ends = list(accumulate(counts, initial=1))[1:]
    texts = ["\n".join(lines[start:end]) for start, end in pairwise([0, *ends])]
    return texts, "".join(f"\n{line}" for line in lines[ends[-1] :])


def join_tables(parts: Sequence[Table]) -> tuple[list[Cell], list[int]]:
    """Return the cells of all tables as those of one, and how many rows each table contributes."""
    first = table_markup.group_rows(parts[0].cells)
    joined: list[Cell] = []
    counts: list[int] = []
    for rows in (first, *(_drop_repeated_head(first, table_markup.group_rows(part.cells)) for part in parts[1:])):
        joined += _shift_below(joined, rows)
        counts.append(len(rows))
    return joined, counts


def _drop_repeated_head(first: Sequence[Sequence[Cell]], rows: Sequence[Sequence[Cell]]) -> Sequence[Sequence[Cell]]:
    """Drop empty rows and a repetition of the first part's header rows from the top of a further part."""
    empty = next((n for n, row in enumerate(rows) if any(cell.text.strip() for cell in row)), len(rows))
    rows = _drop_rows(rows, empty)
    header_rows = list(takewhile(lambda row: all(cell.header for cell in row), first))
    repeated = 0
    while repeated < min(len(header_rows), len(rows)) and _has_same_texts(header_rows[repeated], rows[repeated]):
        repeated += 1
    return _drop_rows(rows, repeated)


def _has_same_texts(one: Sequence[Cell], other: Sequence[Cell]) -> bool:
    return _make_comparison_key(one) == _make_comparison_key(other)


def _make_comparison_key(row: Sequence[Cell]) -> list[tuple[int, int, str]]:
    return [(cell.col, cell.col_span, prose.to_one_line(cell.text).casefold()) for cell in row]


def _drop_rows(rows: Sequence[Sequence[Cell]], count: int) -> Sequence[Sequence[Cell]]:
    """Drop the first `count` rows, unless one of their cells spans into the rows after them."""
    if count < len(rows) and any(cell.row + cell.row_span > rows[count][0].row for row in rows[:count] for cell in row):
        return rows
    return rows[count:]


def _shift_below(above: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Move rows to directly below the cells above, and cut row spans at the end of these rows."""
    if not rows:
        return []
    shift = 1 + max((cell.row for cell in above), default=-1) - rows[0][0].row
    end = 1 + rows[-1][0].row
    return [
        cell.model_copy(update={"row": cell.row + shift, "row_span": min(cell.row_span, end - cell.row)})
        for row in rows
        for cell in row
    ]
