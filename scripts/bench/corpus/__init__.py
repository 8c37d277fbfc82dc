"""Compare document readers on drawn pages and on a folder of PDFs: machine checks, order, cells, processor time.

The drawn pages and their checks are part of the project (checks/drawn.jsonl). The checks of checks/corpus.jsonl are
for the files of FOLDER with these names; files that are missing there are named and left out. Each reader is one
process, in the virtual environment whose Python is given; a reader that is not installed there is left out.

    python -m scripts.bench corpus FOLDER --reader twopass --reader docling=/venvs/docling/bin/python

--tables scores tables instead: those of FOLDER, where pdfs/ has documents and truth/ their cells, and drawn ones.
"""

from __future__ import annotations

import html
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import psutil
import pymupdf

from scripts import ROOT
from scripts.bench.corpus import adapters, checks, drawn, table_kinds
from scripts.bench.corpus.adapters import NO_ANSWER
from scripts.bench.corpus.checks import Check, Kind, Rows
from scripts.bench.harness import create_parser
from twopass.acceptance.scores import table_similarity
from twopass.document import Cell, Table

CHECKS = Path(__file__).with_name("checks")
OF_TABLES = ("twopass", "pymupdf4llm-body", "pymupdf-find-tables")
TABLES_LIMIT_S = 1800.0  # elapsed seconds for a document: find_tables has a limit for each page
SCAN_SHARE = 0.8  # of a page's area: a picture that covers more is a scan of the page


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench corpus", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="of PDFs; without it, only drawn pages")
    parser.add_argument("--reader", type=Reader.parse, action="append", metavar="NAME[=PYTHON]",
                        help=f"may be repeated; default: {', '.join(OWN)}")  # fmt: skip
    parser.add_argument("--pages", type=int, default=12, help="of each file of FOLDER, from the first; default: 12")
    parser.add_argument("--misses", action="store_true", help="list the checks that some reader failed")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="keep the PDFs and the readings; a reading in it is used again"
    )
    parser.add_argument("--tables", action="store_true", help="tables against right cells, of FOLDER and drawn ones")
    options = parser.parse_args(arguments)
    if options.tables and not options.folder:
        parser.error("--tables needs a FOLDER")
    with tempfile.TemporaryDirectory() as temporary:
        if options.tables:
            readers = options.reader or [Reader(name, limit_s=TABLES_LIMIT_S) for name in OF_TABLES]
            compare_tables(options.folder, readers, options.output or Path(temporary))
            return
        readers = options.reader or [Reader(name) for name in OWN]
        compare(options.folder, readers, options.pages, options.misses, options.output or Path(temporary))


def compare_tables(folder: Path, readers: Sequence[Reader], output: Path) -> None:
    """Score the tables of documents with known cells, and drawn ones of all kinds."""
    output.mkdir(parents=True, exist_ok=True)
    public = {pdf.name: load_truth(path) for pdf, path in _find_truth(folder)}
    drawn_truth = {f"{page.name}.pdf": list(page.truth.values()) for page in table_kinds.save_all(output)}
    sources = [describe(folder / "pdfs" / name) for name in public] + [describe(output / name) for name in drawn_truth]
    runs = list(filter(None, (run(reader, sources, output) for reader in readers)))
    names = [run.reader for run in runs]
    for title, truth in ((f"documents of {folder.name}", public), ("drawn tables", drawn_truth)):
        print(render(f"Tables, {title}: {len(truth)}", ["score", *names], summarise(runs, truth)))
    print(render("Processor time", ["pages", *names], measure_seconds(runs, {s.path.name: s for s in sources})))


def _find_truth(folder: Path) -> list[tuple[Path, Path]]:
    """The documents of a folder, each with the file of its right cells."""
    pairs = ((pdf, folder / "truth" / f"{pdf.stem}-str.xml") for pdf in sorted((folder / "pdfs").glob("*.pdf")))
    return [(pdf, path) for pdf, path in pairs if path.is_file()]


def compare(folder: Path | None, readers: Sequence[Reader], pages: int, misses: bool, output: Path) -> None:
    """Read everything with every reader and print all tables."""
    drawn_checks = checks.load(CHECKS / "drawn.jsonl")
    corpus_checks = checks.load(CHECKS / "corpus.jsonl") if folder else ()
    files = find_files(folder, corpus_checks) if folder else []
    corpus_checks = tuple(check for check in corpus_checks if check.file in files and check.page <= pages)
    output.mkdir(parents=True, exist_ok=True)
    sources = {source.path.name: source for source in draw(output)}
    if folder:
        sources |= {name: cut(folder / name, pages, output) for name in files}
    runs = list(filter(None, (run(reader, list(sources.values()), output) for reader in readers)))
    print_results(drawn_checks, corpus_checks, runs, sources, misses)


def find_files(folder: Path, some: Sequence[Check]) -> list[str]:
    """List the checks' files that are in the folder, and print those that are not."""
    names = sorted({check.file for check in some})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        print(f"left out, not in {folder}: {', '.join(missing)}\n")
    return [name for name in names if name not in missing]


def print_results(
    drawn_checks: Sequence[Check], corpus_checks: Sequence[Check], runs: Sequence[ReaderRun],
    sources: dict[str, Source], misses: bool,
) -> None:  # fmt: skip
    names = [run.reader for run in runs]
    for title, some in (("drawn pages", drawn_checks), ("files of the folder", corpus_checks)):
        if some:
            rows, failed = count_passed(some, runs, sources)
            print(render(f"Checks passed, {title}", ["class", "checks", *names], rows))
            if misses:
                print(render("Checks that some reader failed", ["page", "class", "kind", "text", *names], failed))
    print(render("Order of words", ["page", *names], measure_order(runs, sources)))
    print(render("Share of exact cells", ["tables", *names], measure_cells(runs, sources)))
    print(render("Processor time", ["pages", *names], measure_seconds(runs, sources)))


def draw(output: Path) -> list[Source]:
    """Draw all documents into a folder; the project's sample is read with them."""
    paths = {path.stem: path for path in drawn.save_all(output)}
    sources = [
        describe(paths[document.name], document.text if document.order else None, document.tables)
        for document in drawn.list_documents()
    ]
    sample = output / drawn.PDF.name
    sample.write_bytes(drawn.PDF.read_bytes())
    tables = [table.rows for table in drawn.load()]
    return [*sources, describe(output / drawn.RECEIPT), describe(sample, tables=tables)]


def cut(file: Path, pages: int, output: Path) -> Source:
    """Copy the first pages of a file."""
    path = output / file.name
    with pymupdf.open(file) as pdf:
        if len(pdf) > pages:
            pdf.select(list(range(pages)))
            pdf.save(path)
        else:
            path.write_bytes(file.read_bytes())
    return describe(path)


def describe(path: Path, text: str | None = None, tables: Sequence[Rows] = ()) -> Source:
    with pymupdf.open(path) as pdf:
        scans = sum(any(_covers(info["bbox"], page) for info in page.get_image_info()) for page in pdf)
        return Source(path, len(pdf), 2 * scans > len(pdf), text, tables)


def _covers(box: Sequence[float], page: pymupdf.Page) -> bool:
    return bool(abs(pymupdf.Rect(box) & page.rect) > SCAN_SHARE * abs(page.rect))


def run(reader: Reader, sources: Sequence[Source], output: Path) -> ReaderRun | None:
    """Read the documents that have no reading in the folder yet; None, with a sentence, if the reader cannot run."""
    paths = {source.path: output / f"{source.path.stem}.{reader.name}.json" for source in sources}
    files = [file for file, path in paths.items() if not path.exists()]
    try:
        for file, reading in zip(files, reader.read(files), strict=True):
            paths[file].write_text(json.dumps(asdict(reading), ensure_ascii=False, indent=1), encoding="utf-8")
            print(f"{reader.name}: {file.name}: {reading.error or f'{reading.cpu_s:.2f} s'}", file=sys.stderr)
    except ReaderMissing as error:
        print(f"{error}\n")
        return None
    readings = {file.name: Reading(**json.loads(path.read_text(encoding="utf-8"))) for file, path in paths.items()}
    if all(reading.error for reading in readings.values()):
        print(f"{reader.name} is left out, it read no document: {next(iter(readings.values())).error}\n")
        return None
    return ReaderRun(reader.name, readings)


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


ADAPTERS = Path(__file__).with_name("adapters.py")
OWN = ("twopass", "pymupdf4llm", "pymupdf4llm-body", "pymupdf4llm-no-ocr")  # run in this virtual environment
LIMIT_S = 300.0  # elapsed seconds for a document; a reader that takes longer is ended and started again


class ReaderMissing(Exception):
    """A reader that does not start; the message says why."""


@dataclass(frozen=True)
class Reading:
    """One reader's markdown of one document; `cpu_s` is processor time of all its processes, in seconds."""

    pages: Sequence[str]  # of the document, or one text where the reader does not tell its pages apart
    cpu_s: float
    error: str | None = None

    def get_page(self, number: int, count: int) -> str:
        """The markdown of a page and the one before it, where a paragraph that it continues may stand."""
        if len(self.pages) != count:
            return "\n\n".join(self.pages)
        return "\n\n".join(self.pages[max(number - 2, 0) : number])


@dataclass(frozen=True)
class Reader:
    """A name of `adapters.READERS` and the Python of the virtual environment that has it."""

    name: str
    python: str = sys.executable
    limit_s: float = LIMIT_S

    @classmethod
    def parse(cls, text: str) -> Reader:
        """Parse NAME or NAME=PYTHON; raises ValueError for an unknown name."""
        name, _, python = text.partition("=")
        if name not in adapters.READERS:
            raise ValueError(f"{name}: choose from {', '.join(adapters.READERS)}")
        return cls(name, python or sys.executable)

    def read(self, files: Sequence[Path]) -> Iterator[Reading]:
        """Yield one reading a file; a process reads its first file twice, because models are loaded with the first."""
        remaining = list(files)
        while remaining:
            with self._start() as process:
                first = self._ask(process, remaining[0])
                if process.poll() is not None:
                    yield first
                    remaining.pop(0)
                while remaining and process.poll() is None:
                    yield self._ask(process, remaining.pop(0))

    @contextmanager
    def _start(self) -> Iterator[subprocess.Popen[str]]:
        command = [self.python, "-P", str(ADAPTERS), self.name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        log = ROOT / "build" / f"{self.name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("w") as errors:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
                )
            except OSError as error:
                raise ReaderMissing(f"{self.name} is left out: {error}") from None
            with process:
                if not _get(process.stdout).readline():
                    raise ReaderMissing(f"{self.name} is left out, it does not start: {_read_last_line(log)}")
                yield process

    def _ask(self, process: subprocess.Popen[str], file: Path) -> Reading:
        line = ""
        try:
            before = read_cpu_seconds(process.pid)
            print(file, file=_get(process.stdin), flush=True)
            if select.select([_get(process.stdout)], [], [], self.limit_s)[0]:
                line = _get(process.stdout).readline()
            seconds = read_cpu_seconds(process.pid) - before
        except (BrokenPipeError, psutil.NoSuchProcess):
            line = ""
        if not line:
            process.kill()
            process.wait()
            return Reading((), 0.0, f"the reader ended, or did not answer for {self.limit_s:g} s")
        answer: dict[str, Any] = json.loads(line)
        return Reading(tuple(answer.get("pages", ())), seconds, answer.get("error"))


def read_cpu_seconds(pid: int) -> float:
    """The processor time of a process and all it has started, those that have ended included."""
    total = 0.0
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue  # it has just ended
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _get(stream: IO[str] | None) -> IO[str]:
    assert stream  # it was opened as a pipe
    return stream


def _read_last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")[:300]
