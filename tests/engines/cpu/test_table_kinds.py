"""Tables of the kinds that readers break, drawn in several fonts and layouts and read by the cpu engine.

All kinds in all looks are read by `python -m scripts.bench corpus`; here each is read once, several on a
long page, because the layout model takes half of its time for the page.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.corpus import table_kinds
from tests.engines.cpu.drawn_tables import find_tables
from tests.engines.cpu.test_cpu_engine import read, save
from twopass.document import Table

_Keys = list[tuple[int, int, int, int, str]]
STACKS = (
    ("leader_dots", "leader_dots_prices", "spaced_thousands", "wrapped_cells", "wrapped_close", "row_rules"),
    ("header_levels", "header_levels_bare", "header_three_levels", "header_wrapped", "header_narrow", "unit_line"),
    ("title_in_frame", "open_header", "row_spans", "group_labels", "centred_labels", "long_numbers"),
    ("shaded_office", "banded", "superscripts", "key_values", "scaled_rules"),
)


def test_every_kind_is_read_once() -> None:
    """No kind of the benchmark is without a test."""
    assert sorted(kind for kinds in STACKS for kind in kinds) == sorted(table_kinds.KINDS)


@pytest.mark.parametrize("number", range(len(STACKS)))
def test_a_table_of_each_kind_has_exactly_its_cells(tmp_path: Path, number: int) -> None:
    """Rows, columns, spans and texts are those of the page, whatever shows them."""
    page = table_kinds.draw_stack(STACKS[number], number % len(table_kinds.LOOKS))
    found = [list_keys(table) for table in find_tables(read(save(page.pdf, tmp_path / "kinds.pdf")))]

    assert [kind for kind, truth in page.truth.items() if list_truth(truth) not in found] == []


@pytest.mark.parametrize("kind", table_kinds.PAGES)
def test_a_table_in_prose_or_characters_has_exactly_its_cells(tmp_path: Path, kind: str) -> None:
    """Text around a table, borders of characters, and the padding of a browser are no part of it."""
    page = table_kinds.draw_page(kind, list(table_kinds.PAGES).index(kind) % 3)
    found = [list_keys(table) for table in find_tables(read(save(page.pdf, tmp_path / "kind.pdf")))]

    assert list_truth(page.truth[kind]) in found


def list_keys(table: dict[str, Any]) -> _Keys:
    """The cells with text: an empty cell may be part of the one beside it."""
    return _sort((c["row"], c["col"], c["row_span"], c["col_span"], c["text"]) for c in table["cells"])


def list_truth(truth: Table) -> _Keys:
    return _sort((cell.row, cell.col, cell.row_span, cell.col_span, cell.text) for cell in truth.cells)


def _sort(keys: Iterable[tuple[int, int, int, int, str]]) -> _Keys:
    return sorted((*place, _fold(text)) for *place, text in keys if _fold(text))  # type: ignore[misc]


def _fold(text: str) -> str:
    """Letters and digits: leader dots may stay or go, and a space within a number is one or none."""
    return "".join(c for c in unicodedata.normalize("NFKC", text) if c.isalnum())
