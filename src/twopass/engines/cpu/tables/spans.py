"""Find cells over several rows or columns in tables that rules do not enclose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from twopass.engines.cpu.geometry import Rect, Shade, StyledWord, enclose
from twopass.engines.cpu.tables import header_spans
from twopass.engines.cpu.tables.grid_lines import TableLines
from twopass.engines.cpu.tables.phrases import MAX_HEADER_LINES, find_slot, group_phrases

Slot = tuple[int, int]  # row and column
Slots = Mapping[Slot, Sequence[StyledWord]]

MAX_HEADER_SHARE = 0.5  # of the rows, for headers over several columns
STRADDLE = 0.25  # of a word's height on both sides of a row line, for a text centred between two rows
RULE_MARGIN = 0.6  # of a column's width under a rule, for a rule that runs over the column


def find_shaded_pairs(lines: TableLines, shades: Sequence[Shade]) -> Iterator[tuple[Slot, Slot]]:
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
    """Return whether another shaded box stands beside this one, so that each is one cell."""
    return any(
        other.box != box
        and min(other.box.y1, box.y1) - max(other.box.y0, box.y0) > 0.5 * min(box.height, other.box.height)
        and (abs(other.box.x0 - box.x1) <= 6 or abs(other.box.x1 - box.x0) <= 6)
        for other in shades
    )


def find_centred_pairs(lines: TableLines, slots: Slots) -> Iterator[tuple[Slot, Slot]]:
    """Yield neighbours that a header over several columns, or a text centred between two rows, makes one cell."""
    texts = _find_texts(lines, slots)
    rows = min(MAX_HEADER_LINES, int(MAX_HEADER_SHARE * lines.ys.slots))
    ruled = {(t.level, t.col): span for t in texts if t.level < rows and (span := _find_ruled_span(t, lines))}
    spans = header_spans.find_spans(texts, lines.xs.slots, rows, ruled)
    for text, (first, last) in spans.items():
        yield from (((text.level, c), (text.level, c + 1)) for c in range(first, last))
    yield from _find_tall_pairs(texts, spans)
    for (row, col), words in slots.items():
        below = (row + 1, col)
        if below[0] < lines.ys.slots and not slots.get(below) and stands_on_line(words, lines, row + 1):
            yield (row, col), below


def _find_texts(lines: TableLines, slots: Slots) -> list[header_spans.Text]:
    """Return one text per slot; a phrase across column lines is in the slot of its middle."""
    boxes: dict[Slot, list[Rect]] = {}
    for line in group_phrases(sorted((word for own in slots.values() for word in own), key=lambda word: word.line)):
        for box in (enclose([word.box for word in phrase]) for phrase in line):
            x, y = box.centre
            boxes.setdefault((find_slot(lines.ys.positions, y), find_slot(lines.xs.positions, x)), []).append(box)
    return [header_spans.Text(row, col, enclose(own)) for (row, col), own in boxes.items()]


def _find_tall_pairs(
    texts: Sequence[header_spans.Text], spans: Mapping[header_spans.Text, header_spans.Span]
) -> Iterator[tuple[Slot, Slot]]:
    """Yield the pairs that let a header beside one over several columns fill its column of the header."""
    bottom = max((text.level + 1 for text in spans), default=0)
    header = [text for text in texts if text.level <= bottom]
    for text in header:
        others = [other for other in header if other is not text]
        if text not in spans and not any(text.col in header_spans.list_columns(other, spans) for other in others):
            yield from (((row, text.col), (row + 1, text.col)) for row in range(bottom))


def _find_ruled_span(text: header_spans.Text, lines: TableLines) -> tuple[int, int] | None:
    """Return the columns over a rule below a text that is shorter than the table."""
    rule, xs = lines.ys.rules[text.level + 1], lines.xs.positions
    for start, stop in rule.spans if rule else ():
        under = [
            c
            for c, (left, right) in enumerate(pairwise(xs))
            if min(stop, right) - max(start, left) >= RULE_MARGIN * (right - left)
        ]
        if text.col in under and 1 < len(under) < lines.xs.slots:
            return under[0], under[-1]
    return None


def stands_on_line(words: Sequence[StyledWord], lines: TableLines, row: int) -> bool:
    """Return whether all words are across the upper line of a row, where no rule is drawn."""
    line = lines.ys.positions[row]
    if lines.ys.rules[row] is not None:
        return False
    return all(min(line - w.box.y0, w.box.y1 - line) >= STRADDLE * w.box.height for w in words)
