"""Measure the audit: what it reports of damaged pages, how often it is wrong about sound ones, and what it costs.

    python -m scripts.bench audit [FOLDER …] [--pages 12] [--read 2] [--damaged 20] [--only damaged missed …]

    damaged    a page of each file is damaged in all ways of damaged_pages.py and drawn, and that of the first file read
    rendered   sound pages are drawn, which is the same for all engines
    read       sound pages are read
    missed     text that the first reading missed is looked for on pages that are read, and on scans of them; elements
               and lines are taken away, which it has to find
    words      recorded answers in the FOLDERs, and those of finished documents, are compared with their elements
    hidden     lines are drawn in ways in which nobody can see them, and in ways in which they are seen
    fonts      pages are read of which one font names other characters than it draws
    calibration    the confidence of elements is compared with the share of their words that the page shows
    formats    finished documents in the FOLDERs are written in every format, and each is compared with the elements

Pages are read with the engine of the settings (ENGINE, PRESET). A false alarm is a page of a sound file with a loss:
the FOLDERs should hold sound files, and not those whose messages the table in pages/damage.py was written from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from types import MappingProxyType

import pymupdf

from scripts.bench import audit_layer, audit_words, damaged_pages, format_words, missed_lines
from scripts.bench.corpus import drawn
from scripts.bench.options import create_parser
from twopass import Document, read
from twopass.document import Checkpoint, Page, PageAudit, State, Status
from twopass.errors import TwopassError
from twopass.job import EntryPoint, Job
from twopass.pages import damage, source_files
from twopass.pages.damage import Fault
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import open_page_pool
from twopass.settings import Settings, load_settings
from twopass.steps import audit, fetch, render
from twopass.storage.sources import Sources

DPI = 100  # the cost of the search for faults does not depend on it
BUFFERS, BUFFER_BYTES = 2, 256 << 20
MAX_SHOWN = 200  # characters of what is said of a page


@dataclass(frozen=True)
class Material:
    """Sound files. `pages` of each are drawn, `read_pages` read, and of `damaged` of them a page is damaged."""

    files: Sequence[Path]
    pages: int
    read_pages: int
    damaged: int | None
    settings: Settings
    folders: tuple[Path, ...] = ()

    def read(self, source: Path | bytes, pages: str) -> Document:
        return read(source, settings=self.settings, pages=pages, formats=["docjson"])


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench audit", __doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help="of sound PDFs, also in its folders")
    parser.add_argument("--pages", type=int, default=12, help="drawn of each file, spread over it; default: 12")
    parser.add_argument("--read", type=int, default=2, help="read of each file, spread over it; default: 2")
    parser.add_argument("--damaged", type=int, help="files of which a page is damaged; default: all")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts to measure; default: all")
    options = parser.parse_args(arguments)
    settings = load_settings()
    with TemporaryDirectory() as folder:
        found = (file for place in options.folders for file in sorted(place.rglob("*.pdf")))
        files = (*drawn.save_all(Path(folder)), *found)
        material = Material(files, options.pages, options.read, options.damaged, settings, tuple(options.folders))
        print(f"engine {settings.engine}, {len(files)} files", flush=True)
        for name in options.only:
            print()
            PARTS[name](material)


# ---- damaged pages ---------------------------------------------------------------------------------


@dataclass
class Ends:
    """How pages with one kind of damage ended when they were drawn, and whether a reading says it."""

    pages: int = 0
    lost: int = 0
    altered: int = 0
    blank: int = 0
    failed: int = 0
    silent: list[str] = field(default_factory=list)
    is_said: bool | None = None

    def add(self, name: str, page: Page) -> None:
        has_findings = bool(page.audit and page.audit.findings)
        has_loss = bool(page.audit and page.audit.has_loss)
        self.pages += 1
        self.lost += has_loss
        self.altered += has_findings and not has_loss
        self.blank += page.state is State.BLANK
        self.failed += page.state is State.FAILED
        if not has_findings:
            self.silent.append(name)


def measure_damaged(material: Material) -> None:
    """Damage a page of each file in every way, and draw it; pages of the first file are read, too."""
    count = material.damaged or len(material.files)
    files = material.files[:: max(len(material.files) // count, 1)][:count]
    ends = {way: Ends() for way in damaged_pages.WAYS}
    asyncio.run(_draw_damaged(files, ends, material.settings))
    for way, end in ends.items():
        document = material.read(damaged_pages.damage(files[0].read_bytes(), 0, way), "1")
        end.is_said = document.status is not Status.SUCCESS and bool(document.problems)
    titles = f"{'drawn':>7}{'lost':>7}{'altered':>9}{'silent':>8}{'blank':>7}{'failed':>8}"
    print(f"{'damaged pages':48}{titles}  a reading says it")
    for way, end in ends.items():
        row = f"{end.pages:7}{end.lost:7}{end.altered:9}{len(end.silent):8}{end.blank:7}{end.failed:8}"
        print(f"{way:48}{row}  {'yes' if end.is_said else 'NO'}")
    for way, end in ends.items():
        for name in end.silent:
            print(f"    {way}: nothing is reported of {name}")


async def _draw_damaged(files: Sequence[Path], ends: Mapping[str, Ends], settings: Settings) -> None:
    """Draw the first page of each file in page workers, damaged in every way; what cannot be damaged is left out."""
    buffers = PixelBufferPool(BUFFERS, BUFFER_BYTES)
    async with open_page_pool(settings, buffers) as page_pool:
        for file, (way, end) in product(files, ends.items()):
            with TemporaryDirectory() as folder:
                path = Path(folder, file.name)
                try:
                    path.write_bytes(damaged_pages.damage(file.read_bytes(), 0, way))
                    job = Job.parse({"input": {"source": str(path)}}, settings, EntryPoint.LOCAL)
                    async with (
                        fetch.document(str(path), job, settings, page_pool, Sources(settings)) as fetched,
                        render.page(fetched, 1, DPI, settings.max_page_pixels, page_pool, buffers) as rendered,
                    ):
                        end.add(file.name, rendered.page)
                except (ValueError, RuntimeError, TwopassError) as error:
                    print(f"left out: {file.name}, {way}: {error}", flush=True)


# ---- sound pages -----------------------------------------------------------------------------------


def measure_rendered(material: Material) -> None:
    """Draw pages as they are: what the renderer reports of them, and the cost of asking it, which page workers pay."""
    found, costs = dict[str, tuple[Fault, ...]](), list[float]()
    for file in material.files:
        for number in _spread(file, material.pages):
            with source_files.open_page(str(file), number, 0, None) as page:
                source_files.render_display_list(page.get_displaylist(), DPI / 72, DPI / 72)
                began = time.process_time()
                found[f"{file.name} {number}"] = damage.find_faults(page)
                costs.append(time.process_time() - began)
    lost = sum(any(fault.is_loss for fault in faults) for faults in found.values())
    _print_alarms("rendered", len(found), lost, {name: [fault.what for fault in found[name]] for name in found})
    _print_cost("page worker: find faults", costs)


def measure_read(material: Material) -> None:
    """Read pages as they are: what the audit says of them, and its cost, which the main process pays."""
    found, lost, costs = dict[str, list[str]](), 0, list[float]()
    for file in material.files:
        try:
            document = material.read(file, ",".join(map(str, _spread(file, material.read_pages))))
        except TwopassError as error:
            print(f"left out: {file.name}: {error}", flush=True)
            continue
        for page in document.pages:
            found[f"{file.name} {page.number}"] = _describe(page)
            lost += page.has_loss
            costs.append(_measure_step(file, document, page))
    _print_alarms("read", len(found), lost, found)
    _print_cost("main process: complete the audit", costs)


def measure_missed(material: Material) -> None:
    """Look for missed text on pages and on scans of them; thresholds were fixed on other pages."""
    layer, scans = missed_lines.MissedCounts(), missed_lines.MissedCounts()
    for file in material.files:
        numbers = _spread(file, material.read_pages)
        try:
            scan = missed_lines.draw_scan(file, numbers)
            sources = ((layer, file, ",".join(map(str, numbers))), (scans, scan, f"1-{len(numbers)}"))
            for counts, source, pages in sources:
                for page in missed_lines.list_pages(file.name, source, material.read(source, pages)):
                    counts.add(page)
        except (TwopassError, RuntimeError) as error:
            print(f"left out: {file.name}: {error}", flush=True)
    missed_lines.print_counts("pages with a text layer", layer)
    missed_lines.print_counts("scans", scans)


def _spread(file: Path, limit: int) -> list[int]:
    """So many pages of the file, with the same distance between them; none of one that needs a password."""
    with pymupdf.open(file) as pdf:
        count = 0 if pdf.needs_pass else len(pdf)
    step = max(count / limit, 1)
    return [int(n * step) + 1 for n in range(min(count, limit))]


def _describe(page: Page) -> list[str]:
    ended = page.audit or PageAudit()
    return [ended.explain(kind).partition("; ")[0] for kind in dict.fromkeys(found.kind for found in ended.findings)]


def _measure_step(file: Path, document: Document, page: Page) -> float:
    """Processor seconds to complete the audit of this page."""
    _, _, _, words, _ = render.read_text_only(PagePointer(str(file), page.number, 0, None))
    elements = tuple(element for element in document.elements if element.page == page.number)
    checkpoint = Checkpoint(page=page.model_copy(update={"audit": None}), elements=elements)
    began = time.process_time()
    audit.complete_unrendered(checkpoint, words)
    return time.process_time() - began


def _print_alarms(how: str, count: int, lost: int, said: Mapping[str, Sequence[str]]) -> None:
    others = sum(map(bool, said.values())) - lost
    print(
        f"sound pages, {how}: {count}; with a loss: {lost} ({lost / max(count, 1):.2%}); with another finding: {others}"
    )
    for name, words in said.items():
        if words:
            print(f"    {name}: {'; '.join(words)[:MAX_SHOWN]}")


def _print_cost(title: str, seconds: Sequence[float]) -> None:
    costs = sorted(1000 * value for value in seconds) or [0.0]
    high = costs[len(costs) * 95 // 100]
    row = f"median {median(costs):.2f}, mean {mean(costs):.2f}, 95 % {high:.2f}, most {costs[-1]:.2f}"
    print(f"{title}, processor ms a page: {row}", flush=True)


# Each part prints a table about the engine of the settings.
PARTS: Mapping[str, Callable[[Material], None]] = MappingProxyType(
    {
        "damaged": measure_damaged,
        "rendered": measure_rendered,
        "read": measure_read,
        "missed": measure_missed,
        "words": lambda material: audit_words.print_words(material.folders),
        "hidden": lambda material: audit_layer.measure_hidden(
            material.files, lambda file: _spread(file, material.pages)
        ),
        "fonts": lambda material: audit_layer.measure_fonts(lambda data: material.read(data, "1")),
        "calibration": lambda material: audit_layer.measure_calibration(lambda data: material.read(data, "1")),
        "formats": lambda material: format_words.print_losses(material.folders),
    }
)
