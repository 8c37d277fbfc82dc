"""Put the lines of MuPDF or OCR together to rows of text, in reading order.

MuPDF ends a line at every wide gap, so a row may consist of several. Two lines that share some x cannot be one row.
A drop cap, a bracket or a large word beside several lines belongs to none of them; it separates what is on its sides.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from twopass.engines.cpu import bidi, columns
from twopass.engines.cpu.geometry import Rect, Run, StyledWord, enclose

SAME_ROW_OVERLAP = 0.5  # of the smaller height, for two lines of one row
FAR_APART = 3.0  # of the smaller height: lines of two blocks with a wider gap need about the same height, too
FAR_ROW_OVERLAP = 0.8  # of the larger height, for those
MAX_SHARED_WIDTH = 0.3  # of the smaller height: slanted letters and scripts overlap their neighbours by less
TALL = 1.2  # times the median height, for a line that may stand beside several others,
MIN_BESIDE = 2  # at least
MAX_SEARCHED = 200  # lines of a region that are searched for such a line: the time grows with their square
CAP_HEIGHT, MAX_CAP_LETTERS = 1.8, 2  # times a line's height, of a drop cap, which may have a quotation mark
CAP_REACH = 1.5  # of a line's height, from a drop cap to its text
GLYPH_TOP, GLYPH_BOTTOM = 0.2, 0.15  # of a tall letter's box, whose ascender and descender are mostly empty
OPENING, CLOSING = frozenset("{[(⎧⎨⎡⎛"), frozenset("}])⎫⎬⎤⎞")
WORDS_OF_ONE_LETTER = frozenset("AIO")  # as drop caps they may be a word
MIN_COLUMN_LINES, MIN_COLUMN_WORDS = 3, 4  # words are a line's median, in a column of running text
MIN_COLUMN_LETTERS = 12  # of a line's median, where words are not separated by spaces
MIN_CARD_LINES, MIN_CARD_WORDS = 2, 3  # for text that was drawn one column after the other
MIN_CARDS = 3  # side by side: fewer with short lines may be names and values
SAME_BASELINE = 0.25  # of the height
BASELINE = 0.78  # of the height of a line's box, from its top
MIN_ALIGNED = 0.7  # of the lines of the shorter column: rows, as names and values have
BAND_OVERLAP = 0.2  # of the height: neighbouring lines overlap so far

Row = list[StyledWord]


@dataclass(frozen=True)
class Fragment:
    """Words of one line of MuPDF or OCR, with the box around them."""

    words: tuple[StyledWord, ...]
    box: Rect

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words)


def group_by_line(words: Sequence[StyledWord]) -> Iterator[list[StyledWord]]:
    """Yield runs of consecutive words with the same line number."""
    for _, group in groupby(words, key=lambda word: word.line):
        yield list(group)


def _make_fragments(words: Sequence[StyledWord]) -> list[Fragment]:
    return [Fragment(tuple(line), enclose([word.box for word in line])) for line in group_by_line(words)]


def group_rows(words: Sequence[StyledWord]) -> list[Row]:
    """Return rows from top to bottom, with words in reading order; text that is not upright comes last."""
    upright, turned = _split_turned(words)
    return _group_fragments(upright, bidi.is_rtl(words)) + turned


def _split_turned(words: Sequence[StyledWord]) -> tuple[list[Fragment], list[Row]]:
    """Return the upright lines, and the rows of vertical and upside-down text in the order in which it was drawn."""
    fragments = _make_fragments(words)
    upright = [fragment for fragment in fragments if fragment.words[0].upright]
    return upright, [list(fragment.words) for fragment in fragments if not fragment.words[0].upright]


def group_rows_as_placed(words: Sequence[StyledWord]) -> list[Row]:
    """Return rows from top to bottom, with the same words from left to right, whatever their direction."""
    return [sorted(row, key=lambda word: word.box.x0) for row in _merge_rows(_make_fragments(words))]


def _group_fragments(fragments: Sequence[Fragment], rtl: bool) -> list[Row]:
    """Group lines around the tallest line that stands beside several others, and the rest by height."""
    caps: list[Fragment] = []
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


def _find_tall(fragments: Sequence[Fragment]) -> tuple[Fragment, list[Fragment]] | None:
    """Return the tallest line that stands beside lines below each other, and these; None if there is none."""
    if not MIN_BESIDE < len(fragments) <= MAX_SEARCHED:
        return None
    height = statistics.median(fragment.box.height for fragment in fragments)
    for tall in sorted(fragments, key=lambda fragment: -fragment.box.height):
        if tall.box.height < TALL * height:
            return None
        top, bottom = tall.box.y0 + GLYPH_TOP * tall.box.height, tall.box.y1 - GLYPH_BOTTOM * tall.box.height
        beside = [other for other in fragments if other is not tall and top <= other.box.centre[1] <= bottom]
        is_stacked = any(_cross(one, other) for n, one in enumerate(beside) for other in beside[:n])
        if is_stacked and not any(_cross(other, tall) for other in beside):
            return tall, beside
    return None


def _is_drop_cap(tall: Fragment, beside: Sequence[Fragment], rtl: bool) -> bool:
    is_letter = len(tall.text) <= MAX_CAP_LETTERS and tall.text[-1:].isalpha()
    is_first = all((other.box.x0 > tall.box.x0) != rtl for other in beside)
    return is_letter and is_first and tall.box.height >= CAP_HEIGHT * min(other.box.height for other in beside)


def _group_around(tall: Fragment, beside: Sequence[Fragment], fragments: Sequence[Fragment], rtl: bool) -> list[Row]:
    """Return the rows above, those on both sides of a tall line one after the other, and the rows below."""
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


def _add_drop_cap(cap: Fragment, rows: list[Row], rtl: bool) -> list[Row]:
    """Put a drop cap in front of the first row beside it, joined to its word; a row of its own if there is none."""
    top = cap.box.y0 + GLYPH_TOP * cap.box.height
    for index, row in enumerate(rows):
        box = enclose([word.box for word in row])
        gap = cap.box.x0 - box.x1 if rtl else box.x0 - cap.box.x1
        if top <= box.centre[1] <= cap.box.y1 and -box.height <= gap <= CAP_REACH * box.height:
            known = Counter(word.text.casefold().strip(".,;:") for other in rows for word in other)
            return [*rows[:index], _join_drop_cap(cap, row, known), *rows[index + 1 :]]
    return [list(cap.words), *rows]


def _join_drop_cap(cap: Fragment, row: Row, known: Counter[str]) -> Row:
    """Join the cap to the row's first word, unless the cap is a word: "A" in front of a word that others repeat."""
    first = row[0]
    rest, text = first.text, cap.text
    is_word = text[-1:] in WORDS_OF_ONE_LETTER and known[rest.casefold()] > 1 and not known[(text + rest).casefold()]
    if is_word or not rest[:1].isalpha():
        return [*cap.words, *row]
    runs = tuple(Run(len(text) + start, len(text) + end, style) for start, end, style in first.runs)
    return [replace(first, text=text + rest, box=first.box.union(cap.box), runs=runs), *row[1:]]


def _merge_rows(fragments: Sequence[Fragment]) -> list[Row]:
    rows: list[list[Fragment]] = []
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


def _is_same_row(row: Sequence[Fragment], fragment: Fragment) -> bool:
    """Return whether a line belongs to the row: beside its lines, and at the height of the nearest of them."""
    nearest = min(row, key=lambda other: _measure_gap(other.box, fragment.box))
    return _are_level(nearest, fragment) and not any(_cross(other, fragment) for other in row)


def _are_level(one: Fragment, other: Fragment) -> bool:
    """Return whether two lines are at the same height; lines of two blocks far apart have the same height, too."""
    smaller, larger = sorted((one.box.height, other.box.height))
    overlap = min(one.box.y1, other.box.y1) - max(one.box.y0, other.box.y0)
    if one.words[0].block != other.words[0].block and _measure_gap(one.box, other.box) > FAR_APART * smaller:
        return overlap >= FAR_ROW_OVERLAP * larger
    return overlap >= SAME_ROW_OVERLAP * smaller


def _measure_gap(one: Rect, other: Rect) -> float:
    return max(one.x0 - other.x1, other.x0 - one.x1)


def _cross(one: Fragment, other: Fragment) -> bool:
    """Return whether words of two lines share some x; a line with right-to-left words may have a hole for others."""
    return _share_x(one.box, other.box) and any(_share_x(a.box, b.box) for a in one.words for b in other.words)


def _share_x(one: Rect, other: Rect) -> bool:
    limit = min(MAX_SHARED_WIDTH * min(one.height, other.height), (one.x1 - one.x0) / 2, (other.x1 - other.x0) / 2)
    return -_measure_gap(one, other) > limit


# ---- columns within a region ----


def order_lines(words: Sequence[StyledWord]) -> list[Row]:
    """Return the rows of a text region, one column after the other where there are columns.

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


def _split_bands(fragments: Sequence[Fragment], rtl: bool) -> list[list[list[Fragment]]]:
    """Split a region into bands from top to bottom, each with its columns: one if no gutter runs through the band."""
    rects = [fragment.box for fragment in fragments]
    rects = columns.mirror(rects) if rtl else rects
    gutter = columns.GUTTER * statistics.median(rect.height for rect in rects)
    thin = [rect._replace(y0=rect.y0 + BAND_OVERLAP * rect.height) for rect in rects]

    def split(part: Sequence[int]) -> list[list[int]]:
        return columns.split(rects, part, 0, gutter)

    bands: list[list[int]] = []
    for lines in columns.split(thin, range(len(rects)), 1, 0.0) or [list(range(len(rects)))]:
        if bands and (split([*bands[-1], *lines]) or not (split(bands[-1]) or split(lines))):
            bands[-1] += lines
        else:
            bands.append(list(lines))
    return [[[fragments[i] for i in sorted(part)] for part in split(band) or [band]] for band in bands]


def _are_columns(parts: Sequence[Sequence[Fragment]]) -> bool:
    """Return whether parts side by side are read one after the other, and not as rows of names and values."""
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
        and (len(parts) >= MIN_CARDS or all(_count_words(part) >= MIN_CARD_WORDS for part in lines))
    )


def _overlap_in_height(parts: Sequence[Sequence[Fragment]]) -> bool:
    boxes = [enclose([fragment.box for fragment in part]) for part in parts]
    top, bottom = max(box.y0 for box in boxes), min(box.y1 for box in boxes)
    return bottom - top >= SAME_ROW_OVERLAP * min(box.height for box in boxes)


def _is_running(lines: Sequence[Row]) -> bool:
    """Return whether the lines are running text; names and values side by side are not columns."""
    letters = statistics.median(sum(len(word.text) for word in line) for line in lines)
    return len(lines) >= MIN_COLUMN_LINES and (
        _count_words(lines) >= MIN_COLUMN_WORDS or (_count_words(lines) <= 1 and letters >= MIN_COLUMN_LETTERS)
    )


def _count_words(lines: Sequence[Row]) -> float:
    return statistics.median(map(len, lines))


def _are_aligned(columns_of_lines: Sequence[Sequence[Row]]) -> bool:
    """Return whether most lines of the shorter columns have a line on the same baseline in the longest."""
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


def _were_drawn_in_turn(parts: Sequence[Sequence[Fragment]]) -> bool:
    """Return whether each part's lines were all drawn before those of the next, in other blocks."""
    numbers = [[fragment.words[0].line for fragment in part] for part in parts]
    blocks = [{fragment.words[0].block for fragment in part} for part in parts]
    return all(max(numbers[i]) < min(numbers[i + 1]) and not blocks[i] & blocks[i + 1] for i in range(len(parts) - 1))
