"""A source's URI in, a checked file on disk out: type told by content, limits checked, pages counted.

Knows file types and limits. Knows nothing of rendering, engines or artefacts.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from twopass.document import Meta, OutlineEntry, SourceInfo
from twopass.errors import Code, SourceError
from twopass.job import Job, shown
from twopass.pages.source_files import (
    PDF,
    PILLOWS,
    CheckedFile,
    PageSize,
    check_pixels,
    displayed_size,
    opened_image,
    opened_pdf,
    pdf_errors,
    stated_dpi,
)
from twopass.runtime import scratch
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.storage import error_mapping
from twopass.storage.sources import Sources

PDF_HEADER_WITHIN = 1024  # readers accept leading rubbish up to here

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"II+\x00", "image/tiff"),
    (b"MM\x00+", "image/tiff"),
)


@dataclass(frozen=True)
class Limits:
    pages: int
    image_pixels: int


@dataclass(frozen=True)
class Inspected:
    """What a look into the file told, without rendering anything."""

    pages: tuple[PageSize | None, ...]
    meta: Meta


@asynccontextmanager
async def document(
    uri: str, job: Job, settings: Settings, page_pool: PagePool, sources: Sources
) -> AsyncIterator[CheckedFile]:
    """The source as a CheckedFile while the context lasts; raises SourceError."""
    with ExitStack() as stack:
        with error_mapping.translated("the worker's disk", SourceError):
            path = stack.enter_context(scratch.folder()) / "source"
        got = await sources.fetch(uri, path)
        with error_mapping.translated("the worker's disk", SourceError):
            mime = told_by_content(path)
        password = job.password.get_secret_value() if job.password else None
        limits = Limits(settings.max_pages, settings.max_image_pixels)
        inspected = await page_pool.insist(inspect, str(path), mime, password, limits)
        info = SourceInfo(
            uri=shown(uri),
            etag=got.etag,
            sha256=got.sha256,
            bytes=got.bytes,
            mime=mime,
            page_count=len(inspected.pages),
        )
        yield CheckedFile(path, stem_of(uri), info, inspected.pages, inspected.meta, password)


def stem_of(uri: str) -> str:
    """The file's name without its suffix, as the beginning of a document id."""
    if uri.startswith("data:"):
        return "inline"
    path = unquote(urlsplit(uri).path) if "://" in uri else uri
    return PurePosixPath(path).stem or "document"


def told_by_content(path: Path) -> str:
    """The file's media type; raises SourceError for what nobody here can read."""
    with path.open("rb") as file:
        head = file.read(PDF_HEADER_WITHIN)
    if not head:
        raise SourceError(Code.DAMAGED, "the source is empty: 0 bytes")
    if b"%PDF-" in head:
        return PDF
    for magic, mime in _MAGIC:
        if head.startswith(magic):
            return mime
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    raise SourceError(Code.SOURCE_UNSUPPORTED, "the source is no PDF, PNG, JPEG, WebP or TIFF, whatever its name says")


def inspect(path: str, mime: str, password: str | None, limits: Limits) -> Inspected:
    """In a page worker: open the file, count its pages, refuse what is beyond the limits."""
    found = _inspect_pdf(path, password, limits) if mime == PDF else _inspect_image(path, limits)
    if not found.pages:
        raise SourceError(Code.DAMAGED, "the document has no pages")
    return found


def _inspect_pdf(path: str, password: str | None, limits: Limits) -> Inspected:
    with opened_pdf(path, password) as pdf:
        if pdf.page_count > limits.pages:
            raise SourceError(
                Code.SOURCE_TOO_LARGE,
                f"{pdf.page_count} pages; at most {limits.pages}: raise MAX_PAGES or split the file",
            )
        return Inspected(tuple(_size(pdf, index) for index in range(pdf.page_count)), _meta(pdf))


def _size(pdf: Any, index: int) -> PageSize | None:
    try:
        with pdf_errors(pdf.name):
            rect = pdf[index].rect
    except SourceError:
        return None
    return PageSize(rect.width, rect.height) if rect.width > 0 and rect.height > 0 else None


def _meta(pdf: Any) -> Meta:
    said = pdf.metadata or {}
    try:
        with pdf_errors(pdf.name):
            toc = pdf.get_toc(simple=True)
    except SourceError:
        toc = []
    outline = tuple(
        OutlineEntry(level=level, title=" ".join(title.split()), page=page if page > 0 else None)
        for level, title, page in toc
        if title.strip()
    )
    return Meta(
        title=_said(said.get("title")),
        author=_said(said.get("author")),
        subject=_said(said.get("subject")),
        date=iso_date(said.get("modDate") or said.get("creationDate")),
        outline=outline,
    )


def _said(text: str | None) -> str | None:
    # Surrogates and controls come from broken files and cannot be written as UTF-8 JSON.
    clean = "".join(c for c in text or "" if c.isprintable()).strip()
    return clean.encode("utf-8", "ignore").decode() or None


def iso_date(text: str | None) -> str | None:
    """`D:20240131…` as 2024-01-31; None for anything else."""
    found = re.match(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?", text or "")
    return "-".join(part for part in found.groups() if part) if found else None


def _inspect_image(path: str, limits: Limits) -> Inspected:
    with opened_image(path, limits.image_pixels) as image:
        # Frames of any other kind are one picture's: its animation, its depth map, its preview.
        count = image.n_frames if image.format == "TIFF" else 1
        if count > limits.pages:
            raise SourceError(Code.SOURCE_TOO_LARGE, f"{count} pages; at most {limits.pages}: raise MAX_PAGES")
        return Inspected(tuple(_frame_size(image, index, limits.image_pixels) for index in range(count)), Meta())


def _frame_size(image: Any, index: int, limit: int) -> PageSize | None:
    try:
        image.seek(index)
    except PILLOWS:
        return None
    check_pixels(image.size, limit)
    width, height = displayed_size(image)
    across, down = stated_dpi(image)
    return PageSize(width * 72 / across, height * 72 / down, max(across, down))
