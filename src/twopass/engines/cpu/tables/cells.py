"""Build a table's cells and spans from its words, grid lines, drawn rules and shaded cells.

A missing piece of a rule joins two cells. Where no rules are drawn, a phrase across a column line, or a header
centred over several columns, is one cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from typing import NamedTuple

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Grid, Shade, StyledWord
from twopass.engines.cpu.reading_order import group_rows
from twopass.engines.cpu.tables import grid_lines, headers
from twopass.engines.cpu.tables.grid_lines import MIN_RULED_HEIGHT, TableLines
from twopass.engines.cpu.tables.phrases import (
    CUT,
    MAX_HEADER_LINES,
    WIDE_GAP,
    find_slot,
    group_phrases,
    is_number,
    split_at_columns,
)
from twopass.engines.cpu.tables.rules import RuleLine

# ---- cells over several rows or columns, where rules do not enclose the table ----

_Slot = tuple[int, int]  # row and column
_Slots = Mapping[_Slot, Sequence[StyledWord]]
_Phrases = Sequence[list[StyledWord]]
_Extent = tuple[int, int, int, int]  # the first row and column, and those behind the last ones

MIN_AMOUNTS = 2  # of a row below the header
_AMOUNT = re.compile(r"\d[.,]\d")
STRADDLE = 0.25  # of a word's height on both sides of a row line, for a text centred between two rows


def _find_shaded_pairs(lines: TableLines, shades: Sequence[Shade]) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield neighbours with one shaded box behind both, in rows whose cells are shaded one by one."""
    ys, xs = lines.ys.positions, lines.xs.positions
    for box in dict.fromkeys(shade.box for shade in shades):
        rows = [r for r, (top, bottom) in enumerate(pairwise(ys)) if box.y0 <= (top + bottom) / 2 <= box.y1]
        cols = [c for c, (left, right) in enumerate(pairwise(xs)) if box.x0 <= (left + right) / 2 <= box.x1]
        if not rows or not cols or not _has_neighbour(box, shades):
            continue
        yield from (((r, a), (r, b)) for r in rows for a, b in pairwise(cols))
        yield from (((a, c), (b, c)) for c in cols for a, b in pairwise(rows))


def _has_neighbour(box: Rect, shades: Sequence[Shade]) -> bool:
    """Whether another shaded box stands beside this one, so that each is one cell."""
    return any(
        other.box != box
        and other.box.overlap_y(box) > 0.5 * min(box.height, other.box.height)
        and (abs(other.box.x0 - box.x1) <= 6 or abs(other.box.x1 - box.x0) <= 6)
        for other in shades
    )


def _find_centred_pairs(lines: TableLines, slots: _Slots, phrases: _Phrases) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield neighbours that a header over several columns, or a text centred between two rows, makes one cell."""
    header = grid_lines.find_header_rule(lines.ys, lines.xs)
    labels = {id(phrase) for phrase in _find_lone_phrases(slots, phrases)}
    texts = _find_texts(lines, [p for p in phrases if id(p) not in labels or _find_row(p, lines) < header])
    rows = min(MAX_HEADER_LINES, int(headers.MAX_HEADER_SHARE * lines.ys.slots), _find_data(lines, phrases))
    ruled = {(t.level, t.col): span for t in texts if t.level < rows and (span := _find_ruled_span(t, lines, texts))}
    spans = headers.find_spans(texts, lines.xs.slots, rows, ruled)
    for text, (first, last) in spans.items():
        yield from (((text.level, c), (text.level, c + 1)) for c in range(first, last))
    yield from _find_tall_pairs(texts, spans)
    yield from _find_label_pairs(lines, slots, phrases)
    for (row, col), words in slots.items():
        below = (row + 1, col)
        if below[0] < lines.ys.slots and not slots.get(below) and _stands_on_line(words, lines, row + 1):
            yield (row, col), below


def _find_data(lines: TableLines, phrases: _Phrases) -> int:
    """The first row with amounts, which no header has; years and other plain numbers are none."""
    amounts = Counter(_find_row(p, lines) for p in phrases if all(map(is_number, p)) and _AMOUNT.search(p[0].text))
    return min((row for row, count in amounts.items() if count >= MIN_AMOUNTS), default=lines.ys.slots)


def _find_label_pairs(lines: TableLines, slots: _Slots, phrases: _Phrases) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield the pairs that let a label alone in its row, in the middle of the columns behind the first, fill these."""
    first, last = lines.xs.positions[1], lines.xs.slots - 1
    others = [box for phrase in phrases if (box := enclose([word.box for word in phrase])).x0 > first]
    lefts = Counter(round(box.x0) for box in others)
    for phrase in _find_lone_phrases(slots, phrases) if last > 1 and others else ():
        box, bounds = enclose([word.box for word in phrase]), enclose(others)
        row = _find_row(phrase, lines)
        is_centred = abs(box.centre[0] - bounds.centre[0]) <= headers.CENTRE_TOLERANCE * bounds.width
        if row and box.x0 > first and is_centred and lefts[round(box.x0)] == 1:
            yield from (((row, col), (row, col + 1)) for col in range(1, last))


def _find_row(phrase: Sequence[StyledWord], lines: TableLines) -> int:
    return find_slot(lines.ys.positions, enclose([word.box for word in phrase]).centre[1])


def _find_texts(lines: TableLines, phrases: _Phrases) -> list[headers.Text]:
    """One text per slot; a phrase across column lines is in the slot of its middle."""
    boxes: dict[_Slot, list[Rect]] = {}
    for box in (enclose([word.box for word in phrase]) for phrase in phrases):
        x, y = box.centre
        boxes.setdefault((find_slot(lines.ys.positions, y), find_slot(lines.xs.positions, x)), []).append(box)
    return [headers.Text(row, col, enclose(own)) for (row, col), own in boxes.items()]


def _find_tall_pairs(
    texts: Sequence[headers.Text], spans: Mapping[headers.Text, headers.Span]
) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield the pairs that let a header beside one over several columns fill its column of the header."""
    bottom = max((text.level + 1 for text in spans), default=0)
    header = [text for text in texts if text.level <= bottom]
    for text in header:
        others = [other for other in header if other is not text]
        if text not in spans and not any(text.col in headers.list_columns(other, spans) for other in others):
            yield from (((row, text.col), (row + 1, text.col)) for row in range(bottom))


def _find_ruled_span(text: headers.Text, lines: TableLines, texts: Sequence[headers.Text]) -> tuple[int, int] | None:
    """The columns over a rule below a text that is shorter than the table."""
    rule = lines.ys.rules[text.level + 1]
    for start, stop in rule.spans if rule else ():
        below = {other.col: other.box.centre[0] for other in texts if other.level > text.level}
        under = sorted(col for col, centre in below.items() if start <= centre <= stop)
        if text.col in under and 1 < len(under) < lines.xs.slots:
            return under[0], under[-1]
    return None


def _stands_on_line(words: Sequence[StyledWord], lines: TableLines, row: int) -> bool:
    """Whether all words are across the upper line of a row, where no rule is drawn."""
    line = lines.ys.positions[row]
    if lines.ys.rules[row] is not None:
        return False
    return all(min(line - w.box.y0, w.box.y1 - line) >= STRADDLE * w.box.height for w in words)


# ---- all cells ----

MIN_RULE_COVERAGE = 0.5  # of the edge between two cells, for a rule that separates them
MAX_DOUBT = 0.04  # of phrases and columns; all right tables that were measured have less


@dataclass(frozen=True)
class GridCell:
    row: int
    col: int
    row_span: int
    col_span: int
    text: str
    header: bool


class TableCells(NamedTuple):
    """The numbers of rows and columns, and the cells; `is_doubtful` if the page shows that some are wrong."""

    rows: int
    cols: int
    cells: list[GridCell]
    is_doubtful: bool


def build_cells(box: Rect, grid: Grid, words: Sequence[StyledWord]) -> TableCells:
    """The cells of a table; every word is in exactly one."""
    lines = grid_lines.find_lines(box, grid, words)
    slots = _assign_words(lines, words)
    phrases = _find_phrases(lines, slots)
    if not lines.closed:
        slots = _gather_labels(lines, slots, phrases)
    owners = _join_slots(lines, slots, phrases, grid.shades)
    cells = list(_iterate_cells(owners, slots))
    facts = [_describe_row(row, cells, lines, slots, grid.shades) for row in range(lines.ys.slots)]
    depth = headers.count_header_rows(facts)
    is_doubtful = _measure_doubt(lines, slots, owners, phrases) > MAX_DOUBT
    cells = [replace(cell, header=cell.row < depth) for cell in cells]
    return TableCells(lines.ys.slots, lines.xs.slots, cells, is_doubtful)


def _measure_doubt(lines: TableLines, slots: _Slots, owners: Mapping[_Slot, _Slot], phrases: _Phrases) -> float:
    """The share of phrases that look wrong in their cells, and of columns without text.

    A phrase is cut by a column line, or far from another one in its cell, or both are numbers of two lines.
    """
    places = {id(word): owners[slot] for slot, words in slots.items() for word in words}
    wrong = sum(len({places[id(word)] for word in phrase}) > 1 for phrase in phrases)
    for one, other in pairwise(phrases):
        wrong += _are_apart(one, other) and places[id(one[-1])] == places[id(other[0])]
    numbers = Counter(places[id(phrase[0])] for phrase in phrases if all(map(is_number, phrase)))
    wrong += sum(count - 1 for count in numbers.values())
    empty = lines.xs.slots - len({col for (_, col), words in slots.items() if words})
    return wrong / max(len(phrases), 1) + empty / lines.xs.slots


def _assign_words(lines: TableLines, words: Sequence[StyledWord]) -> _Slots:
    """Group words by grid slot; a word outside the grid goes into the nearest slot.

    A text that stands on the line between two rows is in the upper one, however it is rounded.
    """
    slots: dict[_Slot, list[StyledWord]] = {}
    for word in words:
        x, y = word.box.centre
        slots.setdefault((find_slot(lines.ys.positions, y), find_slot(lines.xs.positions, x)), []).append(word)
    for row, col in sorted(slots):
        above = (row - 1, col)
        if row and above not in slots and _stands_on_line(slots[row, col], lines, row):
            slots[above] = slots.pop((row, col))
    return slots


def _find_phrases(lines: TableLines, slots: _Slots) -> list[list[StyledWord]]:
    in_order = sorted((word for words in slots.values() for word in words), key=lambda word: word.line)
    return list(chain.from_iterable(split_at_columns(group_phrases(in_order), lines.xs.positions, lines.xs.drawn)))


def _gather_labels(lines: TableLines, slots: _Slots, phrases: _Phrases) -> _Slots:
    """Put a label of the rows below it, which is alone in its row and begins in the first column, into this slot."""
    header = grid_lines.find_header_rule(lines.ys, lines.xs)
    places = {id(word): slot for slot, words in slots.items() for word in words}
    gathered = dict(slots)
    for phrase in _find_lone_phrases(slots, phrases):
        row, col = min(places[id(word)] for word in phrase)
        if col == 0 and row >= header:
            gathered = {slot: words for slot, words in gathered.items() if slot[0] != row} | {(row, 0): phrase}
    return gathered


def _find_lone_phrases(slots: _Slots, phrases: _Phrases) -> Iterator[list[StyledWord]]:
    """Yield the phrases that are the whole text of their row."""
    places = {id(word): slot[0] for slot, words in slots.items() for word in words}
    sizes = Counter(places.values())
    for phrase in phrases:
        rows = {places[id(word)] for word in phrase}
        if len(rows) == 1 and sizes[rows.pop()] == len(phrase):
            yield phrase


def _join_slots(lines: TableLines, slots: _Slots, phrases: _Phrases, shades: Sequence[Shade]) -> dict[_Slot, _Slot]:
    """Map each slot to the first slot of its cell, of slots that nothing separates and that form a rectangle.

    Slots beside each other are joined first: a header over several columns does not grow into the row below it.
    """
    pairs = [*_find_open_pairs(lines, slots, phrases)]
    if lines.closed:
        apart = set(_find_apart(lines, phrases))
        pairs = [pair for pair in pairs if pair not in apart]
    else:
        pairs += [*_find_shaded_pairs(lines, shades), *_find_centred_pairs(lines, slots, phrases)]
    owners = {slot: slot for slot in product(range(lines.ys.slots), range(lines.xs.slots))}
    extents = {(row, col): (row, col, row + 1, col + 1) for row, col in owners}
    for one, other in sorted(pairs, key=lambda pair: pair[0][0] != pair[1][0]):
        first, second = sorted((owners[one], owners[other]))
        if first != second and (both := _unite_extents(extents[first], extents[second])):
            extents[first] = both
            owners |= dict.fromkeys(product(range(both[0], both[2]), range(both[1], both[3])), first)
    return owners


def _find_apart(lines: TableLines, phrases: _Phrases) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield neighbours between which a wide space divides the texts of a row, though no rule does."""
    ys, xs = lines.ys.positions, lines.xs.positions
    for one, other in pairwise(phrases):
        left, right = one[-1].box, other[0].box
        if _are_apart(one, other):
            between = [c for c in range(1, lines.xs.slots) if left.x1 - CUT < xs[c] < right.x0 + CUT]
            row = find_slot(ys, left.centre[1])
            if between and all(_is_open(lines.xs.rules[c], ys[row], ys[row + 1]) for c in between):
                col = min(between, key=lambda c: abs(xs[c] - (left.x1 + right.x0) / 2))
                yield (row, col - 1), (row, col)


def _are_apart(one: Sequence[StyledWord], other: Sequence[StyledWord]) -> bool:
    """Whether there is a wide space between two phrases that are beside each other."""
    left, right = one[-1].box, other[0].box
    return left.overlap_y(right) > 0 and right.x0 - left.x1 > WIDE_GAP * left.height


def _unite_extents(one: _Extent, other: _Extent) -> _Extent | None:
    """The rows and columns of both, if they form a rectangle."""
    both = min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])
    return both if _count_slots(both) == _count_slots(one) + _count_slots(other) else None


def _count_slots(extent: _Extent) -> int:
    return (extent[2] - extent[0]) * (extent[3] - extent[1])


def _find_open_pairs(lines: TableLines, slots: _Slots, phrases: _Phrases) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield neighbours that no rule separates."""
    ys, xs = lines.ys, lines.xs
    min_height = 0.0 if lines.closed else MIN_RULED_HEIGHT * (ys.positions[-1] - ys.positions[0])
    phrase_pairs, header = set(_find_phrase_pairs(slots, phrases)), grid_lines.find_header_rule(ys, xs)
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
            # In a header, a line is drawn below some texts: the others are wrapped there.
            may_join = lines.closed or r + 1 < header or not (slots.get((r, c)) and slots.get(below))
            if may_join and ys.rules[r + 1] and _is_open(ys.rules[r + 1], left_x, right_x):
                yield (r, c), below


def _find_phrase_pairs(slots: _Slots, phrases: _Phrases) -> Iterator[tuple[_Slot, _Slot]]:
    """Yield neighbours with one phrase across the column line between them."""
    places = {id(word): slot for slot, words in slots.items() for word in words}
    for phrase in phrases:
        for one, other in pairwise(phrase):
            (row, col), (other_row, other_col) = places[id(one)], places[id(other)]
            if one.line == other.line and row == other_row:
                yield from (((row, c), (row, c + 1)) for c in range(col, other_col))


def _is_open(rule: RuleLine | None, start: float, stop: float) -> bool:
    """Whether no rule separates the cells on both sides of an edge."""
    return rule is None or rule.measure_cover(start, stop) < MIN_RULE_COVERAGE * (stop - start)


def _iterate_cells(owners: dict[_Slot, _Slot], slots: _Slots) -> Iterator[GridCell]:
    groups: dict[_Slot, list[_Slot]] = {}
    for slot, owner in owners.items():
        groups.setdefault(owner, []).append(slot)
    for first, group in sorted(groups.items()):
        words = sorted((word for slot in group for word in slots.get(slot, ())), key=lambda w: w.line)
        text = "\n".join(" ".join(word.written for word in line) for line in group_rows(words))
        row_span = max(r for r, _ in group) - first[0] + 1
        col_span = max(c for _, c in group) - first[1] + 1
        yield GridCell(first[0], first[1], row_span, col_span, text, header=False)


def _describe_row(
    row: int, cells: Sequence[GridCell], lines: TableLines, slots: _Slots, shades: Sequence[Shade]
) -> headers.RowFacts:
    own = [cell for cell in cells if cell.row == row]
    words = [word for (r, _), group in slots.items() if r == row for word in group]
    rule, (left, right) = lines.ys.rules[row + 1], (lines.xs.positions[0], lines.xs.positions[-1])
    bounds = Rect(left, lines.ys.positions[row], right, lines.ys.positions[row + 1])
    return headers.RowFacts(
        tuple(cell.text for cell in own),
        bool(words) and all(word.bold for word in words),
        grid_lines.find_color(bounds, shades),
        rule is not None and rule.measure_cover(left, right) >= headers.FULL_RULE * (right - left),
        max((cell.row_span for cell in own), default=1),
        any(_is_split_below(cell, cells) for cell in own),
        tuple(_describe_style(cell, lines, slots, shades) for cell in own),
        any(word.is_value for word in words),
    )


def _describe_style(cell: GridCell, lines: TableLines, slots: _Slots, shades: Sequence[Shade]) -> headers.CellStyle:
    rows, cols = range(cell.row, cell.row + cell.row_span), range(cell.col, cell.col + cell.col_span)
    words = [word for slot in product(rows, cols) for word in slots.get(slot, ())]
    xs, ys = lines.xs.positions, lines.ys.positions
    bounds = Rect(xs[cols.start], ys[rows.start], xs[cols.stop], ys[rows.stop])
    is_bold = bool(words) and all(word.bold for word in words)
    return headers.CellStyle(is_bold, grid_lines.find_color(bounds, shades))


def _is_split_below(cell: GridCell, cells: Sequence[GridCell]) -> bool:
    """Whether a cell with text spans columns that the row below it divides."""
    row, cols = cell.row + cell.row_span, range(cell.col, cell.col + cell.col_span)
    return bool(cell.text) and sum(other.row == row and other.col in cols for other in cells) > 1
