"""Join accents that a PDF draws over a letter as characters of their own, as TeX does ("M¨uller"), with that letter."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from twopass.engines.cpu.geometry import Rect, enclose

_COMBINING: Mapping[str, str] = MappingProxyType(
    {
        "`": "\u0300", "´": "\u0301", "ˆ": "\u0302", "^": "\u0302", "˜": "\u0303", "¯": "\u0304", "˘": "\u0306",
        "˙": "\u0307", "¨": "\u0308", "˚": "\u030a", "˝": "\u030b", "ˇ": "\u030c", "¸": "\u0327", "˛": "\u0328",
    }
)  # fmt: skip
_DOTLESS = MappingProxyType({"ı": "i", "ȷ": "j"})
# Of these only the drawn position says that they are accents, so they alone are no reason to look at positions.
_COMMON = frozenset("`^")
MIN_OVERLAP = 0.5  # of the smaller width and height, for an accent over a letter
MAX_WORD_GAP = 0.15  # of the type size: a blank that text extraction put beside an accent is narrower


@dataclass(frozen=True)
class Letter:
    """One character, its box, and the index of its span in the line; `key` is the line's block and number in it."""

    text: str
    box: Rect
    span: int
    size: float
    key: tuple[int, int]


@dataclass(frozen=True)
class AccentedWord:
    box: Rect
    text: str
    spans: tuple[int, ...]  # index of the span of each character


def has_accents(text: str) -> bool:
    """Whether the text has accents that may belong to another letter."""
    return any(character in _COMBINING and character not in _COMMON for character in text)


def compose(blocks: Sequence[Any]) -> dict[tuple[int, int], list[AccentedWord]]:
    """The words of every line in which accents were joined or taken away, by block and line.

    `blocks` are the text blocks of MuPDF's raw dictionary.
    """
    words: dict[tuple[int, int], list[AccentedWord]] = {}
    for index, block in enumerate(blocks):
        letters = [letter for number, line in enumerate(block["lines"]) for letter in _split(line, (index, number))]
        joined = _join_accents(letters)
        changed = {letter.key for letter, other in zip(letters, joined, strict=True) if other is not letter}
        for key in changed:
            words[key] = list(_build_words([letter for letter in joined if letter is not None and letter.key == key]))
    return words


def _split(line: Any, key: tuple[int, int]) -> Iterator[Letter]:
    for index, span in enumerate(line["spans"]):
        for char in span["chars"]:
            yield Letter(char["c"], Rect(*char["bbox"]), index, span["size"], key)


def _join_accents(letters: Sequence[Letter]) -> list[Letter | None]:
    """The letters with their accents; None for an accent that was joined, and for a blank beside it."""
    joined: list[Letter | None] = list(letters)
    for position, accent in enumerate(letters):
        mark = _COMBINING.get(accent.text)
        if mark is None or (base := _find_base(letters, joined, position)) is None:
            continue
        letter = letters[base]
        joined[base] = replace(letter, text=_combine(letter.text, mark))
        joined[position] = None
        for blank in (position - 1, position + 1):
            if _is_narrow_blank(letters, blank):
                joined[blank] = None
    return joined


def _combine(letter: str, mark: str) -> str:
    return unicodedata.normalize("NFC", _DOTLESS.get(letter, letter) + mark)


def _find_base(letters: Sequence[Letter], joined: Sequence[Letter | None], position: int) -> int | None:
    """The letter under the accent, which has a form with this accent: the nearest in the text, the following first."""
    accent = letters[position]
    centre = accent.box.centre[0]
    fitting = [
        index
        for index, letter in enumerate(letters)
        if letter.box.x0 <= centre <= letter.box.x1  # first, because it excludes almost all
        and joined[index] is letter
        and letter.text.isalpha()
        and len(_combine(letter.text, _COMBINING[accent.text])) == 1
        and _is_over(accent, letter)
    ]
    return min(fitting, key=lambda index: (abs(index - position), index < position), default=None)


def _is_over(accent: Letter, letter: Letter) -> bool:
    one, other = accent.box, letter.box
    across = min(one.x1, other.x1) - max(one.x0, other.x0)
    down = min(one.y1, other.y1) - max(one.y0, other.y0)
    width = min(one.x1 - one.x0, other.x1 - other.x0)
    return across >= MIN_OVERLAP * width > 0 and down >= MIN_OVERLAP * min(one.height, other.height)


def _is_narrow_blank(letters: Sequence[Letter], index: int) -> bool:
    """Whether this is a blank that nothing on the page shows: its neighbours in the line touch."""
    if not 0 < index < len(letters) - 1 or not letters[index].text.isspace():
        return False
    line = [other for other in letters if other.key == letters[index].key and not other.text.isspace()]
    before = [other.box.x1 for other in line if other.box.centre[0] < letters[index].box.centre[0]]
    after = [other.box.x0 for other in line if other.box.centre[0] >= letters[index].box.centre[0]]
    return bool(before and after) and min(after) - max(before) <= MAX_WORD_GAP * letters[index].size


def _build_words(letters: Iterable[Letter]) -> Iterator[AccentedWord]:
    for is_blank, group in groupby(letters, key=lambda letter: is_delimiter(letter.text)):
        if is_blank:
            continue
        word = list(group)
        spans = tuple(letter.span for letter in word for _ in letter.text)
        yield AccentedWord(enclose([letter.box for letter in word]), "".join(letter.text for letter in word), spans)


def is_delimiter(character: str) -> bool:
    """Whether MuPDF ends a word at the character: blanks, control characters, marks of direction."""
    return character <= " " or character == "\u00a0" or "\u202a" <= character <= "\u202e"
