"""Words with boxes and labelled regions in, regions that hold every word in reading order out.

Pure geometry in points of the displayed page. Knows nothing of PDF, models or JSON.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import NamedTuple

ORPHAN = "orphan"  # text that the layout model left out
FRAME = 0.5  # of the page: a larger drawing is a background, not part of a picture
GROWTHS = 4  # a drawing may lead to the next; arrows lead to the last box of a diagram
WHOLE_PAGE = 0.6  # of the page: a picture larger than this that holds running text is a page
RUNNING_WORDS = 30  # in such a picture; a photo has fewer
REACH = 0.3  # of a word's area inside a box, for words whose centre is in none
SAME_ROW = 0.5  # of the smaller height shared, to stand on one line
PARAGRAPH_GAP = 0.8  # of the line's height, between lines of one paragraph
GUTTER = 1.2  # of the line's height: white space this wide through the whole region parts columns
COLUMN_LINES, COLUMN_WORDS = 3, 4  # at least, and words a line at least, to be a column of running text
BOX_GUTTER = -6.0  # points: one stray word makes the boxes of two columns overlap by so much
BESIDE = 0.3  # of the lower column's height shared, to stand side by side and not askew
HEADER_BAND, FOOTER_BAND = 0.12, 0.88  # of the page's height; furniture elsewhere is body


class Rect(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def area(self) -> float:
        return max(self.x1 - self.x0, 0.0) * max(self.y1 - self.y0, 0.0)

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def shared(self, other: Rect) -> float:
        return Rect(max(self.x0, other.x0), max(self.y0, other.y0), min(self.x1, other.x1), min(self.y1, other.y1)).area

    def meets(self, other: Rect) -> bool:
        return self.x0 <= other.x1 and other.x0 <= self.x1 and self.y0 <= other.y1 and other.y0 <= self.y1

    def holds(self, point: tuple[float, float], margin: float = 0.0) -> bool:
        x, y = point
        return self.x0 - margin <= x <= self.x1 + margin and self.y0 - margin <= y <= self.y1 + margin

    def union(self, other: Rect) -> Rect:
        return Rect(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))


def around(rects: Sequence[Rect]) -> Rect:
    whole = rects[0]
    for rect in rects[1:]:
        whole = whole.union(rect)
    return whole


@dataclass(frozen=True)
class Word:
    """One word. `line` numbers the reader's own line; `upright` is False for text that runs up or down."""

    box: Rect
    text: str
    line: int
    size: float = 0.0
    bold: bool = False
    mono: bool = False
    upright: bool = True
    score: float = 1.0


@dataclass(frozen=True)
class Grid:
    """Row and column lines inside a table, and the rules drawn in and around it."""

    rows: tuple[float, ...]
    cols: tuple[float, ...]
    rules: tuple[Rect, ...] = ()


@dataclass(frozen=True)
class Region:
    label: str
    box: Rect
    words: tuple[Word, ...] = ()
    grid: Grid | None = field(default=None, repr=False)


def grown(regions: Sequence[Region], drawings: Sequence[Rect], page: Rect) -> list[Region]:
    """Pictures made large enough to hold the drawings they cut through; a crop must not cut a diagram's boxes."""
    texts = [region.box for region in regions if region.label != "picture"]
    loose = [d for d in drawings if d.area <= FRAME * page.area and not any(d.meets(text) for text in texts)]
    return [replace(r, box=_grown(r.box, loose)) if r.label == "picture" else r for r in regions]


def _grown(box: Rect, drawings: Sequence[Rect]) -> Rect:
    for _ in range(GROWTHS):
        larger = around([box, *(drawing for drawing in drawings if drawing.meets(box))])
        if larger == box:
            return box
        box = larger
    return box


def fill(regions: Sequence[Region], words: Sequence[Word], page: Rect) -> list[Region]:
    """Give every word to one region; those that fit none become regions of their own at the end."""
    regions = _outermost(_without_page_pictures(regions, words, page))
    held: list[list[Word]] = [[] for _ in regions]
    orphans: list[Word] = []
    for word in words:
        index = _home(word, regions)
        (held[index] if index is not None else orphans).append(word)
    filled = [replace(region, words=tuple(own)) for region, own in zip(regions, held, strict=True)]
    kept = [region for region in filled if region.words or region.label == "picture"]
    return kept + paragraphs(orphans)


def _without_page_pictures(regions: Sequence[Region], words: Sequence[Word], page: Rect) -> list[Region]:
    def is_page(region: Region) -> bool:
        if region.label != "picture" or region.box.shared(page) < WHOLE_PAGE * page.area:
            return False
        return sum(region.box.holds(word.box.centre) for word in words) >= RUNNING_WORDS

    return [region for region in regions if not is_page(region)]


def _outermost(regions: Sequence[Region]) -> list[Region]:
    """Without regions that lie wholly inside another."""
    kept: list[Region] = []
    for region in sorted(regions, key=lambda r: -r.box.area):
        if not any(region.box.shared(other.box) >= 0.99 * region.box.area for other in kept):
            kept.append(region)
    return [region for region in regions if region in kept]


def _home(word: Word, regions: Sequence[Region]) -> int | None:
    inside = [i for i, region in enumerate(regions) if region.box.holds(word.box.centre, 1.0)]
    if inside:
        return min(inside, key=lambda i: regions[i].box.area)
    shares = [(region.box.shared(word.box), i) for i, region in enumerate(regions)]
    share, index = max(shares, default=(0.0, 0))
    return index if share > REACH * word.box.area and share > 0 else None


def paragraphs(words: Sequence[Word]) -> list[Region]:
    """Words without a region as text regions in reading order, by cutting at white space."""
    fragments = [around([word.box for word in line]) for line in _fragments(words)]
    own = list(_fragments(words))
    parts = (part for leaf in cut(fragments) for part in _by_gap(fragments, leaf))
    return [
        Region(ORPHAN, around([fragments[i] for i in part]), tuple(word for i in part for word in own[i]))
        for part in parts
    ]


def _by_gap(rects: Sequence[Rect], leaf: Sequence[int]) -> Iterator[list[int]]:
    part: list[int] = []
    for index in sorted(leaf, key=lambda i: (rects[i].y0, rects[i].x0)):
        if part and rects[index].y0 - max(rects[i].y1 for i in part) > PARAGRAPH_GAP * rects[index].height:
            yield part
            part = []
        part.append(index)
    if part:
        yield part


def cut(rects: Sequence[Rect]) -> list[list[int]]:
    """Indices in reading order, one list a block: columns first where a gutter runs through, else rows."""
    if not rects:
        return []
    height = statistics.median(rect.height for rect in rects)
    done: list[list[int]] = []
    waiting = [list(range(len(rects)))]
    while waiting:
        part = waiting.pop()
        pieces = _split(rects, part, 0, GUTTER * height) or _split(rects, part, 1, PARAGRAPH_GAP * height)
        if pieces:
            waiting.extend(reversed(pieces))
        else:
            done.append(part)
    return done


def _split(rects: Sequence[Rect], part: Sequence[int], axis: int, gap: float) -> list[list[int]]:
    """Parts between white bands at least `gap` wide; empty when there is no such band."""
    ordered = sorted(part, key=lambda i: rects[i][axis])
    pieces, end = [[ordered[0]]], rects[ordered[0]][axis + 2]
    for index in ordered[1:]:
        if rects[index][axis] - end >= gap:
            pieces.append([])
        pieces[-1].append(index)
        end = max(end, rects[index][axis + 2])
    return pieces if len(pieces) > 1 else []


def _fragments(words: Sequence[Word]) -> Iterator[list[Word]]:
    for _, group in groupby(words, key=lambda word: word.line):
        yield list(group)


def rows(words: Sequence[Word]) -> list[list[Word]]:
    """The region's lines from top to bottom, words from left to right; text that runs up or down comes last."""
    lines: list[list[Word]] = []
    tall = [fragment for fragment in _fragments(words) if not fragment[0].upright]
    level = [fragment for fragment in _fragments(words) if fragment[0].upright]
    for fragment in sorted(level, key=lambda f: around([w.box for w in f]).centre[1]):
        if lines and _on_one_row(lines[-1], fragment):
            lines[-1].extend(fragment)
        else:
            lines.append(list(fragment))
    return [sorted(line, key=lambda w: w.box.x0) for line in lines] + tall


def _on_one_row(line: Sequence[Word], fragment: Sequence[Word]) -> bool:
    one, other = around([w.box for w in line]), around([w.box for w in fragment])
    shared = min(one.y1, other.y1) - max(one.y0, other.y0)
    return shared >= SAME_ROW * min(one.height, other.height)


def columns(words: Sequence[Word]) -> list[list[Word]]:
    """The lines of a text region, column after column where a gutter parts running text."""
    fragments = list(_fragments(words))
    rects = [around([word.box for word in fragment]) for fragment in fragments]
    height = statistics.median(rect.height for rect in rects)
    pieces = _split(rects, range(len(rects)), 0, GUTTER * height)
    parts = [rows([word for i in sorted(piece) for word in fragments[i]]) for piece in pieces]
    if len(parts) < 2 or not all(map(_is_running, parts)):
        return rows(words)
    return [line for part in parts for line in part]


def _is_running(lines: Sequence[Sequence[Word]]) -> bool:
    """Names and values side by side are no columns."""
    return len(lines) >= COLUMN_LINES and statistics.median(map(len, lines)) >= COLUMN_WORDS


def is_furniture(region: Region, page: Rect) -> bool:
    if region.label == "page-header":
        return region.box.y1 <= page.y0 + HEADER_BAND * page.height
    return region.label == "page-footer" and region.box.y0 >= page.y0 + FOOTER_BAND * page.height


def in_order(regions: Sequence[Region], page: Rect) -> list[Region]:
    """Reading order: headers, body by columns, footers; orphans go behind what stands above them."""
    heads = [region for region in regions if region.label == "page-header" and is_furniture(region, page)]
    feet = [region for region in regions if region.label == "page-footer" and is_furniture(region, page)]
    strays = [region for region in regions if region.label == ORPHAN]
    body = [region for region in regions if not any(region is other for other in (*heads, *feet, *strays))]
    ordered = [body[index] for index in read_order([region.box for region in body])]
    heads.sort(key=lambda region: (region.box.y0, region.box.x0))
    feet.sort(key=lambda region: (region.box.y0, region.box.x0))
    # Without a body to hang on to, orphans are in order already.
    return [*heads, *(insert(ordered, strays) if ordered else strays), *feet]


def read_order(rects: Sequence[Rect]) -> list[int]:
    """Indices of boxes: columns where a gutter runs through, else bands from top to bottom.

    Bands that make columns together are one: a heading over one of two columns belongs to its column.
    """
    return _ordered(rects, range(len(rects)))


def _ordered(rects: Sequence[Rect], part: Sequence[int]) -> list[int]:
    pieces = _split(rects, part, 0, BOX_GUTTER) if part else []
    if not pieces:
        bands: list[list[int]] = []
        for stripe in _split(rects, part, 1, 0.0) if part else []:
            if bands and _make_columns(rects, bands[-1], stripe):
                bands[-1].extend(stripe)
            else:
                bands.append(list(stripe))
        pieces = bands
    if len(pieces) < 2:
        return sorted(part, key=lambda i: (rects[i].y0, rects[i].x0))
    return [index for piece in pieces for index in _ordered(rects, piece)]


def _make_columns(rects: Sequence[Rect], band: Sequence[int], stripe: Sequence[int]) -> bool:
    """Whether both stand side by side in parts, and are not two rows of columns with a break between."""
    if _side_by_side(rects, band) and _side_by_side(rects, stripe):
        return False
    return _side_by_side(rects, [*band, *stripe])


def _side_by_side(rects: Sequence[Rect], part: Sequence[int]) -> bool:
    columns = [around([rects[i] for i in piece]) for piece in _split(rects, part, 0, BOX_GUTTER)]
    return len(columns) > 1 and all(
        min(one.y1, other.y1) - max(one.y0, other.y0) > BESIDE * min(one.height, other.height)
        for one, other in pairwise(columns)
    )


def insert(ordered: Sequence[Region], strays: Sequence[Region]) -> list[Region]:
    """Put regions that have no place yet behind the nearest region above them in their column."""
    placed = list(ordered)
    for stray in strays:
        above = [i for i, region in enumerate(placed) if _is_above(region.box, stray.box)]
        if above:
            placed.insert(max(above, key=lambda i: (placed[i].box.y1, i)) + 1, stray)
            continue
        below = [i for i, region in enumerate(placed) if _is_above(stray.box, region.box)]
        placed.insert(min(below) if below else _by_height(placed, stray), stray)
    return placed


def _is_above(one: Rect, other: Rect) -> bool:
    return one.x0 < other.x1 and other.x0 < one.x1 and one.centre[1] <= other.centre[1]


def _by_height(placed: Sequence[Region], stray: Region) -> int:
    return sum(region.box.centre[1] <= stray.box.centre[1] for region in placed)
