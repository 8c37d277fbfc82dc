"""Cells with spans in, a Table with HTML and GFM out.

Knows grids. Knows nothing of where the cells come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape

from twopass.document import Cell, Table
from twopass.text import table_markup

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
    return table_markup.html(cells, partial(escape, quote=False))


def gfm(rows: int, cols: int, cells: Sequence[Cell]) -> str:
    """Of two cells in one place the last is shown."""
    texts = {(cell.row, cell.col): cell.text.replace("|", "\\|").replace("\n", " ") for cell in cells}
    return table_markup.gfm([[texts.get((row, col), "") for col in range(cols)] for row in range(rows)], cols)
