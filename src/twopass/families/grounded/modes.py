"""Choose the mode in which a picture is shown: the smallest one that shows it without losing detail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ModeLimits(NamedTuple):
    """The limits of size and amount of text up to which a mode shows a picture without losing detail.

    `side` is the longer side in pixels, `aspect` the longer side over the shorter one, `ink` the inked share of the
    picture, `characters` the number of characters on it.
    """

    mode: str
    side: float = float("inf")
    aspect: float = float("inf")
    ink: float = 1.0
    characters: float = float("inf")


def choose(limits: Sequence[ModeLimits], width: int, height: int, ink: float = 0.0, characters: int = 0) -> str:
    """Return the mode of the first row that fits; the last row has no limits."""
    long, short = max(width, height, 1), max(min(width, height), 1)
    fitting = (
        row
        for row in limits
        if long <= row.side and long / short <= row.aspect and ink <= row.ink and characters <= row.characters
    )
    return next(fitting).mode
