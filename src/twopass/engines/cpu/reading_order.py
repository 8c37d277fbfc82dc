"""Assign a page's words to layout regions and put both in reading order.

This is plain geometry, in points of the displayed page.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from twopass.engines.cpu.geometry import Rect, Region, StyledWord, enclose

ORPHAN = "orphan"  # label of text that the layout model missed
MAX_DRAWING_SHARE = 0.5  # of the page: a larger drawing is a background, not part of a picture
MAX_GROWTHS = 4  # rounds: each drawing that is added may touch the next, as arrows connect the boxes of a diagram
FULL_PAGE_SHARE = 0.6  # of the page: a larger picture with running text is a scan of the page
MIN_RUNNING_WORDS = 30  # in such a picture; a photo has fewer words
MIN_WORD_OVERLAP = 0.3  # of a word's area inside a region, for words whose centre is in none
SAME_ROW_OVERLAP = 0.5  # of the smaller height, for two fragments of one line
PARAGRAPH_GAP = 0.8  # of the line's height: a larger gap ends the paragraph
GUTTER = 1.2  # of the line's height: white space this wide through the whole region separates columns
MIN_COLUMN_LINES, MIN_COLUMN_WORDS = 3, 4  # words are a line's median, in a column of running text
BOX_GUTTER = -6.0  # points: the boxes of two columns may overlap this far, because of one stray word
SIDE_BY_SIDE_OVERLAP = 0.3  # of the smaller height, for boxes that stand side by side
HEADER_BAND, FOOTER_BAND = 0.12, 0.88  # of the page's height; a header or footer elsewhere is body text


def grow_pictures(regions: Sequence[Region], drawings: Sequence[Rect], page: Rect) -> list[Region]:
    """Enlarge pictures to include the drawings that cross their edge, so that a crop does not cut a diagram's boxes."""
    texts = [region.box for region in regions if region.label != "picture"]
    small = [drawing for drawing in drawings if drawing.area <= MAX_DRAWING_SHARE * page.area]
    free = [drawing for drawing in small if not any(drawing.intersects(text) for text in texts)]
    return [replace(r, box=_grow(r.box, free)) if r.label == "picture" else r for r in regions]


def _grow(box: Rect, drawings: Sequence[Rect]) -> Rect:
    for _ in range(MAX_GROWTHS):
        larger = enclose([box, *(drawing for drawing in drawings if drawing.intersects(box))])
        if larger == box:
            return box
        box = larger
    return box


def assign_words(regions: Sequence[Region], words: Sequence[StyledWord], page: Rect) -> list[Region]:
    """Assign every word to one region; words that fit none form orphan regions at the end."""
    regions = _drop_nested(_drop_full_page_pictures(regions, words, page))
    words_by_region: list[list[StyledWord]] = [[] for _ in regions]
    orphans: list[StyledWord] = []
    for word in words:
        index = _find_region(word, regions)
        (words_by_region[index] if index is not None else orphans).append(word)
    filled = [replace(region, words=tuple(own)) for region, own in zip(regions, words_by_region, strict=True)]
    return [*(region for region in filled if region.words or region.label == "picture"), *group_paragraphs(orphans)]


def _drop_full_page_pictures(regions: Sequence[Region], words: Sequence[StyledWord], page: Rect) -> list[Region]:
    """Drop pictures that fill the page and hold running text: their words then become text."""

    def is_page(region: Region) -> bool:
        if region.label != "picture" or region.box.overlap_area(page) < FULL_PAGE_SHARE * page.area:
            return False
        return sum(region.box.contains(word.box.centre) for word in words) >= MIN_RUNNING_WORDS

    return [region for region in regions if not is_page(region)]


def _drop_nested(regions: Sequence[Region]) -> list[Region]:
    """Drop regions that lie inside another region."""
    kept: list[Region] = []
    for region in sorted(regions, key=lambda r: -r.box.area):
        if not any(region.box.overlap_area(other.box) >= 0.99 * region.box.area for other in kept):
            kept.append(region)
    return [region for region in regions if region in kept]


def _find_region(word: StyledWord, regions: Sequence[Region]) -> int | None:
    """Return the index of the smallest region around the word's centre, or of the one that overlaps it most."""
    inside = [i for i, region in enumerate(regions) if region.box.contains(word.box.centre, 1.0)]
    if inside:
        return min(inside, key=lambda i: regions[i].box.area)
    shares = [(region.box.overlap_area(word.box), i) for i, region in enumerate(regions)]
    share, index = max(shares, default=(0.0, 0))
    return index if share > MIN_WORD_OVERLAP * word.box.area and share > 0 else None


def group_paragraphs(words: Sequence[StyledWord]) -> list[Region]:
    """Group words without a region into text regions in reading order, split at white space."""
    lines = list(_group_by_line(words))
    boxes = [enclose([word.box for word in line]) for line in lines]
    parts = (part for block in split_blocks(boxes) for part in _split_at_gaps(boxes, block))
    return [
        Region(ORPHAN, enclose([boxes[i] for i in part]), tuple(word for i in part for word in lines[i]))
        for part in parts
    ]


def _split_at_gaps(rects: Sequence[Rect], block: Sequence[int]) -> Iterator[list[int]]:
    """Split a block of lines into paragraphs at large vertical gaps; yields indices from top to bottom."""
    part: list[int] = []
    for index in sorted(block, key=lambda i: (rects[i].y0, rects[i].x0)):
        if part and rects[index].y0 - max(rects[i].y1 for i in part) > PARAGRAPH_GAP * rects[index].height:
            yield part
            part = []
        part.append(index)
    if part:
        yield part


def split_blocks(rects: Sequence[Rect]) -> list[list[int]]:
    """Return indices in reading order, one list per block: columns if a gutter separates them, else rows."""
    if not rects:
        return []
    height = statistics.median(rect.height for rect in rects)
    blocks: list[list[int]] = []
    stack = [list(range(len(rects)))]
    while stack:
        part = stack.pop()
        pieces = _split(rects, part, 0, GUTTER * height) or _split(rects, part, 1, PARAGRAPH_GAP * height)
        if pieces:
            stack.extend(reversed(pieces))
        else:
            blocks.append(part)
    return blocks


def _split(rects: Sequence[Rect], part: Sequence[int], axis: int, gap: float) -> list[list[int]]:
    """Split along an axis (0 is x, 1 is y) at white bands of at least `gap`; empty if there is no such band."""
    ordered = sorted(part, key=lambda i: rects[i][axis])
    pieces, end = [[ordered[0]]], rects[ordered[0]][axis + 2]
    for index in ordered[1:]:
        if rects[index][axis] - end >= gap:
            pieces.append([])
        pieces[-1].append(index)
        end = max(end, rects[index][axis + 2])
    return pieces if len(pieces) > 1 else []


def _group_by_line(words: Sequence[StyledWord]) -> Iterator[list[StyledWord]]:
    """Yield runs of consecutive words with the same line number."""
    for _, group in groupby(words, key=lambda word: word.line):
        yield list(group)


def group_rows(words: Sequence[StyledWord]) -> list[list[StyledWord]]:
    """Return lines from top to bottom, with words from left to right; vertical text comes last."""
    lines: list[list[StyledWord]] = []
    vertical = [fragment for fragment in _group_by_line(words) if not fragment[0].upright]
    horizontal = [fragment for fragment in _group_by_line(words) if fragment[0].upright]
    for fragment in sorted(horizontal, key=lambda f: enclose([w.box for w in f]).centre[1]):
        if lines and _is_same_row(lines[-1], fragment):
            lines[-1].extend(fragment)
        else:
            lines.append(list(fragment))
    return [sorted(line, key=lambda w: w.box.x0) for line in lines] + vertical


def _is_same_row(line: Sequence[StyledWord], fragment: Sequence[StyledWord]) -> bool:
    one, other = enclose([w.box for w in line]), enclose([w.box for w in fragment])
    overlap = min(one.y1, other.y1) - max(one.y0, other.y0)
    return overlap >= SAME_ROW_OVERLAP * min(one.height, other.height)


def order_lines(words: Sequence[StyledWord]) -> list[list[StyledWord]]:
    """Return the lines of a text region, one column after the other if a gutter separates running text."""
    fragments = list(_group_by_line(words))
    rects = [enclose([word.box for word in fragment]) for fragment in fragments]
    height = statistics.median(rect.height for rect in rects)
    pieces = _split(rects, range(len(rects)), 0, GUTTER * height)
    parts = [group_rows([word for i in sorted(piece) for word in fragments[i]]) for piece in pieces]
    if len(parts) < 2 or not all(map(_is_running, parts)):
        return group_rows(words)
    return [line for part in parts for line in part]


def _is_running(lines: Sequence[Sequence[StyledWord]]) -> bool:
    """Return whether the lines are running text; names and values side by side are not columns."""
    return len(lines) >= MIN_COLUMN_LINES and statistics.median(map(len, lines)) >= MIN_COLUMN_WORDS


def is_furniture(region: Region, page: Rect) -> bool:
    """Return whether a header stands at the top of the page or a footer at its bottom."""
    if region.label == "page-header":
        return region.box.y1 <= page.y0 + HEADER_BAND * page.height
    return region.label == "page-footer" and region.box.y0 >= page.y0 + FOOTER_BAND * page.height


def sort_regions(regions: Sequence[Region], page: Rect) -> list[Region]:
    """Sort into reading order: headers, body by columns, footers; an orphan follows the region above it."""
    headers = [region for region in regions if region.label == "page-header" and is_furniture(region, page)]
    footers = [region for region in regions if region.label == "page-footer" and is_furniture(region, page)]
    orphans = [region for region in regions if region.label == ORPHAN]
    body = [region for region in regions if not any(region is other for other in (*headers, *footers, *orphans))]
    ordered = [body[index] for index in order_boxes([region.box for region in body])]
    headers.sort(key=lambda region: (region.box.y0, region.box.x0))
    footers.sort(key=lambda region: (region.box.y0, region.box.x0))
    # Without a body, orphans keep their order, which is the reading order already.
    return [*headers, *(insert_orphans(ordered, orphans) if ordered else orphans), *footers]


def order_boxes(rects: Sequence[Rect]) -> list[int]:
    """Return indices in reading order: columns if a gutter separates them, else bands from top to bottom.

    Bands that form columns together are merged: a heading over one of two columns belongs to its column.
    """
    return _order_part(rects, range(len(rects)))


def _order_part(rects: Sequence[Rect], part: Sequence[int]) -> list[int]:
    """Order some of the boxes, by splitting them until no gutter and no band is left."""
    pieces = _split(rects, part, 0, BOX_GUTTER) if part else []
    if not pieces:
        bands: list[list[int]] = []
        for band in _split(rects, part, 1, 0.0) if part else []:
            if bands and _form_columns(rects, bands[-1], band):
                bands[-1].extend(band)
            else:
                bands.append(list(band))
        pieces = bands
    if len(pieces) < 2:
        return sorted(part, key=lambda i: (rects[i].y0, rects[i].x0))
    return [index for piece in pieces for index in _order_part(rects, piece)]


def _form_columns(rects: Sequence[Rect], upper: Sequence[int], lower: Sequence[int]) -> bool:
    """Return whether two bands form columns only together; two bands of columns have a break between them."""
    if _are_side_by_side(rects, upper) and _are_side_by_side(rects, lower):
        return False
    return _are_side_by_side(rects, [*upper, *lower])


def _are_side_by_side(rects: Sequence[Rect], part: Sequence[int]) -> bool:
    columns = [enclose([rects[i] for i in piece]) for piece in _split(rects, part, 0, BOX_GUTTER)]
    return len(columns) > 1 and all(
        min(one.y1, other.y1) - max(one.y0, other.y0) > SIDE_BY_SIDE_OVERLAP * min(one.height, other.height)
        for one, other in pairwise(columns)
    )


def insert_orphans(ordered: Sequence[Region], orphans: Sequence[Region]) -> list[Region]:
    """Insert each orphan behind the nearest region above it in its column, else before the first one below it."""
    placed = list(ordered)
    for orphan in orphans:
        above = [i for i, region in enumerate(placed) if _is_above(region.box, orphan.box)]
        if above:
            placed.insert(max(above, key=lambda i: (placed[i].box.y1, i)) + 1, orphan)
            continue
        below = [i for i, region in enumerate(placed) if _is_above(orphan.box, region.box)]
        placed.insert(min(below) if below else _find_index_by_height(placed, orphan), orphan)
    return placed


def _is_above(one: Rect, other: Rect) -> bool:
    """Return whether two boxes share a column and the centre of the first is not lower."""
    return one.x0 < other.x1 and other.x0 < one.x1 and one.centre[1] <= other.centre[1]


def _find_index_by_height(placed: Sequence[Region], orphan: Region) -> int:
    return sum(region.box.centre[1] <= orphan.box.centre[1] for region in placed)
