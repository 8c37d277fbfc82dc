"""Find tables that only their text shows: in text files, and in regions that the layout model takes for other things.

The borders of tables in text files are characters, which become rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import Grid, Region, StyledWord
from twopass.engines.cpu.tables.phrases import Phrase, choose_columns, find_phrases, find_slot, group_phrases

MIN_LINES = 3
MIN_FILLED, MIN_FILLED_MONO = 0.8, 0.6  # of the places of lines and columns
MAX_WORDS = 5.0  # of a phrase, on average: columns of prose have more
MIN_ALIGNED, ALIGNED = 0.7, 2.0  # of the phrases of a column, and points
MIN_GAP = 1.5  # of the type size, between the columns of a table without a header or numbers
MANY_COLUMNS = 3  # which prose and code do not have
MIN_NUMBERS = 0.5  # of the phrases behind the first column
MAX_CODE = 0.2  # of the lines
_LABELS = frozenset({"text", "picture", "list-item", "orphan"})
_RULE = re.compile(r"[-=_+|─━═┼├┤┬┴┌┐└┘╔╗╚╝╠╣╦╩╬]*[-=_─━═]{3}[-=_+|─━═┼├┤┬┴┌┐└┘╔╗╚╝╠╣╦╩╬]*")
_DASHES, _BAR = re.compile(r"[-=_─━═]+"), re.compile(r"[|│┃║¦]")
_CODE = re.compile(r"[{};]|==|\w\(|=>|//|^(?:def|import|return|if|for|while|class)\b")

_Lines = Sequence[Sequence[Sequence[StyledWord]]]


def find_text_tables(regions: Sequence[Region], blocks: Sequence[Any]) -> list[Region]:
    """The regions, with tables in place of the lines that form some."""
    shapes = [Rect(*b["bbox"]) for b in blocks if b["type"] == 1 or (b["type"] == 3 and not b.get("isrect"))]
    return [part for region in regions for part in _find_in_region(region, shapes)]


def _find_in_region(region: Region, shapes: Sequence[Rect]) -> list[Region]:
    is_mono = bool(region.words) and all(word.mono for word in region.words)
    is_drawn = region.label == "picture" and any(shape.overlap(region.box) > 0 for shape in shapes)
    if is_drawn or (region.grid is None and region.label not in _LABELS) or len(region.words) < 2 * MIN_LINES:
        return [region]
    if not all(word.upright for word in region.words):  # phrases are of upright words only: the others would be lost
        return [region]
    words, rules = _split_borders(region.words) if is_mono else (list(region.words), [])
    if region.grid is not None:
        return [replace(region, words=tuple(words), grid=_add_rules(region.grid, rules)) if rules else region]
    lines = group_phrases(words)
    first, stop = _find_longest_run(lines)
    if not _is_table(lines[first:stop], bool(rules), is_mono) or (not is_mono and stop - first < len(lines)):
        return [region]
    before, after = _join(lines[:first]), _join(lines[stop:])
    texts = [Region(region.label, enclose([word.box for word in own]), own) for own in (before, after) if own]
    return [*texts, to_table(lines[first:stop], rules)]


def _join(lines: _Lines) -> tuple[StyledWord, ...]:
    return tuple(word for line in lines for phrase in line for word in phrase)


def to_table(lines: _Lines, rules: Sequence[Rect]) -> Region:
    """A table in which each line of text is a row."""
    boxes = [enclose([word.box for phrase in line for word in phrase]) for line in lines]
    rows = tuple((upper.y1 + lower.y0) / 2 for upper, lower in pairwise(boxes))
    bounds, reach = enclose(boxes), boxes[0].height
    own = tuple(rule for rule in rules if bounds.y0 - reach <= rule.centre[1] <= bounds.y1 + reach)
    return Region("table", enclose([bounds, *own]), _join(lines), Grid(rows, (), own))


def _add_rules(grid: Grid, rules: Sequence[Rect]) -> Grid:
    """A grid without the model's columns, which may be those of borders."""
    return replace(grid, cols=(), rules=(*grid.rules, *rules))


# ---- borders of characters ----


def _split_borders(words: Sequence[StyledWord]) -> tuple[list[StyledWord], list[Rect]]:
    """The words without the borders between them, and these as rules."""
    kept: list[StyledWord] = []
    rules: list[Rect] = []
    bars = {word.line for word in words if _BAR.fullmatch(word.text)}
    for word in words:
        if _RULE.fullmatch(word.text):
            middle = word.box.centre[1]
            rules += [_cut(word.box, word.text, found.span())._replace(y0=middle, y1=middle)
                      for found in _DASHES.finditer(word.text)]  # fmt: skip
        elif word.line in bars and _BAR.search(word.text):
            for found in _BAR.finditer(word.text):
                x = _cut(word.box, word.text, found.span()).centre[0]
                rules.append(Rect(x, word.box.y0 - word.box.height / 4, x, word.box.y1 + word.box.height / 4))
            kept += [replace(word, text=found.group(), box=_cut(word.box, word.text, found.span()), runs=())
                     for found in re.finditer(r"[^|│┃║¦]+", word.text)]  # fmt: skip
        else:
            kept.append(word)
    return kept, rules


def _cut(box: Rect, text: str, span: tuple[int, int]) -> Rect:
    """The box of some characters of a word in a font with one width for all of them."""
    width = box.width / len(text)
    return box._replace(x0=box.x0 + width * span[0], x1=box.x0 + width * span[1])


# ---- what is a table ----


def _find_longest_run(lines: _Lines) -> tuple[int, int]:
    """The first and the last line, exclusive, of the most lines in a row that have two phrases or more."""
    best, start = (0, 0), 0
    for stop, line in enumerate([*lines, []], 1):
        if len(line) < 2:
            best = max(best, (start, stop - 1), key=lambda run: run[1] - run[0])
            start = stop
    return best


def _is_table(lines: _Lines, is_ruled: bool, is_mono: bool) -> bool:
    if len(lines) < MIN_LINES:
        return False
    phrases = find_phrases(_join(lines))
    xs = [float("-inf"), *choose_columns((), (), phrases), float("inf")]
    slots = [[p for p in phrases if find_slot(xs, p.centre) == slot] for slot in range(len(xs) - 1)]
    share = len({(p.line, find_slot(xs, p.centre)) for p in phrases}) / (len(lines) * len(slots))
    is_filled = share >= (MIN_FILLED_MONO if is_mono else MIN_FILLED)
    if len(slots) < 2 or not is_filled or _is_code(lines) or _has_long_phrases(phrases):
        return False
    if not all(map(_is_aligned, slots)):
        return False
    numbers = [p.is_number for slot in slots[1:] for p in slot]
    has_evidence = is_ruled or len(slots) >= MANY_COLUMNS or sum(numbers) >= MIN_NUMBERS * len(numbers)
    return has_evidence or (not is_mono and _are_apart(lines))


def _has_long_phrases(phrases: Sequence[Phrase]) -> bool:
    return sum(len(phrase.text.split()) for phrase in phrases) > MAX_WORDS * len(phrases)


def _is_aligned(slot: Sequence[Phrase]) -> bool:
    """Whether most phrases of a column begin, end or stand in the middle at one place."""
    places = ([p.box.x0 for p in slot], [p.box.x1 for p in slot], [p.centre for p in slot])
    counts = (max(Counter(round(x / ALIGNED) for x in xs).values()) for xs in places)
    return max(counts) >= MIN_ALIGNED * len(slot)


def _are_apart(lines: _Lines) -> bool:
    """Whether names and values are farther apart than words ever are."""
    pairs = (pair for line in lines for pair in pairwise(line))
    return all(two[0].box.x0 - one[-1].box.x1 >= MIN_GAP * one[-1].size for one, two in pairs)


def _is_code(lines: _Lines) -> bool:
    texts = [" ".join(word.text for phrase in line for word in phrase) for line in lines]
    return sum(bool(_CODE.search(text)) for text in texts) > MAX_CODE * len(texts)
