"""Join words that a PDF sets with space between their letters, in one row or one letter below the other.

The evidence is the row itself: the gaps within such a word are much narrower than the gaps between words.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from twopass.engines.cpu.geometry import StyledWord, enclose, join_words
from twopass.text import prose

MIN_SPACED = 4  # single letters in a row: fewer may be variables, initials or the marks of a scale
MAX_SPACED_GAP = 1.2  # of the type size, between the letters of a spaced word
CLEAR_RATIO = 1.6  # of the gap between words to the gaps within a spaced word
MAX_BROKEN_GAP = 0.2  # of the type size, within a broken word: words are rarely closer
BROKEN_RATIO = 1.8  # of the row's median gap to the gap within a broken word
MAX_FRAGMENT = 3  # letters of at least one of two fragments
CJ_GAP = 0.5  # of the type size: Chinese and Japanese letters closer than this have no space between them
MIN_STACKED, SAME_CENTRE, STACKED_GAP = 3, 0.3, 1.0  # rows of a letter each; of the type size
_CJ = re.compile(f"[{prose.HAN}{prose.KANA}\u3000-\u303f\uff00-\uffef]")


def join(row: Sequence[StyledWord]) -> list[StyledWord]:
    """Return the words of one row, from left to right, with spaced and broken words joined."""
    words = list(row)
    if len(words) < 2 or not all(word.upright for word in words) or any(word.mono for word in words):
        return words
    gaps = [other.box.x0 - one.box.x1 for one, other in pairwise(words)]
    if min(gaps) < -max(word.size or word.box.height for word in words):
        return words  # a row from right to left
    joins = _find_spaced(words, gaps) | _find_broken(words, gaps) | _find_chinese(words, gaps)
    joined = [words[0]]
    for index, word in enumerate(words[1:]):
        if index in joins:
            joined[-1] = join_words(joined[-1], word)
        else:
            joined.append(word)
    return joined


def join_stacked(rows: Sequence[list[StyledWord]]) -> list[list[StyledWord]]:
    """Return the rows, with letters that stand one below the other as one word."""
    joined: list[list[StyledWord]] = []
    stack: list[StyledWord] = []
    for row in (*rows, []):
        if stack and not (row and _continues_stack(stack[-1], row)):
            joined += _end_stack(stack)
            stack = []
        if len(row) == 1 and len(row[0].text) == 1 and row[0].text.isalpha():
            stack.append(row[0])
        elif row:
            joined.append(row)
    return joined


def _continues_stack(last: StyledWord, row: Sequence[StyledWord]) -> bool:
    word = row[0]
    size = last.size or last.box.height
    is_letter = len(row) == 1 and len(word.text) == 1 and word.text.isalpha()
    is_below = -size < word.box.y0 - last.box.y1 <= STACKED_GAP * size and word.box.y0 > last.box.y0
    return is_letter and is_below and abs(word.box.centre[0] - last.box.centre[0]) <= SAME_CENTRE * size


def _end_stack(stack: Sequence[StyledWord]) -> list[list[StyledWord]]:
    if len(stack) < MIN_STACKED:
        return [[word] for word in stack]
    text, box = "".join(word.text for word in stack), enclose([word.box for word in stack])
    return [[replace(stack[0], text=text, box=box, runs=(), upright=False)]]


def _find_spaced(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """Return the gaps (by the index of the word before) inside words whose letters are words of their own.

    A row of single letters is split at gaps that are clearly wider than its narrowest ones.
    """
    found: set[int] = set()
    for run in _find_runs_of_letters(words):
        inner = [gaps[i] for i in run[:-1]]
        size = max(words[i].size or words[i].box.height for i in run)
        usual = statistics.median_low(inner)
        if usual <= 0 or usual > MAX_SPACED_GAP * size:
            continue
        found |= {i for i in run[:-1] if gaps[i] <= CLEAR_RATIO * usual}
    return found


def _find_runs_of_letters(words: Sequence[StyledWord]) -> Iterator[list[int]]:
    run: list[int] = []
    for index, word in enumerate(words):
        if len(word.text) == 1 and word.text.isalpha() and not _CJ.match(word.text):
            run.append(index)
            continue
        if len(run) >= MIN_SPACED:
            yield run
        run = []
    if len(run) >= MIN_SPACED:
        yield run


def _find_broken(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """Return the gaps inside words that a font's widths broke into fragments."""
    usual = statistics.median(gaps)
    return {
        index
        for index, gap in enumerate(gaps)
        if 0 <= BROKEN_RATIO * gap <= usual
        and gap <= MAX_BROKEN_GAP * (words[index].size or words[index].box.height)
        and _are_fragments(words[index].text, words[index + 1].text)
    }


def _are_fragments(first: str, second: str) -> bool:
    is_word = first[-1:].isalpha() and second[:1].isalpha() and second[:1].islower()
    return is_word and min(len(first), len(second)) <= MAX_FRAGMENT


def _find_chinese(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """Return the gaps between Chinese or Japanese letters that are no space."""
    return {
        index
        for index, gap in enumerate(gaps)
        if gap <= CJ_GAP * (words[index].size or words[index].box.height)
        and _CJ.match(words[index].text[-1:])
        and _CJ.match(words[index + 1].text[:1])
    }
