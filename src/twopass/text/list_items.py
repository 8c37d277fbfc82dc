"""List items in plain text: where one begins, and its Markdown marker."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from twopass.text import prose

BULLETS = "•◦▪‣∙●○\uf0b7\uf0a7"  # also without a blank behind; the last two are codes of symbol fonts
BOXES = "□■☐☑☒"  # the same, but whether they are ticked matters: they stay in front of their item's words
_BULLET = re.compile(rf"[{BULLETS}]\s*(?=\S)|[‒–—*+·-]\s+(?=\S)")
_BOX = re.compile(rf"[{BOXES}]\s*(?=\S)")
_OTHER_BOX = re.compile(f"[{BOXES.replace('■', '')}]")
_FILLED_BOX = re.compile(r"^([ \t]*)(?:- )?■\s*(?=\S)", flags=re.MULTILINE)
_NUMBERED = re.compile(r"([0-9]{1,9}[.)])\s+(?=\S)")
# Also with numbers and letters that Markdown does not know.
_ITEM = re.compile(rf"\s*(?:[{BULLETS}{BOXES}·]\s*|(?:[-–*+]|\d{{1,3}}[.)]|\(?[a-z]\)|\(\d{{1,3}}\)|[①-⑳])\s+)(?=\S)")


def split(text: str) -> list[str]:
    """Split an element's text into paragraphs and list items: a model may box a whole list as one element.

    One line with a number that Markdown does not know may be within an item's sentence; several are items.
    """
    parts: list[list[str]] = [[]]
    lines = [line.strip() for line in text.splitlines()]
    has_items = is_list(text) and sum(bool(line) and not begins_item(line) for line in lines) > 1
    for stripped in lines:
        if has_items or not stripped or begins_item(stripped):
            parts.append([])
        parts[-1].append(stripped)
    return [prose.to_one_line("\n".join(part)) for part in parts if any(part)]


def begins_item(text: str) -> bool:
    return has_marker(text) or bool(_BOX.match(text))


def has_marker(text: str) -> bool:
    """Whether a text begins with a number or a bullet that Markdown's own marker replaces."""
    return bool(_NUMBERED.match(text) or _BULLET.match(text))


def has_boxes(text: str) -> bool:
    """Whether a text has boxes to tick: a filled one is a bullet unless others are near."""
    return bool(_OTHER_BOX.search(text))


def write_bullets(text: str) -> str:
    """The text or Markdown with bullets in place of filled boxes at the beginnings of its lines."""
    return _FILLED_BOX.sub(r"\1• ", text)


def is_list(text: str) -> bool:
    """Whether each line of a text starts with a bullet, a box, a number or a letter."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and all(_ITEM.match(line) for line in lines)


def parse(text: str) -> tuple[str, str]:
    """A list item's Markdown marker (`- `, `3. ` or `3) `) and the rest of its text."""
    if found := _NUMBERED.match(text):
        return f"{found.group(1)} ", text[found.end() :]
    found = _BULLET.match(text)
    return "- ", text[found.end() :] if found else text


def get_number(marker: str) -> int | None:
    """The number of an item; None for a bullet."""
    return int(marker[:-2]) if marker[:1].isdecimal() else None


_CLAUSE = re.compile(r"((?:\d{1,3}\.)+)(\d{1,3})\.?\s+(?=[^a-z\s\d])")  # no small letter: `1.1 million`
_LETTER = re.compile(r"(\(?)([a-z])\)\s+(?=\S)")
_MAX_PARAGRAPH = 9999  # larger numbers at the beginning of a paragraph are amounts
_MAX_APART = 40  # numbered texts between two neighbours: the items of a list below one of them


def find_sequences(texts: Sequence[str]) -> set[int]:
    """The indices of texts that begin with a number whose neighbour another text begins with, in the right order."""
    found = [(index, marker) for index, text in enumerate(texts) if (marker := _get_marker(text))]
    return {
        index
        for n, (index, (number, kind)) in enumerate(found)
        if (number - 1, kind) in {marker for _, marker in found[max(n - _MAX_APART, 0) : n]}
        or (number + 1, kind) in {marker for _, marker in found[n + 1 : n + 1 + _MAX_APART]}
    }


def _get_marker(text: str) -> tuple[int, str] | None:
    """The number of a text and what its neighbours have in common with it: `.`, `)`, the `1.` of `1.2`, `(a)`."""
    if clause := _CLAUSE.match(text):
        return int(clause.group(2)), clause.group(1)
    if letter := _LETTER.match(text):
        return ord(letter.group(2)), f"{letter.group(1)}a)"
    marker = parse(text)[0] if _NUMBERED.match(text) else ""
    number = get_number(marker)
    return (number, get_kind(marker)) if number is not None and number <= _MAX_PARAGRAPH else None


def get_kind(marker: str) -> str:
    """What the markers of a list have in common; empty for no item."""
    return marker.lstrip(string.digits)


def are_of_one_list(marker: str, following: str) -> bool:
    """Whether Markdown takes two neighbours with these markers for items of one list; empty for no item."""
    return bool(marker) and get_kind(marker) == get_kind(following)


def is_next(marker: str, following: str) -> bool:
    """Whether an item has the number that Markdown gives it in its list; bullets have none."""
    number = get_number(marker)
    return number is None or get_number(following) == number + 1
