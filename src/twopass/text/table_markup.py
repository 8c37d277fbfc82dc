"""Build a Table from cells, with its HTML and its GFM (GitHub Flavored Markdown) form."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable, Sequence

from twopass.document import Cell, Table
from twopass.text import direction

_COMPLEX_SHARE = 0.3  # of the cells: a table with more spanning cells is complex
MAX_GRID = 100_000  # places of a GFM table, which writes all of them: of a ragged table most are empty


def _escape_cell(cell: Cell) -> str:
    return html.escape(cell.text, quote=False)


def build_table(rows: int, cols: int, cells: Sequence[Cell]) -> Table:
    """Build a table of this size. `markdown` is None if a cell spans, because GFM has no spans, and for huge grids."""
    spanning = [cell for cell in cells if cell.row_span > 1 or cell.col_span > 1]
    has_gfm = not spanning and rows * cols <= MAX_GRID
    return Table(
        html=to_html(cells),
        markdown=to_gfm(_fill_grid(rows, cols, cells), cols) if has_gfm else None,
        rows=rows,
        cols=cols,
        cells=tuple(cells),
        complexity="complex" if len(spanning) > _COMPLEX_SHARE * max(len(cells), 1) else "simple",
    )


def _fill_grid(rows: int, cols: int, cells: Sequence[Cell]) -> list[list[str]]:
    """Escaped texts by row and column. If two cells claim one position, the last one wins."""
    texts = {(cell.row, cell.col): cell.text.replace("|", "\\|").replace("\n", " ") for cell in cells}
    return [[texts.get((row, col), "") for col in range(cols)] for row in range(rows)]


def change_texts(table: Table, change: Callable[[str], str]) -> Table:
    """The table with other texts in its cells; markup of our own is written again."""
    cells = tuple(cell.model_copy(update={"text": change(cell.text)}) for cell in table.cells)
    if table.html == to_html(table.cells):
        return build_table(table.rows, table.cols, cells)
    markdown = change(table.markdown) if table.markdown else None
    return table.model_copy(update={"cells": cells, "html": change(table.html), "markdown": markdown})


def to_text(table: Table) -> str:
    """The text of all cells, one line per row."""
    lines: dict[int, list[str]] = {}
    for cell in table.cells:
        lines.setdefault(cell.row, []).append(" ".join(cell.text.split()))
    return "\n".join(" ".join(part for part in line if part) for line in lines.values()).strip()


def to_html(cells: Sequence[Cell], write_cell: Callable[[Cell], str] = _escape_cell) -> str:
    """Write each cell where it begins, with its spans. `write_cell` writes what stands in a cell.

    The first column of a right-to-left table is at its right side, which HTML calls `dir="rtl"`. A row that cells
    above it cover stands on their line, so that their spans are right.
    """
    is_rtl = direction.is_rtl("".join(cell.text for cell in cells))
    lines = ['<table dir="rtl">' if is_rtl else "<table>"]
    row, end = 0, 0
    for cells_of_row in group_rows(cells):
        first = cells_of_row[0].row
        lines[-1] += "<tr></tr>" * (min(end, first) - row - 1)
        lines.append(f"<tr>{''.join(_to_tag(cell, write_cell) for cell in cells_of_row)}</tr>")
        row, end = first, max(end, *(cell.row + cell.row_span for cell in cells_of_row))
    return "\n".join([*lines, "</table>"])


def group_rows(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The rows that have cells, each from left to right."""
    rows: dict[int, list[Cell]] = defaultdict(list)
    for cell in cells:
        rows[cell.row].append(cell)
    return [sorted(rows[row], key=lambda cell: cell.col) for row in sorted(rows)]


def _to_tag(cell: Cell, write_cell: Callable[[Cell], str]) -> str:
    name = "th" if cell.header else "td"
    colspan = f' colspan="{cell.col_span}"' if cell.col_span > 1 else ""
    rowspan = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    return f"<{name}{rowspan}{colspan}>{write_cell(cell)}</{name}>"


def to_gfm(rows: Sequence[Sequence[str]], columns: int) -> str:
    """Write escaped texts as a GFM table. The first row becomes the header row, which GFM requires."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines[:1], "|" + " --- |" * columns, *lines[1:]])
