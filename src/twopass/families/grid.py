"""Cells with spans in, a Table with HTML and GFM out.

Knows grids. Knows nothing of where the cells come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from twopass.document import Cell, Table

SPANNING = 0.3  # of the cells, for a table to be complex


def table(rows: int, cols: int, cells: Sequence[Cell]) -> Table:
    """GFM only where nothing spans: it cannot say more."""
    spanning = [cell for cell in cells if cell.row_span > 1 or cell.col_span > 1]
    return Table(
        html=html(cells),
        markdown=None if spanning else gfm(rows, cols, cells),
        rows=rows,
        cols=cols,
        cells=tuple(cells),
        complexity="complex" if len(spanning) > SPANNING * max(len(cells), 1) else "simple",
    )


def html(cells: Sequence[Cell]) -> str:
    lines = ["<table>"]
    for row in sorted({cell.row for cell in cells}):
        own = sorted((cell for cell in cells if cell.row == row), key=lambda cell: cell.col)
        lines.append("<tr>" + "".join(map(_tag, own)) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _tag(cell: Cell) -> str:
    name = "th" if cell.header else "td"
    spans = "".join(
        f' {which}="{span}"' for which, span in (("rowspan", cell.row_span), ("colspan", cell.col_span)) if span > 1
    )
    return f"<{name}{spans}>{escape(cell.text, quote=False)}</{name}>"


def gfm(rows: int, cols: int, cells: Sequence[Cell]) -> str:
    """The first row is the head, whatever it is: GFM has no table without one."""
    texts = {(cell.row, cell.col): cell.text.replace("|", "\\|").replace("\n", " ") for cell in cells}
    lines = ["| " + " | ".join(texts.get((row, col), "") for col in range(cols)) + " |" for row in range(rows)]
    return "\n".join([*lines[:1], "|" + " --- |" * cols, *lines[1:]])
