"""A table's words, grid lines and drawn rules in, cells with spans out.

Where a table is ruled all round, its rules are the grid and a missing piece of a rule joins two
cells; elsewhere the layout model's lines are. Pure geometry. Knows nothing of PDF or JSON.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twopass.engines.cpu.reading_order import Grid, Rect, Word, rows

SAME_LINE = 4.0  # points: grid lines nearer than this are one
THIN = 3.0  # points: a filled box no wider than this is a rule
FULL_COLUMN, FULL_ROW = 0.4, 0.25  # of the table's height or width ruled, to be a line of its grid
CLOSED = 12.0  # points between the text's box and the outermost rule around it
MORE_ROWS = 1.6  # times more rows by the model than by rules: only groups of rows are ruled
DRAWN = 0.5  # of an edge between two cells covered by a rule, to part them
WORD_GAP = 0.6  # of the type size: words of one line nearer than this belong together across a column line


@dataclass(frozen=True)
class Cell:
    row: int
    col: int
    row_span: int
    col_span: int
    text: str
    header: bool


@dataclass(frozen=True)
class _Lines:
    """Grid lines of one axis and which of them are drawn."""

    at: list[float]
    drawn: list[bool]


def cells(box: Rect, grid: Grid, words: Sequence[Word]) -> tuple[int, int, list[Cell]]:
    """Rows, columns and cells; every word is in exactly one cell."""
    level = [rule for rule in grid.rules if rule.x1 - rule.x0 >= rule.y1 - rule.y0]
    upright = [rule for rule in grid.rules if rule.x1 - rule.x0 < rule.y1 - rule.y0]
    ruled_rows = _ruled(level, 1, FULL_ROW * (box.x1 - box.x0))
    ruled_cols = _ruled(upright, 0, FULL_COLUMN * (box.y1 - box.y0))
    closed = _encloses(ruled_rows, box.y0, box.y1) and _encloses(ruled_cols, box.x0, box.x1)
    model_rows, model_cols = [box.y0, *grid.rows, box.y1], [box.x0, *grid.cols, box.x1]
    ys = _lines(ruled_rows, model_rows, closed and len(model_rows) - 1 < MORE_ROWS * (len(ruled_rows) - 1))
    xs = _lines(ruled_cols, model_cols, closed)
    slots = _slots(ys, xs, words)
    owner = _joined(ys, xs, slots, level, upright, closed)
    found = list(_cells(owner, len(ys.at) - 1, len(xs.at) - 1, slots))
    return len(ys.at) - 1, len(xs.at) - 1, _with_header(found)


def _ruled(rules: Sequence[Rect], axis: int, least: float) -> list[float]:
    """Positions where rules add up to `least` points, in order."""
    clusters: list[list[tuple[float, float]]] = []
    for at, length in sorted(((r[axis] + r[axis + 2]) / 2, r[3 - axis] - r[1 - axis]) for r in rules):
        if clusters and at - clusters[-1][0][0] <= SAME_LINE:
            clusters[-1].append((at, length))
        else:
            clusters.append([(at, length)])
    return [sum(at for at, _ in c) / len(c) for c in clusters if sum(length for _, length in c) >= least]


def _encloses(ruled: Sequence[float], start: float, stop: float) -> bool:
    return len(ruled) >= 3 and ruled[0] <= start + CLOSED / 3 and ruled[-1] >= stop - CLOSED / 3


def _lines(ruled: Sequence[float], model: Sequence[float], rules_only: bool) -> _Lines:
    if rules_only:
        return _Lines(list(ruled), [True] * len(ruled))
    inner = [at for at in ruled if model[0] + SAME_LINE < at < model[-1] - SAME_LINE]
    own = [at for at in model if all(abs(at - other) > SAME_LINE for other in inner)]
    merged = sorted([(at, True) for at in inner] + [(at, False) for at in own])
    return _Lines([at for at, _ in merged], [drawn for _, drawn in merged])


def _slots(ys: _Lines, xs: _Lines, words: Sequence[Word]) -> dict[tuple[int, int], list[Word]]:
    """Words by grid slot; what sticks out falls into the outermost one."""
    slots: dict[tuple[int, int], list[Word]] = {}
    for word in words:
        x, y = word.box.centre
        slots.setdefault((_index(ys.at, y), _index(xs.at, x)), []).append(word)
    return slots


def _index(lines: Sequence[float], at: float) -> int:
    return min(max(bisect_right(lines, at) - 1, 0), len(lines) - 2)


Slot = tuple[int, int]


def _joined(
    ys: _Lines,
    xs: _Lines,
    slots: dict[Slot, list[Word]],
    level: Sequence[Rect],
    upright: Sequence[Rect],
    closed: bool,
) -> dict[Slot, Slot]:
    """Slot -> the first slot of its cell."""
    parent = {(r, c): (r, c) for r in range(len(ys.at) - 1) for c in range(len(xs.at) - 1)}

    def root(slot: Slot) -> Slot:
        while parent[slot] != slot:
            slot = parent[slot]
        return slot

    def may_join(one: Slot, other: Slot) -> bool:
        # Where rules do not close the table, two texts are two cells whatever is missing between them.
        return other in parent and (closed or not (slots.get(one) and slots.get(other)))

    for slot in list(parent):
        r, c = slot
        right, below = (r, c + 1), (r + 1, c)
        edge = (upright, 0, xs.at[c + 1], ys.at[r], ys.at[r + 1])
        drawn = xs.drawn[c + 1]
        if right in parent and _run_on(slots.get(slot, ()), slots.get(right, ())) and (not drawn or _open(*edge)):
            parent[root(right)] = root(slot)
        if may_join(slot, right) and drawn and _open(*edge):
            parent[root(right)] = root(slot)
        if may_join(slot, below) and ys.drawn[r + 1] and _open(level, 1, ys.at[r + 1], xs.at[c], xs.at[c + 1]):
            parent[root(below)] = root(slot)
    return _rectangles({slot: root(slot) for slot in parent})


def _run_on(left: Sequence[Word], right: Sequence[Word]) -> bool:
    """Whether one phrase crosses the column line."""
    for one in left:
        for other in right:
            if one.line == other.line and abs(other.box.x0 - one.box.x1) <= WORD_GAP * max(one.size, one.box.height):
                return True
    return False


def _open(rules: Sequence[Rect], axis: int, at: float, start: float, stop: float) -> bool:
    """Whether no rule parts the cells on both sides of this edge."""
    near = [r for r in rules if abs((r[axis] + r[axis + 2]) / 2 - at) <= SAME_LINE]
    share = sum(max(min(r[3 - axis], stop) - max(r[1 - axis], start), 0.0) for r in near)
    return share < DRAWN * (stop - start)


def _rectangles(owner: dict[Slot, Slot]) -> dict[Slot, Slot]:
    """Joined slots that do not make a rectangle stay single."""
    groups: dict[Slot, list[Slot]] = {}
    for slot, first in owner.items():
        groups.setdefault(first, []).append(slot)
    whole: dict[Slot, Slot] = {}
    for group in groups.values():
        height = max(r for r, _ in group) - min(r for r, _ in group) + 1
        width = max(c for _, c in group) - min(c for _, c in group) + 1
        first = min(group)
        whole.update({slot: first if height * width == len(group) else slot for slot in group})
    return whole


def _cells(owner: dict[Slot, Slot], n_rows: int, n_cols: int, slots: dict[Slot, list[Word]]) -> Iterator[Cell]:
    for first in sorted(set(owner.values())):
        group = [slot for slot, own in owner.items() if own == first]
        words = sorted((word for slot in group for word in slots.get(slot, ())), key=lambda w: w.line)
        text = "\n".join(" ".join(word.text for word in line) for line in rows(words))
        row_span = max(r for r, _ in group) - first[0] + 1
        col_span = max(c for _, c in group) - first[1] + 1
        yield Cell(first[0], first[1], row_span, col_span, text, header=False)


def _with_header(found: Sequence[Cell]) -> list[Cell]:
    """The first row is the header, and what its spans reach down to; a first row of figures is none."""
    first = [cell for cell in found if cell.row == 0]
    said = [cell.text for cell in first if cell.text]
    if not said or all(any(letter.isdigit() for letter in text) for text in said):
        return list(found)
    depth = max(cell.row_span for cell in first)
    if any(cell.col_span > 1 for cell in first):
        depth = max(depth, min(2, max(cell.row for cell in found)))
    return [
        Cell(c.row, c.col, c.row_span, c.col_span, c.text, header=c.row < depth) if c.row < depth else c for c in found
    ]
