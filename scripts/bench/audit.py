"""Measure the audit: what it reports of damaged pages, and how often it reports something of sound ones.

    python -m scripts.bench audit [FOLDER …] [--pages 12] [--damaged 20]

Pages of the FOLDERs' PDFs and drawn pages are rendered as they are, and the first page of each file is damaged in every
way of damaged_pages.py. A false alarm is a page of a sound file with a loss; the FOLDERs should hold sound files only.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from scripts.bench import damaged_pages
from scripts.bench.corpus import drawn
from scripts.bench.options import create_parser
from twopass.document import Page, State
from twopass.errors import SourceError
from twopass.job import EntryPoint, Job
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool, open_page_pool
from twopass.settings import Settings
from twopass.steps import fetch, render
from twopass.storage.sources import Sources

DPI = 100
BUFFERS = 2
BUFFER_BYTES = 256 << 20


@dataclass
class Renderer:
    """Renders the pages of local files as the pipeline does."""

    settings: Settings
    page_pool: PagePool
    buffers: PixelBufferPool

    async def pages(self, path: Path, limit: int) -> AsyncIterator[Page]:
        job = Job.parse({"input": {"source": str(path)}}, self.settings, EntryPoint.LOCAL)
        fetching = fetch.document(str(path), job, self.settings, self.page_pool, Sources(self.settings))
        async with fetching as file:
            for number in range(1, min(len(file.pages), limit) + 1):
                pixels = self.settings.max_page_pixels
                async with render.page(file, number, DPI, pixels, self.page_pool, self.buffers) as rendered:
                    yield rendered.page


@dataclass
class Counts:
    """Pages by what the audit says of them."""

    pages: int = 0
    lost: int = 0
    altered: int = 0
    blank: int = 0
    silent: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    def add(self, name: str, page: Page) -> None:
        self.pages += 1
        said = "; ".join(finding.said or "" for finding in page.audit.findings) if page.audit else ""
        self.lost += page.has_loss
        self.altered += bool(said) and not page.has_loss
        self.blank += page.state is State.BLANK
        if said:
            self.alarms.append(f"{name} {page.number}: {said}")
        else:
            self.silent.append(name)


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench audit", __doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help="of sound PDFs")
    parser.add_argument("--pages", type=int, default=12, help="of each file, from the first; default: 12")
    parser.add_argument("--damaged", type=int, help="files of which a page is damaged; default: all")
    options = parser.parse_args(arguments)
    asyncio.run(measure(options.folders, options.pages, options.damaged))


async def measure(folders: Sequence[Path], limit: int, damaged: int | None) -> None:
    settings = Settings()
    async with AsyncExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        buffers = PixelBufferPool(BUFFERS, BUFFER_BYTES)
        renderer = Renderer(settings, await stack.enter_async_context(open_page_pool(settings, buffers)), buffers)
        files = [*drawn.save_all(temporary), *(file for folder in folders for file in sorted(folder.glob("*.pdf")))]
        print_sound(await read_sound(renderer, files, limit))
        print_damaged(await damage(renderer, files[:damaged], temporary / "damaged.pdf"))


async def damage(renderer: Renderer, files: Sequence[Path], path: Path) -> dict[str, Counts]:
    """Damage the first page of each file in every way; files that cannot be changed are left out."""
    counts = {way: Counts() for way in damaged_pages.WAYS}
    for file in files:
        data = file.read_bytes()
        for way, count in counts.items():
            try:
                path.write_bytes(damaged_pages.damage(data, 0, way))
            except (ValueError, RuntimeError) as error:
                print(f"left out: {file.name}, {way}: {error}")
                continue
            async for page in renderer.pages(path, 1):
                count.add(file.name, page)
    return counts


async def read_sound(renderer: Renderer, files: Sequence[Path], limit: int) -> Counts:
    count = Counts()
    for file in files:
        try:
            async for page in renderer.pages(file, limit):
                count.add(file.name, page)
        except SourceError as error:
            print(f"left out: {file.name}: {error}")
    return count


def print_damaged(counts: dict[str, Counts]) -> None:
    print(f"{'damaged pages':45}{'pages':>7}{'lost':>7}{'altered':>9}{'silent':>8}{'blank':>7}")
    for way, count in counts.items():
        row = f"{count.pages:7}{count.lost:7}{count.altered:9}{len(count.silent):8}{count.blank:7}"
        print(f"{way:45}{row}")
        for name, times in Counter(count.silent).items():
            print(f"    nothing is reported of {name}{f' ({times} times)' if times > 1 else ''}")


def print_sound(count: Counts) -> None:
    share = count.lost / count.pages if count.pages else 0.0
    print(f"sound pages: {count.pages}; with a loss: {count.lost} ({share:.1%}); altered: {count.altered}")
    for alarm in count.alarms:
        print(f"    {alarm}")
