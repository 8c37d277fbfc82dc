"""Cells of a table in, HTML or a GFM table out: the two spellings everything here is written in.

Knows their grammar. Knows nothing of what a cell's text may hold: its escaping is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twopass.document import Cell


def html(cells: Sequence[Cell], shown: Callable[[str], str]) -> str:
    """Every cell where it begins, with its spans; `shown` escapes a cell's text."""
    lines = ["<table>"]
    for row in sorted({cell.row for cell in cells}):
        own = sorted((cell for cell in cells if cell.row == row), key=lambda cell: cell.col)
        lines.append(f"<tr>{''.join(_tag(cell, shown) for cell in own)}</tr>")
    return "\n".join([*lines, "</table>"])


def _tag(cell: Cell, shown: Callable[[str], str]) -> str:
    name = "th" if cell.header else "td"
    across = f' colspan="{cell.col_span}"' if cell.col_span > 1 else ""
    down = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    return f"<{name}{down}{across}>{shown(cell.text)}</{name}>"


def gfm(rows: Sequence[Sequence[str]], columns: int) -> str:
    """Escaped texts as a table; the first row is the head, whatever it is: GFM has no table without one."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines[:1], "|" + " --- |" * columns, *lines[1:]])
