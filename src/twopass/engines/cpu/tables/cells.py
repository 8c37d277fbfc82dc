"""Build a table's cells and spans from its words, grid lines, drawn rules and shaded cells.

A missing piece of a rule joins two cells. Where no rules are drawn, a phrase across a column line, or a header
centred over several columns, is one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product

from twopass.engines.cpu.geometry import Grid, Rect, Shade, StyledWord
from twopass.engines.cpu.tables import grid_lines, header_rows
from twopass.engines.cpu.tables.grid_lines import MIN_RULED_HEIGHT, TableLines
from twopass.engines.cpu.tables.phrases import find_slot, group_phrases
from twopass.engines.cpu.tables.rules import RuleLine
from twopass.engines.cpu.tables.spans import Slot, Slots, find_centred_pairs, find_shaded_pairs, stands_on_line
from twopass.engines.cpu.text_rows import group_rows

MIN_RULE_COVERAGE = 0.5  # of the edge between two cells, for a rule that separates them
MIN_SHADE_SHARE = 0.5  # of a row's area, for its color


@dataclass(frozen=True)
class GridCell:
    row: int
    col: int
    row_span: int
    col_span: int
    text: str
    header: bool


def build_cells(box: Rect, grid: Grid, words: Sequence[StyledWord]) -> tuple[int, int, list[GridCell]]:
    """Return the numbers of rows and columns and the cells; every word is in exactly one cell."""
    lines = grid_lines.find_lines(box, grid, words)
    slots = _assign_words(lines, words)
    owners = _join_slots(lines, slots, grid.shades)
    cells = list(_iterate_cells(owners, slots))
    facts = [_describe_row(row, cells, lines, slots, grid.shades) for row in range(lines.ys.slots)]
    depth = header_rows.count_header_rows(facts)
    return lines.ys.slots, lines.xs.slots, [replace(cell, header=cell.row < depth) for cell in cells]


def _assign_words(lines: TableLines, words: Sequence[StyledWord]) -> Slots:
    """Group words by grid slot; a word outside the grid goes into the nearest slot.

    A text that stands on the line between two rows is in the upper one, however it is rounded.
    """
    slots: dict[Slot, list[StyledWord]] = {}
    for word in words:
        x, y = word.box.centre
        slots.setdefault((find_slot(lines.ys.positions, y), find_slot(lines.xs.positions, x)), []).append(word)
    for row, col in sorted(slots):
        above = (row - 1, col)
        if row and above not in slots and stands_on_line(slots[row, col], lines, row):
            slots[above] = slots.pop((row, col))
    return slots


def _join_slots(lines: TableLines, slots: Slots, shades: Sequence[Shade]) -> dict[Slot, Slot]:
    """Map each slot to the first slot of its cell (union-find over slots that nothing separates)."""
    parent = {slot: slot for slot in product(range(lines.ys.slots), range(lines.xs.slots))}

    def root(slot: Slot) -> Slot:
        while parent[slot] != slot:
            slot = parent[slot]
        return slot

    def join(pairs: Iterable[tuple[Slot, Slot]]) -> None:
        for one, other in pairs:
            parent[root(other)] = root(one)

    join(_find_open_pairs(lines, slots))
    if not lines.closed:
        join(find_shaded_pairs(lines, shades))
        join(find_centred_pairs(lines, slots))
    return _keep_rectangles({slot: root(slot) for slot in parent})


def _find_open_pairs(lines: TableLines, slots: Slots) -> Iterator[tuple[Slot, Slot]]:
    """Yield neighbours that no rule separates."""
    ys, xs = lines.ys, lines.xs
    min_height = 0.0 if lines.closed else MIN_RULED_HEIGHT * (ys.positions[-1] - ys.positions[0])
    phrase_pairs = set(_find_phrase_pairs(lines, slots))
    for r, c in product(range(ys.slots), range(xs.slots)):
        right, below = (r, c + 1), (r + 1, c)
        (top, bottom), (left_x, right_x) = ys.positions[r : r + 2], xs.positions[c : c + 2]
        # Unless rules enclose the table, two slots with text are two cells even without a rule between them.
        if c + 1 < xs.slots:
            may_join = lines.closed or not (slots.get((r, c)) and slots.get(right))
            rule = xs.rules[c + 1]
            drawn, is_open = rule and rule.length >= min_height, _is_open(rule, top, bottom)
            if is_open and (((r, c), right) in phrase_pairs or (drawn and may_join)):
                yield (r, c), right
        if r + 1 < ys.slots:
            may_join = lines.closed or not (slots.get((r, c)) and slots.get(below))
            if may_join and ys.rules[r + 1] and _is_open(ys.rules[r + 1], left_x, right_x):
                yield (r, c), below


def _find_phrase_pairs(lines: TableLines, slots: Slots) -> Iterator[tuple[Slot, Slot]]:
    """Yield neighbours with one phrase across the column line between them."""
    places = {id(word): slot for slot, words in slots.items() for word in words}
    in_order = sorted((word for words in slots.values() for word in words), key=lambda word: word.line)
    for phrase in chain.from_iterable(group_phrases(in_order)):
        for one, other in pairwise(phrase):
            (row, col), (other_row, other_col) = places[id(one)], places[id(other)]
            if one.line == other.line and row == other_row:
                yield from (((row, c), (row, c + 1)) for c in range(col, other_col))


def _is_open(rule: RuleLine | None, start: float, stop: float) -> bool:
    """Return whether no rule separates the cells on both sides of an edge."""
    return rule is None or rule.measure_cover(start, stop) < MIN_RULE_COVERAGE * (stop - start)


def _keep_rectangles(owners: dict[Slot, Slot]) -> dict[Slot, Slot]:
    """Separate joined slots again if they do not form a rectangle."""
    groups: dict[Slot, list[Slot]] = {}
    for slot, first in owners.items():
        groups.setdefault(first, []).append(slot)
    kept: dict[Slot, Slot] = {}
    for group in groups.values():
        height = max(r for r, _ in group) - min(r for r, _ in group) + 1
        width = max(c for _, c in group) - min(c for _, c in group) + 1
        first = min(group)
        kept.update({slot: first if height * width == len(group) else slot for slot in group})
    return kept


def _iterate_cells(owners: dict[Slot, Slot], slots: Slots) -> Iterator[GridCell]:
    groups: dict[Slot, list[Slot]] = {}
    for slot, owner in owners.items():
        groups.setdefault(owner, []).append(slot)
    for first, group in sorted(groups.items()):
        words = sorted((word for slot in group for word in slots.get(slot, ())), key=lambda w: w.line)
        text = "\n".join(" ".join(word.text for word in line) for line in group_rows(words))
        row_span = max(r for r, _ in group) - first[0] + 1
        col_span = max(c for _, c in group) - first[1] + 1
        yield GridCell(first[0], first[1], row_span, col_span, text, header=False)


def _describe_row(
    row: int, cells: Sequence[GridCell], lines: TableLines, slots: Slots, shades: Sequence[Shade]
) -> header_rows.RowFacts:
    own = [cell for cell in cells if cell.row == row]
    words = [word for (r, _), group in slots.items() if r == row for word in group]
    rule, (left, right) = lines.ys.rules[row + 1], (lines.xs.positions[0], lines.xs.positions[-1])
    bounds = Rect(left, lines.ys.positions[row], right, lines.ys.positions[row + 1])
    return header_rows.RowFacts(
        tuple(cell.text for cell in own),
        bool(words) and all(word.bold for word in words),
        _find_color(bounds, shades),
        rule is not None and rule.measure_cover(left, right) >= header_rows.FULL_RULE * (right - left),
        max((cell.row_span for cell in own), default=1),
        any(_is_split_below(cell, cells) for cell in own),
    )


def _is_split_below(cell: GridCell, cells: Sequence[GridCell]) -> bool:
    """Return whether a cell with text spans columns that the row below it divides."""
    row, cols = cell.row + cell.row_span, range(cell.col, cell.col + cell.col_span)
    return bool(cell.text) and sum(other.row == row and other.col in cols for other in cells) > 1


def _find_color(bounds: Rect, shades: Sequence[Shade]) -> int | None:
    """Return the color behind most of a row, None for none; the same box may be drawn twice."""
    areas: dict[int, float] = {}
    for shade in dict.fromkeys(shades):
        areas[shade.color] = areas.get(shade.color, 0.0) + shade.box.overlap_area(bounds)
    color = max(areas, key=lambda c: areas[c], default=None)
    return color if color is not None and areas[color] >= MIN_SHADE_SHARE * bounds.area else None
