"""Two readings of one thing in, how far they agree out: 0 to 1.

Compared is what readers see: without case, blanks, width of letters, tags and delimiters of maths. Knows letters
and words. Knows nothing of which reading is right.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from rapidfuzz.distance import Levenshtein

from twopass.document import Table
from twopass.text import prose

LONGEST = 20_000  # characters compared: a page's worth; what differs beyond differs before too
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|\\[()\[\]]|[\s$*#|]+")


def similarity(one: str, other: str) -> float:
    """1 where they are alike, 0 where nothing is; the share of letters that need no correction."""
    return round(Levenshtein.normalized_similarity(_folded(one), _folded(other)), 4)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", _MARKUP.sub("", text)).casefold()[:LONGEST]


def known(text: str, layer: str) -> float | None:
    """The share of a text's words that a witness has too, each as often; None where the text has no words."""
    said = Counter(prose.words(prose.plain(text)))
    if not said:
        return None
    seen = Counter(prose.words(layer))
    return round((said & seen).total() / said.total(), 4)


def agrees(text: str, layer: str) -> float:
    """How far a reading and a witness say the same words, whichever says more."""
    said, seen = Counter(prose.words(prose.plain(text))), Counter(prose.words(layer))
    both = (said & seen).total()
    return round(2 * both / max(said.total() + seen.total(), 1), 4)


def cells(one: Table, other: Table) -> float:
    """The share of cells that say the same in the same place."""
    first, second = ({(cell.row, cell.col, _folded(cell.text)) for cell in table.cells} for table in (one, other))
    return round(2 * len(first & second) / max(len(first) + len(second), 1), 4)
