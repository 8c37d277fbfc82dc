"""Parse tables in OTSL: one tag for each place of the grid, so that rows and spans need no closing tags.

`<fcel>` begins a cell with text, `<ecel>` an empty one, `<lcel>` belongs to the cell on its left, `<ucel>` to the one
above, `<xcel>` to both, and `<nl>` ends a row. `<ched>`, `<rhed>` and `<srow>` begin header cells. Never fails.
"""

from __future__ import annotations

import re

from twopass.document import Cell, Table
from twopass.families.table_parser import clean_cell_text
from twopass.text import table_markup

_MAX_ROWS, _MAX_COLS = 1000, 200  # more than a page can hold
_TAG = re.compile(r"<(fcel|ecel|lcel|ucel|xcel|nl|ched|rhed|srow)>")
_CUT_TAG = re.compile(r"<[a-z]{0,4}\s*\Z")  # at the end of an answer that is cut off
_HEADERS = frozenset({"ched", "rhed", "srow"})
_OWN = frozenset({"fcel", "ecel", *_HEADERS})

Grid = list[list[tuple[str, str]]]  # rows of (tag, text)


def parse(text: str) -> Table | None:
    """The table; None where the text holds no tag of a cell. Short rows end with empty cells."""
    grid = _read_grid(text)
    if not grid:
        return None
    columns = max(map(len, grid))
    grid = [row + [("ecel", "")] * (columns - len(row)) for row in grid]
    owners = _find_owners(grid)
    cells = []
    for (row, col), places in _group_places(owners).items():
        tag, content = grid[row][col]
        last_row, last_col = max(place[0] for place in places), max(place[1] for place in places)
        size = {"row_span": last_row - row + 1, "col_span": last_col - col + 1}
        cells.append(Cell(row=row, col=col, text=content, header=tag in _HEADERS, **size))
    return table_markup.build_table(len(grid), columns, cells)


def _read_grid(text: str) -> Grid:
    """Rows of tags and texts; text before the first tag of a row belongs to no cell, and is put into the next one."""
    pieces = _TAG.split(_CUT_TAG.sub("", text))
    grid: Grid = []
    row: list[tuple[str, str]] = []
    stray = clean_cell_text(pieces[0])
    for tag, content in zip(pieces[1::2], pieces[2::2], strict=True):
        content = clean_cell_text(content)
        if tag == "nl":
            grid.append(row)
            row, stray = [], f"{stray}\n{content}".strip()
        elif len(row) < _MAX_COLS:
            row.append((tag if tag in _OWN or not content else "fcel", f"{stray}\n{content}".strip()))
            stray = ""
    rows = [row for row in (*grid, row) if row]
    if stray and rows:
        tag, content = rows[-1][-1]
        rows[-1][-1] = (tag if tag in _OWN else "fcel", f"{content}\n{stray}".strip())
    return rows[:_MAX_ROWS]


def _find_owners(grid: Grid) -> list[list[tuple[int, int]]]:
    """The place where the cell of each place begins. Spans that are no rectangle are cut to the part that is."""
    owners: list[list[tuple[int, int]]] = []
    for r, row in enumerate(grid):
        owners.append([])
        for c, (tag, content) in enumerate(row):
            owner = (r, c)
            if tag == "lcel" and c and not content:
                left = owners[r][c - 1]
                owner = left if left[0] == r else owner
            elif tag in ("ucel", "xcel") and r and not content:
                above = owners[r - 1][c]
                # the row must continue the cell from its first column on
                begins = above[1] == c
                owner = above if begins or (c and owners[r][c - 1] == above) else owner
            owners[r].append(owner)
    return _drop_ragged(owners)


def _drop_ragged(owners: list[list[tuple[int, int]]]) -> list[list[tuple[int, int]]]:
    """Make the places of every cell a rectangle: a cell that is not keeps its first place, the others stand alone."""
    for (row, col), places in _group_places(owners).items():
        last_row, last_col = max(place[0] for place in places), max(place[1] for place in places)
        if len(places) != (last_row - row + 1) * (last_col - col + 1):
            for r, c in places:
                owners[r][c] = (r, c)
    return owners


def _group_places(owners: list[list[tuple[int, int]]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    places: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for r, row in enumerate(owners):
        for c, owner in enumerate(row):
            places.setdefault(owner, []).append((r, c))
    return places
