"""Score the tables that readers find against right cells: adjacency relations, exact tables, TEDS.

Adjacency relations are those of the ICDAR 2013 table competition: pairs of neighbouring texts, to the right and below,
where cells without text are skipped. Letters and digits count. Precision and recall are means over documents, and a
table is exact if all its relations are. TEDS is that of the most similar table.
"""

from __future__ import annotations

import html
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from scripts.bench.corpus import matching
from scripts.bench.corpus.adapters import NO_ANSWER
from scripts.bench.corpus.scores import NONE, ReaderRun
from twopass.acceptance.scores import table_similarity
from twopass.document import Cell, Table

MAX_TEDS_CELLS = 150  # of both tables: two different tables of 600 cells take 8 s

_TAG = re.compile(r"<[^>]+>")

Relations = Counter[tuple[str, str, str]]


@dataclass(frozen=True)
class TableScore:
    """How well one reader found the tables of one document; `teds` has one value a table of up to MAX_TEDS_CELLS."""

    precision: float
    recall: float
    exact: int
    tables: int
    teds: tuple[float, ...]


def load_truth(path: Path) -> list[Table]:
    """The tables of a document, from an XML file of the competition; each region of a table is one."""
    regions = [region for table in ElementTree.parse(path).iter("table") for region in table.iter("region")]
    return [_build(region) for region in regions]


def _build(region: ElementTree.Element) -> Table:
    cells = []
    for cell in region.iter("cell"):
        row, col = int(cell.attrib["start-row"]), int(cell.attrib["start-col"])
        end_row, end_col = int(cell.get("end-row") or row), int(cell.get("end-col") or col)
        content = cell.find("content")
        text = "".join(content.itertext()) if content is not None else ""
        cells.append(Cell(row=row, col=col, row_span=end_row - row + 1, col_span=end_col - col + 1, text=text))
    rows, cols = max(c.row + c.row_span for c in cells), max(c.col + c.col_span for c in cells)
    return Table(rows=rows, cols=cols, cells=tuple(cells), html="")


def find_relations(table: Table) -> Relations:
    texts = {n: text for n, cell in enumerate(table.cells) if (text := _fold(cell.text))}
    owners = {
        (row, col): n
        for n, cell in enumerate(table.cells)
        for row in range(cell.row, cell.row + cell.row_span)
        for col in range(cell.col, cell.col + cell.col_span)
        if n in texts
    }
    pairs = {
        (n, other, way)
        for (row, col), n in owners.items()
        for way, places in (
            ("right", [(row, c) for c in range(col + 1, table.cols)]),
            ("below", [(r, col) for r in range(row + 1, table.rows)]),
        )
        if (other := next((owners[place] for place in places if place in owners), n)) != n
    }
    return Counter((texts[n], texts[other], way) for n, other, way in pairs)


def _fold(text: str) -> str:
    """Letters and digits, also those of note marks, as the competition's tools compare them; markup is not text."""
    folded = unicodedata.normalize("NFKC", html.unescape(_TAG.sub("", text)))
    return "".join(letter for letter in folded if letter.isalnum()).lower()


def score(markdown: str, truth: Sequence[Table]) -> TableScore:
    found = matching.parse_tables(markdown)
    own, right = [find_relations(table) for table in found], [find_relations(table) for table in truth]
    own_all, right_all = sum(own, Relations()), sum(right, Relations())
    hits = (own_all & right_all).total()
    small = [table for table in truth if len(table.cells) <= MAX_TEDS_CELLS]
    return TableScore(
        hits / max(own_all.total(), 1),
        hits / max(right_all.total(), 1),
        sum(any(one == other for other in own) for one in right if one),
        sum(map(bool, right)),
        tuple(max((_measure_teds(table, other) for other in found), default=0.0) for table in small),
    )


def _measure_teds(one: Table, other: Table) -> float:
    return table_similarity(one, other) if len(other.cells) <= MAX_TEDS_CELLS else 0.0


def summarise(runs: Sequence[ReaderRun], truth: Mapping[str, Sequence[Table]]) -> list[list[str]]:
    """Rows of precision, recall, F1, exact tables, TEDS and unanswered pages, with a column for each reader."""
    columns = [_summarise_run(run, truth) for run in runs]
    teds = f"TEDS, up to {MAX_TEDS_CELLS} cells"
    names = ("precision", "recall", "F1", "exact tables", teds, "pages without an answer")
    return [[name, *row] for name, row in zip(names, zip(*columns, strict=True), strict=True)]


def _summarise_run(run: ReaderRun, truth: Mapping[str, Sequence[Table]]) -> list[str]:
    results = [score("\n\n".join(run.readings[name].pages), tables) for name, tables in truth.items()]
    precision, recall = (
        statistics.fmean(values) for values in zip(*((r.precision, r.recall) for r in results), strict=True)
    )
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    exact = f"{sum(r.exact for r in results)} of {sum(r.tables for r in results)}"
    teds = [value for r in results for value in r.teds]
    readings = [run.readings[name] for name in truth]
    unanswered = sum(max(reading.pages.count(NO_ANSWER), bool(reading.error)) for reading in readings)
    mean_teds = f"{statistics.fmean(teds):.3f}" if teds else NONE
    return [f"{precision:.3f}", f"{recall:.3f}", f"{f1:.3f}", exact, mean_teds, str(unanswered)]
