"""Split the words of lines with right-to-left text into pieces of one direction, with the box of each piece.

MuPDF gives right-to-left letters in reading order whether a page draws them in this order or reversed. Numbers,
punctuation and Latin words between them are given in the order in which they were drawn, so only their positions say
where they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from twopass.engines.cpu import bidi
from twopass.engines.cpu.geometry import Rect, StyledWord, enclose
from twopass.text import direction

MAX_JUMP = 0.25  # of the type size, between letters of one piece
SAME_EDGE = 0.01  # points


class Letter(NamedTuple):
    text: str
    box: Rect
    size: float


def refine(words: Sequence[StyledWord], raw_words: Sequence[Any], textpage: Any) -> tuple[StyledWord, ...]:
    """Split the words of lines with right-to-left text; on a page that is mostly such text, of all lines.

    `raw_words` are those of MuPDF's text page, whose lines are numbered in the order of their first words.
    """
    if not any(direction.has_rtl(word.text) for word in words):
        return tuple(words)
    lines: dict[int, list[StyledWord]] = {}
    for word in words:
        lines.setdefault(word.line, []).append(word)
    numbers = list(dict.fromkeys((word[5], word[6]) for word in raw_words))
    letters = _find_letters(textpage)
    split_all = bidi.is_rtl(words)
    refined: list[StyledWord] = []
    for number, own in lines.items():
        is_split = own[0].upright and (split_all or any(direction.has_rtl(word.text) for word in own))
        refined += list(_split_line(own, letters[numbers[number]])) if is_split else own
    return tuple(refined)


def _find_letters(textpage: Any) -> dict[tuple[int, int], list[Letter]]:
    """Return the letters of each line, by MuPDF's numbers of block and line."""
    blocks = [block for block in textpage.extractRAWDICT()["blocks"] if block["type"] == 0]
    return {
        (b, n): [
            Letter(char["c"], Rect(*char["bbox"]), span["size"]) for span in line["spans"] for char in span["chars"]
        ]
        for b, block in enumerate(blocks)
        for n, line in enumerate(block["lines"])
    }


def _split_line(words: Sequence[StyledWord], letters: Sequence[Letter]) -> Iterator[StyledWord]:
    """Yield the pieces of one line, each with the style of the word at its place."""
    text = "".join(letter.text for letter in letters)
    for start, stop in bidi.split_text(text, bidi.is_arabic(text)):
        for piece in _split_at_jumps(letters[start:stop]):
            box = enclose([letter.box for letter in piece])
            style = min(words, key=lambda word: abs(word.box.centre[0] - box.centre[0]))
            piece_text = "".join(letter.text for letter in _turn_ligatures(piece))
            cleaned = direction.replace_forms(piece_text).encode("utf-8", "replace").decode()
            yield replace(style, box=box, text=cleaned, runs=(), is_piece=True)


def _split_at_jumps(letters: Sequence[Letter]) -> Iterator[list[Letter]]:
    """Split letters that do not stand next to each other: MuPDF left out the space between them."""
    piece = [letters[0]]
    for one, other in pairwise(letters):
        gap = max(one.box.x0, other.box.x0) - min(one.box.x1, other.box.x1)
        if gap > MAX_JUMP * one.size:
            yield piece
            piece = []
        piece.append(other)
    yield piece


def _turn_ligatures(letters: Sequence[Letter]) -> list[Letter]:
    """Put the letters of a ligature into order, which MuPDF reverses together with the line.

    All letters of a ligature but its first have no width and stand at its right edge.
    """
    turned: list[Letter] = []
    waiting: list[Letter] = []
    for letter in letters:
        if letter.box.x1 <= letter.box.x0 and direction.is_rtl_letter(letter.text):
            waiting.append(letter)
            continue
        is_base = bool(waiting) and abs(letter.box.x1 - waiting[0].box.x0) < SAME_EDGE
        turned += [letter, *reversed(waiting)] if is_base else [*waiting, letter]
        waiting = []
    return turned + waiting
