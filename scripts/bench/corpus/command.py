"""Compare document readers on drawn pages and on a folder of PDFs: machine checks, order, cells, processor time.

The drawn pages and their checks are part of the project (checks/drawn.jsonl). The checks of checks/corpus.jsonl are
for the files of FOLDER with these names; files that are missing there are named and left out. Each reader is one
process, in the virtual environment whose Python is given; a reader that is not installed there is left out.

    python -m scripts.bench corpus FOLDER --reader twopass --reader docling=/venvs/docling/bin/python

--tables scores tables instead: those of FOLDER, where pdfs/ has documents and truth/ their cells, and drawn ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pymupdf

from scripts.bench.corpus import checks, drawn, scores, table_kinds
from scripts.bench.corpus.checks import Check, Rows
from scripts.bench.corpus.readers import OWN, Reader, ReaderMissing, Reading
from scripts.bench.corpus.scores import ReaderRun, Source
from scripts.bench.harness import create_parser

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
    public = {pdf.name: scores.load_truth(path) for pdf, path in _find_truth(folder)}
    drawn_truth = {f"{page.name}.pdf": list(page.truth.values()) for page in table_kinds.save_all(output)}
    sources = [describe(folder / "pdfs" / name) for name in public] + [describe(output / name) for name in drawn_truth]
    runs = list(filter(None, (run(reader, sources, output) for reader in readers)))
    names = [run.reader for run in runs]
    for title, truth in ((f"documents of {folder.name}", public), ("drawn tables", drawn_truth)):
        print(scores.render(f"Tables, {title}: {len(truth)}", ["score", *names], scores.summarise(runs, truth)))
    print(
        scores.render(
            "Processor time", ["pages", *names], scores.measure_seconds(runs, {s.path.name: s for s in sources})
        )
    )


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
            rows, failed = scores.count_passed(some, runs, sources)
            print(scores.render(f"Checks passed, {title}", ["class", "checks", *names], rows))
            if misses:
                print(
                    scores.render("Checks that some reader failed", ["page", "class", "kind", "text", *names], failed)
                )
    print(scores.render("Order of words", ["page", *names], scores.measure_order(runs, sources)))
    print(scores.render("Share of exact cells", ["tables", *names], scores.measure_cells(runs, sources)))
    print(scores.render("Processor time", ["pages", *names], scores.measure_seconds(runs, sources)))


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
