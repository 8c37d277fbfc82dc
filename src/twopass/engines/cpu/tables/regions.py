"""Decide which regions of a page are tables: add ruled grids that the layout model missed, drop lists and boxes."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Grid, Region, Shade, StyledWord
from twopass.engines.cpu.reading_order import group_rows
from twopass.engines.cpu.tables import grid_lines
from twopass.engines.cpu.tables.cells import build_cells
from twopass.engines.cpu.tables.grid_lines import TableLines
from twopass.engines.cpu.tables.headers import FULL_RULE
from twopass.engines.cpu.tables.phrases import find_slot, group_phrases
from twopass.engines.cpu.tables.rules import (
    MAX_BORDER_WIDTH,
    TOUCH,
    RuleLine,
    drop_inside,
    find_nested,
    group_touching,
    is_grid,
)
from twopass.engines.cpu.tables.text_grids import find_text_tables
from twopass.engines.cpu.tables.value_columns import join_values

MIN_FILLED = 0.5  # of a grid's cells that have text, for a table; the squares of a chart have none
MIN_FILLED_CELLS = 3

MIN_INSIDE = 0.8  # of a region's area inside a ruled grid, which then replaces it
SAME_TABLE = 0.7  # of a grid's area that a table of the model covers, which then stays as it is
SAME_EDGE = 6.0  # points between the edges of two grids below each other, for parts of one table
MAX_INNER = 0.6  # of a table's area that is a ruled grid, if the rest may be prose around it
MIN_PROSE_LINES, MIN_PROSE_WORDS = 3, 5  # words are a phrase's median
MIN_REST = 20.0  # points of height and width of what remains of a picture around a table
MIN_ENTRIES = 3  # lines with a dot leader, and at least half of all lines, make a list of contents
MAX_STEPS_BACK = 0.2  # of the numbers after dot leaders: page numbers grow, but for a misprint or a second column
_LEADER = re.compile(r"(?:[.·…‥_]\s?){4,}|…{2,}")
_PAGE = r"(?:\d{1,4}|[ivxlcdm]{1,7}|[A-Z]-?\d{1,3})"
_PAGE_NUMBERS = re.compile(rf"\W*{_PAGE}(?:\s*(?:[–-]|,\s)\s*{_PAGE})*\W*", re.IGNORECASE)


def add_ruled_tables(
    regions: Sequence[Region], rules: Sequence[Rect], shades: Sequence[Shade], words: Sequence[StyledWord]
) -> list[Region]:
    """Add the ruled grids with text in their cells that are no table yet; each replaces what lies inside it."""
    found: list[Region] = []
    grids = list(_find_grids(rules, shades))
    regions = [region for region in regions if not _is_several(region, grids, words)]
    regions = [_free_prose(region, [grid.box for grid in grids], words) for region in regions]
    known = [region.box for region in regions if region.grid is not None]
    for table in grids:
        if sum(table.box.overlap(other) for other in known) >= SAME_TABLE * table.box.area:
            known.append(table.box)  # with the tables nested in it
        elif _is_filled(table, words):
            found.append(table)
            known.append(table.box)
    rest = regions
    for table in found:
        rest = [part for region in rest for part in _cut_out(region, table.box, words)]
    return [*rest, *found]


def _free_prose(region: Region, grids: Sequence[Rect], words: Sequence[StyledWord]) -> Region:
    """The region, as text if it is a table in which prose runs around a ruled grid."""
    inner = [box for box in grids if _is_inside(box, region.box)]
    if region.grid is None or not inner or sum(box.area for box in inner) > MAX_INNER * region.box.area:
        return region
    own = [word for word in words if region.box.contains(word.box.centre)]
    return Region("text", region.box) if is_prose([w for w in own if not _is_in_any(w, inner)]) else region


def _is_several(region: Region, grids: Sequence[Region], words: Sequence[StyledWord]) -> bool:
    """Whether a table of the layout model is several ruled ones, with all of its words in them."""
    inner = [grid for grid in grids if region.grid is not None and grid.box.overlap(region.box) > 0]
    if not any(_are_apart(one.box, other.box) for one, other in combinations(inner, 2)):
        return False
    own, boxes = [word for word in words if region.box.contains(word.box.centre)], [grid.box for grid in inner]
    return all(_is_in_any(word, boxes) for word in own) and all(_is_filled(grid, words) for grid in inner)


def _are_apart(one: Rect, other: Rect) -> bool:
    """Whether two grids stand beside each other, or below each other with other edges: these are no parts of one."""
    if one.overlap_x(other) < 0:
        return one.overlap_y(other) > 0
    return one.overlap_y(other) < 0 and max(abs(one.x0 - other.x0), abs(one.x1 - other.x1)) > SAME_EDGE


def _is_in_any(word: StyledWord, boxes: Sequence[Rect]) -> bool:
    return any(box.contains(word.box.centre) for box in boxes)


def is_prose(words: Sequence[StyledWord]) -> bool:
    """Whether words are lines of running text."""
    lines = group_phrases(words)
    lengths = [len(phrase) for line in lines for phrase in line]
    return len(lines) >= MIN_PROSE_LINES and statistics.median(lengths) >= MIN_PROSE_WORDS


def _find_grids(rules: Sequence[Rect], shades: Sequence[Shade]) -> Iterator[Region]:
    """Yield a table for each grid, the largest first, with the rules and shades inside its bounds."""
    groups = [group for group in group_touching(rules, MAX_BORDER_WIDTH) if is_grid(group)]
    for group in sorted(groups, key=lambda group: -enclose(group).area):
        bounds = enclose(group)
        own = [rule for rule in rules if bounds.contains(rule.centre, TOUCH)]
        behind = tuple(shade for shade in shades if bounds.contains(shade.box.centre))
        yield Region("table", bounds, grid=Grid((), (), tuple(drop_inside(own, find_nested(own))), behind))


def _is_filled(table: Region, words: Sequence[StyledWord]) -> bool:
    """Whether rules enclose the cells, and most of these have text."""
    assert table.grid is not None
    inside = [word for word in words if table.box.contains(word.box.centre)]
    lines = grid_lines.find_lines(table.box, table.grid, inside)
    if not lines.closed or lines.xs.slots < 2:
        return False
    cells = build_cells(table.box, table.grid, inside).cells
    filled = sum(bool(cell.text) for cell in cells)
    return filled >= max(MIN_FILLED * len(cells), MIN_FILLED_CELLS)


def _is_inside(box: Rect, other: Rect, share: float = MIN_INSIDE) -> bool:
    return box.overlap(other) >= share * box.area


def _cut_out(region: Region, box: Rect, words: Sequence[StyledWord]) -> Iterator[Region]:
    """Yield what is left of a region beside a table: all, nothing, or the largest part of a picture around it."""
    outside = [word for word in words if region.box.contains(word.box.centre) and not box.contains(word.box.centre)]
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
    elif region.label != "picture" and not _is_inside(region.box, box):
        runs_around = _is_inside(box, region.box, 0.99)
        yield from [region] if not runs_around or is_prose(outside) else []


def settle_tables(regions: Sequence[Region], blocks: Sequence[Any]) -> list[Region]:
    """Find tables in text, turn lists of contents into list items and boxes into text, and set titles and notes apart.

    `blocks` are MuPDF's.
    """
    regions = find_text_tables(join_values(regions), blocks)
    apart = [part for region in regions for part in _release_titles(region, regions)]
    return [settled for region in apart for settled in _settle_region(region)]


def _settle_region(region: Region) -> list[Region]:
    if region.grid is None or not region.words:
        return [region]
    rows = group_rows(region.words)
    pages = [page for row in rows if (page := _find_page(" ".join(word.text for word in row)))]
    if len(pages) >= max(MIN_ENTRIES, len(rows) / 2) and _is_growing(pages):
        return [Region("list-item", enclose([word.box for word in row]), tuple(row)) for row in rows]
    lines = grid_lines.find_lines(region.box, region.grid, region.words)
    is_box = lines.xs.slots == 1 and not any(lines.ys.rules[1:-1])
    if is_box or (lines.ys.slots == 1 and not (region.grid.rules or region.grid.shades)):  # around text, or one line
        return [Region("text", region.box, region.words)]
    return list(_set_apart(region, lines))


def _find_page(line: str) -> str | None:
    """The page number at the end of an entry of contents: what follows its dot leader, which is nothing else."""
    leaders = list(_LEADER.finditer(line))
    rest = line[leaders[-1].end() :] if leaders else ""
    return rest.strip() if _PAGE_NUMBERS.fullmatch(rest) else None


def _is_growing(pages: Sequence[str]) -> bool:
    """Whether page numbers hardly ever decrease, as values do."""
    numbers = [int(page) for page in pages if page.isdecimal()]
    return sum(other < one for one, other in pairwise(numbers)) <= MAX_STEPS_BACK * len(numbers)


# ---- titles and notes ----

TITLE_GAP = 1.5  # of a title's height, from it to its table
TITLE_OVERHANG = 4.0  # points by which it may be wider


def _release_titles(region: Region, regions: Sequence[Region]) -> Iterator[Region]:
    """Yield a text without the titles of tables that stand in it beside other words, and these."""
    tables = [other.box for other in regions if other.grid is not None and other is not region]
    titles: list[list[StyledWord]] = []
    for line in group_phrases(region.words) if region.label == "text" and tables else ():
        for phrase in line:
            box = enclose([word.box for word in phrase])
            owners = [table for table in tables if _TITLE.match(_to_line(phrase)) and _is_on_top(box, table)]
            if len(line) > 1 or any(_is_inside(table, region.box) for table in owners):
                titles += [phrase] if owners else []
    taken = {id(word) for phrase in titles for word in phrase}
    if rest := tuple(word for word in region.words if id(word) not in taken):
        yield replace(region, words=rest) if taken else region
    elif not taken:
        yield region
    yield from map(_to_text, titles)


def _is_on_top(title: Rect, table: Rect) -> bool:
    is_within = table.x0 - TITLE_OVERHANG <= title.x0 and title.x1 <= table.x1 + TITLE_OVERHANG
    return is_within and -title.height < table.y0 - title.y1 <= TITLE_GAP * title.height


MIN_ROWS = 2  # of a table without its title and notes
_TITLE = re.compile(
    r"(?:table|tab\.|tabelle|tableau|tabla|tabela|tabella|exhibit|schedule)\s+(?:[A-Z][.-]?)?(?:\d|[IVX]+\b)",
    re.IGNORECASE,
)
_UNIT = re.compile(r"[(\[][^()\[\]]*[)\]]")
_NOTE = re.compile(
    r"(?:(?:notes?|sources?|see notes?|exhibit reads|quellen?|anmerkung(?:en)?|hinweise?|fuentes?|notas?|fonti?)\b"
    r"|[*†‡§¹²³]|[a-z1-9][.)]?\s+(?=[A-Z]))",
    re.IGNORECASE,
)


def _set_apart(table: Region, lines: TableLines) -> Iterator[Region]:
    """Yield the title above a table's header, the table, and the notes below it."""
    rows: list[list[StyledWord]] = [[] for _ in range(lines.ys.slots)]
    for word in table.words:
        rows[find_slot(lines.ys.positions, word.box.centre[1])].append(word)
    top, bottom = 0, len(rows)
    while bottom - top > MIN_ROWS and _is_above(rows[top], top, lines):
        top += 1
    bottom = next((row for row in range(top + MIN_ROWS, bottom) if _are_notes(rows[row:], row, lines)), bottom)
    for row in rows[:top]:
        yield _to_text(row)
    if bottom - top < len(rows):
        own = {id(word) for row in rows[top:bottom] for word in row}
        table = replace(table, words=tuple(word for word in table.words if id(word) in own))
        table = _cut_rows(table, lines.ys.positions[top], lines.ys.positions[bottom])
    yield table
    for row in rows[bottom:]:
        if row:
            yield _to_text(row)


def _is_above(words: Sequence[StyledWord], row: int, lines: TableLines) -> bool:
    """Whether the first row is a title, a unit such as "[In thousands]", or a line above the upper rule."""
    text = _to_line(words)
    if not words or not _is_alone(words):
        return False
    above, below = lines.ys.rules[row], lines.ys.rules[row + 1]
    is_outside = above is None and _is_full(below, lines) and _is_wide(words, lines)
    return bool(_TITLE.match(text) or _UNIT.fullmatch(text)) or is_outside


def _are_notes(rows: Sequence[Sequence[StyledWord]], first: int, lines: TableLines) -> bool:
    """Whether the last rows are notes: lines across the table, or below its last rule."""
    if not rows[0] or not all(map(_is_alone, rows)):
        return False
    above, below = lines.ys.rules[first], lines.ys.rules[first + 1 :]
    is_outside = _is_full(above, lines) and not any(below)
    is_note = bool(_NOTE.match(_to_line(rows[0]))) and _is_wide(rows[0], lines)
    return is_note or (is_outside and any(_is_full(rule, lines) for rule in lines.ys.rules[:first]))


def _is_alone(words: Sequence[StyledWord]) -> bool:
    """Whether each line of a row is one phrase."""
    return all(word.upright for word in words) and all(len(line) == 1 for line in group_phrases(words))


def _is_wide(words: Sequence[StyledWord], lines: TableLines) -> bool:
    """Whether a text is not within the first column."""
    return max(word.box.x1 for word in words) > lines.xs.positions[1]


def _is_full(rule: RuleLine | None, lines: TableLines) -> bool:
    left, right = lines.xs.positions[0], lines.xs.positions[-1]
    return rule is not None and rule.measure_cover(left, right) >= FULL_RULE * (right - left)


def _to_line(words: Sequence[StyledWord]) -> str:
    return " ".join(word.text for row in group_rows(words) for word in row)


def _to_text(words: Sequence[StyledWord]) -> Region:
    label = "caption" if _TITLE.match(_to_line(words)) else "text"
    return Region(label, enclose([word.box for word in words]), tuple(words))


def _cut_rows(table: Region, top: float, bottom: float) -> Region:
    """The part of a table between two of its row lines."""
    assert table.grid is not None
    grid, box = table.grid, table.box._replace(y0=top, y1=bottom)
    rules = (rule._replace(y0=max(rule.y0, top), y1=min(rule.y1, bottom)) for rule in grid.rules)
    shades = (Shade(s.box._replace(y0=max(s.box.y0, top), y1=min(s.box.y1, bottom)), s.color) for s in grid.shades)
    cut = replace(
        grid,
        rows=tuple(y for y in grid.rows if top < y < bottom),
        rules=tuple(rule for rule in rules if rule.y0 <= rule.y1),
        shades=tuple(shade for shade in shades if shade.box.y0 < shade.box.y1),
    )
    return replace(table, box=box, grid=cut)
