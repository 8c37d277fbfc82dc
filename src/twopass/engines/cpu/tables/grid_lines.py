"""Choose the lines of a table's grid from drawn rules, shaded cells, the layout model's lines and white space.

If rules enclose the table, they are the grid. Otherwise the other lines are added where words are on both sides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Grid, Shade, StyledWord
from twopass.engines.cpu.tables import headers
from twopass.engines.cpu.tables.phrases import CUT, Phrase, choose_columns, find_phrases, find_slot
from twopass.engines.cpu.tables.rules import MAX_BORDER_WIDTH, RuleLine, arrange, list_sides
from twopass.engines.cpu.tables.wrapping import choose_row_lines

SAME_LINE = 4.0  # points: a line of the model closer to a rule is that rule
MIN_RULED_HEIGHT, MIN_RULED_WIDTH = 0.4, 0.25  # of the table's height and width, for a grid line
MIN_SEPARATED = 0.6  # of neighbouring phrases: if rules stand between fewer, the columns are not ruled
MIN_NUMBERS = 2  # columns with numbers on two lines that are therefore two rows
ROW_REACH = 5.0  # points: half the height of a line of text, which a row line may cut
MIN_LEVELS, CENTRED = 3, 2.0  # rows, and points from the middle of two rows: of a label that stands between them
MIN_SHADE_SHARE = 0.5  # of a row's area, for its color
MANY_MORE = 1.6  # times as many rows or columns as rules make: the rules separate groups of them


@dataclass(frozen=True)
class AxisLines:
    """The grid lines of one axis, and the rule that is drawn at each of them, if any."""

    positions: tuple[float, ...]
    rules: tuple[RuleLine | None, ...]

    @property
    def slots(self) -> int:
        return len(self.positions) - 1

    @property
    def drawn(self) -> tuple[bool, ...]:
        return tuple(rule is not None for rule in self.rules)


@dataclass(frozen=True)
class TableLines:
    """The grid of a table; `closed` if rules enclose it and are all of its lines."""

    ys: AxisLines
    xs: AxisLines
    closed: bool


def find_lines(box: Rect, grid: Grid, words: Sequence[StyledWord]) -> TableLines:
    """The table's grid; its first and last lines are the table's edges."""
    ruled_ys, ruled_xs = _find_ruled(box, grid, words)
    phrases = find_phrases(words)
    closed = _encloses(ruled_ys, box.y0, box.y1) and _encloses(ruled_xs, box.x0, box.x1)
    closed = closed and _separates(arrange(grid.rules, 0, words), phrases)
    xs = _as_axis(ruled_xs) if closed else _find_columns(box, grid, ruled_xs, words, phrases)
    if closed and len(grid.rows) + 1 < MANY_MORE * (len(ruled_ys) - 1):
        return TableLines(_as_axis(ruled_ys), xs, closed)
    fixed = [*ruled_ys, *_find_shade_lines(grid, 1, words)]
    known = [*(line.position for line in fixed), *grid.rows]
    missed = [*headers.find_row_gaps(phrases, xs.positions), *_find_number_gaps(phrases, xs.positions)]
    added = [(top + bottom) / 2 for top, bottom in missed if not _is_ruled_gap(top, bottom, known)]
    positions = [line.position for line in fixed]
    rows = choose_row_lines([*grid.rows, *sorted(set(added))], positions, phrases, xs.positions)
    free = [box.y0, *rows, box.y1]
    ys = _combine(fixed, free, [word.box.centre[1] for word in words])
    return TableLines(_join_header_lines(ys, xs, words, grid.shades), xs, closed)


def _join_header_lines(ys: AxisLines, xs: AxisLines, words: Sequence[StyledWord], shades: Sequence[Shade]) -> AxisLines:
    """Drop the lines between rules of the header: its texts are wrapped there, unless one stands over several others.

    The header ends at the first rule across the table. If it has rules of its own, these are below all such texts.
    Rows with different backgrounds are different rows.
    """
    bottom = find_header_rule(ys, xs)
    phrases = find_phrases(words, xs.positions, xs.drawn)
    rows = [(find_slot(ys.positions, phrase.box.centre[1]), phrase) for phrase in phrases]
    texts = [headers.Text(row, find_slot(xs.positions, phrase.centre), phrase.box) for row, phrase in rows]
    spans = {} if any(ys.rules[1:bottom]) else headers.find_spans(texts, xs.slots, bottom)

    def is_divided(row: int) -> bool:
        above = [spans[text] for text in texts if text.level == row and text in spans]
        below = [text for text in texts if text.level == row + 1]
        counts = (sum(first <= text.col <= last for text in below) for first, last in above)
        numbers = [
            {find_slot(xs.positions, p.centre) for r, p in rows if r == n and p.is_number} for n in (row, row + 1)
        ]
        return any(count > 1 for count in counts) or len(numbers[0] & numbers[1]) >= MIN_NUMBERS

    left, right = xs.positions[0], xs.positions[-1]
    colors = [find_color(Rect(left, top, right, end), shades) for top, end in pairwise(ys.positions[: bottom + 1])]
    dropped = {
        row + 1
        for row in range(bottom - 1)
        if ys.rules[row + 1] is None and colors[row] == colors[row + 1] and not is_divided(row)
    }
    if _has_label_between(ys, texts):
        dropped.add(1)
    kept = [index for index in range(len(ys.positions)) if index not in dropped]
    return AxisLines(tuple(ys.positions[index] for index in kept), tuple(ys.rules[index] for index in kept))


def _has_label_between(ys: AxisLines, texts: Sequence[headers.Text]) -> bool:
    """Whether the second row is a part of the first: labels in the middle of the height of two levels beside them."""
    if ys.slots <= MIN_LEVELS or ys.rules[1] or ys.rules[2]:
        return False
    upper, middle, lower = ([text for text in texts if text.level == level] for level in range(3))
    cols = [{text.col for text in own} for own in (upper, middle, lower)]
    if not (middle and cols[0] & cols[2]) or cols[1] & (cols[0] | cols[2]):
        return False
    centres = [enclose([text.box for text in own]).centre[1] for own in (upper, middle, lower)]
    return abs(centres[1] - (centres[0] + centres[2]) / 2) <= CENTRED


def find_color(bounds: Rect, shades: Sequence[Shade]) -> int | None:
    """The color behind most of a row, None for none; the same box may be drawn twice."""
    areas: dict[int, float] = {}
    for shade in dict.fromkeys(shades):
        areas[shade.color] = areas.get(shade.color, 0.0) + shade.box.overlap(bounds)
    color = max(areas, key=lambda c: areas[c], default=None)
    return color if color is not None and areas[color] >= MIN_SHADE_SHARE * bounds.area else None


def find_header_rule(ys: AxisLines, xs: AxisLines) -> int:
    """The number of rows above the first rule across the table, 0 if these are too many for a header."""
    left, right = xs.positions[0], xs.positions[-1]
    most = min(headers.MAX_HEADER_ROWS + 1, int(headers.MAX_HEADER_SHARE * ys.slots) + 1)
    for row, rule in enumerate(ys.rules[1 : most + 1], 1):
        if rule and rule.measure_cover(left, right) >= headers.FULL_RULE * (right - left):
            return row
    return 0


def _find_number_gaps(phrases: Sequence[Phrase], xs: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the space between two lines with numbers in the same columns: numbers do not continue on a second line."""
    above: dict[int, Phrase] = {}
    for _, line in groupby(phrases, key=lambda phrase: phrase.line):
        numbers = {find_slot(xs, phrase.centre): phrase for phrase in line if phrase.is_number}
        if len(numbers) < MIN_NUMBERS:
            continue
        if len(numbers.keys() & above.keys()) >= MIN_NUMBERS:
            yield max(p.box.y1 for p in above.values()), min(p.box.y0 for p in numbers.values())
        above = numbers


def _is_ruled_gap(top: float, bottom: float, lines: Sequence[float]) -> bool:
    """Whether a line is in a space between two texts, or in the halves of these."""
    return any(top - ROW_REACH <= line <= bottom + ROW_REACH for line in lines)


def _find_columns(
    box: Rect, grid: Grid, ruled: Sequence[RuleLine], words: Sequence[StyledWord], phrases: Sequence[Phrase]
) -> AxisLines:
    fixed = [*ruled, *_find_shade_lines(grid, 0, words)]
    inner = choose_columns(grid.cols, [line.position for line in fixed], phrases)
    centres = [phrase.centre for phrase in phrases] + [w.box.centre[0] for w in words if not w.upright]
    return _combine(fixed, [box.x0, *inner, box.x1], centres)


def _find_ruled(box: Rect, grid: Grid, words: Sequence[StyledWord]) -> tuple[list[RuleLine], list[RuleLine]]:
    """The horizontal and vertical rules that are long, or reach from one long rule to another."""
    horizontal, vertical = arrange(grid.rules, 1, words), arrange(grid.rules, 0, words)
    long_ys = [line.position for line in horizontal if line.length >= MIN_RULED_WIDTH * box.width]
    long_xs = [line.position for line in vertical if line.length >= MIN_RULED_HEIGHT * box.height]
    ys = [line for line in horizontal if line.position in long_ys or _connects(line, long_xs)]
    xs = [line for line in vertical if line.position in long_xs or _connects(line, long_ys)]
    return ys, xs


def _connects(line: RuleLine, positions: Sequence[float]) -> bool:
    def is_at(end: float) -> bool:
        return any(abs(end - position) <= MAX_BORDER_WIDTH for position in positions)

    return any(stop - start > 2 * MAX_BORDER_WIDTH and is_at(start) and is_at(stop) for start, stop in line.spans)


def _encloses(ruled: Sequence[RuleLine], start: float, stop: float) -> bool:
    return len(ruled) >= 3 and ruled[0].position <= start + SAME_LINE and ruled[-1].position >= stop - SAME_LINE


def _separates(rules: Sequence[RuleLine], phrases: Sequence[Phrase]) -> bool:
    """Whether rules stand between most phrases that are beside each other."""
    pairs = [(one, other) for one, other in pairwise(phrases) if one.line == other.line]
    ruled = sum(
        any(
            one.box.x1 - CUT < rule.position < other.box.x0 + CUT and rule.measure_cover(one.box.y0, one.box.y1)
            for rule in rules
        )
        for one, other in pairs
    )
    return ruled >= MIN_SEPARATED * len(pairs)


def _as_axis(lines: Sequence[RuleLine]) -> AxisLines:
    return AxisLines(tuple(line.position for line in lines), tuple(lines))


def _find_shade_lines(grid: Grid, axis: int, words: Sequence[StyledWord]) -> Iterator[RuleLine]:
    """Yield the edges of shaded cells as lines that are drawn nowhere."""
    for line in arrange(list_sides((shade.box for shade in grid.shades), axis), axis, words):
        yield RuleLine(line.position, ())


def _combine(fixed: Sequence[RuleLine], free: Iterable[float], centres: Sequence[float]) -> AxisLines:
    """The fixed lines and those free ones that have words on both sides; positions of words are `centres`."""
    ordered = sorted(centres)
    known: list[tuple[float, RuleLine | None]] = [(line.position, line) for line in fixed]
    lines = sorted([*known, *((position, None) for position in free)], key=itemgetter(0))
    kept = [lines[0]]
    for line in lines[1:]:
        if _is_rule(line) and _is_rule(kept[-1]) or _has_between(ordered, kept[-1][0], line[0]):
            kept.append(line)
        elif _rank(line) > _rank(kept[-1]):
            kept[-1] = line
    if len(kept) < 2:
        kept = [lines[0], lines[-1]]
    rules = tuple(rule if rule and rule.spans else None for _, rule in kept)
    return AxisLines(tuple(position for position, _ in kept), rules)


def _has_between(centres: Sequence[float], start: float, stop: float) -> bool:
    return bisect_left(centres, stop) > bisect_right(centres, start)


def _is_rule(line: tuple[float, RuleLine | None]) -> bool:
    return _rank(line) == 2


def _rank(line: tuple[float, RuleLine | None]) -> int:
    """2 for a drawn rule, 1 for the edge of shaded cells, 0 for a line that is only inferred."""
    return 0 if line[1] is None else 2 if line[1].spans else 1
