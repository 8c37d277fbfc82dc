"""Find where the words of a text stand on its page: on the lines of ink in the boxes of the text.

It knows which words there are and in which order. Gaps divide the ink into pieces, and the widths of letters say which
piece is which word.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twopass.document import Box, Word, enclose
from twopass.pages.ink import PageInk

_FONTS = ("helv", "tiro", "cour")  # Helvetica, Times and Courier: the one whose words are as wide as the ink is like it
_OTHER_WIDTH, _WIDE_WIDTH = 0.5, 1.0  # of letters that they lack, over the size
_SPACE = 0.28  # over the size
_LINE_HEIGHT, _LINE_INK = 1.3, 0.85  # of a line with the white below it over the size, and its letters over both
_SAME_LINE = 0.5  # of the lower height: pieces that share so much of it are on one line
_MAX_LETTERS = 20_000  # of a text whose lines are searched for; more are a halftone
_WORD_GAPS = (0.17, 0.35)  # over the median height of a text's lines: the widest between letters, and in Courier
_GOOD = 0.3  # cost of each word, in sizes of the type: with more, other gaps are tried
_MOST_TOGETHER = 4  # words in one piece of ink, or pieces of one word
_BAND = 400  # pieces before and after the place where a unit is expected: a text of more is a page, or a halftone
_UNEVEN, _BROKEN = 0.12, 0.3  # cost of each further word or piece, and of a word on two lines, in sizes of the type
_NO_INK, _NO_WORD = 1.0, 0.6  # cost of a word without ink, and of ink without a word, beside their widths
_LEAST_LETTERS = 5  # of a word that is divided without a hyphen of its own
_ROOM = 0.1  # of a line's height, above and below its ink: it may have digits only
_CLEAR = 0.1  # of the rows of a table may have ink in the gap between two columns

_HYPHENS = "-–—/"

_Numbers = npt.NDArray[np.float64]


class Text(NamedTuple):
    """A text with its boxes; of a table, the texts of its cells with their places in the grid.

    A formula's text is LaTeX, which the page shows in another form; a picture's is all that may be read in it.
    """

    boxes: tuple[Box, ...]
    text: str = ""
    cells: tuple[GridText, ...] = ()
    is_formula: bool = False
    is_picture: bool = False

    @property
    def all_text(self) -> str:
        return self.text or " ".join(cell.text for cell in self.cells)


class GridText(NamedTuple):
    """A cell's text, and the rows and columns that it covers, the last ones not included."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    text: str


class _Unit(NamedTuple):
    """A word, or a letter of a script without spaces, which is joined to the one before it."""

    text: str
    is_joined: bool


class _Piece(NamedTuple):
    """Ink between two gaps: its box with the height of its line, and the line's number."""

    box: Box
    line: int


class _Match(NamedTuple):
    """Units that stand on these pieces of ink; the last numbers are not included."""

    units: tuple[int, int]
    pieces: tuple[int, int]


class _Alignment(NamedTuple):
    """The units, with the widths of a font, on pieces of ink; and how far their widths are not those of the ink."""

    cost: float
    matches: list[_Match]
    widths: _Numbers
    pieces: Sequence[_Piece]


def place(text: Text, ink: PageInk) -> list[Word]:
    """The words of the text, in its order, with their boxes. A divided word is two words, the first with its hyphen."""
    if not text.boxes:
        return []
    if text.cells:
        areas = _place_cells(text.cells, enclose(text.boxes), ink)
        return [word for cell, area in areas for word in _place_text(cell, [area], ink)]
    return _place_text(text.text, text.boxes, ink)


def _place_text(text: str, boxes: Sequence[Box], ink: PageInk) -> list[Word]:
    units = list(_split(text))
    if not units:
        return []
    rtl = sum(is_rtl(unit.text) for unit in units) * 2 > len(units)
    lines = [line for box in boxes for line in _find_lines(box, ink)]
    if not lines:
        return list(_spread(units, list(_divide_evenly(units, boxes, ink))))
    if sum(unit.is_joined for unit in units) * 2 > len(units):  # their letters are equally wide, and have gaps inside
        pieces = list(_find_pieces(lines, _WORD_GAPS[0], rtl, ink))
        return list(_spread(units, [enclose(boxes) for boxes in _group_lines(pieces)]))
    found: list[_Alignment] = []
    for gap in _WORD_GAPS:
        pieces = list(_find_pieces(lines, gap, rtl, ink))
        found += (_align(units, _measure(units, font), pieces) for font in _FONTS)
        best = min(found, key=lambda one: one.cost)
        if best.cost <= _GOOD * len(units):
            break
    return list(_join([word for match in best.matches for word in _fill(match, units, best.widths, best.pieces)]))


# ---- text -----------------------------------------------------------------------------------------


def _split(text: str) -> Iterator[_Unit]:
    for word in text.split():
        if any(map(_is_wide, word)):
            yield from (_Unit(letter, is_joined=n > 0) for n, letter in enumerate(word))
        else:
            yield _Unit(word, is_joined=False)


def _measure(units: Sequence[_Unit], font: str) -> _Numbers:
    return np.array([max(sum(_measure_letter(letter, font) for letter in unit.text), 0.1) for unit in units])


@cache
def _measure_letter(letter: str, font: str) -> float:
    """Its width over the size; accented letters are as wide as those without accents."""
    import pymupdf

    if _is_wide(letter):
        return _WIDE_WIDTH
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0.0
    base = unicodedata.normalize("NFD", letter)[0]
    return float(pymupdf.get_text_length(base, font, 1)) if base.isascii() else _OTHER_WIDTH


def _is_wide(letter: str) -> bool:
    return not letter.isascii() and unicodedata.east_asian_width(letter) in ("W", "F")


def is_rtl(text: str) -> bool:
    """Whether the text has letters that are written from right to left."""
    return not text.isascii() and any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)


# ---- ink ------------------------------------------------------------------------------------------


def _find_pieces(lines: Sequence[Box], gap: float, rtl: bool, ink: PageInk) -> Iterator[_Piece]:
    """The pieces of ink in the lines, in the order in which they are read."""
    height, width = ink.mask.shape
    least = max(gap * float(np.median([line.height for line in lines])) * height, 2)
    for number, line in enumerate(lines):
        x0, y0, x1, y1 = line.to_pixels(width, height)
        room = _ROOM * (y1 - y0)
        inked = np.flatnonzero(ink.mask[y0:y1, x0:x1].any(axis=0)) + x0
        runs = np.split(inked, np.flatnonzero(np.diff(inked) > least) + 1)
        for run in runs[::-1] if rtl else runs:
            if len(run):
                box = Box.of(int(run[0]), y0 - room, int(run[-1]) + 1, y1 + room, width, height)
                yield _Piece(box, number)


def _find_lines(box: Box, ink: PageInk) -> list[Box]:
    """The lines of ink in the box, from top to bottom: what stands side by side is one."""
    rows: list[Box] = []
    for part in sorted((line.box for line in ink.find_lines_in(box, _MAX_LETTERS)), key=lambda one: one.centre[1]):
        if rows and _share_line(part, rows[-1]):
            rows[-1] = rows[-1].union(part)
        else:
            rows.append(part)
    # A comma at the end is too far from the letters to belong to them.
    return [row._replace(x1=min(row.x1 + row.height / 2, max(box.x1, row.x1))) for row in rows]


def _share_line(one: Box, other: Box) -> bool:
    return one.overlap_y(other) >= _SAME_LINE * min(one.height, other.height)


# ---- words on ink ---------------------------------------------------------------------------------


def _align(units: Sequence[_Unit], widths: _Numbers, pieces: Sequence[_Piece]) -> _Alignment:
    """The matches of units and pieces, in order, whose widths agree best.

    A unit is compared with the pieces about as far into the text as it is itself: all of them in a text of a column.
    """
    size = sum(piece.box.width for piece in pieces) / float(widths.sum())
    steps = _list_steps(units, widths, pieces, size)
    unused = np.concatenate(([0.0], np.cumsum([_NO_WORD + piece.box.width / size for piece in pieces])))
    rows, choices = [unused], [_Choices(0, np.full(len(unused), -1, np.int8))]
    for row, (left, right) in enumerate(_list_bands(widths, pieces), 1):
        best, chosen = np.full(len(unused), np.inf), np.full(right - left, -1, np.int8)
        for number, step in enumerate(steps):
            start, first = row - step.units, max(left, step.pieces)
            if start < 0 or first >= right:
                continue
            total = rows[-step.units][first - step.pieces : right - step.pieces] + step.measure(
                start, first - step.pieces, right - step.pieces
            )
            is_better = total < best[first:right]
            best[first:right][is_better], chosen[first - left :][is_better] = total[is_better], number
        skipped = np.minimum.accumulate(best[left:right] - unused[left:right]) + unused[left:right]
        chosen[skipped < best[left:right] - 1e-9] = -1
        np.minimum(best[left:right], skipped, out=best[left:right])
        rows = [*rows[1 - _MOST_TOGETHER :], best]
        choices.append(_Choices(left, chosen))
    return _Alignment(float(rows[-1][-1]), _trace(choices, steps, len(pieces)), widths, pieces)


def _list_bands(widths: _Numbers, pieces: Sequence[_Piece]) -> Iterator[tuple[int, int]]:
    """For each unit how many pieces may lie before its end: the least, and the most and one more.

    Each range has a number in common with the one before it: skipped ink and units without ink lead through all.
    """
    inked = np.cumsum([piece.box.width for piece in pieces])
    middles = np.searchsorted(inked / inked[-1], np.cumsum(widths) / widths.sum()).tolist()
    right = 1
    for middle in [*middles[:-1], len(pieces)]:
        left, right = min(max(middle - _BAND, 0), right - 1), min(middle + _BAND, len(pieces)) + 1
        yield left, right


class _Choices(NamedTuple):
    """The steps that were chosen, for so many pieces before the end of a unit, from `start` on."""

    start: int
    steps: npt.NDArray[np.int8]


class _Step(NamedTuple):
    """So many units on so many pieces: how wide each are, and what it costs if a line ends in them."""

    units: int
    pieces: int
    needed: _Numbers
    spans: _Numbers
    breaks: _Numbers
    cost_of_break: _Numbers

    def measure(self, unit: int, first: int, last: int) -> _Numbers:
        """The costs for this first unit and each of these first pieces."""
        if not self.pieces:
            return np.full(last - first, _NO_INK + self.needed[unit])
        costs: _Numbers = np.abs(self.needed[unit] - self.spans[first:last]) + _UNEVEN * (self.units + self.pieces - 2)
        breaks = self.breaks[first:last]
        costs[breaks == 1] += self.cost_of_break[unit]
        costs[breaks > 1] = np.inf
        return costs


def _list_steps(units: Sequence[_Unit], widths: _Numbers, pieces: Sequence[_Piece], size: float) -> list[_Step]:
    together = range(1, _MOST_TOGETHER + 1)
    spans = {count: _measure_spans(pieces, count, size) for count in together}
    ends = np.concatenate(([0.0], np.cumsum(widths)))
    cost_of_break = np.array([_BROKEN if _may_divide(unit.text) else np.inf for unit in units])
    nothing = np.zeros(0)
    steps = [_Step(1, 0, widths, nothing, nothing, nothing)]
    for words, inks in ((1, 1), *((1, count) for count in together[1:]), *((count, 1) for count in together[1:])):
        if words <= len(widths) and inks <= len(pieces):
            needed = ends[words:] - ends[:-words] + _SPACE * (words - 1)
            steps.append(_Step(words, inks, needed, *spans[inks], cost_of_break))
    return steps


def _may_divide(word: str) -> bool:
    return len(word) >= _LEAST_LETTERS or any(sign in word[1:-1] for sign in _HYPHENS)


def _measure_spans(pieces: Sequence[_Piece], count: int, size: float) -> tuple[_Numbers, _Numbers]:
    """How wide each so many pieces are together, in sizes of the type, and how many lines end in them."""
    spans, breaks = [], []
    for start in range(len(pieces) - count + 1):
        lines = [enclose(boxes) for boxes in _group_lines(pieces[start : start + count])]
        spans.append(sum(line.width for line in lines) / size)
        breaks.append(len(lines) - 1)
    return np.array(spans), np.array(breaks)


def _group_lines(pieces: Sequence[_Piece]) -> list[list[Box]]:
    return [[piece.box for piece in members] for _, members in groupby(pieces, key=lambda piece: piece.line)]


def _trace(choices: Sequence[_Choices], steps: Sequence[_Step], column: int) -> list[_Match]:
    """The matches that were chosen; units without ink belong to the match before them, or to the first one."""
    row = len(choices) - 1
    found: list[_Match] = []
    while row:
        if (chosen := int(choices[row].steps[column - choices[row].start])) < 0:
            column -= 1
            continue
        units, pieces = steps[chosen][:2]
        found.append(_Match((row - units, row), (column - pieces, column)))
        row, column = row - units, column - pieces
    matches: list[_Match] = []
    for match in reversed(found):
        if matches and match.pieces[0] == match.pieces[1]:
            last = matches[-1]
            matches[-1] = _Match((last.units[0], match.units[1]), last.pieces)
        elif matches and matches[-1].pieces[0] == matches[-1].pieces[1]:
            matches[-1] = _Match((matches[-1].units[0], match.units[1]), match.pieces)
        else:
            matches.append(match)
    return [match for match in matches if match.pieces[0] < match.pieces[1]]


class _Placed(NamedTuple):
    word: Word
    is_joined: bool


def _fill(match: _Match, units: Sequence[_Unit], widths: _Numbers, pieces: Sequence[_Piece]) -> Iterator[_Placed]:
    members = units[slice(*match.units)]
    first, *others = (enclose(boxes) for boxes in _group_lines(pieces[slice(*match.pieces)]))
    if others and len(members) == 1:
        start, end = _divide(members[0].text, first.width / (first.width + others[0].width))
        yield _Placed(Word(first, start), is_joined=False)
        yield _Placed(Word(others[0], end), is_joined=False)
        return
    yield from _share(members, widths[slice(*match.units)], first)


def _divide(word: str, share: float) -> tuple[str, str]:
    """The word before and after the end of a line: behind a hyphen that it has, else with one more."""
    wanted = min(max(round(share * len(word)), 1), len(word) - 1) if len(word) > 1 else 1
    places = [n for n in range(1, len(word)) if word[n - 1] in _HYPHENS and abs(n - wanted) <= max(len(word) / 4, 2)]
    if places:
        place = min(places, key=lambda n: abs(n - wanted))
        return word[:place], word[place:]
    return f"{word[:wanted]}-", word[wanted:]


def _share(units: Sequence[_Unit], widths: _Numbers, box: Box) -> Iterator[_Placed]:
    """The units side by side in a box, as wide as their letters."""
    spaces = [0.0 if unit.is_joined or not n else _SPACE for n, unit in enumerate(units)]
    scale = box.width / (float(widths.sum()) + sum(spaces))
    rtl = sum(is_rtl(unit.text) for unit in units) * 2 > len(units)
    position = 0.0
    for unit, width, space in zip(units, widths.tolist(), spaces, strict=True):
        start, end = (position + space) * scale, (position + space + width) * scale
        sides = (box.x1 - end, box.x1 - start) if rtl else (box.x0 + start, box.x0 + end)
        yield _Placed(Word(Box.of(sides[0], box.y0, sides[1], box.y1), unit.text), unit.is_joined)
        position += space + width


def _join(placed: Sequence[_Placed]) -> Iterator[Word]:
    """Letters without spaces as one word on each line."""
    word: Word | None = None
    for found, is_joined in placed:
        if word and is_joined and _share_line(word.box, found.box):
            word = Word(word.box.union(found.box), word.text + found.text)
            continue
        if word:
            yield word
        word = found
    if word:
        yield word


def _spread(units: Sequence[_Unit], lines: Sequence[Box]) -> Iterator[Word]:
    """The units on the lines by their widths alone."""
    widths = _measure(units, _FONTS[0]) + [0.0 if unit.is_joined else _SPACE for unit in units]
    middles = (np.cumsum(widths) - widths / 2) / widths.sum()
    ends = np.cumsum([line.width for line in lines])
    numbers = np.minimum(np.searchsorted(ends / ends[-1], middles), len(lines) - 1)
    placed: list[_Placed] = []
    for number, line in enumerate(lines):
        members = np.flatnonzero(numbers == number).tolist()
        if members:
            placed += _share([units[index] for index in members], widths[members], line)
    yield from _join(placed)


def _divide_evenly(units: Sequence[_Unit], boxes: Sequence[Box], ink: PageInk) -> Iterator[Box]:
    """Where no line is found: as many equal lines as make letters of the usual shape."""
    height, width = ink.mask.shape
    length = float(_measure(units, _FONTS[0]).sum()) + _SPACE * len(units)
    for box in boxes:
        across, down = max(box.width * width, 1.0), max(box.height * height, 1.0)
        count = max(round(math.sqrt(length * down / across / _LINE_HEIGHT / len(boxes))), 1)
        step = box.height / count
        yield from (box._replace(y0=box.y0 + n * step, y1=box.y0 + (n + _LINE_INK) * step) for n in range(count))


# ---- cells ----------------------------------------------------------------------------------------


def _place_cells(cells: Sequence[GridText], table: Box, ink: PageInk) -> Iterator[tuple[str, Box]]:
    """Each cell's text with its area: between the widest gaps of the ink, across and down."""
    pieces = [line.box for line in ink.find_lines_in(table, _MAX_LETTERS)]
    rows = _find_bands([(box.y0, box.y1) for box in pieces], table.y0, table.y1, max(cell.rows[1] for cell in cells))
    cols = _find_bands([(box.x0, box.x1) for box in pieces], table.x0, table.x1, max(cell.cols[1] for cell in cells))
    for cell in cells:
        (first, stop), (left, right) = cell.rows, cell.cols
        yield cell.text, Box(cols[left], rows[first], cols[right], rows[stop])


def _find_bands(pieces: Sequence[tuple[float, float]], start: float, end: float, count: int) -> list[float]:
    """Where `count` rows or columns begin, and where the last one ends."""
    cuts = _find_gaps(pieces, count - 1)
    if len(cuts) < count - 1:
        return [start + (end - start) * n / count for n in range(count + 1)]
    return [start, *cuts, end]


def _find_gaps(pieces: Sequence[tuple[float, float]], count: int) -> list[float]:
    """The middles of the widest gaps that hardly any piece covers, in order."""
    points = sorted({point for piece in pieces for point in piece})
    most = _CLEAR * max((sum(one[0] <= p < one[1] for one in pieces) for p in points), default=0)
    gaps: list[tuple[float, float]] = []
    for start, stop in pairwise(points):
        if sum(piece[0] <= start and stop <= piece[1] for piece in pieces) > most:
            continue
        if gaps and gaps[-1][1] == start:
            gaps[-1] = (gaps[-1][0], stop)
        else:
            gaps.append((start, stop))
    widest = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:count]
    return sorted((first + last) / 2 for first, last in widest)
