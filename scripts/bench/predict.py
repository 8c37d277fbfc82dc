"""Write the predictions that OmniDocBench and olmOCR-bench score, from a folder of their pages.

    python -m scripts.bench predict omnidocbench OmniDocBench --output predictions/twopass
    python -m scripts.bench predict olmocr-bench olmOCR-bench/bench_data --output olmOCR-bench/bench_data/twopass

Both want a Markdown file for each page, found by its name: dataset/end2end_dataset.py of OmniDocBench (v1.5) looks for
the name of the image with `.md` in place of its last four characters, or else with `.md` after it; olmocr/bench/
benchmark.py of olmOCR (347c484) for `{path below pdfs}_pg{page}_repeat{n}.md`. A page that cannot be read is an empty
file, as olmocr/bench/convert.py writes it: it counts as wrong instead of being skipped. predictions.json says why.

The pages are read by the engine of the environment. What was read is kept in --reads, so that the same command goes on.
"""

from __future__ import annotations

import html
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import twopass
from scripts.bench.harness import create_parser
from twopass import Document
from twopass.document import Element
from twopass.errors import TwopassError
from twopass.format_options import FormatOptions, Furniture, Markdown, Maths, Tables
from twopass.formats.writer_input import WriterInput
from twopass.settings import load_settings
from twopass.text import maths

# HTML keeps cells that span; both benchmarks want no running headers, would read page marks as text, and find formulas
# between backslashes also where the text has dollars.
STYLE = FormatOptions(
    markdown=Markdown(tables=Tables.HTML, maths=Maths.BACKSLASH, furniture=Furniture.OMIT, page_marks=False)
)
_NO_MARKDOWN = re.compile(
    rf"<table.*?</table>|^(?P<fence>`{{3,}}).*?^(?P=fence)$|{maths.DISPLAY}|{maths.INLINE}", re.DOTALL | re.MULTILINE
)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])|&#?\w+;")
SUMMARY = "predictions.json"
DOCUMENTS = 64  # read at once, so that the pages of one-page documents fill an engine's batches


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark has its pages, and how the prediction for one is called."""

    folder: str
    suffixes: tuple[str, ...]
    name: Callable[[PurePath, int], str]  # the path below the folder, the page's number -> the prediction's path


def name_by_image(path: PurePath, page: int) -> str:
    """As OmniDocBench: `a.pdf_3.jpg` is predicted in `a.pdf_3.md`, and `a.jpeg` in `a.jpeg.md`."""
    return f"{path.stem if len(path.suffix) == 4 else path.name}.md"


def name_by_page(path: PurePath, page: int) -> str:
    """As olmOCR-bench: `tables/a.pdf` is predicted in `tables/a_pg1_repeat1.md`."""
    return f"{path.with_suffix('')}_pg{page}_repeat1.md"


BENCHMARKS = {
    "omnidocbench": Benchmark("images", (".jpg", ".jpeg", ".png"), name_by_image),
    "olmocr-bench": Benchmark("pdfs", (".pdf",), name_by_page),
}


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench predict", __doc__)
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("data", type=Path, help="the benchmark's folder")
    parser.add_argument("--output", type=Path, required=True, help="folder of the predictions")
    parser.add_argument("--reads", type=Path, help="folder that keeps what was read; default: OUTPUT_DIR")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="documents read at once")
    asked = parser.parse_args(arguments)
    reads = asked.reads or load_settings().output_dir  # not beside the output, where olmOCR-bench looks for others
    summary = predict(BENCHMARKS[asked.benchmark], asked.data, asked.output, reads, asked.documents)
    print(json.dumps(summary, indent=1))


def predict(benchmark: Benchmark, data: Path, output: Path, reads: Path, documents: int) -> dict[str, Any]:
    """Write every prediction; returns what was read, how fast, and which files could not be read."""
    folder, scored = data / benchmark.folder, _find_scored_pages(data)
    paths = sorted(_find(folder, benchmark.suffixes))
    if not paths:
        raise SystemExit(
            f"{folder}: no {', '.join(benchmark.suffixes)}; name the folder that holds {benchmark.folder}/"
        )
    _check_names(benchmark, [path.relative_to(folder) for path in paths])
    began, pages, failed = time.monotonic(), 0, dict[str, str]()
    options: dict[str, Any] = {}

    def read(path: Path) -> Document | TwopassError:
        try:
            return twopass.read(path, output=reads)
        except TwopassError as error:
            return error

    with ThreadPoolExecutor(documents) as pool:
        for path, answer in zip(paths, pool.map(read, paths), strict=True):
            relative = path.relative_to(folder)
            if isinstance(answer, TwopassError):
                failed[str(relative)] = str(answer)
                for number in scored.get(relative.as_posix(), {1}):
                    _write(output / benchmark.name(relative, number), "")
                continue
            options = answer.run.options
            failed |= {f"{relative} page {page.number}": str(page.state) for page in answer.pages if page.is_lost}
            for page in answer.pages:
                pages += 1
                _write(output / benchmark.name(relative, page.number), write_page(answer, page.number))
    seconds = time.monotonic() - began
    summary = {
        "twopass": twopass.__version__,
        "options": options,
        "files": len(paths),
        "pages": pages,
        "failed": failed,
        "seconds": round(seconds, 1),
        "pages_per_s": round(pages / seconds, 3),
    }
    _write(output / SUMMARY, json.dumps(summary, indent=1))
    return summary


def write_page(document: Document, number: int) -> str:
    """The page's Markdown in the style that the benchmarks score: its text as it is, without escapes."""
    elements = tuple(_drop_description(element) for element in document.elements if element.page == number)
    markdown = WriterInput(document.model_copy(update={"elements": elements}), STYLE).markdown[0]
    parts, start = [], 0
    for kept in _NO_MARKDOWN.finditer(markdown):
        parts += [_unescape(markdown[start : kept.start()]), kept.group()]
        start = kept.end()
    return "".join([*parts, _unescape(markdown[start:])])


def _unescape(markdown: str) -> str:
    return _ESCAPED.sub(lambda found: found[1] or html.unescape(found.group()), markdown)


def _drop_description(element: Element) -> Element:
    """A model's words about a picture are not on the page."""
    if element.figure is None:
        return element
    return element.model_copy(update={"figure": element.figure.model_copy(update={"description": None})})


def _find_scored_pages(data: Path) -> dict[str, set[int]]:
    """The pages of each PDF that the tests of olmOCR-bench are about."""
    pages: dict[str, set[int]] = defaultdict(set)
    for path in data.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                test = json.loads(line)
                pages[test["pdf"]].add(test["page"])
    return pages


def _check_names(benchmark: Benchmark, paths: Sequence[PurePath]) -> None:
    """Raise SystemExit if the scorer would take one prediction for two pages."""
    names: dict[str, PurePath] = {}
    for path in paths:
        name = benchmark.name(path, 1)
        if (other := names.setdefault(name, path)) != path:
            raise SystemExit(f"{other} and {path}: the scorer takes {name} for both; leave one of them out")


def _find(folder: Path, suffixes: Sequence[str]) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if PurePath(name).suffix.lower() in suffixes)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")
