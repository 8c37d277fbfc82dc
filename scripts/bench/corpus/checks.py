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

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

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
