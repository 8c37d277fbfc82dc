"""Order the words of a line that has right-to-left text.

This is the inverse of Unicode's bidirectional algorithm (UAX #9), simplified: it takes pieces of words from left to
right as displayed and returns words in the order in which they are read. A displayed line can have several readings,
so the more usual one is chosen: a number beside Latin words belongs to them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from twopass.document import Rect, enclose
from twopass.engines.cpu.content import StyledWord, join_words
from twopass.text import direction

MAX_GAP = 0.12  # of the type size, between pieces of one word; a space is 0.2 or more, and 0.15 if it was squeezed
_PAIRS = {"(": ")", "[": "]", "{": "}", "«": "»", "‹": "›"}
_MIRRORED = {**_PAIRS, **{closing: opening for opening, closing in _PAIRS.items()}}
# One letter for each bidirectional class: right-to-left, left-to-right, digit, separators of numbers, signs beside
# numbers, marks and other invisible letters, white space.
_CODES = {"R": "R", "AL": "R", "L": "L", "EN": "N", "AN": "N", "CS": "C", "ES": "E", "ET": "T", "NSM": "M", "BN": "M"}
_CODES |= {"WS": "S", "S": "S", "B": "S"}
# A number in Hebrew text has its signs and hyphens, one in Arabic text only its separators (rules W2, W4 and W5).
_PIECES = re.compile("R[RM]*|L(?:[^RS]*[LN])?M*|T*N[NM]*(?:[CE]N[NM]*)*T*|S|.M*")
_ARABIC_PIECES = re.compile("R[RM]*|L(?:[^RS]*[LN])?M*|N[NM]*(?:CN[NM]*)*|S|.M*")


def is_rtl(words: Sequence[StyledWord]) -> bool:
    """Whether the words are mostly written from right to left, by their letters."""
    return direction.is_rtl("".join(word.text for word in words))


def split_text(text: str, arabic: bool) -> list[tuple[int, int]]:
    """The spans of the pieces of a text: one direction each, and punctuation alone; white space is left out."""
    codes = "".join(_CODES.get(unicodedata.bidirectional(letter), "O") for letter in text)
    pattern = _ARABIC_PIECES if arabic else _PIECES
    return [found.span() for found in pattern.finditer(codes) if found[0] != "S"]


def is_arabic(text: str) -> bool:
    return any(unicodedata.bidirectional(letter) == "AL" for letter in text)


def find_runs(texts: Sequence[str], rtl: bool) -> list[tuple[int, int]]:
    """Split the pieces of a line into runs: those against the line's direction together, all others alone.

    A run against the direction begins and ends with a letter or number, and has the brackets that belong to its own.
    """
    codes = "".join(_code_piece(text) for text in texts)
    # A number next to Latin words is part of the run: "Python 3", but not "42, Python".
    pattern = "N?L(?:[LNO]*L)?N?" if rtl else "R(?:[RNO]*R)?"
    runs, end = [], 0
    for found in re.finditer(pattern, codes):
        start, stop = found.span()
        if rtl:
            start, stop = _widen_to_brackets(texts, end, start, stop)
        runs += [(i, i + 1) for i in range(end, start)] + [(start, stop)]
        end = stop
    return runs + [(i, i + 1) for i in range(end, len(texts))]


def _code_piece(text: str) -> str:
    codes = {_CODES.get(unicodedata.bidirectional(letter), "O") for letter in text}
    return next((code for code in "RLN" if code in codes), "O")


def _widen_to_brackets(texts: Sequence[str], end: int, start: int, stop: int) -> tuple[int, int]:
    """Add a bracket next to the run whose partner is inside (rule N0)."""

    def count(bracket: str) -> int:
        return sum(text == bracket for text in texts[start:stop])

    for opening, closing in _PAIRS.items():
        if stop < len(texts) and texts[stop] == closing and count(opening) > count(closing):
            stop += 1
        elif start > end and texts[start - 1] == opening and count(closing) > count(opening):
            start -= 1
    return start, stop


def order_row(row: Sequence[StyledWord], rtl: bool) -> list[StyledWord]:
    """Put the words of a row into reading order, and join the pieces of words that have no gap between them.

    `rtl` is the direction of the paragraph. A row without right-to-left text is read from left to right.
    """
    if any(word.is_piece for word in row):
        return _arrange(sorted(row, key=lambda word: word.box.centre[0]), rtl)
    if any(direction.has_rtl(word.text) for word in row):
        return _order_lines(row, rtl)
    return sorted(row, key=lambda word: word.box.x0)


def _order_lines(row: Sequence[StyledWord], rtl: bool) -> list[StyledWord]:
    """Order the lines of OCR in a row by their places; their words are in reading order already."""
    lines = [list(group) for _, group in groupby(row, key=lambda word: word.line)]
    lines.sort(key=lambda line: enclose([word.box for word in line]).centre[0], reverse=rtl)
    return [word for line in lines for word in line]


def _arrange(pieces: Sequence[StyledWord], rtl: bool) -> list[StyledWord]:
    """The words that pieces from left to right form, in reading order."""
    runs = find_runs([piece.text for piece in pieces], rtl)
    parts = [pieces[start:stop] for start, stop in (reversed(runs) if rtl else runs)]
    boxes = [enclose([piece.box for piece in part]) for part in parts]
    joined = [_are_joined(one, other, parts[0][0].size) for one, other in pairwise(boxes)]
    words: list[StyledWord] = []
    for index, part in enumerate(parts):
        before, after = index > 0 and joined[index - 1], index < len(joined) and joined[index]
        ordered = _arrange(part, not rtl) if len(part) > 1 else [_mirror(part[0], before, after) if rtl else part[0]]
        if before:
            ordered[0] = join_words(words.pop(), ordered[0])
        words += ordered
    return words


def _are_joined(one: Rect, other: Rect, size: float) -> bool:
    gap = max(one.x0, other.x0) - min(one.x1, other.x1)
    return gap <= MAX_GAP * (size or min(one.height, other.height))


def _mirror(piece: StyledWord, joined_before: bool, joined_after: bool) -> StyledWord:
    """Turn a bracket in right-to-left text, which is displayed mirrored; its place at a word says which it is.

    Some writers of PDF store what is displayed, others what is meant.
    """
    turned = _MIRRORED.get(piece.text)
    if turned is None or (joined_before != joined_after and joined_after == (piece.text in _PAIRS)):
        return piece
    return replace(piece, text=turned)
