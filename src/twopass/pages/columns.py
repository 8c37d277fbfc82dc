"""Find the gutters between columns of lines, and cut detected lines that run across them.

A detector joins the lines of two columns where little white is between them. A single wide blank says nothing; blanks
of many lines below each other, whose edges are aligned, are a gutter.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from twopass.document import Rect
from twopass.pages import pillow_image, strips
from twopass.pages.strips import Array

Point = tuple[float, float]
Corners = tuple[Point, Point, Point, Point]

MIN_WIDTH = 0.4  # of a line's height, of the white that all lines of a gutter have: blanks of a line have 0.2 to 0.3
BOX_WIDTH = 0.05  # the same, between the boxes of lines, which are larger than their letters
CLEAR_WIDTH = 1.2  # the same, of a gutter whose edges need not be aligned
MIN_LINES = 4  # below each other: wide blanks of justified text form rivers over three
SURE_LINES = 8  # of a gutter that may begin or end inside a text, as rivers do
MIN_ALIGNED = 0.7  # of a gutter's lines that begin, or end, at one place
ALIGNMENT = 0.35  # of a line's height, for lines that begin at one place
REACH = 1.6  # of a line's height, down to the next line of a gutter: paragraphs are further apart than lines
SAME_HEIGHT = 1.3  # ratio: a larger line across a gutter's end is a heading
MARGIN = 0.15  # of a line's height: the white that a cut line keeps
# A band between words: lines below each other, the share of them in which a word begins at one place, how exactly, in
# heights of a line, and how wide the blank in front of it is, in median blanks. Drawn columns had 12 lines, 1.0 and
# 2.7; 146 pages of other texts and tables had one such place, with 9 lines and 1.3.
MIN_BAND_LINES, BAND_ALIGNED, BAND_ALIGNMENT, BAND_BLANK = 8, 0.9, 0.15, 1.5
# Of a line's height: a narrower piece is the edge of another line if it lies in that, or in any case.
SLIVER, EDGE = 0.8, 0.25
MIN_PIXELS = 4  # of a line's height
LONG_LINE = 5.0  # times its height: the angle of a shorter one is not exact
MAX_SKEW, MIN_SKEW = 20.0, 0.2  # degrees


@dataclass(frozen=True)
class Gap:
    """White in a line or between two lines of one height: its rectangle, and the index of the line that ends there."""

    box: Rect
    line: int

    @property
    def height(self) -> float:
        return self.box.height


def split_lines(array: Array, quads: Sequence[Corners]) -> list[Corners]:
    """The lines, with those that run across a gutter cut there; `array` shows the page."""
    frame = _Frame.of(array, quads)
    quads = [_trim(frame.grey, quad, frame.straighten(quad)) for quad in quads]
    boxes = [frame.straighten(quad) for quad in quads]
    inner = {gap for number, box in enumerate(boxes) for gap in _find_inner_gaps(frame.grey, box, number)}
    gutters = _find_chains([*inner, *_find_gaps_between(boxes, MIN_WIDTH / 2)], boxes, MIN_WIDTH)
    cuts: dict[int, list[Gap]] = {}
    for gap in inner.intersection(gap for chain in gutters for gap in chain):
        cuts.setdefault(gap.line, []).append(gap)
    pieces: list[Corners] = []
    for number, (quad, box) in enumerate(zip(quads, boxes, strict=True)):
        own = _cut(quad, box, cuts.get(number, ()))
        others = [other for other in boxes if other is not box and other.intersects(box)] if len(own) > 1 else []
        pieces += [piece for piece in own if not _is_sliver(frame.straighten(piece), box, others)]
    return pieces


def find_gutters(boxes: Sequence[Rect]) -> list[Rect]:
    """The gutters between upright lines: the white that all lines of a gutter have, from the first to the last."""
    return [_enclose(chain) for chain in _find_chains(list(_find_gaps_between(boxes, BOX_WIDTH)), boxes, BOX_WIDTH)]


def find_bands(lines: Sequence[Sequence[Rect]]) -> list[Rect]:
    """The white between columns whose lines were detected as one, from the boxes of each line's words."""
    blanks = [b.x0 - a.x1 for line in lines for a, b in pairwise(line)]
    blank = statistics.median(blanks) if blanks else 0.0
    words = [word for line in lines for word in line]
    chains = _find_chains(list(_find_gaps_between(words, BOX_WIDTH)), words, BOX_WIDTH)
    return [_enclose(chain) for chain in chains if _is_band(chain, blank)]


def _is_band(chain: Sequence[Gap], blank: float) -> bool:
    height, starts = statistics.median(gap.height for gap in chain), [gap.box.x1 for gap in chain]
    middle = statistics.median(starts)
    aligned = sum(abs(x - middle) <= BAND_ALIGNMENT * height for x in starts)
    is_wide = statistics.median(gap.box.width for gap in chain) >= BAND_BLANK * blank
    return len(chain) >= MIN_BAND_LINES and aligned >= BAND_ALIGNED * len(chain) and is_wide


# ---- the page without its skew ----


@dataclass(frozen=True)
class _Frame:
    """The page in grey, turned so that lines are level; `degrees` is its skew clockwise."""

    grey: Array
    degrees: float
    size: tuple[int, int]

    @classmethod
    def of(cls, array: Array, quads: Sequence[Corners]) -> _Frame:
        skew, image = _estimate_skew(quads), pillow_image.to_image(array).convert("L")
        if skew:
            image = image.rotate(skew, fillcolor=int(np.median(np.asarray(image))))
        return cls(np.asarray(image), skew, image.size)

    def straighten(self, quad: Corners) -> Rect:
        """The level rectangle of a line's middle axis and height."""
        sine, cosine = math.sin(math.radians(-self.degrees)), math.cos(math.radians(-self.degrees))
        x0, y0 = self.size[0] / 2, self.size[1] / 2
        points = ((x - x0, y - y0) for x, y in quad)
        return Rect.around((x0 + x * cosine - y * sine, y0 + x * sine + y * cosine) for x, y in points)


def _estimate_skew(quads: Sequence[Corners]) -> float:
    angles = [
        math.degrees(math.atan2(b[1] - a[1], b[0] - a[0]))
        for a, b, _, d in quads
        if math.dist(a, b) > LONG_LINE * math.dist(a, d)
    ]
    level = [angle for angle in angles if abs(angle) < MAX_SKEW]
    skew = statistics.median(level) if len(level) >= MIN_LINES else 0.0
    return skew if abs(skew) >= MIN_SKEW else 0.0


# ---- white between words ----


def _find_inner_gaps(grey: Array, box: Rect, line: int) -> Iterator[Gap]:
    """Yield the wide blanks in a line."""
    for left, right in pairwise(_find_inked_columns(grey, box)):
        if right - left - 1 >= MIN_WIDTH * box.height:
            yield Gap(Rect(left + 1, box.y0, right, box.y1), line)


def _find_inked_columns(grey: Array, box: Rect) -> list[int]:
    """The columns of the page that have ink in a line; none of what is not a line."""
    x0, y0, x1, y1 = (max(round(value), 0) for value in box)
    strip = grey[y0:y1, x0:x1]
    if strip.shape[0] < MIN_PIXELS or strip.shape[1] < strip.shape[0]:
        return []
    return [x0 + column for column in np.flatnonzero(strips.find_letters(strip)).tolist()]


def _trim(grey: Array, quad: Corners, box: Rect) -> Corners:
    """The line without wide white at its ends, where its box may reach into the next column."""
    inked = _find_inked_columns(grey, box)
    if not inked:
        return quad
    spare, ends = MARGIN * box.height, (inked[0] - box.x0, box.x1 - inked[-1] - 1)
    start, stop = (end - spare if end >= MIN_WIDTH * box.height else 0.0 for end in ends)
    return _take(quad, start / box.width, 1 - stop / box.width) if start or stop else quad


def _find_gaps_between(boxes: Sequence[Rect], min_width: float) -> Iterator[Gap]:
    """Yield the white between each line and the next one at its height, if it is not too narrow for that."""
    order = sorted(range(len(boxes)), key=lambda number: boxes[number].x0)
    left, top, _, bottom = np.asarray([boxes[number] for number in order], np.float64).reshape(-1, 4).T
    for position, number in enumerate(order):
        box, others = boxes[number], slice(position + 1, None)
        overlap = np.minimum(bottom[others], box.y1) - np.maximum(top[others], box.y0)
        is_level = overlap >= 0.5 * np.minimum(bottom[others] - top[others], box.height)
        beside = np.flatnonzero(is_level & (left[others] >= box.centre[0]))
        end = float(left[position + 1 + beside[0]]) if beside.size else box.x1
        if end - box.x1 >= min_width * box.height:
            yield Gap(Rect(box.x1, box.y0, end, box.y1), number)


# ---- gaps below each other ----


@dataclass(frozen=True)
class _Link:
    """A chain of gaps that ends here: how many, the white that all have, and the one before."""

    count: int
    x0: float
    x1: float
    before: int | None


def _find_chains(gaps: Sequence[Gap], boxes: Sequence[Rect], min_width: float) -> list[list[Gap]]:
    """The gutters as runs of gaps, each from top to bottom, the longest first; no gap belongs to two."""
    ordered, lines = sorted(gaps, key=lambda gap: (gap.box.centre[1], gap.box.x0, gap.line)), _Lines.of(boxes)
    links: list[_Link] = []
    middles, heights = [gap.box.centre[1] for gap in ordered], np.array([gap.height for gap in ordered])
    white = np.array([(gap.box.x0, gap.box.x1) for gap in ordered]).reshape(-1, 2)  # that a chain has up to each gap
    for number, gap in enumerate(ordered):
        best, first = _Link(1, gap.box.x0, gap.box.x1, None), bisect_left(middles, middles[number] - _reach(gap))
        lower = np.minimum(heights[first:number], gap.height)
        width = np.minimum(white[first:number, 1], gap.box.x1) - np.maximum(white[first:number, 0], gap.box.x0)
        is_below = np.asarray(middles[first:number]) + 0.5 * lower <= middles[number]
        for before in (first + np.flatnonzero(is_below & (width >= min_width * lower))[::-1]).tolist():
            link = _extend(links[before], gap, before)
            if (link.count, link.x1 - link.x0) <= (best.count, best.x1 - best.x0):
                continue
            if not lines.any_across(link.x0, link.x1, middles[before], middles[number], gap.height):
                best = link
        links.append(best)
        white[number] = best.x0, best.x1
    return list(_choose(ordered, links, boxes))


def _reach(gap: Gap) -> float:
    """How far above a gap the one before it may be."""
    return (1 + REACH) * gap.height


@dataclass(frozen=True)
class _Lines:
    """The boxes of lines from top to bottom, by the heights of their middles."""

    middles: tuple[float, ...]
    boxes: tuple[Rect, ...]

    @classmethod
    def of(cls, boxes: Sequence[Rect]) -> _Lines:
        ordered = sorted(boxes, key=lambda box: box.centre[1])
        return cls(tuple(box.centre[1] for box in ordered), tuple(ordered))

    def any_across(self, x0: float, x1: float, top: float, bottom: float, height: float) -> bool:
        """Whether a line between two others runs across the white that they have."""
        spare = 0.3 * height
        first, last = bisect_left(self.middles, top + spare), bisect_left(self.middles, bottom - spare)
        return any(box.x0 < x0 - spare and box.x1 > x1 + spare for box in self.boxes[first:last])


def _extend(link: _Link, gap: Gap, before: int) -> _Link:
    return _Link(link.count + 1, max(link.x0, gap.box.x0), min(link.x1, gap.box.x1), before)


def _choose(ordered: Sequence[Gap], links: Sequence[_Link], boxes: Sequence[Rect]) -> Iterator[list[Gap]]:
    used: set[int] = set()
    for number in sorted(range(len(links)), key=lambda number: -links[number].count):
        chain, at = [], int(number)
        if links[number].count < MIN_LINES:
            return
        while at is not None and at not in used:
            chain.append(at)
            at = links[at].before  # type: ignore[assignment]
        used.update(chain)
        gaps = [ordered[index] for index in reversed(chain)]
        if len(gaps) >= MIN_LINES and _is_gutter(gaps, boxes):
            yield gaps


def _is_gutter(chain: Sequence[Gap], boxes: Sequence[Rect]) -> bool:
    """Whether the white is wide or its lines are aligned, and it is no river that begins or ends inside a text."""
    height = statistics.median(gap.height for gap in chain)
    white = _enclose(chain)
    if white.width < CLEAR_WIDTH * height and not _are_aligned(chain, height):
        return False
    return len(chain) >= SURE_LINES or not _ends_in_text(white, height, boxes)


def _are_aligned(chain: Sequence[Gap], height: float) -> bool:
    edges = ([gap.box.x0 for gap in chain], [gap.box.x1 for gap in chain])
    return any(
        sum(abs(x - statistics.median(side)) <= ALIGNMENT * height for x in side) >= MIN_ALIGNED * len(chain)
        for side in edges
    )


def _ends_in_text(white: Rect, height: float, boxes: Sequence[Rect]) -> bool:
    """Whether the next line above or below, in the same size, runs across."""
    near = white._replace(y0=white.y0 - (REACH - 0.5) * height, y1=white.y1 + (REACH - 0.5) * height)
    return any(
        box.x0 < white.x0 - height
        and box.x1 > white.x1 + height
        and near.y0 < box.centre[1] < near.y1
        and not white.y0 < box.centre[1] < white.y1
        and box.height < SAME_HEIGHT * height
        for box in boxes
    )


def _enclose(chain: Sequence[Gap]) -> Rect:
    x0, x1 = max(gap.box.x0 for gap in chain), min(gap.box.x1 for gap in chain)
    return Rect(x0, min(gap.box.y0 for gap in chain), x1, max(gap.box.y1 for gap in chain))


# ---- lines cut ----


def _cut(quad: Corners, box: Rect, gaps: Sequence[Gap]) -> list[Corners]:
    """The pieces of a line between these gaps, with a little of their white."""
    if not gaps:
        return [quad]
    margin = MARGIN * box.height
    pieces, start = [], 0.0
    for gap in sorted(gaps, key=lambda gap: gap.box.x0):
        spare = min(margin, gap.box.width / 2)
        pieces.append(_take(quad, start, (gap.box.x0 + spare - box.x0) / box.width))
        start = (gap.box.x1 - spare - box.x0) / box.width
    return [*pieces, _take(quad, start, 1.0)]


def _is_sliver(piece: Rect, line: Rect, others: Sequence[Rect]) -> bool:
    """Whether a piece of a line is the edge of the next column, into which its box reaches."""
    covered = max((piece.overlap(other) for other in others), default=0.0)
    return piece.width < SLIVER * line.height and (
        piece.width < (EDGE + MARGIN) * line.height or covered >= 0.3 * piece.area
    )


def _take(quad: Corners, start: float, stop: float) -> Corners:
    a, b, c, d = quad
    return _along(a, b, start), _along(a, b, stop), _along(d, c, stop), _along(d, c, start)


def _along(start: Point, stop: Point, share: float) -> Point:
    return start[0] + share * (stop[0] - start[0]), start[1] + share * (stop[1] - start[1])
