"""Find the columns of a table from its phrases: words that stand close together on one line.

This is plain geometry over the white space between phrases, for tables whose columns are not ruled.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product

import numpy as np

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import StyledWord
from twopass.engines.cpu.reading_order import group_rows_as_placed

WORD_GAP = 0.6  # of the type size: closer words of one line form one phrase
MONO_GAP = 0.9  # of the type size, where all letters have one width: a space has 0.6, two have 1.2
LINE_GAP = 0.35  # of the type size, for words that MuPDF or OCR found in two lines
THOUSANDS_GAP = 0.3  # of the type size: a thin space has 0.2, a word space of most fonts 0.25 to 0.28
NUMBER_GAP = 0.4  # of the type size, for two numbers of one phrase; the widest word space of common fonts is 0.35
LEADER_GAP, MIN_DOTS = 2.0, 3  # of the type size, from a text to its dots and between these; of a leader
SIGN_GAP = 6.0  # of the type size: a currency or percent sign belongs to its number across this much space
MAX_UNIT = 3  # characters of a unit behind numbers, such as € or EUR
MIN_GAP = 1.0  # points of white space between two columns
MIN_SUPPORT = 2  # phrases on both sides of a gap for each that crosses it
MIN_ALIGNED = 3  # numbers that end above each other, within a point, for the edge of a column
MIN_RAGGED = 2.0  # points between where the longest and the shortest of these begin
CUT = 1.5  # points of a phrase on both sides of a column line, for a line that cuts it
ALIGNED = 1.5  # points between the sides of two texts that stand exactly above each other
MANY_PARTS = 4  # one of so many cells beside each other need not be aligned
CUT_COST = 0.7  # for a phrase that a line cuts; 1 is the cost of two phrases that no line separates
WIDE_GAP = 1.5  # of the type size: phrases this far apart are certainly in two columns
MAX_HEADER_LINES = 4  # lines of text in a table's header
_Edge = tuple[int, int]  # points: where a word ends and the next one begins
_SIGN_BEFORE = re.compile(r"[$€£¥₩]+")
_NUMBER = re.compile(r"[-+−–±(]?[$€£¥₩]?\d[\d.,'’:/–-]*(?<![–-])[%)*†‡]*")
_FIRST_DIGITS, _NEXT_DIGITS = re.compile(r"[-+−–±(]?[$€£¥₩]?\d{1,3}"), re.compile(r"\d{3}(?:[.,]\d+)?[%)*†‡]*")
_SIGN_AFTER = re.compile(r"[%)\]]+")
_MARK_AFTER = re.compile(r"\(\w{1,2}\)|[*†‡§]+")  # of a note, behind a number
_LEADER = re.compile(r"[.·…‥_]+")


@dataclass(frozen=True)
class Phrase:
    """Words of one line; `line` counts the table's lines of text from the top."""

    box: Rect
    line: int
    size: float
    is_number: bool
    text: str

    @property
    def centre(self) -> float:
        """Where it stands on the line."""
        return self.box.centre[0]


@dataclass(frozen=True)
class _Band:
    """A strip of x positions in which phrases stand above each other."""

    x0: float
    x1: float
    lines: frozenset[int]


def group_phrases(words: Sequence[StyledWord]) -> list[list[list[StyledWord]]]:
    """The phrases of upright words, from left to right on each line of text."""
    lines = group_rows_as_placed([word for word in words if word.upright])
    edges = _find_aligned_edges(lines)
    return [list(_split_line(line, edges)) for line in lines]


def find_phrases(words: Sequence[StyledWord], xs: Sequence[float] = (), ruled: Sequence[bool] = ()) -> list[Phrase]:
    """The phrases of all lines; those that only seem to cross the column lines `xs` are split at them."""
    lines = split_at_columns(group_phrases(words), xs, ruled)
    return [_to_phrase(group, number) for number, line in enumerate(lines) for group in line]


def split_at_columns(
    lines: Sequence[list[list[StyledWord]]], xs: Sequence[float], ruled: Sequence[bool]
) -> list[list[list[StyledWord]]]:
    """Split the phrases that are cells of narrow columns beside each other.

    Nearly all their parts stand exactly above or below texts of these columns, or in the middle between two rules.
    """
    boxes = [[enclose([word.box for word in phrase]) for phrase in line] for line in lines]
    middles = [
        (left + right) / 2 for (left, right), drawn in zip(pairwise(xs), pairwise(ruled), strict=True) if all(drawn)
    ]
    split: list[list[list[StyledWord]]] = []
    for number, line in enumerate(lines):
        near = [box for other in (number - 1, number + 1) if 0 <= other < len(lines) for box in boxes[other]]
        split.append([part for phrase in line for part in _split_phrase(phrase, xs, near, middles)])
    return split


def _split_phrase(
    phrase: list[StyledWord], xs: Sequence[float], near: Sequence[Rect], middles: Sequence[float]
) -> list[list[StyledWord]]:
    parts = [list(group) for _, group in groupby(phrase, key=lambda word: bisect_right(xs, word.box.centre[0]))]
    if len(parts) < 2:
        return [phrase]
    boxes = [enclose([word.box for word in part]) for part in parts]
    in_middle = {n for n, b in enumerate(boxes) if any(abs(b.centre[0] - x) <= 2 * ALIGNED for x in middles)}
    sides = [{side for other in near for side in _list_aligned_sides(box, other)} for box in boxes]
    counts = (sum(side in own or n in in_middle for n, own in enumerate(sides)) for side in ("left", "middle", "right"))
    return parts if max(counts) >= len(parts) - len(parts) // MANY_PARTS else [phrase]


def _list_aligned_sides(one: Rect, other: Rect) -> Iterator[str]:
    """Yield the sides at which two texts stand exactly above each other."""
    ends = {"left": one.x0 - other.x0, "middle": one.centre[0] - other.centre[0], "right": one.x1 - other.x1}
    return (side for side, distance in ends.items() if abs(distance) <= ALIGNED)


def _find_aligned_edges(lines: Sequence[Sequence[StyledWord]]) -> set[_Edge]:
    """The gaps between numbers that are aligned at their right and words that are aligned at their left.

    Spreadsheets leave no more space between two columns than between two words. One unit behind all numbers, such as
    a currency, is no column of its own.
    """
    starts: dict[_Edge, list[tuple[float, str]]] = {}
    for one, other in (pair for line in lines for pair in pairwise(line)):
        if _NUMBER.fullmatch(one.text) and not (_is_one_number(one, other) or _MARK_AFTER.fullmatch(other.text)):
            starts.setdefault(_to_edge(one, other), []).append((one.box.x0, other.text))

    def is_aligned(edge: _Edge) -> bool:
        near = ((edge[0] + left, edge[1] + right) for left, right in product((-1, 0, 1), repeat=2))
        found = [place for other in near for place in starts.get(other, ())]
        places, texts = [x for x, _ in found], {text for _, text in found}
        is_unit = len(texts) == 1 and len(min(texts)) <= MAX_UNIT
        return len(places) >= MIN_ALIGNED and max(places) - min(places) > MIN_RAGGED and not is_unit

    return set(filter(is_aligned, starts))


def _is_one_number(one: StyledWord, other: StyledWord) -> bool:
    """Whether two words are groups of digits of one number, as thin spaces separate thousands."""
    is_close = one.line == other.line and other.box.x0 - one.box.x1 <= THOUSANDS_GAP * _measure_size(other)
    return is_close and bool(_FIRST_DIGITS.fullmatch(one.text) and _NEXT_DIGITS.fullmatch(other.text))


def _to_edge(one: StyledWord, other: StyledWord) -> _Edge:
    return round(one.box.x1), round(other.box.x0)


def _to_phrase(group: Sequence[StyledWord], line: int) -> Phrase:
    box = enclose([word.box for word in group])
    return Phrase(box, line, _measure_size(group[0]), all(map(is_number, group)), " ".join(word.text for word in group))


def is_number(word: StyledWord) -> bool:
    return bool(_NUMBER.fullmatch(word.text))


def _measure_size(word: StyledWord) -> float:
    return word.size or word.box.height


def _split_line(line: Sequence[StyledWord], edges: set[_Edge]) -> Iterator[list[StyledWord]]:
    """Split the words of a line, from left to right, into phrases."""
    phrase: list[StyledWord] = []
    dots = _find_leader_dots(line)
    for index, word in enumerate(line):
        if phrase and (
            word.box.x0 - phrase[-1].box.x1 > _allow_gap(phrase[-1], word, index in dots)
            or _to_edge(phrase[-1], word) in edges
        ):
            yield phrase
            phrase = []
        phrase.append(word)
    if phrase:
        yield phrase


def _find_leader_dots(line: Sequence[StyledWord]) -> set[int]:
    """The indices of the words of leaders, whose dots may stand apart; one dot alone may say that a cell is empty."""
    found: set[int] = set()
    for is_dots, group in groupby(enumerate(line), key=lambda pair: bool(_LEADER.fullmatch(pair[1].text))):
        run = list(group)
        if is_dots and sum(len(word.text) for _, word in run) >= MIN_DOTS:
            found |= {index for index, _ in run}
    return found


def _allow_gap(left: StyledWord, right: StyledWord, is_leader: bool) -> float:
    """The space between two words of one phrase: dots go on from a text, and nothing from them to the next column."""
    if is_leader:
        return LEADER_GAP * max(_measure_size(left), _measure_size(right))
    if _LEADER.fullmatch(left.text) and not _LEADER.fullmatch(right.text):
        return 0.0
    share = (MONO_GAP if left.mono and right.mono else WORD_GAP) if left.line == right.line else LINE_GAP
    if _NUMBER.fullmatch(left.text) and _NUMBER.fullmatch(right.text) and not _MARK_AFTER.fullmatch(right.text):
        share = min(share, NUMBER_GAP)
    if _SIGN_BEFORE.fullmatch(left.text) or _SIGN_AFTER.fullmatch(right.text):
        share = SIGN_GAP
    return share * max(_measure_size(left), _measure_size(right))


def choose_columns(candidate: Sequence[float], fixed: Sequence[float], phrases: Sequence[Phrase]) -> list[float]:
    """The column lines that fit the phrases best beside the fixed ones, which are drawn.

    Either none, or those of the candidate, or the white space between the phrases. The first lines of text may be
    headers over several columns, so that white space is also looked for below them.
    """
    lines = max((phrase.line for phrase in phrases), default=-1) + 1
    options: list[tuple[float, int, int, list[float]]] = []
    for skipped in range(min(MAX_HEADER_LINES, lines // 2) + 1):
        proper = _drop_spanning([phrase for phrase in phrases if phrase.line >= skipped])
        tried = [candidate, _find_gaps(proper), *([[]] if fixed else [])]
        for merged, bare in (_merge_headers(option, proper, skipped) for option in tried):
            misfit = _measure_misfit(sorted([*merged, *fixed]), phrases, proper)
            options.append((misfit, len(merged), 2 * bare + skipped, merged))
    return min(options)[-1]


def _drop_spanning(phrases: Sequence[Phrase]) -> list[Phrase]:
    """Drop phrases over several columns: most lines have two phrases or more below or above them."""
    starts, ends = (np.array([phrase.box[side] for phrase in phrases]) for side in (0, 2))
    lines = np.array([phrase.line for phrase in phrases])

    def spans(phrase: Phrase) -> bool:
        is_over = (starts < phrase.box.x1) & (ends > phrase.box.x0) & (lines != phrase.line)
        counts = np.bincount(lines[is_over])
        return int((counts > 1).sum()) > int((counts == 1).sum())

    return [phrase for phrase in phrases if not spans(phrase)]


def _find_gaps(phrases: Sequence[Phrase]) -> list[float]:
    """White space through all phrases, and through nearly all where many stand on both sides of it."""
    gaps: list[float] = []
    stack = [list(phrases)]
    while stack:
        part = stack.pop()
        gap = _find_gap(part)
        if gap is not None:
            gaps.append(gap)
            stack += [[p for p in part if p.box.x1 <= gap], [p for p in part if p.box.x0 >= gap]]
    return sorted(gaps)


def _find_gap(phrases: Sequence[Phrase]) -> float | None:
    """The gap that fewest phrases cross, the widest among these."""
    starts, stops = sorted(p.box.x0 for p in phrases), sorted(p.box.x1 for p in phrases)
    best: tuple[int, float, float] | None = None
    for stop in stops[:-1]:
        left, right_from = bisect_right(stops, stop), bisect_left(starts, stop)
        right = len(starts) - right_from
        crossing = len(phrases) - left - right
        width = starts[right_from] - stop if right else 0.0
        if width >= MIN_GAP and min(left, right) >= MIN_SUPPORT * crossing:
            best = min(filter(None, (best, (crossing, -width, stop + width / 2))))
    return best[2] if best else None


def _merge_headers(lines: Sequence[float], phrases: Sequence[Phrase], skipped: int) -> tuple[list[float], int]:
    """Drop lines between a header and the cells below it, where these are aligned at different sides.

    Of all ways to pair headers with columns, the one that leaves fewest columns, fewest columns without a header,
    and bridges least space is used. The header is on the line number `skipped` and the next few. Returns the lines
    that are kept and the number of columns without a header, besides the first.
    """
    edges = [float("-inf"), *lines, float("inf")]
    slots = [[p for p in phrases if left <= p.centre < right] for left, right in pairwise(edges)]
    bands = [_to_band(slot) if slot else None for slot in slots]
    best: list[tuple[int, int, float, tuple[int, ...]]] = [(0, 0, 0.0, ())]  # and the first band of each column
    for stop, band in enumerate(bands, 1):
        count, bare, space, kept = best[stop - 1]
        is_bare = stop > 1 and (band is None or min(band.lines) > skipped)
        options = [(count + 1, bare + is_bare, space, (*kept, stop - 1))]
        before = bands[stop - 2] if stop > 1 else None
        if band and before and _is_header_of(before, band, skipped):
            count, bare, space, kept = best[stop - 2]
            options.append((count + 1, bare, space + band.x0 - before.x1, (*kept, stop - 2)))
        best.append(min(options))
    _, bare, _, kept = best[-1]
    return [lines[first - 1] for first in kept if first], bare


def _to_band(phrases: Sequence[Phrase]) -> _Band:
    return _Band(min(p.box.x0 for p in phrases), max(p.box.x1 for p in phrases), frozenset(p.line for p in phrases))


def _is_header_of(one: _Band, other: _Band, skipped: int) -> bool:
    """Whether one of two bands has only header lines, and the other only lines below these."""
    upper, lower = (one, other) if min(one.lines) < min(other.lines) else (other, one)
    last = max(upper.lines)
    return last < min(min(lower.lines), skipped + MAX_HEADER_LINES) and len(lower.lines) > 1


def _measure_misfit(lines: Sequence[float], phrases: Sequence[Phrase], proper: Sequence[Phrase]) -> float:
    """Count proper phrases that a line cuts, and pairs of phrases that no line separates; close pairs count less."""
    cuts = sum(bisect_left(lines, p.box.x1 - CUT) > bisect_right(lines, p.box.x0 + CUT) for p in proper)
    joined = (
        min((other.box.x0 - one.box.x1) / (WIDE_GAP * one.size), 1.0)
        for one, other in pairwise(phrases)
        if one.line == other.line and bisect_right(lines, one.centre) == bisect_right(lines, other.centre)
    )
    return CUT_COST * cuts + sum(joined)


def find_slot(lines: Sequence[float], position: float) -> int:
    """The index of the slot between two lines that a position is in; the nearest one if it is outside."""
    return min(max(bisect_right(lines, position) - 1, 0), len(lines) - 2)
