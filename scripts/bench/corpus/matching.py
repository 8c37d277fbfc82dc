"""Decide whether a reader's markdown passes a check, and how far its words and cells are right."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

from scripts.bench.corpus.checks import Check, Form, Kind
from twopass.document import Cell, Table
from twopass.families import table_parser
from twopass.text import prose

Rows = Sequence[Sequence[str]]

MIN_WORDS = 10  # a page with fewer was not read: that its header is absent is no success

PICTURE_TEXT_MARKS = r"----- (?:Start|End) of picture text -----"
_COMMENT = re.compile(r"<!--.*?-->", flags=re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_NOTE_MARK = re.compile(r"\[\^\w+\]:?")
_LINE_START = re.compile(r"^[ \t]*(?:#{1,6}|>|[-*+•])[ \t]+", flags=re.MULTILINE)
_TABLE_RULE = re.compile(r"^[ \t]*\|?(?:[ \t]*:?-{3,}:?[ \t]*\|)+[ \t:-]*$", flags=re.MULTILINE)
_EMPHASIS = re.compile(r"\*+|~~|`+|(?<![^\W_])_+(?=\S)|(?<=[^\s_])_+(?![^\W_])")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_WORD_OR_SYLLABLE = re.compile(rf"[{prose.HANGUL}]|[^\s{prose.HANGUL}]+")
_FORMULA_SPACE = re.compile(r"\s+|\\[,;:! ]|\\(?:left|right|quad|qquad|displaystyle)(?![a-zA-Z])")
_ALIKE = str.maketrans({**dict.fromkeys("‘’‚′`´", "'"), **dict.fromkeys("“”„″«»", '"'), **dict.fromkeys("‐‑‒–—−", "-")})


@lru_cache(maxsize=256)
def to_plain(markdown: str) -> str:
    """The words of markdown in one line: without markup, with typographic variants alike."""
    text = _LINK.sub(r"\1", re.sub(PICTURE_TEXT_MARKS, " ", _COMMENT.sub(" ", markdown)))
    text = _NOTE_MARK.sub(" ", _TABLE_RULE.sub(" ", _TAG.sub(" ", text)))
    text = _ESCAPE.sub(r"\1", _EMPHASIS.sub("", _LINE_START.sub("", text)).replace("|", " "))
    text = unicodedata.normalize("NFKC", html.unescape(text))
    return " ".join(_INVISIBLE.sub("", text).translate(_ALIKE).split())


def passes(check: Check, markdown: str) -> bool:
    """Whether the markdown of the check's page passes it."""
    if check.kind is Kind.CELL:
        return any(_has_cell(table, check) for table in parse_tables(markdown))
    if check.kind is Kind.ORDER:
        places = [find(to_plain(text), to_plain(markdown), check.similarity) for text in check.texts]
        found = [place for place in places if place is not None]
        return len(found) == len(places) and found == sorted(set(found))
    is_found = any(_contains(markdown, text, check) for text in check.texts)
    return is_found if check.kind is Kind.PRESENT else not is_found and len(to_plain(markdown).split()) >= MIN_WORDS


def _contains(markdown: str, text: str, check: Check) -> bool:
    if check.form is Form.MARKDOWN:
        return text in markdown
    if check.form is Form.FORMULA:
        return _FORMULA_SPACE.sub("", text) in _FORMULA_SPACE.sub("", markdown)
    return find(to_plain(text), to_plain(markdown), check.similarity) is not None


def find(text: str, page: str, similarity: float) -> int | None:
    """Where the window of the page begins that is most like the text, None if it is less alike than asked."""
    if (at := page.find(text)) >= 0:
        return at
    padded = page.ljust(len(text))  # rapidfuzz looks for the shorter of two texts in the longer one
    best = fuzz.partial_ratio_alignment(text, padded, score_cutoff=100 * similarity)
    return None if best is None else int(best.dest_start)


def parse_tables(markdown: str) -> list[Table]:
    """The tables that are written as HTML or with pipes."""
    return [part.table for part in table_parser.split_tables(markdown) if part.table]


def _has_cell(table: Table, check: Check) -> bool:
    wanted = [to_plain(text) for text in check.texts]
    return any(
        any(_is_alike(cell.text, text, check.similarity) for text in wanted)
        and all(
            any(
                _is_alike(other.text, to_plain(text), check.similarity) for other in _find_neighbours(table, cell, name)
            )
            for name, text in check.neighbours
        )
        for cell in table.cells
    )


def _is_alike(text: str, plain: str, similarity: float) -> bool:
    return fuzz.ratio(to_plain(text), plain) >= 100 * similarity


def _find_neighbours(table: Table, cell: Cell, name: str) -> Iterator[Cell]:
    """Yield the cells in this direction; cells in the same rows or columns count as neighbours in any of them."""
    is_column = name in ("up", "down", "heading")
    for other in table.cells:
        first, end = (other.row, other.row + other.row_span) if is_column else (other.col, other.col + other.col_span)
        own, own_end = (cell.row, cell.row + cell.row_span) if is_column else (cell.col, cell.col + cell.col_span)
        places = {"left": end == own, "up": end == own, "right": first == own_end, "down": first == own_end}
        if _shares_lines(cell, other, is_column) and places.get(name, end <= own):
            yield other


def _shares_lines(cell: Cell, other: Cell, is_column: bool) -> bool:
    if is_column:
        return cell.col < other.col + other.col_span and other.col < cell.col + cell.col_span
    return cell.row < other.row + other.row_span and other.row < cell.row + cell.row_span


def measure_order(markdown: str, truth: str) -> float:
    """The longest common subsequence of words as a share of the words that are on the page.

    Chinese and Korean characters count as words: their lines break within words.
    """
    words, wanted = (
        _WORD_OR_SYLLABLE.findall(" ".join(prose.split_words(to_plain(text)))) for text in (markdown, truth)
    )
    return float(LCSseq.similarity(words, wanted)) / len(wanted) if wanted else 1.0


def measure_cells(markdown: str, truth: Sequence[Rows]) -> float:
    """The share of the cells that stand in the right row and column of some table with exactly their text.

    Case, markup and typographic variants do not count. A cell without text is right where the table has nothing:
    below or beside one that spans.
    """
    tables = [{(cell.row, cell.col): _fold(cell.text) for cell in table.cells} for table in parse_tables(markdown)]
    right = sum(max((_count_equal(rows, table) for table in tables), default=0) for rows in truth)
    total = sum(len(row) for rows in truth for row in rows)
    return right / total if total else 1.0


def _count_equal(rows: Rows, table: dict[tuple[int, int], str]) -> int:
    return sum(table.get((r, c), "") == _fold(text) for r, row in enumerate(rows) for c, text in enumerate(row))


def _fold(text: str) -> str:
    return to_plain(text).casefold()
