"""Put boxes into reading order: columns, bands across them, and boxes of which neither can be made.

This is plain geometry. For a page that is read from right to left, callers mirror the boxes first.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise

from twopass.engines.cpu.geometry import Rect, enclose

PARAGRAPH_GAP = 0.8  # of the line's height: a larger gap ends the paragraph
GUTTER = 1.2  # of the line's height: white space this wide through the whole region separates columns
BOX_GUTTER = -6.0  # points: the boxes of two columns may overlap this far, because of one stray word
SIDE_BY_SIDE_OVERLAP = 0.3  # of the smaller height, for boxes that stand side by side
MANY_LINES, VALLEY = 150, 0.35  # lines; of the median number of lines at one x: fewer cross a gutter
MIN_COLUMN_WIDTH = 6.0  # times the line's height, of a column between such gutters
BREAK = 1.8  # of the line's height: a larger gap through all columns ends them; paragraphs have less between them
MIN_CARDS, SAME_TOP = 3, 0.5  # cards in a row; tops differ by less than this share of the line's height
DEFAULT_LINE_HEIGHT = 12.0  # points, where it is not known
MAX_COMPARED = 100  # boxes that neither a column nor a band separates: more are sorted by their top edge


def mirror(rects: Sequence[Rect]) -> list[Rect]:
    """Mirror left and right, so that right-to-left columns are ordered as left-to-right ones."""
    return [Rect(-rect.x1, rect.y0, -rect.x0, rect.y1) for rect in rects]


def split(rects: Sequence[Rect], part: Sequence[int], axis: int, gap: float) -> list[list[int]]:
    """Split along an axis (0 is x, 1 is y) at white bands of at least `gap`; empty if there is no such band."""
    if not part:
        return []
    ordered = sorted(part, key=lambda i: rects[i][axis])
    pieces, end = [[ordered[0]]], rects[ordered[0]][axis + 2]
    for index in ordered[1:]:
        if rects[index][axis] - end >= gap:
            pieces.append([])
        pieces[-1].append(index)
        end = max(end, rects[index][axis + 2])
    return pieces if len(pieces) > 1 else []


def split_blocks(rects: Sequence[Rect]) -> list[list[int]]:
    """Return indices in reading order, one list per block: columns if a gutter separates them, else rows."""
    if not rects:
        return []
    height = statistics.median(rect.height for rect in rects)
    blocks: list[list[int]] = []
    stack = [list(range(len(rects)))]
    while stack:
        part = stack.pop()
        pieces = split(rects, part, 0, GUTTER * height) or split(rects, part, 1, PARAGRAPH_GAP * height)
        pieces = pieces or _split_at_valleys(rects, part, MIN_COLUMN_WIDTH * height)
        if pieces:
            stack.extend(reversed(pieces))
        else:
            blocks.append(part)
    return blocks


def _split_at_valleys(rects: Sequence[Rect], part: Sequence[int], min_width: float) -> list[list[int]]:
    """Split many lines into columns where few of them cross; a line goes to the column of its centre.

    The hidden layer of a newspaper has narrow gutters, which headlines and wrongly placed words cross.
    """
    if len(part) < MANY_LINES:
        return []
    left, right = min(rects[i].x0 for i in part), max(rects[i].x1 for i in part)
    xs = [left + step for step in range(int(right - left) + 1)]
    starts, ends = sorted(rects[i].x0 for i in part), sorted(rects[i].x1 for i in part)
    crossed = [bisect_left(starts, x) - bisect_right(ends, x) for x in xs]
    limit = VALLEY * statistics.median(crossed)
    gutters: list[float] = []
    for is_low, group in groupby(zip(xs, crossed, strict=True), key=lambda point: point[1] <= limit):
        x = min(group, key=lambda point: point[1])[0]
        if is_low and x - (gutters[-1] if gutters else left) >= min_width and right - x >= min_width:
            gutters.append(x)
    pieces: list[list[int]] = [[] for _ in range(len(gutters) + 1)]
    for i in part:
        pieces[bisect_left(gutters, rects[i].centre[0])].append(i)
    pieces = [piece for piece in pieces if piece]
    return pieces if len(pieces) > 1 else []


def order_boxes(rects: Sequence[Rect], line_height: float = DEFAULT_LINE_HEIGHT) -> list[int]:
    """Return indices in reading order: columns if a gutter separates them, else bands from top to bottom.

    Bands that form columns together are merged: a heading over one of two columns belongs to its column.
    `line_height` of the page's text is in points.
    """
    ordered: list[int] = []
    stack: list[Sequence[int]] = [range(len(rects))]
    while stack:
        part = stack.pop()
        pieces = _split_card_rows(rects, part, line_height) or split(rects, part, 0, BOX_GUTTER)
        pieces = pieces or _split_bands(rects, part, line_height)
        if len(pieces) > 1:
            stack.extend(reversed(pieces))
        else:
            ordered += _order_connected(rects, part)
    return ordered


def _split_bands(rects: Sequence[Rect], part: Sequence[int], line_height: float) -> list[list[int]]:
    bands: list[list[int]] = []
    for band in split(rects, part, 1, 0.0):
        if bands and _form_columns(rects, bands[-1], band, line_height):
            bands[-1].extend(band)
        else:
            bands.append(list(band))
    return bands


def _split_card_rows(rects: Sequence[Rect], part: Sequence[int], line_height: float) -> list[list[int]]:
    """Split into bands if two or more are rows of cards; empty otherwise. Cards are narrow and begin at one height."""

    def is_card_row(band: Sequence[int]) -> bool:
        tops = [min(rects[i].y0 for i in card) for card in split(rects, band, 0, BOX_GUTTER)]
        return len(tops) >= MIN_CARDS and max(tops) - min(tops) <= SAME_TOP * line_height

    bands = split(rects, part, 1, BREAK * line_height)
    return bands if sum(map(is_card_row, bands)) >= 2 else []


def _form_columns(rects: Sequence[Rect], upper: Sequence[int], lower: Sequence[int], line_height: float) -> bool:
    """Return whether two bands are columns together: only so, or the same columns without a break between them."""
    is_upper, is_lower = _are_side_by_side(rects, upper), _are_side_by_side(rects, lower)
    if not (is_upper and is_lower):
        return _are_side_by_side(rects, [*upper, *lower])
    gap = min(rects[i].y0 for i in lower) - max(rects[i].y1 for i in upper)
    columns = [len(split(rects, part, 0, BOX_GUTTER)) for part in (upper, lower, [*upper, *lower])]
    return gap <= BREAK * line_height and columns[0] == columns[1] == columns[2]


def _are_side_by_side(rects: Sequence[Rect], part: Sequence[int]) -> bool:
    columns = [enclose([rects[i] for i in piece]) for piece in split(rects, part, 0, BOX_GUTTER)]
    return len(columns) > 1 and all(
        min(one.y1, other.y1) - max(one.y0, other.y0) > SIDE_BY_SIDE_OVERLAP * min(one.height, other.height)
        for one, other in pairwise(columns)
    )


def _order_connected(rects: Sequence[Rect], part: Sequence[int]) -> list[int]:
    """Order boxes of which no gutter separates any: what is above or, in another column, to the left comes first."""
    waiting = sorted(part, key=lambda i: (rects[i].y0, rects[i].x0))
    if len(waiting) > MAX_COMPARED:
        return waiting
    ordered: list[int] = []
    while waiting:
        free = (i for i in waiting if not any(_precedes(rects, waiting, j, i) for j in waiting if j != i))
        ordered.append(next(free, waiting[0]))
        waiting.remove(ordered[-1])
    return ordered


def _precedes(rects: Sequence[Rect], part: Sequence[int], first: int, second: int) -> bool:
    """Return whether a box must be read before another one; Breuel's two rules (2003)."""
    one, other = rects[first], rects[second]
    if _share_column(one, other):
        return one.centre[1] < other.centre[1]
    if one.x0 >= other.x0:
        return False
    top, bottom = sorted((one.centre[1], other.centre[1]))
    return not any(
        top < rects[i].centre[1] < bottom and _share_column(rects[i], one) and _share_column(rects[i], other)
        for i in part
        if i not in (first, second)
    )


def _share_column(one: Rect, other: Rect) -> bool:
    overlap = min(one.x1, other.x1) - max(one.x0, other.x0)
    return overlap > min(-BOX_GUTTER, (one.x1 - one.x0) / 2, (other.x1 - other.x0) / 2)
