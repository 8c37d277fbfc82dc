"""Score what each reader made of the documents: checks by class, order, cells and processor time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.bench.corpus import matching
from scripts.bench.corpus.checks import Check, Kind
from scripts.bench.corpus.matching import Rows
from scripts.bench.corpus.readers import Reading

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
        return matching.passes(check, _join(reading) if check.kind is Kind.CELL else page)


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
        [name, *(f"{matching.measure_order(_join(run.readings[name]), source.text):.3f}" for run in runs)]
        for name, source in sources.items()
        if source.text
    ]


def measure_cells(runs: Sequence[ReaderRun], sources: Mapping[str, Source]) -> list[list[str]]:
    """The share of exact cells of each document whose tables are known, and the means of layers and scans."""
    rows, means = list[list[str]](), list[list[str]]()
    for title, is_scan in (("mean, text layer", False), ("mean, scans", True)):
        shares = {
            name: [matching.measure_cells(_join(run.readings[name]), source.tables) for run in runs]
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
