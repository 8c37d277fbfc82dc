"""Detect where an answer repeats itself in a loop, while it is generated and afterwards.

Pages repeat themselves too: forms have the same line forty times, tables have equal rows, lists have dates one day
apart. A loop is therefore what no page can contain:

| repeated | a page may have | a loop from |
|---|---|---|
| one letter; one other character | 127 letters in a row; 599 dots or dashes of leaders and rules | 128; 600 |
| a phrase of up to 7 words, word for word | the line of a form, a hex dump, 99 times | 100 |
| a sentence of up to 25 words; a longer one | a refrain, 19 times; 5 times | 20; 6 |
| rows or cells of a table | the rows of an empty form, 149 | 150 |
| words that differ only in numbers (not in tables) | the entries of an index, 399 | 400 |
| boxes without an area, one beside another | a few errors | 6 |
| the same words in boxes that touch | an error or two | 8 |
| the same words in evenly spaced boxes | the column of a form, a sheet of labels, 119 | 120 |

The last one stops an answer only while it is generated. If such an answer ended by itself, it is kept, because each
repetition has a place of its own; from 24 repetitions on its elements get the flag `repeats`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from twopass.document import Flag
from twopass.families.grounded.grounding import Block, Corners, parse
from twopass.text import prose

TAIL = 9000  # characters at the end that are searched: 150 rows of a table, 400 entries of an index
_KEY = 24  # characters at the end that must occur earlier in the text, otherwise nothing repeats
# The numbers of the table above.
_SAME_LETTER, _SAME_SIGN = 128, 600
_PHRASE_WORDS, _SENTENCE_WORDS = 7, 25
_PHRASE_REPEATS, _SENTENCE_REPEATS, _PARAGRAPH_REPEATS = 100, 20, 6
ROW_REPEATS = 150
NUMBERED_REPEATS = 400
_FLAT_BOXES, _TOUCHING_REPEATS, _EVEN_REPEATS_FLAGGED, _EVEN_REPEATS = 6, 8, 24, 120
_MIN_BLOCKS = min(_FLAT_BOXES, _TOUCHING_REPEATS, _EVEN_REPEATS)
_MAX_ROUNDS = 4  # loops that are cut out of one answer
_MAX_PERIOD = 4  # blocks that are repeated together
_NEW_BLOCKS = 8  # since the last check: six in 128 tokens, the one that was unfinished then and the one that is now
_LATEST_BLOCKS = _NEW_BLOCKS + _MAX_PERIOD  # in which a loop that is still running repeats itself
_DIGITS = re.compile(r"\d+")
_BOXES = re.compile(r"\[\s*\[")
_MARKUP = re.compile(r"</?t[dhr]\b[^<>]*>|<(?:[felux]cel|ched|rhed|srow|nl)>")  # HTML and OTSL


class Repetition(NamedTuple):
    """The indices [start, end) of repeated blocks."""

    start: int
    end: int


@dataclass
class _PlacedBlock:
    """A block with a box."""

    box: Corners
    content: str

    @cached_property
    def text(self) -> str:
        """The content with single spaces. Cached and lazy: only blocks whose boxes repeat are compared by text."""
        return " ".join(self.content.split())


def has_loop(text: str) -> bool:
    """Whether the last TAIL characters of an answer contain a loop."""
    return find_repetition(text) is not None or _has_block_loop(text[-TAIL:])


def is_in_loop(text: str) -> bool:
    """Whether a growing answer is in a loop at its very end. A loop that the model has left does not count."""
    return find_repetition(text) is not None or (_may_have_block_loop(text[-TAIL:]) and _has_block_loop(text[-TAIL:]))


def _has_block_loop(tail: str) -> bool:
    if max(tail.count("<|det|>"), len(_BOXES.findall(tail))) < _MIN_BLOCKS:
        return False  # saves parsing
    blocks = parse(tail[max(tail.find(_find_mark(tail)), 0) :]).blocks
    return _find_impossible_blocks(blocks) is not None or _find_evenly_spaced(blocks, _EVEN_REPEATS) is not None


def _find_mark(tail: str) -> str:
    """The token that tags begin with."""
    return "<|ref|>" if "<|ref|>" in tail else "<|det|>"


def _may_have_block_loop(tail: str) -> bool:
    """Whether one of the last blocks could be part of a loop. If none is, the rest need not be parsed."""
    start, mark = len(tail), _find_mark(tail)
    for _ in range(_LATEST_BLOCKS):
        start = tail.rfind(mark, 0, start)
        if start < 0:
            return True  # few blocks, or an answer without tags
    blocks = parse(tail[start:]).blocks
    placed = _placed_blocks(blocks)
    return len(placed) < len(blocks) or any(
        _is_stuck(placed, n)
        or any(_repeats_touching(placed, n, k) or _repeats_evenly(placed, n, k) for k in range(1, _MAX_PERIOD + 1))
        for n in range(max(len(placed) - _NEW_BLOCKS, 0), len(placed))
    )


def find_repetition(text: str) -> int | None:
    """The offset from which a text only repeats itself, None where its end is no loop."""
    stripped = text.rstrip()
    if len(text) - len(stripped) >= _SAME_SIGN:
        return len(stripped)
    tail = stripped[-TAIL:]
    if (second := _find_second_copy(tail, _is_loop)) is not None:
        return len(stripped) - len(tail) + second
    if not _may_be_numbered(tail):
        return None
    is_numbered = _find_second_copy(_DIGITS.sub("0", tail), _is_numbered_loop) is not None
    return len(stripped) if is_numbered else None  # the numbers differ, so all lines are kept


def _may_be_numbered(tail: str) -> bool:
    """Whether the end repeats itself except for numbers, with a period of which enough repetitions fit into TAIL."""
    longest = TAIL // NUMBERED_REPEATS
    without_numbers = _DIGITS.sub("0", tail[-20 * longest :])
    return len(without_numbers) < _KEY + longest or 0 < _period(without_numbers) <= longest


def _find_second_copy(text: str, is_loop: Callable[[str, int], bool]) -> int | None:
    """Where the second copy of the repeated unit at the end of a text starts, None without a loop."""
    period = _period(text)
    if not period:
        return None
    unit = text[-period:]
    start = len(text) - period
    while start >= period and text[start - period : start] == unit:
        start -= period
    times = (len(text) - start) // period
    return start + period if is_loop(unit, times) else None


def _period(text: str) -> int:
    """The distance to the previous occurrence of the last _KEY characters, 0 if there is none."""
    key = text[-_KEY:]
    before = text.rfind(key, 0, len(text) - 1)
    return len(text) - len(key) - before if before >= 0 else 0


def has_table_markup(text: str) -> bool:
    """Whether a text holds a tag of a table's row or cell, in HTML or in OTSL."""
    return bool(_MARKUP.search(text))


def _is_loop(unit: str, times: int) -> bool:
    if has_table_markup(unit):
        return times >= ROW_REPEATS
    if not any(letter.isalnum() for letter in unit):
        return times * len(unit) >= _SAME_SIGN
    if len(set(unit)) == 1:
        return times * len(unit) >= _SAME_LETTER
    word_count = len(prose.split_words(unit))
    if word_count <= _PHRASE_WORDS:
        return times >= _PHRASE_REPEATS
    return times >= (_SENTENCE_REPEATS if word_count <= _SENTENCE_WORDS else _PARAGRAPH_REPEATS)


def _is_numbered_loop(unit: str, times: int) -> bool:
    return times >= NUMBERED_REPEATS and not has_table_markup(unit) and bool(re.search(r"[^\W\d_]", unit))


def remove_loops(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], bool]:
    """Cut loops out of the blocks and out of their contents, and return whether there were any.

    The last block before each loop gets the flag `loop`. Repetitions with places of their own stay.
    """
    kept = [_cut_at_repetition(block) for block in blocks]
    for _ in range(_MAX_ROUNDS):
        run = _find_impossible_blocks(kept)
        if run is None:
            break
        before = [replace(block, flags=(Flag.LOOP,)) for block in kept[max(run.start - 1, 0) : run.start]]
        kept = [*kept[: max(run.start - 1, 0)], *before, *kept[run.end :]]
    has_loops = len(kept) < len(blocks) or any(Flag.LOOP in block.flags for block in kept)
    if run := _find_evenly_spaced(kept, _EVEN_REPEATS_FLAGGED):
        repeated = [replace(block, flags=(*block.flags, Flag.REPEATS)) for block in kept[run.start : run.end]]
        kept = [*kept[: run.start], *repeated, *kept[run.end :]]
    return tuple(kept), has_loops


def _cut_at_repetition(block: Block) -> Block:
    end = find_repetition(block.content)
    return block if end is None else replace(block, content=block.content[:end], flags=(Flag.LOOP,))


def _find_impossible_blocks(blocks: Sequence[Block]) -> Repetition | None:
    """Find the first blocks that no page can contain: without an area, or with the same words in touching boxes."""
    placed = _placed_blocks(blocks)
    stuck = _find_run(len(placed), partial(_is_stuck, placed), _FLAT_BOXES)
    touching = [
        _find_run(len(placed), partial(_repeats_touching, placed, k=k), _TOUCHING_REPEATS * k)
        for k in range(1, _MAX_PERIOD + 1)
    ]
    return _first_run([stuck, *touching], blocks)


def _find_evenly_spaced(blocks: Sequence[Block], least: int) -> Repetition | None:
    """Find the first blocks, at least `least`, that repeat the words of earlier ones in evenly spaced boxes."""
    if len(blocks) < least:
        return None
    placed = _placed_blocks(blocks)
    periods = range(1, _MAX_PERIOD + 1)
    runs = [_find_run(len(placed), partial(_repeats_evenly, placed, k=k), least * k) for k in periods]
    return _first_run(runs, blocks)


def _placed_blocks(blocks: Sequence[Block]) -> list[_PlacedBlock]:
    return [_PlacedBlock(block.corners[0], block.content) for block in blocks if block.corners]


def _first_run(runs: Sequence[Repetition | None], blocks: Sequence[Block]) -> Repetition | None:
    """The first run. The runs count only blocks with boxes, the result counts all blocks."""
    found = [run for run in runs if run]
    if not found:
        return None
    indices = [index for index, block in enumerate(blocks) if block.corners]
    return Repetition(indices[min(found).start], indices[min(found).end - 1] + 1)


def _find_run(count: int, matches: Callable[[int], bool], least: int) -> Repetition | None:
    """Find the first run of at least `least` indices below `count` that match."""
    if count < least:
        return None
    start = 0
    for n in range(count + 1):
        if n < count and matches(n):
            continue
        if n - start >= least:
            return Repetition(start, n)
        start = n + 1
    return None


def _is_stuck(placed: Sequence[_PlacedBlock], n: int) -> bool:
    """Whether a box has no area and does not move down the page.

    On a page thirty times as high as wide the lines of text are flat too, but each is below the one before.
    """
    box, before = placed[n].box, placed[max(n - 1, 0)].box
    return (box[2] <= box[0] or box[3] <= box[1]) and box[1] <= max(before[1], before[3])


def _repeats_touching(placed: Sequence[_PlacedBlock], n: int, k: int) -> bool:
    """Whether block `n` has the same words as the one `k` before it, and touches it."""
    return n >= k and _boxes_touch(placed[n].box, placed[n - k].box) and placed[n].text == placed[n - k].text


def _repeats_evenly(placed: Sequence[_PlacedBlock], n: int, k: int) -> bool:
    """Whether block `n` has the same words as those `k` and `2 * k` before it, at equal distances."""
    return (
        n >= 2 * k
        and _is_evenly_spaced(placed, n, k)
        and placed[n].text == placed[n - k].text == placed[n - 2 * k].text
    )


def _boxes_touch(one: Corners, other: Corners) -> bool:
    """Whether two boxes overlap by more than an edge, or are equal."""
    return one == other or (
        _spans_overlap(one[0], one[2], other[0], other[2]) and _spans_overlap(one[1], one[3], other[1], other[3])
    )


def _spans_overlap(start: float, end: float, other_start: float, other_end: float) -> bool:
    """Whether min(ends) > max(starts). Written for speed: it runs for many pairs of blocks of every growing answer."""
    return start < end > other_start < other_end > start


def _is_evenly_spaced(placed: Sequence[_PlacedBlock], n: int, k: int) -> bool:
    """Whether the box is as far from the one `k` before it as that one is from the one `2 * k` before it."""
    return all(a - b == b - c for a, b, c in zip(placed[n].box, placed[n - k].box, placed[n - 2 * k].box, strict=True))
