"""Decide which regions of a page are tables: add ruled grids that the layout model missed, drop lists and boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Grid, Region, Shade, StyledWord
from twopass.engines.cpu.reading_order import group_rows
from twopass.engines.cpu.tables import grid_lines
from twopass.engines.cpu.tables.cells import build_cells
from twopass.engines.cpu.tables.rules import MAX_BORDER_WIDTH, TOUCH, drop_inside, find_nested, group_touching, is_grid

MIN_FILLED = 0.5  # of a grid's cells that have text, for a table; the squares of a chart have none
MIN_FILLED_CELLS = 3

MIN_INSIDE = 0.8  # of a region's area inside a ruled grid, which then replaces it
SAME_TABLE = 0.7  # of a grid's area that a table of the model covers, which then stays as it is
MIN_REST = 20.0  # points of height and width of what remains of a picture around a table
MIN_ENTRIES = 3  # lines with a dot leader, and at least half of all lines, make a list of contents
_LEADER = re.compile(r"(?:[.·…‥_]\s?){4,}|…{2,}")
_PAGE_NUMBER = re.compile(r"(?:\d{1,4}|[ivxlcdm]{1,7}|[A-Z]-?\d{1,3})\W*$", re.IGNORECASE)


def add_ruled_tables(
    regions: Sequence[Region], rules: Sequence[Rect], shades: Sequence[Shade], words: Sequence[StyledWord]
) -> list[Region]:
    """Add the ruled grids with text in their cells that are no table yet; each replaces what lies inside it."""
    found: list[Region] = []
    known = [region.box for region in regions if region.grid is not None]
    for box, own in _find_grids(rules):
        if sum(box.overlap(other) for other in known) >= SAME_TABLE * box.area:
            known.append(box)  # with the tables nested in it
            continue
        inside = [word for word in words if box.contains(word.box.centre)]
        behind = tuple(shade for shade in shades if box.contains(shade.box.centre))
        table = Region("table", box, grid=Grid((), (), tuple(own), behind))
        if _is_filled(table, inside):
            found.append(table)
            known.append(box)
    rest = regions
    for table in found:
        rest = [part for region in rest for part in _cut_out(region, table.box)]
    return [*rest, *found]


def _find_grids(rules: Sequence[Rect]) -> Iterator[tuple[Rect, list[Rect]]]:
    """Yield the bounds and the rules of grids, the largest first, with the rules inside their bounds."""
    groups = [group for group in group_touching(rules, MAX_BORDER_WIDTH) if is_grid(group)]
    for group in sorted(groups, key=lambda group: -enclose(group).area):
        bounds = enclose(group)
        own = [rule for rule in rules if bounds.contains(rule.centre, TOUCH)]
        yield bounds, drop_inside(own, find_nested(own))


def _is_filled(table: Region, words: Sequence[StyledWord]) -> bool:
    """Whether rules enclose the cells, and most of these have text."""
    assert table.grid is not None
    lines = grid_lines.find_lines(table.box, table.grid, words)
    if not lines.closed or lines.xs.slots < 2:
        return False
    _, _, cells = build_cells(table.box, table.grid, words)
    filled = sum(bool(cell.text) for cell in cells)
    return filled >= max(MIN_FILLED * len(cells), MIN_FILLED_CELLS)


def _is_inside(box: Rect, other: Rect, share: float = MIN_INSIDE) -> bool:
    return box.overlap(other) >= share * box.area


def _cut_out(region: Region, box: Rect) -> Iterator[Region]:
    """Yield what is left of a region beside a table: all, nothing, or the largest part of a picture around it."""
    if not region.box.overlap(box):
        yield region
    elif region.label == "picture" and not _is_inside(region.box, box):
        outer = region.box
        rests = (
            outer._replace(y1=box.y0), outer._replace(y0=box.y1), outer._replace(x1=box.x0), outer._replace(x0=box.x1)
        )  # fmt: skip
        rest = max(rests, key=lambda r: r.area)
        if min(rest.width, rest.height) >= MIN_REST:
            yield replace(region, box=rest)
    elif region.label != "picture" and not _is_inside(region.box, box) and not _is_inside(box, region.box, 0.99):
        yield region


def settle_tables(regions: Sequence[Region]) -> list[Region]:
    """Turn tables that are lists of contents into list items, and those of one cell into text."""
    return [settled for region in regions for settled in _settle_region(region)]


def _settle_region(region: Region) -> list[Region]:
    if region.grid is None or not region.words:
        return [region]
    rows = group_rows(region.words)
    entries = [row for row in rows if _is_entry(" ".join(word.text for word in row))]
    if len(entries) >= max(MIN_ENTRIES, len(rows) / 2):
        return [Region("list-item", enclose([word.box for word in row]), tuple(row)) for row in rows]
    if _is_one_cell(region):
        return [Region("text", region.box, region.words)]
    return [region]


def _is_entry(line: str) -> bool:
    """Whether a line has a dot leader and ends with a page number."""
    return bool(_LEADER.search(line) and _PAGE_NUMBER.search(line))


def _is_one_cell(region: Region) -> bool:
    """Whether a table has one column and no rule inside it."""
    assert region.grid is not None
    lines = grid_lines.find_lines(region.box, region.grid, region.words)
    return lines.xs.slots == 1 and not any(lines.ys.rules[1:-1])
