"""Typographic quotes in place of doubled signs: ``so'', ‘‘so’’, ''so'' and ,,so`` are how typists and TeX write them.

Two signs close a quotation only where two others opened one: 5'' is a length, and f'' a derivative.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_DOUBLED = re.compile(r"``|''|‘‘|’’|,,|‚‚")
_LOW = (",,", "‚‚")
_MAX_QUOTED = 300  # words of a quotation
_NEVER_OPEN = ("’’",)


class Quote(NamedTuple):
    """Two characters of a word, from `start`, which are one quotation mark."""

    start: int
    mark: str


def find_doubled(words: Sequence[str]) -> list[list[Quote]]:
    """The doubled signs of each word of a text that are quotation marks."""
    found: list[list[Quote]] = []
    opened, began = "", 0  # the signs of the quotation that is not closed yet, and its first word
    for index, word in enumerate(words):
        if index - began > _MAX_QUOTED:
            opened = ""
        quotes: list[Quote] = []
        for match in _DOUBLED.finditer(word):
            signs, before, after = match[0], word[: match.start()], word[match.end() :]
            if not opened and _may_open(signs, before, after):
                quotes.append(Quote(match.start(), "„" if signs in _LOW else "“"))
                opened, began = signs, index
            elif (opened or signs == "’’") and signs not in _LOW and _may_close(before):
                is_german = opened in _LOW and signs != "’’"
                quotes.append(Quote(match.start(), "“" if is_german else "”"))
                opened = ""
        found.append(quotes)
    return found


def _may_open(signs: str, before: str, after: str) -> bool:
    is_begin = not any(map(str.isalnum, before))
    return signs not in _NEVER_OPEN and is_begin and any(map(str.isalnum, after[:2]))


def _may_close(before: str) -> bool:
    return bool(before) and not before[-1].isspace()
