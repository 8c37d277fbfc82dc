"""The characters of a text page, each with its box and its span, and the words that they form."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from twopass.engines.cpu.geometry import Rect, enclose


@dataclass(frozen=True)
class Letter:
    """One character, or the characters of a ligature; `span` is an index in its line, `size` the type size."""

    text: str
    box: Rect
    span: int
    size: float
    line: int


@dataclass(frozen=True)
class SpannedWord:
    """A word with the index of the span of each character; `is_piece` as in `StyledWord`."""

    text: str
    box: Rect
    spans: tuple[int, ...]
    is_piece: bool = False


def split_block(block: Any) -> list[Letter]:
    """Return the letters of a text block of MuPDF's raw dictionary; lines are numbered by their place in the block."""
    return [
        Letter(char["c"], Rect(*char["bbox"]), index, span["size"], number)
        for number, line in enumerate(block["lines"])
        for index, span in enumerate(line["spans"])
        for char in span["chars"]
    ]


def group_by_line(letters: Iterable[Letter]) -> dict[int, list[Letter]]:
    """Return the letters of a block by the numbers of their lines."""
    return {number: list(line) for number, line in groupby(letters, key=lambda letter: letter.line)}


def is_delimiter(character: str) -> bool:
    """Return whether MuPDF ends a word at the character: blanks, control characters, marks of direction."""
    return character <= " " or character == "\u00a0" or "\u202a" <= character <= "\u202e"


def build_words(letters: Iterable[Letter]) -> Iterator[SpannedWord]:
    """Yield the words of one line, as MuPDF separates them."""
    for is_blank, group in groupby(letters, key=lambda letter: is_delimiter(letter.text)):
        if not is_blank:
            yield join(list(group))


def join(letters: Sequence[Letter]) -> SpannedWord:
    text = "".join(letter.text for letter in letters)
    spans = tuple(letter.span for letter in letters for _ in letter.text)
    return SpannedWord(text, enclose([letter.box for letter in letters]), spans)


def compose(word: SpannedWord) -> SpannedWord:
    """Return the word in NFC; a composed character has the span of its first part."""
    text = unicodedata.normalize("NFC", word.text)
    if len(text) == len(word.text):
        return replace(word, text=text)
    spans: list[int] = []
    for end, span in enumerate(word.spans, 1):
        length = len(unicodedata.normalize("NFC", word.text[:end]))
        spans += [span] * (length - len(spans))
    return replace(word, text=text, spans=tuple(spans[: len(text)]))
