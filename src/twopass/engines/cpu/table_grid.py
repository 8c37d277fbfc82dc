"""Build a table's cells and spans from its words, grid lines and drawn rules.

If rules enclose the table, they are the grid, and a missing piece of a rule joins two cells. Otherwise the layout
model's lines are the grid.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from twopass.engines.cpu.geometry import Grid, Rect, StyledWord
from twopass.engines.cpu.text_rows import group_rows

SAME_LINE = 4.0  # points: grid lines closer than this are one line
MAX_RULE_WIDTH = 3.0  # points: a filled box no wider than this is a rule
MIN_RULED_HEIGHT, MIN_RULED_WIDTH = 0.4, 0.25  # of the table's height and width, for a grid line
MAX_BORDER_DISTANCE = 12.0  # points, from the text's box to the outermost rule around it
MANY_MORE_ROWS = 1.6  # times as many rows by the model as by rules: the rules separate groups of rows
MIN_RULE_COVERAGE = 0.5  # of the edge between two cells, for a rule that separates them
WORD_GAP = 0.6  # of the type size: closer words of one line form one phrase across a column line


Slot = tuple[int, int]  # row and column


@dataclass(frozen=True)
class GridCell:
    row: int
    col: int
    row_span: int
    col_span: int
    text: str
    header: bool


@dataclass(frozen=True)
class _AxisLines:
    """Positions of the grid lines of one axis, and which of them are drawn."""

    positions: list[float]
    drawn: list[bool]

    @property
    def slots(self) -> int:
        return len(self.positions) - 1


def build_cells(box: Rect, grid: Grid, words: Sequence[StyledWord]) -> tuple[int, int, list[GridCell]]:
    """Return the numbers of rows and columns and the cells; every word is in exactly one cell."""
    horizontal = [rule for rule in grid.rules if rule.x1 - rule.x0 >= rule.y1 - rule.y0]
    vertical = [rule for rule in grid.rules if rule.x1 - rule.x0 < rule.y1 - rule.y0]
    ruled_rows = _find_ruled_positions(horizontal, 1, MIN_RULED_WIDTH * (box.x1 - box.x0))
    ruled_cols = _find_ruled_positions(vertical, 0, MIN_RULED_HEIGHT * (box.y1 - box.y0))
    closed = _encloses(ruled_rows, box.y0, box.y1) and _encloses(ruled_cols, box.x0, box.x1)
    model_rows, model_cols = [box.y0, *grid.rows, box.y1], [box.x0, *grid.cols, box.x1]
    ys = _merge_lines(ruled_rows, model_rows, closed and len(model_rows) - 1 < MANY_MORE_ROWS * (len(ruled_rows) - 1))
    xs = _merge_lines(ruled_cols, model_cols, closed)
    slots = _assign_words(ys, xs, words)
    owners = _join_slots(ys, xs, slots, horizontal, vertical, closed)
    return ys.slots, xs.slots, _mark_header(list(_iterate_cells(owners, slots)))


def _find_ruled_positions(rules: Sequence[Rect], axis: int, min_length: float) -> list[float]:
    """Return the positions where rules add up to `min_length` points; axis 0 is x, 1 is y."""
    clusters: list[list[tuple[float, float]]] = []
    for position, length in sorted(((r[axis] + r[axis + 2]) / 2, r[3 - axis] - r[1 - axis]) for r in rules):
        if clusters and position - clusters[-1][0][0] <= SAME_LINE:
            clusters[-1].append((position, length))
        else:
            clusters.append([(position, length)])
    return [sum(p for p, _ in c) / len(c) for c in clusters if sum(length for _, length in c) >= min_length]


def _encloses(ruled: Sequence[float], start: float, stop: float) -> bool:
    margin = MAX_BORDER_DISTANCE / 3
    return len(ruled) >= 3 and ruled[0] <= start + margin and ruled[-1] >= stop - margin


def _merge_lines(ruled: Sequence[float], model: Sequence[float], rules_only: bool) -> _AxisLines:
    """Combine the rules with the model's lines; a rule replaces a line of the model close to it."""
    if rules_only:
        return _AxisLines(list(ruled), [True] * len(ruled))
    inner = [rule for rule in ruled if model[0] + SAME_LINE < rule < model[-1] - SAME_LINE]
    undrawn = [line for line in model if all(abs(line - rule) > SAME_LINE for rule in inner)]
    merged = sorted([(line, True) for line in inner] + [(line, False) for line in undrawn])
    return _AxisLines([line for line, _ in merged], [drawn for _, drawn in merged])


def _assign_words(ys: _AxisLines, xs: _AxisLines, words: Sequence[StyledWord]) -> dict[Slot, list[StyledWord]]:
    """Group words by grid slot; a word outside the grid goes into the nearest slot."""
    slots: dict[Slot, list[StyledWord]] = {}
    for word in words:
        x, y = word.box.centre
        slots.setdefault((_find_slot(ys.positions, y), _find_slot(xs.positions, x)), []).append(word)
    return slots


def _find_slot(lines: Sequence[float], position: float) -> int:
    return min(max(bisect_right(lines, position) - 1, 0), len(lines) - 2)


def _join_slots(
    ys: _AxisLines,
    xs: _AxisLines,
    slots: dict[Slot, list[StyledWord]],
    horizontal: Sequence[Rect],
    vertical: Sequence[Rect],
    closed: bool,
) -> dict[Slot, Slot]:
    """Map each slot to the first slot of its cell (union-find over slots that no rule separates)."""
    parent = {(r, c): (r, c) for r in range(ys.slots) for c in range(xs.slots)}

    def root(slot: Slot) -> Slot:
        while parent[slot] != slot:
            slot = parent[slot]
        return slot

    def may_join(one: Slot, other: Slot) -> bool:
        # Unless rules enclose the table, two slots with text are two cells even without a rule between them.
        return other in parent and (closed or not (slots.get(one) and slots.get(other)))

    for slot in list(parent):
        r, c = slot
        right, below = (r, c + 1), (r + 1, c)
        (top, bottom), (left_x, right_x) = ys.positions[r : r + 2], xs.positions[c : c + 2]
        drawn = xs.drawn[c + 1]
        is_open = not drawn or _is_open(vertical, 0, right_x, top, bottom)
        is_phrase = right in parent and _is_one_phrase(slots.get(slot, ()), slots.get(right, ()))
        if is_phrase and is_open:
            parent[root(right)] = root(slot)
        if may_join(slot, right) and drawn and is_open:
            parent[root(right)] = root(slot)
        if may_join(slot, below) and ys.drawn[r + 1] and _is_open(horizontal, 1, bottom, left_x, right_x):
            parent[root(below)] = root(slot)
    return _keep_rectangles({slot: root(slot) for slot in parent})


def _is_one_phrase(left: Sequence[StyledWord], right: Sequence[StyledWord]) -> bool:
    """Return whether one phrase crosses the column line."""
    for one in left:
        for other in right:
            if one.line == other.line and abs(other.box.x0 - one.box.x1) <= WORD_GAP * max(one.size, one.box.height):
                return True
    return False


def _is_open(rules: Sequence[Rect], axis: int, position: float, start: float, stop: float) -> bool:
    """Return whether no rule separates the cells on both sides of an edge; axis 0 is x, 1 is y."""
    near = [r for r in rules if abs((r[axis] + r[axis + 2]) / 2 - position) <= SAME_LINE]
    covered = sum(max(min(r[3 - axis], stop) - max(r[1 - axis], start), 0.0) for r in near)
    return covered < MIN_RULE_COVERAGE * (stop - start)


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


def _iterate_cells(owners: dict[Slot, Slot], slots: dict[Slot, list[StyledWord]]) -> Iterator[GridCell]:
    for first in sorted(set(owners.values())):
        group = [slot for slot, owner in owners.items() if owner == first]
        words = sorted((word for slot in group for word in slots.get(slot, ())), key=lambda w: w.line)
        text = "\n".join(" ".join(word.text for word in line) for line in group_rows(words))
        row_span = max(r for r, _ in group) - first[0] + 1
        col_span = max(c for _, c in group) - first[1] + 1
        yield GridCell(first[0], first[1], row_span, col_span, text, header=False)


def _mark_header(cells: Sequence[GridCell]) -> list[GridCell]:
    """Mark the first row and the rows that it spans as header, unless every cell of the first row has digits."""
    first_row = [cell for cell in cells if cell.row == 0]
    texts = [cell.text for cell in first_row if cell.text]
    if not texts or all(any(letter.isdigit() for letter in text) for text in texts):
        return list(cells)
    depth = max(cell.row_span for cell in first_row)
    if any(cell.col_span > 1 for cell in first_row):
        depth = max(depth, min(2, max(cell.row for cell in cells)))
    return [replace(cell, header=True) if cell.row < depth else cell for cell in cells]
