"""Compare two readings of the same text or table; how far they agree is measured from 0 to 1.

Only what a reader sees is compared: case, white space, full-width letters, tags and maths delimiters are ignored.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

from twopass.document import Table
from twopass.text import prose

_MAX_CHARACTERS = 20_000  # about one page; readings that differ later also differ earlier
_PUNCTUATION = re.compile(r"^[\W_]+|[\W_]+$")
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|\\[()\[\]]|[\s$*#|]+")


def similarity(one: str, other: str) -> float:
    """The share of characters that need no correction to turn one text into the other."""
    return round(Levenshtein.normalized_similarity(_normalize(one), _normalize(other)), 4)


def find_part(part: str, text: str) -> float:
    """How similar a part of the text is to `part`, at most; both are letters without blanks."""
    return round(fuzz.partial_ratio(part, text) / 100, 4)


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", _MARKUP.sub("", text)).casefold()[:_MAX_CHARACTERS]


def count_word_edits(text: str, reference: str) -> int:
    """How many words have to be changed, removed or added to turn one text into the other, in its order.

    Words are what stands between spaces, without case and without punctuation around them.
    """
    return Levenshtein.distance(_split_at_spaces(text), _split_at_spaces(reference))


def _split_at_spaces(text: str) -> list[str]:
    words = (_PUNCTUATION.sub("", word) for word in unicodedata.normalize("NFKC", text).casefold().split())
    return [word for word in words if word]


def word_coverage(text: str, reference: str) -> float | None:
    """The share of a text's words that the reference has at least as often; None where the text has no words."""
    counts = Counter(prose.split_words(prose.strip_markup(text)))
    if not counts:
        return None
    reference_counts = Counter(prose.split_words(reference))
    return round((counts & reference_counts).total() / counts.total(), 4)


def word_overlap(text: str, reference: str) -> float:
    """The Dice coefficient of the words of both texts, counted with repetitions."""
    counts = Counter(prose.split_words(prose.strip_markup(text)))
    reference_counts = Counter(prose.split_words(reference))
    common = (counts & reference_counts).total()
    return round(2 * common / max(counts.total() + reference_counts.total(), 1), 4)


def cell_overlap(one: Table, other: Table) -> float:
    """The Dice coefficient of the cells of both tables; a cell matches in the same place with the same text."""
    first, second = ({(cell.row, cell.col, _normalize(cell.text)) for cell in table.cells} for table in (one, other))
    return round(2 * len(first & second) / max(len(first) + len(second), 1), 4)


def has_cells_of(table: Table, other: Table) -> bool:
    """Whether a table has all cells of the other one in the same order of rows and in the rows, and more of them."""
    rows, wanted = _collect_rows(table), _collect_rows(other)
    remaining = iter(rows)
    has_all = all(any(_is_in_order(row, longer) for longer in remaining) for row in wanted)
    return has_all and sum(map(len, rows)) > sum(map(len, wanted))


def _collect_rows(table: Table) -> list[list[str]]:
    """The texts of the cells that are not empty, row by row."""
    rows: dict[int, list[str]] = {}
    for cell in table.cells:
        if text := _normalize(cell.text):
            rows.setdefault(cell.row, []).append(text)
    return list(rows.values())


def _is_in_order(texts: Sequence[str], longer: Iterable[str]) -> bool:
    remaining = iter(longer)
    return all(text in remaining for text in texts)
