"""Assign a page's words to layout regions and put both in reading order.

This is plain geometry, in points of the displayed page.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from twopass.engines.cpu import bidi, columns, text_rows
from twopass.engines.cpu.geometry import Rect, Region, StyledWord, enclose
from twopass.text.page_furniture import BAND

ORPHAN = "orphan"  # label of text that the layout model missed
MAX_DRAWING_SHARE = 0.5  # of the page: a larger drawing is a background, not part of a picture
MAX_GROWTHS = 4  # rounds: each drawing that is added may touch the next, as arrows connect the boxes of a diagram
FULL_PAGE_SHARE = 0.6  # of the page: a larger picture with running text is a scan of the page
MIN_RUNNING_WORDS = 30  # in such a picture; a photo has fewer words
MIN_WORD_OVERLAP = 0.3  # of a word's area inside a region, for words whose centre is in none


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
    lines = list(text_rows.group_by_line(words))
    boxes = [enclose([word.box for word in line]) for line in lines]
    blocks = columns.split_blocks(columns.mirror(boxes) if bidi.is_rtl(words) else boxes)
    parts = (part for block in blocks for part in _split_at_gaps(boxes, block))
    return [
        Region(ORPHAN, enclose([boxes[i] for i in part]), tuple(word for i in part for word in lines[i]))
        for part in parts
    ]


def _split_at_gaps(rects: Sequence[Rect], block: Sequence[int]) -> Iterator[list[int]]:
    """Split a block of lines into paragraphs at large vertical gaps; yields indices from top to bottom."""
    part: list[int] = []
    for index in sorted(block, key=lambda i: (rects[i].y0, rects[i].x0)):
        if part and rects[index].y0 - max(rects[i].y1 for i in part) > columns.PARAGRAPH_GAP * rects[index].height:
            yield part
            part = []
        part.append(index)
    if part:
        yield part


def is_furniture(region: Region, page: Rect) -> bool:
    """Return whether a header stands at the top of the page or a footer at its bottom; elsewhere they are body text."""
    if region.label == "page-header":
        return region.box.y1 <= page.y0 + BAND * page.height
    return region.label == "page-footer" and region.box.y0 >= page.y1 - BAND * page.height


def sort_regions(regions: Sequence[Region], page: Rect) -> list[Region]:
    """Sort into reading order: headers, body by columns, footers; an orphan follows the region above it."""
    headers = [region for region in regions if region.label == "page-header" and is_furniture(region, page)]
    footers = [region for region in regions if region.label == "page-footer" and is_furniture(region, page)]
    orphans = [region for region in regions if region.label == ORPHAN]
    body = [region for region in regions if not any(region is other for other in (*headers, *footers, *orphans))]
    ordered = _order_body(body)
    headers.sort(key=lambda region: (region.box.y0, region.box.x0))
    footers.sort(key=lambda region: (region.box.y0, region.box.x0))
    # Without a body, orphans keep their order, which is the reading order already.
    return [*headers, *(insert_orphans(ordered, orphans) if ordered else orphans), *footers]


def _order_body(regions: Sequence[Region]) -> list[Region]:
    """Order regions by columns: from right to left if most of their letters are written so."""
    words = [word for region in regions for word in region.words]
    boxes = [region.box for region in regions]
    height = statistics.median(word.box.height for word in words) if words else columns.DEFAULT_LINE_HEIGHT
    mirrored = columns.mirror(boxes) if bidi.is_rtl(words) else boxes
    return [regions[index] for index in columns.order_boxes(mirrored, height)]


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
