"""Read machine checks from JSON Lines: each says what the markdown of one page must or must not hold.

A check names a file, a page, a kind, a class and its texts, as in olmOCR's bench:

- present: at least one of the texts is there
- absent: none of the texts is there
- order: all texts are there, in this order
- cell: a table has a cell with one of the texts, and `left`, `right`, `up` and `down` are its direct neighbours,
  `row` is the text of any cell to the left of it, `heading` of any cell above it

A text that is in the form `plain` is compared with the page's words without markup, and may differ by the share of
characters that `similarity` leaves. In the form `markdown` the text must be there character by character, in the form
`formula` also, but white space and LaTeX's spacing are ignored.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

from twopass.document import Cell, Table
from twopass.families import table_parser
from twopass.text import prose

NEIGHBOURS = ("left", "right", "up", "down", "row", "heading")
MAX_TEXT = 64  # characters: up to here rapidfuzz tries every window of the page, beyond it only likely ones
MIN_SIMILARITY = 0.5
# A share of the characters. One wrong character in twenty is allowed where a text must be there: typographic variants.
SIMILARITY = 0.95
# A text that must not be there counts as found also where a reader changed one character in ten of it.
ABSENT_SIMILARITY = 0.9


class Kind(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"
    ORDER = "order"
    CELL = "cell"


class Form(StrEnum):
    PLAIN = "plain"
    MARKDOWN = "markdown"
    FORMULA = "formula"


MIN_TEXTS = {Kind.PRESENT: 1, Kind.ABSENT: 1, Kind.ORDER: 2, Kind.CELL: 1}
NAMES = {"file", "page", "kind", "class", "texts", "form", "similarity", *NEIGHBOURS}


class InvalidCheck(ValueError):
    """A line that is no check; the message names the line and what is wrong."""


@dataclass(frozen=True)
class Check:
    """One check; `page` counts from 1, `similarity` is a share of the characters."""

    file: str
    page: int
    kind: Kind
    group: str  # the `class` of the JSON
    texts: tuple[str, ...]
    form: Form = Form.PLAIN
    similarity: float = SIMILARITY
    neighbours: tuple[tuple[str, str], ...] = ()  # (name, text)


def load(path: Path) -> tuple[Check, ...]:
    """Read a file of checks, one JSON object a line; blank lines are skipped."""
    return parse(path.read_text(encoding="utf-8"), path.name)


def parse(text: str, name: str = "checks") -> tuple[Check, ...]:
    """Parse JSON Lines; raises InvalidCheck and nothing else."""
    lines = enumerate(text.split("\n"), 1)  # not splitlines: JSON strings may hold other line separators
    return tuple(_parse_line(line, f"{name}:{number}") for number, line in lines if line.strip())


def _parse_line(line: str, where: str) -> Check:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidCheck(f"{where}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidCheck(f"{where}: not an object")
    if unknown := sorted(value.keys() - NAMES):
        raise InvalidCheck(f"{where}: unknown field {unknown[0]!r}")
    try:
        return _build(value)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidCheck(f"{where}: {error}") from None


def _build(value: dict[str, Any]) -> Check:
    kind = Kind(value["kind"])
    form = Form(value.get("form", Form.PLAIN))
    neighbours = tuple((name, _to_text(value[name])) for name in NEIGHBOURS if name in value)
    texts = tuple(_to_text(text) for text in _require(value["texts"], list, "texts must be a list"))
    if len(texts) < MIN_TEXTS[kind]:
        raise ValueError(f"{kind} needs at least {MIN_TEXTS[kind]} texts")
    if neighbours and kind is not Kind.CELL:
        raise ValueError(f"only {Kind.CELL} has neighbours")
    if form is not Form.PLAIN and kind not in (Kind.PRESENT, Kind.ABSENT):
        raise ValueError(f"the form {form} is only for {Kind.PRESENT} and {Kind.ABSENT}")
    page = _require(value["page"], int, "page must be a number")
    if page < 1 or isinstance(value["page"], bool):
        raise ValueError("page must be at least 1")
    default = ABSENT_SIMILARITY if kind is Kind.ABSENT else SIMILARITY
    similarity = float(_require(value.get("similarity", default), float | int, "similarity must be a number"))
    if not MIN_SIMILARITY <= similarity <= 1:
        raise ValueError(f"similarity must be from {MIN_SIMILARITY} to 1")
    return Check(
        file=_to_text(value["file"]), page=page, kind=kind, group=_to_text(value["class"]), texts=texts, form=form,
        similarity=similarity, neighbours=neighbours,
    )  # fmt: skip


def _to_text(value: Any) -> str:
    text = str(_require(value, str, "not a text"))
    if not text.strip() or len(text) > MAX_TEXT:
        raise ValueError(f"a text needs 1 to {MAX_TEXT} characters: {text[:MAX_TEXT]!r}")
    return text


def _require(value: Any, kind: Any, message: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(message)
    return value


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
