"""Join names and the values beside them where the layout model takes each column for a region of its own.

Values are numbers, prices and years. Columns of prose stay apart, and numbers that only count lines are no values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Region, StyledWord
from twopass.engines.cpu.reading_order import ORPHAN, group_rows_as_placed, is_running_on
from twopass.engines.cpu.tables.phrases import group_phrases
from twopass.engines.cpu.tables.text_grids import to_table

MIN_VALUES = 3  # of a column
MAX_OTHERS = 0.2  # of a region's lines that are as short, but no values: "Price", "free"
MAX_WORDS, MAX_LETTERS = 3, 4  # of a value: "2.49 A", "EUR 14.20", "1.120 kg"
MAX_LINES = 700  # of a page: the time grows with their square
LEVEL = 0.35  # of the height: the centres of a name and of its value differ by less
MAX_SKIP = 6.0  # times the height, between two values of a column: a heading may stand there
MIN_PAIRED = 0.8  # of the values that have a name beside them
MIN_VALUED = 0.4  # of the lines of the names that have a value: a name may have two lines
MIN_STEPS = 0.7  # of the steps between numbers that are equal, if these count lines or paragraphs
_LABELS = frozenset({"text", "list-item", "section-header", ORPHAN})
_COUNT = re.compile(r"[(\[]?(\d+)[.)\]]*")


@dataclass(frozen=True)
class _Line:
    """A line of the region with this index."""

    region: int
    words: list[StyledWord]
    box: Rect

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


def join_values(regions: Sequence[Region]) -> list[Region]:
    """The regions, with a table in place of each block of names and values; what is above and below it stays."""
    lines = [line for number, region in enumerate(regions) for line in _list_lines(number, region)]
    if len(lines) > MAX_LINES:
        return list(regions)
    values = {number for number in {line.region for line in lines} if _are_values(lines, number)}
    blocks = [block for column in _list_columns(lines, values) if (block := _find_block(column, lines))]
    joined = list(regions)
    for block in _merge(blocks):
        joined = _join(joined, block)
    return joined


def _list_lines(number: int, region: Region) -> Iterator[_Line]:
    if region.label in _LABELS and region.grid is None and all(word.upright for word in region.words):
        for row in group_rows_as_placed(region.words):
            yield _Line(number, row, enclose([word.box for word in row]))


def _are_values(lines: Sequence[_Line], region: int) -> bool:
    """Whether the lines of a region are values, but for a few that are as short."""
    own = [line for line in lines if line.region == region]
    others = [line for line in own if not _is_value(line)]
    return len(others) <= MAX_OTHERS * len(own) and all(len(line.words) <= MAX_WORDS for line in own)


def _is_value(line: _Line) -> bool:
    letters, has_digit = sum(map(str.isalpha, line.text)), any(map(str.isdecimal, line.text))
    return has_digit and letters <= MAX_LETTERS


def _list_columns(lines: Sequence[_Line], values: set[int]) -> Iterator[list[_Line]]:
    """Yield the values above each other; regions may be of one value each."""
    columns: list[list[_Line]] = []
    for line in sorted((line for line in lines if line.region in values), key=lambda line: line.box.y0):
        for column in columns:
            above = column[-1].box
            if line.box.overlap_x(above) > 0 and line.box.y0 - above.y1 <= MAX_SKIP * line.box.height:
                column.append(line)
                break
        else:
            columns.append([line])
    return (column for column in columns if len(column) >= MIN_VALUES and not _is_count(column))


def _is_count(column: Sequence[_Line]) -> bool:
    """Whether numbers grow in equal steps, as those of lines, paragraphs and equations do."""
    found = [match for line in column if (match := _COUNT.fullmatch(line.text))]
    steps = Counter(int(other[1]) - int(one[1]) for one, other in pairwise(found))
    return any(step > 0 and count >= MIN_STEPS * (len(column) - 1) for step, count in steps.items())


def _find_block(column: Sequence[_Line], lines: Sequence[_Line]) -> list[_Line]:
    """The lines of names and values from the first to the last value that has a name; empty if they are no rows."""
    own = {id(line) for line in column}
    others = [line for line in lines if id(line) not in own]
    pairs = [(value, name) for value in column if (name := _find_name(value, others))]
    if len(pairs) < max(MIN_VALUES, MIN_PAIRED * len(column)):
        return []
    names = {name.region for _, name in pairs}
    top, bottom = (pairs[end][0].box.centre[1] for end in (0, -1))
    reach = LEVEL * max(max(value.box.height, name.box.height) for value, name in pairs)
    inside = [line for line in lines if top - reach <= line.box.centre[1] <= bottom + reach]
    beside = [line for line in inside if line.region in names]
    if len(pairs) < MIN_VALUED * len(beside) or is_running_on([line.words for line in beside]):
        return []
    return [*beside, *(line for line in inside if id(line) in own)]


def _find_name(value: _Line, lines: Sequence[_Line]) -> _Line | None:
    """The nearest line to the left of a value or, without one, to its right."""
    level = [line for line in lines if _are_level(line.box, value.box) and line.box.overlap_x(value.box) <= 0]
    left = [line for line in level if line.box.centre[0] < value.box.centre[0]]
    return min(left or level, key=lambda line: abs(line.box.centre[0] - value.box.centre[0]), default=None)


def _are_level(one: Rect, other: Rect) -> bool:
    return abs(one.centre[1] - other.centre[1]) <= LEVEL * max(one.height, other.height)


def _merge(blocks: Sequence[Sequence[_Line]]) -> list[list[_Line]]:
    """Merge blocks that share lines: one column of values may be the names of the next."""
    merged: list[dict[int, _Line]] = []
    for block in blocks:
        own = {id(line): line for line in block}
        for other in [other for other in merged if other.keys() & own.keys()]:
            merged.remove(other)
            own |= other
        merged.append(own)
    return [list(block.values()) for block in merged]


def _join(regions: Sequence[Region], block: Sequence[_Line]) -> list[Region]:
    """The regions, with a block's words as a table behind them, unless other words stand among these."""
    words = [word for line in block for word in line.words]
    own, box = {id(word) for word in words}, enclose([line.box for line in block])
    rest = [tuple(word for word in region.words if id(word) not in own) for region in regions]
    if any(box.contains(word.box.centre) for part in rest for word in part):
        return list(regions)
    joined: list[Region] = []
    for region, part in zip(regions, rest, strict=True):
        if len(part) == len(region.words):
            joined.append(region)
            continue
        above = tuple(word for word in part if word.box.centre[1] < box.y0)
        below = tuple(word for word in part if word.box.centre[1] >= box.y0)
        joined += [replace(region, box=enclose([w.box for w in p]), words=p) for p in (above, below) if p]
    return [*joined, to_table(group_phrases(words), ())]
