"""Measure the audit: what it reports of damaged pages, how often it is wrong about sound ones, and what it costs.

    python -m scripts.bench audit [FOLDER …] [--pages 12] [--damaged 20] [--only sound damaged]

Pages of the FOLDERs' PDFs and drawn pages are read as they are with the engine of the settings (ENGINE, PRESET), and a
page of each file again, damaged in every way of damaged_pages.py. A false alarm is a page of a sound file with a loss:
the FOLDERs should hold sound files, and files that the table of messages in pages/damage.py was not written from.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean, quantiles
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

import pymupdf

from scripts.bench import damaged_pages
from scripts.bench.corpus import drawn
from scripts.bench.options import create_parser
from twopass import Document, read
from twopass.document import Checkpoint, Page, State, Status
from twopass.errors import TwopassError
from twopass.pages import damage, source_files
from twopass.pages.rendered_page import PagePointer
from twopass.settings import Settings, load_settings
from twopass.steps import audit, render

DPI = 100  # the cost of the search for faults does not depend on it
MAX_SHOWN = 200  # characters of what is said of a page


@dataclass(frozen=True)
class Material:
    """Sound files, `pages` of which are read, spread over each file; a page of the first `damaged` ones is damaged."""

    files: Sequence[Path]
    pages: int
    damaged: int | None
    settings: Settings

    def read(self, source: Path | bytes, pages: str) -> Document:
        return read(source, settings=self.settings, pages=pages, formats=["docjson"])

    @cached_property
    def threads(self) -> int:
        return self.settings.page_worker_count


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench audit", __doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help="of sound PDFs, also in its folders")
    parser.add_argument("--pages", type=int, default=12, help="of each file, spread over it; default: 12")
    parser.add_argument("--damaged", type=int, help="files of which a page is damaged; default: all")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts to measure; default: all")
    options = parser.parse_args(arguments)
    settings = load_settings()
    with TemporaryDirectory() as folder:
        found = (file for place in options.folders for file in sorted(place.rglob("*.pdf")))
        files = (*drawn.save_all(Path(folder)), *found)
        material = Material(files, options.pages, options.damaged, settings)
        print(f"engine {settings.engine}, {len(files)} files", flush=True)
        for name in options.only:
            print()
            PARTS[name](material)


# ---- damaged pages ---------------------------------------------------------------------------------


@dataclass
class Ends:
    """How damaged pages ended. A silent one has no finding; `unsaid` has a loss in no problem or status."""

    pages: int = 0
    lost: int = 0
    altered: int = 0
    blank: int = 0
    failed: int = 0
    unsaid: int = 0
    silent: list[str] = field(default_factory=list)

    def add(self, name: str, document: Document) -> None:
        (page,) = document.pages
        findings = page.audit.findings if page.audit else ()
        has_loss = any(finding.kind.is_loss for finding in findings)
        self.pages += 1
        self.lost += has_loss
        self.altered += bool(findings) and not has_loss
        self.blank += page.state is State.BLANK
        self.failed += page.state is State.FAILED
        self.unsaid += has_loss and (document.status is Status.SUCCESS or not document.problems)
        if not findings:
            self.silent.append(name)


def measure_damaged(material: Material) -> None:
    """Damage a page of each file in every way; files that cannot be changed are left out."""
    ends = {way: Ends() for way in damaged_pages.WAYS}
    files = material.files[: material.damaged]

    def damage_and_read(file: Path) -> list[tuple[str, Document]]:
        data = file.read_bytes()
        return [(way, document) for way in ends for document in _read_damaged(material, data, way, file.name)]

    with ThreadPoolExecutor(material.threads) as pool:
        for file, documents in zip(files, pool.map(damage_and_read, files), strict=True):
            for way, document in documents:
                ends[way].add(file.name, document)
    print(
        f"{'damaged pages':40}{'pages':>7}{'lost':>7}{'altered':>9}{'silent':>8}{'blank':>7}{'failed':>8}{'unsaid':>8}"
    )
    for way, end in {**ends, "all": _sum_ends(ends)}.items():
        row = f"{end.pages:7}{end.lost:7}{end.altered:9}{len(end.silent):8}{end.blank:7}{end.failed:8}{end.unsaid:8}"
        print(f"{way:40}{row}")
    for way, end in ends.items():
        for name, times in Counter(end.silent).items():
            print(f"    {way}: nothing is reported of {name}{f' ({times} times)' if times > 1 else ''}")


def _read_damaged(material: Material, data: bytes, way: str, name: str) -> Iterator[Document]:
    try:
        yield material.read(damaged_pages.damage(data, 0, way), "1")
    except (ValueError, RuntimeError, TwopassError) as error:
        print(f"left out: {name}, {way}: {error}", flush=True)


def _sum_ends(ends: Mapping[str, Ends]) -> Ends:
    total = Ends()
    for end in ends.values():
        for name in vars(total):
            setattr(total, name, getattr(total, name) + getattr(end, name))
    return total


# ---- sound pages -----------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Processor milliseconds for a page: in a page worker to find faults, in the main process to complete the audit."""

    faults: float
    step: float


def measure_sound(material: Material) -> None:
    """Read pages as they are: what the audit says of them, and its cost."""
    pages, costs = list[tuple[str, Page]](), list[Cost]()
    for file in material.files:
        try:
            document = material.read(file, _spread(file, material.pages))
        except (TwopassError, RuntimeError) as error:
            print(f"left out: {file.name}: {error}", flush=True)
            continue
        pages += [(f"{file.name} {page.number}", page) for page in document.pages]
        costs += [_measure_cost(file, document, page) for page in document.pages]
    lost = [(name, page) for name, page in pages if page.audit and page.audit.has_loss]
    altered = sum(bool(page.audit and page.audit.findings) for _, page in pages) - len(lost)
    print(
        f"sound pages: {len(pages)}; with a loss: {len(lost)} ({len(lost) / max(len(pages), 1):.2%}); other: {altered}"
    )
    for name, page in pages:
        if page.audit and page.audit.findings:
            print(f"    {name}: {_describe(page)}")
    print(f"\n{'processor ms a page':40}{'median':>8}{'mean':>8}{'p95':>8}{'most':>8}")
    for title, values in (
        ("page worker: find faults", [cost.faults for cost in costs]),
        ("main process: complete the audit", [cost.step for cost in costs]),
    ):
        *_, p95 = quantiles(values, n=20)
        print(f"{title:40}{quantiles(values, n=2)[0]:8.2f}{mean(values):8.2f}{p95:8.2f}{max(values):8.2f}")


def _spread(file: Path, limit: int) -> str:
    """So many pages of the file, as a range, with the same distance between them."""
    with pymupdf.open(file) as pdf:
        count = len(pdf)
    step = max(count / limit, 1)
    return ",".join(str(int(n * step) + 1) for n in range(min(count, limit)))


def _describe(page: Page) -> str:
    kinds = dict.fromkeys(finding.kind for finding in page.audit.findings) if page.audit else {}
    return "; ".join(page.audit.explain(kind).partition("; ")[0] for kind in kinds if page.audit)[:MAX_SHOWN]


def _measure_cost(file: Path, document: Document, page: Page) -> Cost:
    with source_files.open_page(str(file), page.number, 0, None) as opened:
        source_files.render_display_list(opened.get_displaylist(), DPI / 72, DPI / 72)
        faults = _measure_ms(lambda: damage.find_faults(opened))
    _, _, _, words, _ = render.read_text_only(PagePointer(str(file), page.number, 0, None))
    elements = tuple(element for element in document.elements if element.page == page.number)
    read_page = Checkpoint(page=page.model_copy(update={"audit": None}), elements=elements)
    return Cost(faults, _measure_ms(lambda: audit.complete_unread(read_page, words)))


def _measure_ms(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return 1000 * (time.process_time() - began)


# Each part prints a table about the engine of the settings.
PARTS: Mapping[str, Callable[[Material], None]] = MappingProxyType({"sound": measure_sound, "damaged": measure_damaged})
