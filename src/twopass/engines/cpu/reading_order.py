"""Put the text of a page into reading order: its regions, the words of each region, and the lines of each region.

This is plain geometry, in points of the displayed page. For text that is read from right to left, boxes are mirrored.
MuPDF ends a line at every wide gap, so a row may consist of several. Two lines that share some x cannot be one row. A
drop cap, a bracket or a large word beside several lines belongs to none of them; it separates what is on its sides.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from twopass.document import Rect, enclose
from twopass.engines.cpu import bidi
from twopass.engines.cpu.content import Region, StyledRun, StyledWord
from twopass.text import hyphenation, prose
from twopass.text.page_furniture import BAND

# ---- boxes ----

PARAGRAPH_GAP = 0.8  # of the line's height: a larger gap ends the paragraph
GUTTER = 1.2  # of the line's height: white space this wide through the whole region separates columns
BOX_GUTTER = -6.0  # points: the boxes of two columns may overlap this far, because of one stray word
SIDE_BY_SIDE_OVERLAP = 0.3  # of the smaller height, for boxes that stand side by side
MANY_LINES, VALLEY = 150, 0.35  # lines; of the median number of lines at one x: fewer cross a gutter
MIN_COLUMN_WIDTH = 6.0  # times the line's height, of a column between such gutters
BREAK = 1.8  # of the line's height: a larger gap through all columns ends them; paragraphs have less between them
MIN_CARDS, SAME_TOP = 3, 0.5  # cards in a row; tops differ by less than this share of the line's height
MIN_BESIDE_INSET = 0.5  # of the height of a pull quote, beside which each column has text
TITLE_SHIFT = 0.1  # of the width of all columns, from their middle to that of a title
DEFAULT_LINE_HEIGHT = 12.0  # points, where it is not known
MAX_COMPARED = 100  # boxes that neither a column nor a band separates: more are sorted by their top edge


def _mirror(rects: Sequence[Rect]) -> list[Rect]:
    """Mirror left and right, so that right-to-left columns are ordered as left-to-right ones."""
    return [Rect(-rect.x1, rect.y0, -rect.x0, rect.y1) for rect in rects]


def _split(rects: Sequence[Rect], part: Sequence[int], axis: int, gap: float) -> list[list[int]]:
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
    """Indices in reading order, one list per block: columns if a gutter separates them, else rows."""
    if not rects:
        return []
    height = statistics.median(rect.height for rect in rects)
    blocks: list[list[int]] = []
    stack = [list(range(len(rects)))]
    while stack:
        part = stack.pop()
        pieces = _split(rects, part, 0, GUTTER * height) or _split(rects, part, 1, PARAGRAPH_GAP * height)
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
    """Indices in reading order: columns if a gutter separates them, else bands from top to bottom.

    Bands that form columns together are merged: a heading over one of two columns belongs to its column.
    `line_height` of the page's text is in points.
    """
    ordered: list[int] = []
    stack: list[Sequence[int]] = [range(len(rects))]
    while stack:
        part = stack.pop()
        pieces = _split_card_rows(rects, part, line_height) or _split_title(rects, part)
        pieces = pieces or _split(rects, part, 0, BOX_GUTTER)
        pieces = pieces or _split_around_inset(rects, part, line_height)
        pieces = pieces or _split_box_bands(rects, part, line_height)
        if len(pieces) > 1:
            stack.extend(reversed(pieces))
        else:
            ordered += _order_connected(rects, part)
    return ordered


def _split_title(rects: Sequence[Rect], part: Sequence[int]) -> list[list[int]]:
    """Split off a title in the middle above all columns, of which it spans some; empty if there is none."""
    first, *rest = sorted(part, key=lambda i: rects[i].y0) or [0]
    if not rest or any(rects[i].y0 < rects[first].y1 for i in rest):
        return []
    whole, title = enclose([rects[i] for i in part]), rects[first]
    columns = [enclose([rects[i] for i in piece]) for piece in _split(rects, rest, 0, BOX_GUTTER)]
    is_centred = abs(title.centre[0] - whole.centre[0]) <= TITLE_SHIFT * whole.width
    is_across = sum(title.overlap_x(column) > -BOX_GUTTER for column in columns) > 1
    return [[first], rest] if is_centred and is_across else []


def _split_around_inset(rects: Sequence[Rect], part: Sequence[int], line_height: float) -> list[list[int]]:
    """Split into columns around a pull quote or photo in their gutter, read between them; empty if there is none."""
    if not 3 < len(part) <= MAX_COMPARED:
        return []
    for widest in sorted(part, key=lambda i: -rects[i].width):
        x0, x1 = rects[widest].x0 + BOX_GUTTER, rects[widest].x1 - BOX_GUTTER
        # A photo stands together with its caption.
        inset = [i for i in part if x0 <= rects[i].x0 and rects[i].x1 <= x1]
        columns = _split(rects, [i for i in part if i not in inset], 0, BOX_GUTTER)
        for at, (left, right) in enumerate(pairwise(columns), 1):
            if all(_is_inset(rects, i, left, right, line_height) for i in inset):
                return [*columns[:at], inset, *columns[at:]]
    return []


def _is_inset(rects: Sequence[Rect], index: int, left: Sequence[int], right: Sequence[int], line_height: float) -> bool:
    """Whether a box interrupts two columns, which have text above and beside it; a row of cards has one top edge."""
    box, sides = rects[index], [[rects[i] for i in column] for column in (left, right)]
    top = box.y0 - SAME_TOP * line_height
    if not all(side.overlap_x(box) > -BOX_GUTTER and side.y0 < top for side in map(enclose, sides)):
        return False
    beside = [[rect for rect in side if rect.overlap_y(box) > 0] for side in sides]
    if not all(side and sum(rect.overlap_y(box) for rect in side) >= MIN_BESIDE_INSET * box.height for side in beside):
        return False
    on_left, on_right = map(enclose, beside)
    is_inside = on_left.x0 < box.x0 - line_height and on_right.x1 > box.x1 + line_height
    return is_inside and any(abs(near.y0 - box.y0) > SAME_TOP * line_height for near in (on_left, on_right))


def _split_box_bands(rects: Sequence[Rect], part: Sequence[int], line_height: float) -> list[list[int]]:
    groups: list[list[list[int]]] = []
    for band in _split(rects, part, 1, 0.0):
        if groups and _form_columns(rects, [i for own in groups[-1] for i in own], band, line_height):
            groups[-1].append(band)
            continue
        heading = [groups[-1].pop()] if groups and _leads(rects, groups[-1], band) else []
        groups += [*([heading] if heading else []), [band]]
    return [[i for band in group for i in band] for group in groups]


def _leads(rects: Sequence[Rect], group: Sequence[Sequence[int]], following: Sequence[int]) -> bool:
    """Whether the last band of columns is a heading of what follows them: it is nearer to that than to its column."""
    if len(group) < 2 or len(group[-1]) > 1:
        return False
    last = rects[group[-1][0]]
    above = [rects[i].y1 for band in group[:-1] for i in band if rects[i].overlap_x(last) > 0]
    below = [rects[i].y0 for i in following if rects[i].overlap_x(last) > 0]
    return bool(above and below) and last.y0 - max(above) > min(below) - last.y1


def _split_card_rows(rects: Sequence[Rect], part: Sequence[int], line_height: float) -> list[list[int]]:
    """Split into bands if two or more are rows of cards; empty otherwise. Cards are narrow and begin at one height."""

    def is_card_row(band: Sequence[int]) -> bool:
        tops = [min(rects[i].y0 for i in card) for card in _split(rects, band, 0, BOX_GUTTER)]
        return len(tops) >= MIN_CARDS and max(tops) - min(tops) <= SAME_TOP * line_height

    bands = _split(rects, part, 1, BREAK * line_height)
    return bands if sum(map(is_card_row, bands)) >= 2 else []


def _form_columns(rects: Sequence[Rect], upper: Sequence[int], lower: Sequence[int], line_height: float) -> bool:
    """Whether two bands are columns together: only so, or the same columns without a break between them."""
    is_upper, is_lower = _are_side_by_side(rects, upper), _are_side_by_side(rects, lower)
    if not (is_upper and is_lower):
        return _are_side_by_side(rects, [*upper, *lower])
    gap = min(rects[i].y0 for i in lower) - max(rects[i].y1 for i in upper)
    columns = [len(_split(rects, part, 0, BOX_GUTTER)) for part in (upper, lower, [*upper, *lower])]
    return gap <= BREAK * line_height and columns[0] == columns[1] == columns[2]


def _are_side_by_side(rects: Sequence[Rect], part: Sequence[int]) -> bool:
    columns = [enclose([rects[i] for i in piece]) for piece in _split(rects, part, 0, BOX_GUTTER)]
    return len(columns) > 1 and all(
        one.overlap_y(other) > SIDE_BY_SIDE_OVERLAP * min(one.height, other.height) for one, other in pairwise(columns)
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
    """Whether a box must be read before another one; Breuel's two rules (2003)."""
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
    overlap = one.overlap_x(other)
    return overlap > min(-BOX_GUTTER, one.width / 2, other.width / 2)


# ---- rows of text ----

SAME_ROW_OVERLAP = 0.5  # of the smaller height, for two lines of one row
FAR_APART = 3.0  # of the smaller height: lines of two blocks with a wider gap need about the same height, too
FAR_ROW_OVERLAP = 0.8  # of the larger height, for those
MAX_SHARED_WIDTH = 0.3  # of the smaller height: slanted letters and scripts overlap their neighbours by less
TALL = 1.2  # times the median height, for a line that may stand beside several others
MIN_BESIDE = 2  # lines beside a tall one
MAX_SEARCHED = 200  # lines of a region that are searched for such a line: the time grows with their square
CAP_HEIGHT, MAX_CAP_LETTERS = 1.8, 2  # times a line's height, of a drop cap, which may have a quotation mark
CAP_REACH = 1.5  # of a line's height, from a drop cap to its text
GLYPH_TOP, GLYPH_BOTTOM = 0.2, 0.15  # of a font's box of a tall letter, whose ascender and descender are mostly empty
OPENING, CLOSING = frozenset("{[(⎧⎨⎡⎛"), frozenset("}])⎫⎬⎤⎞")
# As drop caps, these letters may be words.
WORDS_OF_ONE_LETTER = {
    "en": "AIO",
    "es": "AEOUY",
    "pt": "AEOÀÉ",
    "it": "AEIOÈ",
    "fr": "AYÀÔ",
    "ca": "AIO",
    "cs": "AIKOSUVZ",
    "pl": "AIOUWZ",
}
MIN_COLUMN_LINES, MIN_COLUMN_WORDS = 3, 4  # words are a line's median, in a column of running text
MIN_COLUMN_LETTERS = 12  # of a line's median, where words are not separated by spaces
MIN_CARD_LINES, MIN_CARD_WORDS = 2, 3  # for text that was drawn one column after the other
MIN_CARD_COLUMNS = 3  # side by side: fewer with short lines may be names and values
SAME_BASELINE = 0.25  # of the height
BASELINE = 0.78  # of the height of a line's box, from its top
MIN_ALIGNED = 0.7  # of the lines of the shorter column: rows, as names and values have
BAND_OVERLAP = 0.2  # of the height: neighbouring lines overlap so far

Row = list[StyledWord]


@dataclass(frozen=True)
class _Fragment:
    """Words of one line of MuPDF or OCR, with the box around them."""

    words: tuple[StyledWord, ...]
    box: Rect

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words)

    @property
    def glyphs(self) -> tuple[float, float]:
        """Top and bottom of a tall letter. The boxes of OCR, which knows no fonts, end with the ink."""
        if not self.words[0].font:
            return self.box.y0, self.box.y1
        return self.box.y0 + GLYPH_TOP * self.box.height, self.box.y1 - GLYPH_BOTTOM * self.box.height


def _group_by_line(words: Sequence[StyledWord]) -> Iterator[list[StyledWord]]:
    """Yield runs of consecutive words with the same line number."""
    for _, group in groupby(words, key=lambda word: word.line):
        yield list(group)


def _make_fragments(words: Sequence[StyledWord]) -> list[_Fragment]:
    return [_Fragment(tuple(line), enclose([word.box for word in line])) for line in _group_by_line(words)]


def group_rows(words: Sequence[StyledWord]) -> list[Row]:
    """Rows from top to bottom, with words in reading order; text that is not upright comes last."""
    upright, turned = _split_turned(words)
    return _group_fragments(upright, bidi.is_rtl(words)) + turned


def _split_turned(words: Sequence[StyledWord]) -> tuple[list[_Fragment], list[Row]]:
    """The upright lines, and the rows of vertical and upside-down text in the order in which it was drawn."""
    fragments = _make_fragments(words)
    upright = [fragment for fragment in fragments if fragment.words[0].upright]
    return upright, [list(fragment.words) for fragment in fragments if not fragment.words[0].upright]


def group_rows_as_placed(words: Sequence[StyledWord]) -> list[Row]:
    """Rows from top to bottom, with the same words from left to right, whatever their direction."""
    return [sorted(row, key=lambda word: word.box.x0) for row in _merge_rows(_make_fragments(words))]


def _group_fragments(fragments: Sequence[_Fragment], rtl: bool) -> list[Row]:
    """Group lines around the tallest line that stands beside several others, and the rest by height."""
    caps: list[_Fragment] = []
    while (found := _find_tall(fragments)) and _is_drop_cap(*found, rtl):
        caps.append(found[0])
        fragments = [fragment for fragment in fragments if fragment is not found[0]]
    if found:
        rows = _group_around(*found, fragments, rtl)
    else:
        rows = [bidi.order_row(row, rtl) for row in _merge_rows(fragments)]
    for cap in reversed(caps):
        rows = _add_drop_cap(cap, rows, rtl)
    return rows


def _find_tall(fragments: Sequence[_Fragment]) -> tuple[_Fragment, list[_Fragment]] | None:
    """The tallest line that stands beside lines below each other, and these; None if there is none."""
    if not MIN_BESIDE < len(fragments) <= MAX_SEARCHED:
        return None
    height = statistics.median(fragment.box.height for fragment in fragments)
    for tall in sorted(fragments, key=lambda fragment: -fragment.box.height):
        if tall.box.height < TALL * height:
            return None
        top, bottom = tall.glyphs
        beside = [other for other in fragments if other is not tall and top <= other.box.centre[1] <= bottom]
        is_stacked = any(_cross(one, other) for n, one in enumerate(beside) for other in beside[:n])
        if is_stacked and not any(_cross(other, tall) for other in beside):
            return tall, beside
    return None


def _is_drop_cap(tall: _Fragment, beside: Sequence[_Fragment], rtl: bool) -> bool:
    is_letter = len(tall.text) <= MAX_CAP_LETTERS and tall.text[-1:].isalpha()
    is_first = all((other.box.x0 > tall.box.x0) != rtl for other in beside)
    return is_letter and is_first and tall.box.height >= CAP_HEIGHT * min(other.box.height for other in beside)


def _group_around(tall: _Fragment, beside: Sequence[_Fragment], fragments: Sequence[_Fragment], rtl: bool) -> list[Row]:
    """The rows above, those on both sides of a tall line one after the other, and the rows below."""
    x, y = tall.box.centre
    rest = [fragment for fragment in fragments if not any(fragment is other for other in (tall, *beside))]
    left = [fragment for fragment in beside if fragment.box.centre[0] < x]
    right = [fragment for fragment in beside if fragment.box.centre[0] >= x]
    before, after = (_group_fragments(part, rtl) for part in ((right, left) if rtl else (left, right)))
    # An opening bracket ends the name of the list behind it, a closing one begins what is said of the list before it.
    if before and tall.text in OPENING:
        before[-1].extend(tall.words)
    elif after and tall.text in OPENING | CLOSING:
        after[0][:0] = tall.words
    else:
        before.append(list(tall.words))
    above = [fragment for fragment in rest if fragment.box.centre[1] < y]
    below = [fragment for fragment in rest if fragment.box.centre[1] >= y]
    return [*_group_fragments(above, rtl), *before, *after, *_group_fragments(below, rtl)]


def _add_drop_cap(cap: _Fragment, rows: list[Row], rtl: bool) -> list[Row]:
    """Put a drop cap in front of the first row beside it, joined to its word; a row of its own if there is none."""
    top, _ = cap.glyphs
    for index, row in enumerate(rows):
        box = enclose([word.box for word in row])
        gap = cap.box.x0 - box.x1 if rtl else box.x0 - cap.box.x1
        if top <= box.centre[1] <= cap.box.y1 and -box.height <= gap <= CAP_REACH * box.height:
            known = Counter(word.text.casefold().strip(".,;:") for other in rows for word in other)
            return [*rows[:index], _join_drop_cap(cap, row, known), *rows[index + 1 :]]
    return [list(cap.words), *rows]


def _join_drop_cap(cap: _Fragment, row: Row, known: Counter[str]) -> Row:
    """Join the cap to the row's first word, unless the cap is a word: "A" in front of a word that others repeat."""
    first = row[0]
    rest, text = first.text, cap.text
    is_word = _is_word_of_its_own(text[-1:], rest, known)
    if is_word or not rest[:1].isalpha():
        return [*cap.words, *row]
    runs = tuple(StyledRun(len(text) + start, len(text) + end, style) for start, end, style in first.runs)
    return [replace(first, text=text + rest, box=first.box.union(cap.box), runs=runs), *row[1:]]


def _is_word_of_its_own(letter: str, rest: str, known: Counter[str]) -> bool:
    """Whether a drop cap is a word, such as "A": the text beside it repeats the next word, or its language has both."""
    language = prose.detect_language(" ".join(known.elements())) or ""
    bare = rest.casefold().strip(".,;:")
    if letter not in WORDS_OF_ONE_LETTER.get(language, "") or known[letter.casefold() + bare]:
        return False
    return known[bare] > 1 or hyphenation.are_two_words(letter, bare, language)


def _merge_rows(fragments: Sequence[_Fragment]) -> list[Row]:
    rows: list[list[_Fragment]] = []
    bottoms: list[float] = []  # of the rows, to pass over most of them quickly
    for fragment in sorted(fragments, key=lambda f: (f.box.y0 + BASELINE * f.box.height, f.box.x0)):
        near = (n for n in reversed(range(len(rows))) if bottoms[n] >= fragment.box.y0)
        index = next((n for n in near if _is_same_row(rows[n], fragment)), None)
        if index is None:
            rows.append([fragment])
            bottoms.append(fragment.box.y1)
        else:
            rows[index].append(fragment)
            bottoms[index] = max(bottoms[index], fragment.box.y1)
    return [[word for fragment in row for word in fragment.words] for row in rows]


def _is_same_row(row: Sequence[_Fragment], fragment: _Fragment) -> bool:
    """Whether a line belongs to the row: beside its lines, and at the height of the nearest of them."""
    nearest = min(row, key=lambda other: _measure_gap(other.box, fragment.box))
    return _are_level(nearest, fragment) and not any(_cross(other, fragment) for other in row)


def _are_level(one: _Fragment, other: _Fragment) -> bool:
    """Whether two lines are at the same height; lines of two blocks far apart have the same height, too."""
    smaller, larger = sorted((one.box.height, other.box.height))
    overlap = one.box.overlap_y(other.box)
    if one.words[0].block != other.words[0].block and _measure_gap(one.box, other.box) > FAR_APART * smaller:
        return overlap >= FAR_ROW_OVERLAP * larger
    return overlap >= SAME_ROW_OVERLAP * smaller


def _measure_gap(one: Rect, other: Rect) -> float:
    return max(one.x0 - other.x1, other.x0 - one.x1)


def _cross(one: _Fragment, other: _Fragment) -> bool:
    """Whether words of two lines share some x; a line with right-to-left words may have a hole for others."""
    return _share_x(one.box, other.box) and any(_share_x(a.box, b.box) for a in one.words for b in other.words)


def _share_x(one: Rect, other: Rect) -> bool:
    limit = min(MAX_SHARED_WIDTH * min(one.height, other.height), one.width / 2, other.width / 2)
    return -_measure_gap(one, other) > limit


# ---- columns within a region ----


def order_lines(words: Sequence[StyledWord]) -> list[Row]:
    """The rows of a text region, one column after the other where there are columns.

    Text that is not upright comes last.
    """
    upright, turned = _split_turned(words)
    rtl = bidi.is_rtl(words)
    ordered: list[Row] = []
    for band in _split_bands(upright, rtl) if upright else ():
        parts = band if _are_columns(band) else [[fragment for part in band for fragment in part]]
        for part in parts:
            ordered += _group_fragments(part, rtl)
    return ordered + turned


def _split_bands(fragments: Sequence[_Fragment], rtl: bool) -> list[list[list[_Fragment]]]:
    """Split a region into bands from top to bottom, each with its columns: one if no gutter runs through the band."""
    rects = [fragment.box for fragment in fragments]
    rects = _mirror(rects) if rtl else rects
    gutter = GUTTER * statistics.median(rect.height for rect in rects)
    thin = [rect._replace(y0=rect.y0 + BAND_OVERLAP * rect.height) for rect in rects]

    def split(part: Sequence[int]) -> list[list[int]]:
        return _split(rects, part, 0, gutter)

    bands: list[list[int]] = []
    for lines in _split(thin, range(len(rects)), 1, 0.0) or [list(range(len(rects)))]:
        if bands and (split([*bands[-1], *lines]) or not (split(bands[-1]) or split(lines))):
            bands[-1] += lines
        else:
            bands.append(list(lines))
    return [[[fragments[i] for i in sorted(part)] for part in split(band) or [band]] for band in bands]


def _are_columns(parts: Sequence[Sequence[_Fragment]]) -> bool:
    """Whether parts side by side are read one after the other, and not as rows of names and values."""
    if len(parts) < 2 or not _overlap_in_height(parts):
        return False
    lines = [_merge_rows(part) for part in parts]
    if all(map(_is_running, lines)):
        return True
    if not _are_aligned(lines):
        return len(parts) == 2 or min(map(len, lines)) >= MIN_CARD_LINES
    return (
        _were_drawn_in_turn(parts)
        and all(len(part) >= MIN_CARD_LINES for part in lines)
        and (len(parts) >= MIN_CARD_COLUMNS or all(_count_words(part) >= MIN_CARD_WORDS for part in lines))
    )


def _overlap_in_height(parts: Sequence[Sequence[_Fragment]]) -> bool:
    boxes = [enclose([fragment.box for fragment in part]) for part in parts]
    top, bottom = max(box.y0 for box in boxes), min(box.y1 for box in boxes)
    return bottom - top >= SAME_ROW_OVERLAP * min(box.height for box in boxes)


def _is_running(lines: Sequence[Row]) -> bool:
    """Whether the lines are running text; names and values side by side are not columns."""
    letters = statistics.median(sum(len(word.text) for word in line) for line in lines)
    return len(lines) >= MIN_COLUMN_LINES and (
        _count_words(lines) >= MIN_COLUMN_WORDS or (_count_words(lines) <= 1 and letters >= MIN_COLUMN_LETTERS)
    )


def _count_words(lines: Sequence[Row]) -> float:
    return statistics.median(map(len, lines))


def _are_aligned(columns_of_lines: Sequence[Sequence[Row]]) -> bool:
    """Whether most lines of the shorter columns have a line on the same baseline in the longest."""
    longest = max(columns_of_lines, key=len)
    baselines = [_find_baseline(line) for line in longest]
    others = [line for lines in columns_of_lines if lines is not longest for line in lines]
    aligned = sum(
        any(abs(_find_baseline(line) - y) <= SAME_BASELINE * _find_height(line) for y in baselines) for line in others
    )
    return aligned >= MIN_ALIGNED * len(others)


def _find_baseline(line: Row) -> float:
    return statistics.median(word.box.y1 for word in line)


def _find_height(line: Row) -> float:
    return statistics.median(word.box.height for word in line)


def _were_drawn_in_turn(parts: Sequence[Sequence[_Fragment]]) -> bool:
    """Whether each part's lines were all drawn before those of the next, in other blocks."""
    numbers = [[fragment.words[0].line for fragment in part] for part in parts]
    blocks = [{fragment.words[0].block for fragment in part} for part in parts]
    return all(max(numbers[i]) < min(numbers[i + 1]) and not blocks[i] & blocks[i + 1] for i in range(len(parts) - 1))


# ---- columns of scans ----

FILLED, MIN_FILLED = 0.85, 0.6  # of a column's width that a line of running text fills, and of its lines that do
# Of a column's lines, those that end where the next word has no room, and those that begin with a small letter. Running
# text has 0.95 and 0.33 or more, ragged or not, with paragraphs 0.74 and 0.41; cells of several lines have 0.6 at most.
MIN_WRAPPED, MIN_CONTINUED = 0.7, 0.3
# In scripts without small letters: lines that begin with a letter, and those in which a sentence ends.
MIN_CASELESS, MIN_INNER_ENDS = 0.8, 0.05
_BREAKS_ANYWHERE = re.compile(f"[{prose.HAN}{prose.KANA}]")
_WIDE = re.compile(f"[{prose.HAN}{prose.KANA}{prose.HANGUL}]")  # says as much as two Latin letters
_INNER_END = re.compile(r"[^\s\d][.!?。！？؟।][^\W\d_]")
MIN_WRAPPED_LINES = 8  # of such a column: fewer may be two cells
MIN_RULE = 3.0  # times the height of words: strokes of Arabic letters, which are also seen as rules, are shorter
BLANK = 0.35  # of a line's height, between two words


def split_at_gutters(regions: Sequence[Region], gutters: Sequence[Rect]) -> list[Region]:
    """The regions, with those of text that lie across a gutter cut into what is above, its columns, and what is below.

    `gutters` are seen in the pixels. Names and values beside each other stay together.
    """
    return [part for region in regions for part in _split_at_gutters(_release_columns(region, gutters), gutters)]


def cut_lines(words: Sequence[StyledWord], bands: Sequence[Rect]) -> list[StyledWord]:
    """The words, with each line that crosses a band between running text on both sides cut there into two lines."""
    fragments = _make_fragments(words)
    while bands:
        pieces = [piece for fragment in fragments for piece in _cut_fragment(fragment, bands)]
        kept = [band for band in bands if _separates_text(pieces, band)]
        if len(kept) == len(bands):
            return [replace(word, line=number) for number, piece in enumerate(pieces) for word in piece.words]
        bands = kept
    return list(words)


def _cut_fragment(fragment: _Fragment, bands: Sequence[Rect]) -> Iterator[_Fragment]:
    level = (band for band in bands if band.y0 <= fragment.box.centre[1] <= band.y1)
    own = sorted(band.centre[0] for band in level) if fragment.words[0].upright else []
    for _, part in groupby(fragment.words, key=lambda word: bisect_left(own, word.box.centre[0])):
        yield from _make_fragments(tuple(part))


def _split_at_gutters(region: Region, gutters: Sequence[Rect]) -> list[Region]:
    if region.label in ("table", "picture", "formula") or not region.words:
        return [region]
    own = _find_own(region, gutters)
    for gutter in own:
        parts = _split_around(_make_fragments(region.words), gutter)
        if parts:  # what is above and below is smaller, and may have the same gutter
            pieces = (_make_region(region.label, part) for part in parts if part)
            return [piece for part in pieces for piece in _split_at_gutters(part, gutters)]
    return [region]


def _find_own(region: Region, gutters: Sequence[Rect]) -> list[Rect]:
    """The gutters within a region, the longest first."""
    own = (gutter for gutter in gutters if region.box.x0 < gutter.centre[0] < region.box.x1)
    ordered = sorted(own, key=lambda gutter: -gutter.overlap_y(region.box))
    return [g._replace(y0=max(g.y0, region.box.y0), y1=min(g.y1, region.box.y1)) for g in ordered]


def _release_columns(region: Region, gutters: Sequence[Rect]) -> Region:
    """The region, as text if it is a table without rules and shades in which every gutter separates running text."""
    if region.grid is None or region.grid.shades or not region.words:
        return region
    least = MIN_RULE * statistics.median(word.box.height for word in region.words)
    if any(max(rule.width, rule.height) >= least for rule in region.grid.rules):
        return region
    fragments = _make_fragments(region.words)
    own = [gutter for gutter in _find_own(region, gutters) if gutter.height > 0]
    are_columns = any(_separates_text(fragments, gutter) for gutter in own) and all(
        _separates_text(fragments, gutter, MIN_COLUMN_LINES) for gutter in own
    )
    return Region("text", region.box, region.words) if are_columns else region


def split_notes(region: Region) -> list[Region]:
    """The notes and the text, where a table without rules and shades is text with notes in its margin."""
    if region.grid is None or region.grid.rules or region.grid.shades or not region.words:
        return [region]
    fragments = _make_fragments(region.words)
    boxes = [fragment.box for fragment in fragments]
    sides = _split(boxes, range(len(boxes)), 0, GUTTER * statistics.median(box.height for box in boxes))
    notes, text = sorted(sides, key=len) if len(sides) == 2 else ([], [])
    if not _are_notes([fragments[i] for i in notes], [fragments[i] for i in text]):
        return [region]
    parts = [*_split_at_gaps(boxes, notes), text]
    return [_make_region("text", [fragments[i] for i in part]) for part in parts]


def _are_notes(notes: Sequence[_Fragment], text: Sequence[_Fragment]) -> bool:
    """Whether both are running text, with lines at different heights: those of cells begin at the same height."""
    lines = sorted(notes, key=lambda fragment: fragment.box.centre[1])
    if len(lines) < MIN_COLUMN_LINES or not _goes_on([line.text for line in lines]):
        return False
    return _is_wrapped(text, MIN_WRAPPED_LINES) and not _are_aligned([_merge_rows(part) for part in (notes, text)])


def _split_around(fragments: Sequence[_Fragment], gutter: Rect) -> list[list[_Fragment]]:
    """What is above a gutter, left of it, right of it and below it; empty if it separates no columns."""
    x, y = gutter.centre
    crossing = [fragment.box for fragment in fragments if fragment.box.x0 < gutter.x0 and fragment.box.x1 > gutter.x1]
    top = max((box.y1 for box in crossing if box.centre[1] < y), default=float("-inf"))
    bottom = min((box.y0 for box in crossing if box.centre[1] >= y), default=float("inf"))
    above = [fragment for fragment in fragments if fragment.box.centre[1] <= top]
    below = [fragment for fragment in fragments if fragment.box.centre[1] >= bottom]
    between = [fragment for fragment in fragments if top < fragment.box.centre[1] < bottom]
    sides = [[f for f in between if f.box.centre[0] < x], [f for f in between if f.box.centre[0] >= x]]
    if not all(sides):
        return []
    if not (_are_columns(sides) or all(map(_fills_column, sides)) or _separates_text(fragments, gutter)):
        return []
    return [above, *sides, below]


def _separates_text(fragments: Sequence[_Fragment], gutter: Rect, min_lines: int = MIN_WRAPPED_LINES) -> bool:
    """Whether the columns next to a gutter on both of its sides are running text, whatever is beyond them."""
    beside = [fragment for fragment in fragments if gutter.y0 <= fragment.box.centre[1] <= gutter.y1]
    left, right = ([f for f in beside if (f.box.centre[0] >= gutter.centre[0]) == side] for side in (False, True))
    left = [f for f in left if not any(_are_level(f, o) and o.box.x0 >= f.box.x1 for o in left)]
    right = [f for f in right if not any(_are_level(f, o) and o.box.x1 <= f.box.x0 for o in right)]
    return all(_is_wrapped(_take_column(side), min_lines) for side in (left, right))


def _take_column(lines: Sequence[_Fragment]) -> list[_Fragment]:
    """The lines, without those beside what has no text, such as a picture, which are of another column."""
    left, right = (statistics.median(line.box[side] for line in lines) for side in (0, 2)) if lines else (0.0, 0.0)
    return [line for line in lines if line.box.x0 < right and line.box.x1 > left]


def _is_wrapped(column: Sequence[_Fragment], min_lines: int) -> bool:
    """Whether lines below each other end where the next word has no room, and go on with small letters."""
    if len(column) < min_lines:
        return False
    lines = sorted(column, key=lambda fragment: fragment.box.centre[1])
    box = enclose([line.box for line in lines])
    is_rtl = bidi.is_rtl([word for line in lines for word in line.words])
    pairs = list(pairwise(lines))
    wrapped = sum(line.text.endswith("-") or _fills_line(line, following, box, is_rtl) for line, following in pairs)
    return wrapped >= MIN_WRAPPED * len(pairs) and _goes_on([line.text for line in lines])


def _fills_line(line: _Fragment, following: _Fragment, column: Rect, is_rtl: bool) -> bool:
    """Whether the first word of the following line has no room behind this one; Chinese is broken at any character."""
    first = (max if is_rtl else min)(following.words, key=lambda word: word.box.x0)
    width = line.box.height if _BREAKS_ANYWHERE.match(first.text) else first.box.width
    room = line.box.x0 - column.x0 if is_rtl else column.x1 - line.box.x1
    return room < BLANK * line.box.height + width


def _fills_column(part: Sequence[_Fragment]) -> bool:
    """Whether most lines are as long as the column is wide, as those of running text are."""
    lines = _merge_rows(part)
    width = enclose([fragment.box for fragment in part]).width
    filled = sum(enclose([word.box for word in line]).width >= FILLED * width for line in lines)
    letters = statistics.median(sum(len(word.text) for word in line) for line in lines)
    return len(lines) >= MIN_COLUMN_LINES and letters >= MIN_COLUMN_LETTERS and filled >= MIN_FILLED * len(lines)


NEXT_LINE = 0.7  # of a line's height, from a gutter to the line that interrupts it: a heading has more above it


def judge_columns(region: Region, gutters: Sequence[Rect]) -> Region:
    """The region, marked if its lines probably run across one of these gutters, which do not separate all of them."""
    if region.grid is not None or region.label not in ("text", "list-item", ORPHAN) or not region.words:
        return region
    rows = [row for row in order_lines(region.words) if row[0].upright]
    across = any(_run_across(rows, gutter) for gutter in gutters) or _interrupts(region, rows, gutters)
    return replace(region, across=True) if across else region


def _run_across(rows: Sequence[Row], gutter: Rect) -> bool:
    """Whether many rows have words on both sides of a gutter, which go on from row to row on each side."""
    sides: tuple[list[str], list[str]] = [], []
    for row in rows:
        if gutter.y0 <= statistics.median(word.box.centre[1] for word in row) <= gutter.y1:
            parts = [[w.text for w in row if (w.box.centre[0] >= gutter.centre[0]) == side] for side in (False, True)]
            if all(parts):
                for side, part in zip(sides, parts, strict=True):
                    side.append("".join(part))
    return all(len(side) >= MIN_WRAPPED_LINES and _goes_on(side) for side in sides)


def is_running_on(rows: Sequence[Row]) -> bool:
    """Whether rows of several words are running text, whose sentences go on from row to row."""
    return _is_running(rows) and _goes_on(["".join(word.text for word in row) for row in rows])


def _goes_on(lines: Sequence[str]) -> bool:
    """Whether sentences go on from line to line: with small letters or, without these, as others end inside."""
    if statistics.median(len(line) + len(_WIDE.findall(line)) for line in lines) < MIN_COLUMN_LETTERS:
        return False
    starts = [line[:1] for line in lines[1:]]
    if sum(map(str.islower, starts)) >= MIN_CONTINUED * len(starts):
        return True
    caseless = sum(start.isalpha() and start.lower() == start.upper() for start in starts)
    inner_ends = sum(bool(_INNER_END.search(line)) for line in lines)
    has_ends = inner_ends >= MIN_INNER_ENDS * len(lines) or len(lines) < MIN_WRAPPED_LINES
    return caseless >= MIN_CASELESS * len(starts) and has_ends


def _interrupts(region: Region, rows: Sequence[Row], gutters: Sequence[Rect]) -> bool:
    """Whether one or two rows without much white lie across a gutter from the line above them to the line below."""
    if not 0 < len(rows) <= 2:
        return False
    box, height = region.box, statistics.median(word.box.height for word in region.words)
    near, least = NEXT_LINE * height, GUTTER * height
    crossed = [g for g in gutters if box.x0 < g.x0 - height and box.x1 > g.x1 + height]
    above = [g for g in crossed if g.y0 < box.y0 - near <= g.y1 and _measure_white(region.words, g.centre[0]) < least]
    below = [g for g in gutters if g.y0 <= box.y1 + near < g.y1]
    return any(one.overlap_x(other) > 0 for one in above for other in below)


def _measure_white(words: Sequence[StyledWord], x: float) -> float:
    """The white around a position between words; none if a word lies across it."""
    left = max((word.box.x1 for word in words if word.box.centre[0] < x), default=x)
    right = min((word.box.x0 for word in words if word.box.centre[0] >= x), default=x)
    return right - left


def _make_region(label: str, part: Sequence[_Fragment]) -> Region:
    box = enclose([fragment.box for fragment in part])
    return Region(label, box, tuple(word for fragment in part for word in fragment.words))


# ---- regions ----

_HEADINGS = frozenset({"title", "section-header"})
ORPHAN = "orphan"  # label of text that the layout model missed
FULL_PAGE_SHARE = 0.6  # of the page: a larger picture with running text is a scan of the page
MIN_RUNNING_WORDS = 30  # in such a picture; a photo has fewer words
TEXT_SHARE = 0.8  # of a picture around its words, if these are all of it
MIN_WORD_OVERLAP = 0.3  # of a word's area inside a region, for words whose centre is in none


def assign_words(regions: Sequence[Region], words: Sequence[StyledWord], page: Rect) -> list[Region]:
    """Assign every word to one region; words that fit none form orphan regions at the end."""
    regions = _drop_nested(_drop_full_page_pictures(_drop_text_pictures(regions, words), words, page))
    words_by_region: list[list[StyledWord]] = [[] for _ in regions]
    orphans: list[StyledWord] = []
    for word in words:
        index = _find_region(word, regions)
        (words_by_region[index] if index is not None else orphans).append(word)
    filled = [replace(region, words=tuple(own)) for region, own in zip(regions, words_by_region, strict=True)]
    return [*(region for region in filled if region.words or region.label == "picture"), *_group_paragraphs(orphans)]


def _drop_full_page_pictures(regions: Sequence[Region], words: Sequence[StyledWord], page: Rect) -> list[Region]:
    """Drop pictures that fill the page and hold running text: their words then become text."""

    def is_page(region: Region) -> bool:
        if region.label != "picture" or region.box.overlap(page) < FULL_PAGE_SHARE * page.area:
            return False
        return sum(region.box.contains(word.box.centre) for word in words) >= MIN_RUNNING_WORDS

    return [region for region in regions if not is_page(region)]


def _drop_text_pictures(regions: Sequence[Region], words: Sequence[StyledWord]) -> Sequence[Region]:
    """Drop all regions if they are pictures of nothing but words, for which the model takes the cells of a strip."""

    def is_text(region: Region) -> bool:
        own = [word.box for word in words if region.box.contains(word.box.centre)]
        return region.label == "picture" and bool(own) and enclose(own).area >= TEXT_SHARE * region.box.area

    return [] if len(regions) > 1 and all(map(is_text, regions)) else regions


def _drop_nested(regions: Sequence[Region]) -> list[Region]:
    """Drop regions that lie inside another region, but for tables that text runs around."""
    kept: list[Region] = []
    for region in sorted(regions, key=lambda r: -r.box.area):
        around = [other for other in kept if region.box.overlap(other.box) >= 0.99 * region.box.area]
        if all(region.grid is not None and other.label == "text" for other in around):
            kept.append(region)
    return [region for region in regions if region in kept]


def _find_region(word: StyledWord, regions: Sequence[Region]) -> int | None:
    """The index of the smallest region around the word's centre, or of the one that overlaps it most."""
    inside = [i for i, region in enumerate(regions) if region.box.contains(word.box.centre, 1.0)]
    if inside:
        return min(inside, key=lambda i: regions[i].box.area)
    shares = [(region.box.overlap(word.box), i) for i, region in enumerate(regions)]
    share, index = max(shares, default=(0.0, 0))
    return index if share > MIN_WORD_OVERLAP * word.box.area and share > 0 else None


def _group_paragraphs(words: Sequence[StyledWord]) -> list[Region]:
    """Group words without a region into text regions in reading order, split at white space."""
    lines = list(_group_by_line(words))
    boxes = [enclose([word.box for word in line]) for line in lines]
    blocks = split_blocks(_mirror(boxes) if bidi.is_rtl(words) else boxes)
    parts = (part for block in blocks for part in _split_at_gaps(boxes, block))
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


def _is_header(region: Region, regions: Sequence[Region], page: Rect) -> bool:
    """Whether a header stands at the top of the page, and not below the title: authors are labelled so."""
    titles = (other.box for other in regions if other.label in _HEADINGS and other.box.y1 <= region.box.centre[1])
    return _is_furniture(region, page) and not any(title.overlap_x(region.box) > 0 for title in titles)


def _is_furniture(region: Region, page: Rect) -> bool:
    """Whether a header stands at the top of the page or a footer at its bottom; elsewhere they are body text."""
    if region.label == "page-header":
        return region.box.y1 <= page.y0 + BAND * page.height
    return region.label == "page-footer" and region.box.y0 >= page.y1 - BAND * page.height


def sort_regions(regions: Sequence[Region], page: Rect) -> list[Region]:
    """Sort into reading order: headers, body by columns, footers; an orphan follows the region above it."""
    headers = [region for region in regions if region.label == "page-header" and _is_header(region, regions, page)]
    footers = [region for region in regions if region.label == "page-footer" and _is_furniture(region, page)]
    orphans = [region for region in regions if region.label == ORPHAN]
    body = [region for region in regions if not any(region is other for other in (*headers, *footers, *orphans))]
    ordered = _order_body(body)
    headers, footers = _order_body(headers), _order_body(footers)
    # Without a body, orphans keep their order, which is the reading order already.
    return [*headers, *(_insert_orphans(ordered, orphans) if ordered else orphans), *footers]


def _order_body(regions: Sequence[Region]) -> list[Region]:
    """Order regions by columns: from right to left if most of their letters are written so."""
    words = [word for region in regions for word in region.words]
    boxes = [region.box for region in regions]
    height = statistics.median(word.box.height for word in words) if words else DEFAULT_LINE_HEIGHT
    mirrored = _mirror(boxes) if bidi.is_rtl(words) else boxes
    return [regions[index] for index in order_boxes(mirrored, height)]


def _insert_orphans(ordered: Sequence[Region], orphans: Sequence[Region]) -> list[Region]:
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
    """Whether two boxes share a column and the centre of the first is not lower."""
    return one.x0 < other.x1 and other.x0 < one.x1 and one.centre[1] <= other.centre[1]


def _find_index_by_height(placed: Sequence[Region], orphan: Region) -> int:
    return sum(region.box.centre[1] <= orphan.box.centre[1] for region in placed)
