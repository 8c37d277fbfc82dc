"""Tables in, their Markdown out: GFM or HTML, and those that run over pages as one.

Knows how rows of a further page follow. Knows nothing of elements or documents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise, takewhile

from twopass.document import Cell, Table
from twopass.format_options import Markdown, Maths, Tables
from twopass.formats import escaping
from twopass.text import prose, table_markup

COLUMNS = 200  # of a table, empty ones included


def table(known: Table, spelling: Markdown) -> str:
    """GFM or HTML, as it is asked for; by itself GFM, and HTML where cells span."""
    if not known.cells:
        return escaping.leading(escaping.shown(escaping.flat(known.markdown or known.html), spelling.maths))
    return _written(known.cells, known.cols, spelling)


def _written(cells: Sequence[Cell], cols: int, spelling: Markdown) -> str:
    spans = any(cell.row_span > 1 or cell.col_span > 1 for cell in cells)
    if spelling.tables is Tables.HTML or (spans and spelling.tables is Tables.AUTO):
        return table_markup.html(cells, partial(escaping.html_cell, style=spelling.maths))
    return _gfm(cells, cols, spelling.maths)


def _gfm(cells: Sequence[Cell], cols: int, style: Maths) -> str:
    rows = sorted({cell.row for cell in cells})
    columns = sorted({cell.col for cell in cells} | set(range(min(cols, COLUMNS))))
    texts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for cell in cells:
        texts[cell.row, cell.col].append(escaping.cell(cell.text, style))
    return table_markup.gfm([[" ".join(texts[row, column]) for column in columns] for row in rows], len(columns))


def joined(parts: Sequence[Table], spelling: Markdown) -> tuple[list[str], str]:
    """Tables written as one: what each gives to it, line by line, and what ends it."""
    first = _rows(parts[0].cells)
    whole: list[Cell] = []
    counts: list[int] = []
    for rows in (first, *(_rest(first, _rows(part.cells)) for part in parts[1:])):
        whole += _below(whole, rows)
        counts.append(len(rows))
    lines = _written(whole, max(part.cols for part in parts), spelling).split("\n")  # a row is one line
    ends = list(accumulate(counts, initial=1))[1:]  # behind a ruler below the head, or HTML's tag above it
    texts = ["\n".join(lines[start:end]) for start, end in pairwise([0, *ends])]
    return texts, "".join(f"\n{line}" for line in lines[ends[-1] :])


def _rows(cells: Sequence[Cell]) -> list[list[Cell]]:
    rows: dict[int, list[Cell]] = defaultdict(list)
    for cell in cells:
        rows[cell.row].append(cell)
    return [sorted(rows[row], key=lambda cell: cell.col) for row in sorted(rows)]


def _rest(first: Sequence[Sequence[Cell]], rows: Sequence[Sequence[Cell]]) -> Sequence[Sequence[Cell]]:
    """A further page's rows without the frame's blank ones and the first page's head at their top."""
    rows = _cut(rows, next((n for n, row in enumerate(rows) if any(cell.text.strip() for cell in row)), len(rows)))
    heads = list(takewhile(lambda row: all(cell.header for cell in row), first))
    same = 0
    while same < min(len(heads), len(rows)) and _said(heads[same]) == _said(rows[same]):
        same += 1
    return _cut(rows, same)


def _said(row: Sequence[Cell]) -> list[tuple[int, int, str]]:
    return [(cell.col, cell.col_span, prose.flow(cell.text).casefold()) for cell in row]


def _cut(rows: Sequence[Sequence[Cell]], count: int) -> Sequence[Sequence[Cell]]:
    """Without the first ones, unless a cell of theirs reaches further down."""
    if count < len(rows) and any(cell.row + cell.row_span > rows[count][0].row for row in rows[:count] for cell in row):
        return rows
    return rows[count:]


def _below(above: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Cells moved to where the rows above end; none reaches out of its own part."""
    if not rows:
        return []
    shift = 1 + max((cell.row for cell in above), default=-1) - rows[0][0].row
    end = 1 + rows[-1][0].row
    return [
        cell.model_copy(update={"row": cell.row + shift, "row_span": min(cell.row_span, end - cell.row)})
        for row in rows
        for cell in row
    ]
