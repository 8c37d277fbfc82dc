"""An answer in, where it begins to repeat itself out: while it grows, and afterwards.

A page may repeat itself and a model may not: forms have the same line forty times, tables have equal rows, lists
have dates one day apart. So what counts is what no page can hold:

| sign | what a page may have | a loop from |
|---|---|---|
| one letter; one sign | 127 letters in a row; leaders, rules and blanks to fill in, 599 | 128; 600 |
| a phrase of up to 7 words, word for word | a form's line, a hex dump, 99 times | 100 |
| a sentence of up to 25 words; longer ones | a refrain, 19 times; 5 times | 20; 6 |
| rows or cells of a table | an empty form's rows, 149 | 150 |
| the same words but for numbers (no table) | entries of an index, 399 | 400 |
| boxes that cannot be drawn, one beside another | a few slips | 6 |
| the same words told again where they stand already | a slip or two | 8 |
| the same words, boxes marching by the very same step | a form's column, a sheet of labels, 119 | 120 |

The last one ends an answer that grows. One that ended by itself says the same in places of its own: it is kept
whole, and from 24 on its elements say `repeats`.

Knows text and boxes. Knows nothing of rungs, engines or what becomes of a loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from twopass.families.deepseek.grounding import Block, Corners, read
from twopass.text import prose

TAIL = 9000  # characters that are looked at: 150 rows of a table, 400 entries of an index
KEY = 24  # characters: what ends the text must have been said before, else nothing repeats
LETTERS, SIGNS = 128, 600
PHRASE, SENTENCE = 7, 25  # words
PHRASES, SENTENCES, PARAGRAPHS = 100, 20, 6
ROWS = 150
NUMBERED = 400
FLAT, RETOLD, REPEATS, MARCHING = 6, 8, 24, 120
ROUNDS = 4  # loops of one answer that are cut out
PERIODS = 4  # blocks that take turns
NEW = 8  # blocks: six that a look adds (128 tokens, or 64), the one that grew and the one that grows
LATEST = NEW + PERIODS  # blocks among which a loop that goes on repeats itself
_DIGITS = re.compile(r"\d+")
_BOXES = re.compile(r"\[\s*\[")
_MARKUP = re.compile(r"</?t[dhr]\b[^<>]*>")


class Run(NamedTuple):
    """Places [start, end) of what says nothing new."""

    start: int
    end: int


@dataclass
class _Told:
    """A block with a box."""

    box: Corners
    content: str

    @cached_property
    def said(self) -> str:
        """Only of boxes that touch or march is it asked what they say."""
        return " ".join(self.content.split())


def looping(text: str) -> bool:
    """Whether an answer's end repeats itself."""
    return repetition(text) is not None or _goes_nowhere(text[-TAIL:])


def growing(text: str) -> bool:
    """Whether a growing answer repeats itself at its very end: what got out of a loop by itself goes on."""
    return repetition(text) is not None or (_may_go_nowhere(text[-TAIL:]) and _goes_nowhere(text[-TAIL:]))


def _goes_nowhere(tail: str) -> bool:
    first = max(tail.find("<|ref|>"), 0)
    if "[[" not in tail or max(tail.count("<|det|>"), len(_BOXES.findall(tail))) < min(FLAT, RETOLD, MARCHING):
        return False  # too few to be read for
    blocks = read(tail[first:]).blocks
    return impossible(blocks) is not None or marching(blocks, MARCHING) is not None


def _may_go_nowhere(tail: str) -> bool:
    """Whether one of the last blocks could be a loop's. Of a sound answer none is, and the rest need not be read."""
    start = len(tail)
    for _ in range(LATEST):
        start = tail.rfind("<|ref|>", 0, start)
        if start < 0:
            return True  # few blocks, or written without tags
    blocks = read(tail[start:]).blocks
    told = _told(blocks)
    return len(told) < len(blocks) or any(
        _is_stuck(told, n) or any(_is_again(told, n, k) or _marches(told, n, k) for k in range(1, PERIODS + 1))
        for n in range(max(len(told) - NEW, 0), len(told))
    )


def repetition(text: str) -> int | None:
    """Where the end of a text stops saying anything new; None where it goes on saying."""
    whole = text.rstrip()
    if len(text) - len(whole) >= SIGNS:
        return len(whole)
    tail = whole[-TAIL:]
    if (second := _repeated(tail, _enough)) is not None:
        return len(whole) - len(tail) + second
    if not _may_be_numbered(tail):
        return None
    folded = _DIGITS.sub("0", tail)
    numbered = _repeated(folded, _enough_numbered) is not None
    return len(whole) if numbered else None  # every line says another number: all of them are kept


def _may_be_numbered(tail: str) -> bool:
    """Whether the very end repeats itself but for numbers within so few characters that enough of them have room."""
    longest = TAIL // NUMBERED
    folded = _DIGITS.sub("0", tail[-20 * longest :])
    return len(folded) < KEY + longest or 0 < _period(folded) <= longest


def _repeated(text: str, enough: Callable[[str, int], bool]) -> int | None:
    """Offset of the second telling of what the text's end repeats."""
    period = _period(text)
    if not period:
        return None
    unit = text[-period:]
    start = len(text) - period
    while start >= period and text[start - period : start] == unit:
        start -= period
    times = (len(text) - start) // period
    return start + period if enough(unit, times) else None


def _period(text: str) -> int:
    """How far back the text's last characters stand the time before; 0 where they do not."""
    key = text[-KEY:]
    before = text.rfind(key, 0, len(text) - 1)
    return len(text) - len(key) - before if before >= 0 else 0


def _enough(unit: str, times: int) -> bool:
    if _MARKUP.search(unit):
        return times >= ROWS
    count = len(prose.words(unit))
    if not any(letter.isalnum() for letter in unit):
        return times * len(unit) >= SIGNS
    if len(set(unit)) == 1:
        return times * len(unit) >= LETTERS
    return times >= (PHRASES if count <= PHRASE else SENTENCES if count <= SENTENCE else PARAGRAPHS)


def _enough_numbered(unit: str, times: int) -> bool:
    return times >= NUMBERED and not _MARKUP.search(unit) and bool(re.search(r"[^\W\d_]", unit))


def without(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], bool]:
    """The blocks that say something new, each up to where it repeats itself, and whether anything looped.

    The last one before each repetition carries the flag `loop`; what is said again in a place of its own stays.
    """
    kept = [_up_to_loop(block) for block in blocks]
    for _ in range(ROUNDS):
        run = impossible(kept)
        if run is None:
            break
        before = [replace(block, flags=("loop",)) for block in kept[max(run.start - 1, 0) : run.start]]
        kept = [*kept[: max(run.start - 1, 0)], *before, *kept[run.end :]]
    looped = len(kept) < len(blocks) or any("loop" in block.flags for block in kept)
    if again := marching(kept, REPEATS):
        told = [replace(block, flags=(*block.flags, "repeats")) for block in kept[again.start : again.end]]
        kept = [*kept[: again.start], *told, *kept[again.end :]]
    return tuple(kept), looped


def _up_to_loop(block: Block) -> Block:
    again = repetition(block.content)
    return block if again is None else replace(block, content=block.content[:again], flags=("loop",))


def impossible(blocks: Sequence[Block]) -> Run | None:
    """The first blocks that cannot stand on a page: without a place, or in a place that has the same already."""
    told = _told(blocks)
    stuck = _run(len(told), partial(_is_stuck, told), FLAT)
    again = [_run(len(told), partial(_is_again, told, k=k), RETOLD * k) for k in range(1, PERIODS + 1)]
    return _first([stuck, *again], blocks)


def marching(blocks: Sequence[Block], least: int) -> Run | None:
    """The first blocks, so many at least, that say what blocks before them say, each by the very same step further."""
    if len(blocks) < least:
        return None
    told = _told(blocks)
    return _first([_run(len(told), partial(_marches, told, k=k), least * k) for k in range(1, PERIODS + 1)], blocks)


def _told(blocks: Sequence[Block]) -> list[_Told]:
    return [_Told(block.corners[0], block.content) for block in blocks if block.corners]


def _first(runs: Sequence[Run | None], blocks: Sequence[Block]) -> Run | None:
    """The first run of blocks with boxes, among all blocks."""
    found = [run for run in runs if run]
    if not found:
        return None
    places = [place for place, block in enumerate(blocks) if block.corners]
    return Run(places[min(found).start], places[min(found).end - 1] + 1)


def _run(count: int, holds: Callable[[int], bool], least: int) -> Run | None:
    """The first stretch of at least so many places where something holds."""
    if count < least:
        return None
    start = 0
    for n in range(count + 1):
        if n < count and holds(n):
            continue
        if n - start >= least:
            return Run(start, n)
        start = n + 1
    return None


def _is_stuck(told: Sequence[_Told], n: int) -> bool:
    """Whether a box cannot be drawn and gets nowhere; down a page thirty times as high as wide every line is flat."""
    box, before = told[n].box, told[max(n - 1, 0)].box
    return (box[2] <= box[0] or box[3] <= box[1]) and box[1] <= max(before[1], before[3])


def _is_again(told: Sequence[_Told], n: int, k: int) -> bool:
    """Whether a box says what the one `k` before it says, which it touches."""
    return n >= k and _touch(told[n].box, told[n - k].box) and told[n].said == told[n - k].said


def _marches(told: Sequence[_Told], n: int, k: int) -> bool:
    """Whether a box says what two before it say, as far from the one as that from the other."""
    return n >= 2 * k and _even(told, n, k) and told[n].said == told[n - k].said == told[n - 2 * k].said


def _touch(one: Corners, other: Corners) -> bool:
    """Whether two boxes share more than an edge, or are one."""
    return one == other or (
        _overlap(one[0], one[2], other[0], other[2]) and _overlap(one[1], one[3], other[1], other[3])
    )


def _overlap(start: float, end: float, other_start: float, other_end: float) -> bool:
    """Whether min(ends) > max(starts), which every two blocks of every growing answer are asked."""
    return start < end > other_start < other_end > start


def _even(told: Sequence[_Told], n: int, k: int) -> bool:
    """Whether a box stands as far from the one before as that from the one before it."""
    return all(a - b == b - c for a, b, c in zip(told[n].box, told[n - k].box, told[n - 2 * k].box, strict=True))
