"""The tables of the project's sample document, from its ground truth."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pymupdf

from scripts import ROOT
from scripts.bench.corpus.matching import Rows
from twopass.acceptance.drawn_pages import DrawnPage

PDF = ROOT / "samples" / "sample.pdf"
TRUTH = ROOT / "samples" / "sample.truth.json"


class SampleTable(NamedTuple):
    """A table and the number of its page; places that a spanning cell covers are empty."""

    page: int
    rows: Rows


def load() -> list[SampleTable]:
    """All tables but the second part of one that continues: readers may join it to the first."""
    tables = json.loads(TRUTH.read_text(encoding="utf-8"))["tables"]
    return [_build(table) for table in tables if "(continued)" not in table["caption"]]


def _build(table: dict[str, Any]) -> SampleTable:
    texts = {(cell["row"], cell["col"]): cell["text"] for cell in table["cells"]}
    rows = [[texts.get((row, col), "") for col in range(table["cols"])] for row in range(table["rows"])]
    return SampleTable(table["page"], rows)


def list_pages() -> tuple[DrawnPage, ...]:
    """The sample's upright pages that have tables, to be drawn on A4 pages."""
    tables = load()
    with pymupdf.open(PDF) as sample:
        numbers = sorted({table.page for table in tables if not sample[table.page - 1].rotation})
    return tuple(
        _copy_page(number, tuple(table.rows for table in tables if table.page == number)) for number in numbers
    )


def _copy_page(number: int, tables: tuple[Rows, ...]) -> DrawnPage:
    def write(page: pymupdf.Page) -> None:
        with pymupdf.open(PDF) as sample:
            page.show_pdf_page(page.rect, sample, number - 1)

    return DrawnPage(write, "", tables)
