"""Make small PDF and image files, and read them with the fetch and render steps."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymupdf
from PIL import Image, ImageDraw

from twopass.job import EntryPoint, Job
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.pages.source_files import CheckedFile
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch, render
from twopass.storage.sources import Sources

A4 = (595, 842)
SENTENCE = "The quick brown fox jumps over the lazy dog near the old water works of the town."


def make_pdf(draw: Callable[[Any], None], size: tuple[float, float] = A4) -> bytes:
    """A PDF with one page on which `draw` drew."""
    with pymupdf.open() as pdf:
        draw(pdf.new_page(width=size[0], height=size[1]))
        return bytes(pdf.tobytes())


def make_image(kind: str, size: tuple[int, int] = (400, 200), **options: Any) -> bytes:
    """A white image with a black rectangle from (40, 40) to (120, 80)."""
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((40, 40, 120, 80), fill="black")
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def insert_text(page: Any) -> None:
    page.insert_textbox((72, 72, 500, 300), SENTENCE * 3)


def save_headline(path: Path) -> None:
    """Save a scan for answers that say something else: its letters are so large that they are not looked for."""
    with pymupdf.open() as pdf, pymupdf.open() as scan:
        page = pdf.new_page(width=A4[0], height=A4[1])
        page.insert_text((40, 500), "SALT BY", fontsize=110)
        scan.new_page(width=A4[0], height=A4[1]).insert_image(page.rect, pixmap=page.get_pixmap(dpi=144))
        scan.save(path)


@dataclass
class SourceReader:
    """Fetches a file from its bytes and renders its pages."""

    folder: Path
    page_pool: PagePool
    buffers: PixelBufferPool
    settings: Settings
    with_draft: bool = False

    @asynccontextmanager
    async def open(self, data: bytes, name: str = "file.bin", **fields: Any) -> AsyncIterator[CheckedFile]:
        path = self.folder / name
        path.write_bytes(data)
        job = Job.parse({"input": {"source": str(path), **fields}}, self.settings, EntryPoint.LOCAL)
        async with fetch.document(str(path), job, self.settings, self.page_pool, Sources(self.settings)) as file:
            yield file

    @asynccontextmanager
    async def render(self, data: bytes, number: int = 1, dpi: int = 72, **fields: Any) -> AsyncIterator[RenderedPage]:
        limit = self.settings.max_page_pixels
        async with (
            self.open(data, **fields) as file,
            render.page(file, number, dpi, limit, self.page_pool, self.buffers, self.with_draft) as rendered,
        ):
            yield rendered
