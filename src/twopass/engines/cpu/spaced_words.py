"""Join words that a PDF sets with space between their letters, in one row or one letter below the other.

The evidence is the row itself: the gaps within such a word are much narrower than the gaps between words.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from twopass.document import enclose
from twopass.engines.cpu.content import StyledRun, StyledWord, join_words
from twopass.engines.cpu.reading_order import BASELINE
from twopass.text import prose

MIN_SPACED = 4  # single letters in a row: fewer may be variables, initials or the marks of a scale
MAX_SPACED_GAP = 1.2  # of the type size, between the letters of a spaced word
CLEAR_RATIO = 1.6  # of the gap between words to the gaps within a spaced word
SAME_PITCH, MIN_EQUAL = 0.05, 0.8  # of the distance from letter to letter, and of these distances, to be called equal
MAX_PIECE, MAX_PIECE_GAP = 5, 0.24  # letters that kerning leaves together, and of the type size between such pieces
MAX_BROKEN_GAP = 0.2  # of the type size, within a broken word: words are rarely closer
MAX_WORD_GAP = 1.0  # of the type size: wider gaps are those between columns
BROKEN_RATIO = 1.8  # of the row's median gap between words to the gap within a broken word
MIN_SPACE_RATIO = 1.2  # of the row's narrowest space to that gap: otherwise the gap may be a space, too
MIN_SCORE = 0.85  # of OCR: slanted letters of handwriting leave little space between words
MAX_FRAGMENT = 3  # letters of at least one of two fragments
MAX_SIGN_GAP = 0.2  # of the type size: a space has 0.25 and more
CJ_GAP = 0.5  # of the type size: Chinese and Japanese letters closer than this have no space between them
MIN_STACKED, SAME_CENTRE, STACKED_GAP = 3, 0.3, 1.0  # rows of a letter each; of the type size
MIN_MARK_SIZE, MAX_MARK_SIZE = 0.45, 0.85  # of the type size of a word, for a mark above its end
MARK_GAP, CLOSE_GAP = 0.4, 0.15  # of that size, for the space between them; behind a sentence, the next note begins
MIN_RISE, MAX_RISE = 0.15, 0.8  # of that size, from its baseline up to that of a mark
MAX_MARKS = 500  # of a page: more are the ticks of a plot
_MARK, _NO_HOST = re.compile(r"\d{1,2}(?:,\d{1,2})*|[a-z]|[*†‡§]{1,2}"), "=+−×/<>|([{^_"
_ENDS = ".;:!?"
_CLOSING, _OPENING = re.compile(r"(?:[.,;:!?]|[)\]}”’»]+[.,;:!?]?)"), re.compile(r"[(\[{“‘„«]+")
_INNER = "-\u2010\u2011\u2013.,:;&'\u2019!?/"
_LEADERS = ". ·…"
_CJ = re.compile(f"[{prose.HAN}{prose.KANA}\u3000-\u303f\uff00-\uffef]")


def join(row: Sequence[StyledWord]) -> list[StyledWord]:
    """The words of one row, from left to right, with spaced and broken words joined."""
    words = list(row)
    if len(words) < 2 or not all(word.upright for word in words) or any(word.mono for word in words):
        return words
    gaps = [other.box.x0 - one.box.x1 for one, other in pairwise(words)]
    if min(gaps) < -max(word.size or word.box.height for word in words):
        return words  # a row from right to left
    joins = _find_spaced(words, gaps) | _find_chinese(words, gaps) | _find_signs(words, gaps)
    if min(word.score for word in words) >= MIN_SCORE:
        joins |= _find_broken(words, gaps)
    joined = [words[0]]
    for index, word in enumerate(words[1:]):
        if index in joins:
            joined[-1] = join_words(joined[-1], word)
        else:
            joined.append(word)
    return joined


def join_marks(words: Sequence[StyledWord]) -> tuple[StyledWord, ...]:
    """The words with the marks that stand above their ends as texts of their own: 273,418,905 with the mark 1."""
    largest = max((word.size for word in words), default=0.0)
    small = MAX_MARK_SIZE * largest
    marks = [n for n, word in enumerate(words) if (word.size < small or _is_raised(word)) and _is_mark(word)]
    if not marks or len(marks) > MAX_MARKS:
        return tuple(words)
    joined: list[StyledWord | None] = list(words)
    ends = sorted((word.box.x1, n) for n, word in enumerate(words))
    for n in marks:
        mark = words[n]
        start, stop = (bisect_left(ends, (mark.box.x0 + shift,)) for shift in (-MARK_GAP * largest, mark.size))
        near = [host for _, host in ends[start:stop] if host != n and _is_marked_by(words[host], mark)]
        host = max(near, key=lambda host: words[host].box.x1, default=None)
        if host is not None and (base := joined[host]) is not None:
            joined[host] = join_words(base, replace(mark, runs=(StyledRun(0, len(mark.text), "^"),)))
            joined[n] = None
    return tuple(word for word in joined if word is not None)


def _is_mark(word: StyledWord) -> bool:
    return word.upright and word.size > 0 and bool(_MARK.fullmatch(word.text))


def _is_raised(word: StyledWord) -> bool:
    """Whether all of a word is a superscript of its line, whose type size it has."""
    return any(run.style.endswith("^") and run.end - run.start == len(word.text) for run in word.runs)


def _is_marked_by(host: StyledWord, mark: StyledWord) -> bool:
    """Whether a mark stands behind a word, in smaller type, and its baseline is above that of the word."""
    gap = abs(mark.box.x0 - host.box.x1)
    is_beside = gap <= (CLOSE_GAP if host.text[-1:] in _ENDS else MARK_GAP) * host.size
    if not is_beside or not host.upright or _is_raised(host) or not host.text[-1:].strip(_NO_HOST):
        return False
    if _is_raised(mark):
        return host.line == mark.line
    rise = _find_baseline(host) - _find_baseline(mark)
    is_small = MIN_MARK_SIZE * host.size <= mark.size <= MAX_MARK_SIZE * host.size
    return is_small and MIN_RISE * host.size <= rise <= MAX_RISE * host.size


def _find_baseline(word: StyledWord) -> float:
    return word.box.y0 + BASELINE * word.box.height


def join_stacked(rows: Sequence[list[StyledWord]]) -> list[list[StyledWord]]:
    """The rows, with letters that stand one below the other as one word."""
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
    if len(stack) < MIN_STACKED or _is_sequence([word.text for word in stack]):
        return [[word] for word in stack]
    text, box = "".join(word.text for word in stack), enclose([word.box for word in stack])
    return [[replace(stack[0], text=text, box=box, runs=(), upright=False)]]


def _find_spaced(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """The gaps (by the index of the word before) inside words whose letters are words of their own.

    A row of single letters is split where the distance between them is clearly wider than usual.
    """
    found: set[int] = set()
    for run in _find_runs_of_letters(words):
        inner = [gaps[i] for i in run[:-1]]
        usual = statistics.median_low(inner)
        has_pieces = any(len(words[i].text) > 1 for i in run)
        size = max(words[i].size or words[i].box.height for i in run)
        beside = [gaps[i] for i in (run[0] - 1, run[-1]) if 0 <= i < len(gaps) and _is_ordinary(words, i, run)]
        if not 0 < usual <= (MAX_PIECE_GAP if has_pieces else MAX_SPACED_GAP) * size:
            continue
        if any(gap <= CLEAR_RATIO * usual for gap in beside):
            continue  # the letters stand as far apart as words
        distances = _find_pitch([words[i].box.x0 for i in run]) or inner
        limit = CLEAR_RATIO * statistics.median_low(distances)
        found |= {i for i, distance in zip(run, distances, strict=False) if distance <= limit}
    return found


def _find_pitch(starts: Sequence[float]) -> list[float]:
    """The distances from letter to letter if they are equal, whatever the letters' widths; empty otherwise."""
    distances = [other - one for one, other in pairwise(starts)]
    usual = statistics.median_low(distances)
    equal = sum(abs(distance - usual) <= SAME_PITCH * usual for distance in distances)
    return distances if equal >= MIN_EQUAL * len(distances) else []


def _is_ordinary(words: Sequence[StyledWord], gap: int, run: Sequence[int]) -> bool:
    """Whether the gap separates the run from a word, so that it is as wide as the row's spaces."""
    neighbour = words[gap + 1 if gap == run[-1] else gap].text
    return sum(map(str.isalnum, neighbour)) > 1


def _find_runs_of_letters(words: Sequence[StyledWord]) -> Iterator[list[int]]:
    """Yield neighbouring words that are mostly single letters: kerning may leave a few of these together."""
    run: list[int] = []
    for index, word in enumerate(words):
        if _may_be_spaced(word.text):
            run.append(index)
            continue
        yield from _choose_spaced(words, run)
        run = []
    yield from _choose_spaced(words, run)


def _may_be_spaced(text: str) -> bool:
    """Whether this may be a letter of a spaced word, a few of them, a digit, or a sign within it."""
    if len(text) == 1:
        return not _CJ.match(text) and (text.isalnum() or text in _INNER)
    return len(text) <= MAX_PIECE and text.isalpha() and not _CJ.match(text)


def _choose_spaced(words: Sequence[StyledWord], run: list[int]) -> Iterator[list[int]]:
    """Yield the run if it is one of spaced letters, or else its parts that are single letters only."""
    while run and not words[run[-1]].text[-1:].isalnum():
        run = run[:-1]  # a sign at the end is the sentence's
    letters = [words[i].text for i in run if len(words[i].text) == 1 and words[i].text.isalpha()]
    if len(letters) >= max(MIN_SPACED, len(run) / 2) and not _is_sequence(letters):
        yield run
        return
    for is_single, group in groupby(run, key=lambda i: len(words[i].text) == 1 and words[i].text.isalpha()):
        part = list(group)
        if is_single and len(part) >= MIN_SPACED and not _is_sequence([words[i].text for i in part]):
            yield part


def _is_sequence(letters: Sequence[str]) -> bool:
    """Whether the letters follow each other in the alphabet, as marks of a list or a scale do."""
    return all(ord(other) == ord(one) + 1 for one, other in pairwise(letters))


def _find_broken(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """The gaps inside words that a font's widths broke into fragments."""
    near = [gap for gap, word in zip(gaps, words, strict=False) if gap <= MAX_WORD_GAP * (word.size or word.box.height)]
    usual = statistics.median(near or gaps)
    fragments = [_are_fragments(one.text, other.text) for one, other in pairwise(words)]
    spaces = [
        gap
        for index, gap in enumerate(gaps)
        if not fragments[index] and min(len(words[index].text), len(words[index + 1].text)) > 1
    ]
    narrowest = min(spaces, default=usual)
    return {
        index
        for index, gap in enumerate(gaps)
        if 0 <= BROKEN_RATIO * gap <= usual
        and MIN_SPACE_RATIO * gap <= narrowest
        and gap <= MAX_BROKEN_GAP * (words[index].size or words[index].box.height)
        and fragments[index]
    }


def _are_fragments(first: str, second: str) -> bool:
    is_word = first[-1:].isalpha() and second[:1].isalpha() and second[:1].islower()
    return is_word and min(len(first), len(second)) <= MAX_FRAGMENT


def _find_signs(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """The gaps before closing signs and behind opening ones that are no space: a program set these after a link."""
    return {
        index
        for index, gap in enumerate(gaps)
        if abs(gap) <= MAX_SIGN_GAP * (words[index].size or words[index].box.height)
        and (
            (_CLOSING.fullmatch(words[index + 1].text) and words[index].text[-1:] not in _LEADERS)
            or _OPENING.fullmatch(words[index].text)
        )
    }


def _find_chinese(words: Sequence[StyledWord], gaps: Sequence[float]) -> set[int]:
    """The gaps between Chinese or Japanese letters that are no space."""
    return {
        index
        for index, gap in enumerate(gaps)
        if gap <= CJ_GAP * (words[index].size or words[index].box.height)
        and _CJ.match(words[index].text[-1:])
        and _CJ.match(words[index + 1].text[:1])
    }
