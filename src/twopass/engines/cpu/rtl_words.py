"""Split a line with right-to-left text into pieces of one direction, with the box of each piece.

MuPDF gives right-to-left letters in reading order whether a page draws them in this order or reversed. Numbers,
punctuation and Latin words between them are given in the order in which they were drawn, so only their positions say
where they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from twopass.engines.cpu import bidi, letters
from twopass.engines.cpu.letters import Letter, SpannedWord
from twopass.text import direction

MAX_JUMP = 0.25  # of the type size, between letters of one piece
SAME_EDGE = 0.01  # points


def split_line(line: Sequence[Letter]) -> Iterator[SpannedWord]:
    """Yield the pieces of one line, whose letters are in MuPDF's order."""
    # A letter may be several characters, of which the first gives the direction.
    text = "".join(letter.text[:1] for letter in line)
    for start, stop in bidi.split_text(text, bidi.is_arabic(text)):
        for piece in _split_at_jumps(line[start:stop]):
            ordered = [replace(one, text=direction.replace_forms(one.text)) for one in _turn_ligatures(piece)]
            yield replace(letters.join(ordered), is_piece=True)


def _split_at_jumps(line: Sequence[Letter]) -> Iterator[list[Letter]]:
    """Split letters that do not stand next to each other: MuPDF left out the space between them."""
    piece = [line[0]]
    for one, other in pairwise(line):
        gap = max(one.box.x0, other.box.x0) - min(one.box.x1, other.box.x1)
        if gap > MAX_JUMP * one.size:
            yield piece
            piece = []
        piece.append(other)
    yield piece


def _turn_ligatures(piece: Sequence[Letter]) -> list[Letter]:
    """Put the letters of a ligature into order, which MuPDF reverses together with the line.

    All letters of a ligature but its first have no width and stand at its right edge.
    """
    turned: list[Letter] = []
    waiting: list[Letter] = []
    for letter in piece:
        if letter.box.x1 <= letter.box.x0 and direction.is_rtl_letter(letter.text):
            waiting.append(letter)
            continue
        is_base = bool(waiting) and abs(letter.box.x1 - waiting[0].box.x0) < SAME_EDGE
        turned += [letter, *reversed(waiting)] if is_base else [*waiting, letter]
        waiting = []
    return turned + waiting
