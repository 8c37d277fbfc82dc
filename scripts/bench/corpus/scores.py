"""Score what each reader made of the documents: checks by class, order, cells and processor time."""

from __future__ import annotations

import html
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from scripts.bench.corpus import checks
from scripts.bench.corpus.adapters import NO_ANSWER
from scripts.bench.corpus.checks import Check, Kind, Rows
from scripts.bench.corpus.readers import Reading
from twopass.acceptance.scores import table_similarity
from twopass.document import Cell, Table

NONE = "–"


@dataclass(frozen=True)
class Source:
    """A PDF that was read, and what is known of it. `is_scan` is whether most pages are covered by a picture."""

    path: Path
    pages: int
    is_scan: bool
    text: str | None = None  # its words in order, None where that is not known
    tables: Sequence[Rows] = ()


@dataclass(frozen=True)
class ReaderRun:
    """One reader's readings by file name."""

    reader: str
    readings: Mapping[str, Reading] = field(default_factory=dict)

    def passes(self, check: Check, sources: Mapping[str, Source]) -> bool:
        """Whether the reader passes; cells are looked for in the whole document: tables are joined across pages."""
        reading = self.readings[check.file]
        page = reading.get_page(check.page, sources[check.file].pages)
        return checks.passes(check, _join(reading) if check.kind is Kind.CELL else page)


def count_passed(
    checks: Sequence[Check], runs: Sequence[ReaderRun], sources: Mapping[str, Source]
) -> tuple[list[list[str]], list[list[str]]]:
    """A table of checks passed by class, and one of each check that some reader failed."""
    passed = {check: [run.passes(check, sources) for run in runs] for check in checks}
    rows = []
    for group in sorted({check.group for check in checks}):
        results = [result for check, result in passed.items() if check.group == group]
        rows.append([group, str(len(results)), *_add_up(results, len(runs))])
    rows.append(["all", str(len(checks)), *_add_up(list(passed.values()), len(runs))])
    misses = [
        [f"{check.file} {check.page}", check.group, check.kind, check.texts[0].strip().replace("|", "\\|")]
        + ["yes" if is_passed else "no" for is_passed in result]
        for check, result in passed.items()
        if not all(result)
    ]
    return rows, misses


def _add_up(results: Sequence[Sequence[bool]], readers: int) -> list[str]:
    return [str(sum(result[n] for result in results)) for n in range(readers)]


def measure_order(runs: Sequence[ReaderRun], sources: Mapping[str, Source]) -> list[list[str]]:
    """The order of words in each document whose text is known."""
    return [
        [name, *(f"{checks.measure_order(_join(run.readings[name]), source.text):.3f}" for run in runs)]
        for name, source in sources.items()
        if source.text
    ]


def measure_cells(runs: Sequence[ReaderRun], sources: Mapping[str, Source]) -> list[list[str]]:
    """The share of exact cells of each document whose tables are known, and the means of layers and scans."""
    rows, means = list[list[str]](), list[list[str]]()
    for title, is_scan in (("mean, text layer", False), ("mean, scans", True)):
        shares = {
            name: [checks.measure_cells(_join(run.readings[name]), source.tables) for run in runs]
            for name, source in sources.items()
            if source.tables and source.is_scan is is_scan
        }
        rows += [[name, *(f"{share:.2f}" for share in row)] for name, row in shares.items()]
        if shares:
            columns = zip(*shares.values(), strict=True)
            means.append([title, *(f"{statistics.fmean(column):.2f}" for column in columns)])
    return rows + means


def measure_seconds(runs: Sequence[ReaderRun], sources: Mapping[str, Source]) -> list[list[str]]:
    """Processor seconds a page, median and 90th percentile, of pages with a layer and of scans.

    A document's seconds are spread evenly over its pages; documents that were not read do not count.
    """
    rows = []
    for title, is_scan in (("text layer", False), ("scan", True)):
        costs = [_list_seconds(run, sources, is_scan) for run in runs]
        for name, measure in (("median", statistics.median), ("p90", _find_p90)):
            rows.append([f"{title}, {name}, s a page", *(_format(measure, cost) for cost in costs)])
    errors = [str(sum(reading.error is not None for reading in run.readings.values())) for run in runs]
    return [*rows, ["documents not read", *errors]]


def _list_seconds(run: ReaderRun, sources: Mapping[str, Source], is_scan: bool) -> list[float]:
    costs = []
    for name, source in sources.items():
        reading = run.readings[name]
        if source.is_scan is is_scan and reading.error is None:
            costs += [reading.cpu_s / source.pages] * source.pages
    return costs


def _find_p90(costs: Sequence[float]) -> float:
    return sorted(costs)[int(0.9 * (len(costs) - 1))]


def _format(measure: Callable[[Sequence[float]], float], costs: Sequence[float]) -> str:
    return f"{measure(costs):.2f}" if costs else NONE


def _join(reading: Reading) -> str:
    return "\n\n".join(reading.pages)


def render(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, below its title."""
    lines = [columns, ["---"] * len(columns), *rows]
    return f"{title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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
    found = checks.parse_tables(markdown)
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
