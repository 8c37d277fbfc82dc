"""Join accents that a PDF draws over a letter as characters of their own, as TeX does ("M¨uller"), with that letter."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from twopass.engines.cpu.letters import Letter, group_by_line

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


def has_accents(text: str) -> bool:
    """Return whether the text has accents that may belong to another letter."""
    return any(character in _COMBINING and character not in _COMMON for character in text)


def compose(letters: Sequence[Letter]) -> list[Letter]:
    """Return the letters of a block with their accents, without blanks that stood only beside an accent."""
    joined: list[Letter | None] = list(letters)
    lines = group_by_line(letters)
    for position, accent in enumerate(letters):
        mark = _COMBINING.get(accent.text)
        if mark is None or (base := _find_base(letters, joined, position)) is None:
            continue
        letter = letters[base]
        joined[base] = replace(letter, text=_combine(letter.text, mark))
        joined[position] = None
        for blank in (position - 1, position + 1):
            if 0 <= blank < len(letters) and _is_narrow_blank(letters[blank], lines[letters[blank].line]):
                joined[blank] = None
    return [letter for letter in joined if letter is not None]


def _combine(letter: str, mark: str) -> str:
    return unicodedata.normalize("NFC", _DOTLESS.get(letter, letter) + mark)


def _find_base(letters: Sequence[Letter], joined: Sequence[Letter | None], position: int) -> int | None:
    """Return the index of the letter under the accent: the nearest in the text, the following first.

    Unicode has this letter with this accent.
    """
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


def _is_narrow_blank(blank: Letter, line: Sequence[Letter]) -> bool:
    """Return whether this is a blank that nothing on the page shows: its neighbours in the line touch."""
    if not blank.text.isspace():
        return False
    others = [other.box for other in line if not other.text.isspace()]
    before = [box.x1 for box in others if box.centre[0] < blank.box.centre[0]]
    after = [box.x0 for box in others if box.centre[0] >= blank.box.centre[0]]
    return bool(before and after) and min(after) - max(before) <= MAX_WORD_GAP * blank.size
