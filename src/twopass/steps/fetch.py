"""Download a source and check it: detect its type, convert it if it is no PDF or image, count pages, enforce limits."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twopass import locations
from twopass.document import Meta, OutlineEntry, SourceInfo
from twopass.errors import Code, SourceError
from twopass.job import Job
from twopass.pages import epub, file_types
from twopass.pages.file_types import Converter, FileType
from twopass.pages.source_files import (
    PILLOW_ERRORS,
    SAVE_AGAIN,
    CheckedFile,
    PageSize,
    check_pixel_limit,
    count_frames,
    get_displayed_size,
    get_dpi,
    open_image,
    open_pdf,
    translate_pdf_errors,
)
from twopass.runtime import office, scratch
from twopass.runtime.office import ConversionLimits
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.storage import error_mapping
from twopass.storage.sources import Sources

_ANIMATIONS = ("GIF", "PNG", "WEBP", "AVIF")


@dataclass(frozen=True)
class Limits:
    pages: int
    image_pixels: int


@dataclass(frozen=True)
class Inspection:
    """What opening a file shows without rendering it: page sizes (None for a damaged page) and metadata."""

    pages: tuple[PageSize | None, ...]
    meta: Meta


@dataclass(frozen=True)
class SourceIdentity:
    """What decides which document a source is: its bytes, and what converts them; None if nothing does."""

    sha256: str
    converter: str | None


@asynccontextmanager
async def document(
    uri: str, job: Job, settings: Settings, page_pool: PagePool, sources: Sources
) -> AsyncIterator[CheckedFile]:
    """Download and check the source. The file is deleted when the context ends. Raises SourceError."""
    with ExitStack() as stack:
        with error_mapping.map_errors("the worker's disk", SourceError):
            path = stack.enter_context(scratch.open_folder()) / "source"
        download = await sources.fetch(uri, path)
        with error_mapping.map_errors("the worker's disk", SourceError):
            kind = file_types.detect(path, locations.suffix(uri))
            converter = _describe_converter(kind)
        password = job.password.get_secret_value() if job.password else None
        opened, hidden = await _convert(path, kind, password, settings, page_pool)
        if kind.converter:
            password = None  # the PDF has none
        limits = Limits(settings.max_pages, settings.max_image_pixels)
        inspection = await page_pool.call_with_retry(inspect, str(opened), kind.mime, password, limits)
        info = SourceInfo(
            uri=locations.redact(uri),
            etag=download.etag,
            sha256=download.sha256,
            bytes=download.bytes,
            mime=kind.mime,
            page_count=len(inspection.pages),
        )
        stem = locations.stem(uri)
        yield CheckedFile(opened, stem, info, inspection.pages, inspection.meta, password, converter, hidden)


async def identify(uri: str, sources: Sources) -> SourceIdentity:
    """What a source adds to its document's id. Nothing but its type is checked; raises SourceError."""
    with error_mapping.map_errors("the worker's disk", SourceError), scratch.open_folder() as folder:
        path = folder / "source"
        sha256 = (await sources.fetch(uri, path)).sha256
        return SourceIdentity(sha256, _describe_converter(file_types.detect(path, locations.suffix(uri))))


def _describe_converter(kind: FileType) -> str | None:
    """The converter of files of this type, with its version; raises SourceError if it is not installed."""
    if kind.converter is Converter.LIBREOFFICE:
        return office.require_version()
    return epub.describe_converter() if kind.converter else None


async def _convert(
    path: Path, kind: FileType, password: str | None, settings: Settings, page_pool: PagePool
) -> tuple[Path, tuple[str, ...]]:
    """The file itself, or the PDF that it is converted to, in the same folder; and what is on no page of the PDF."""
    if kind.converter is None:
        return path, ()
    target = path.with_name("converted.pdf")
    if kind.converter is Converter.MUPDF:
        return target, await page_pool.call_with_retry(epub.convert, str(path), str(target))
    limits = ConversionLimits(settings.worker_timeout_s, settings.worker_memory_bytes, settings.max_source_bytes)
    hidden = await page_pool.call_with_retry(office.convert, str(path), str(target), kind, password, limits)
    return target, hidden


def inspect(path: str, mime: str, password: str | None, limits: Limits) -> Inspection:
    """In a page worker: open the file, read its page sizes and metadata, and enforce the limits."""
    inspection = _inspect_image(path, limits) if file_types.is_image(mime) else _inspect_pdf(path, password, limits)
    if not inspection.pages:
        raise SourceError(Code.DAMAGED, f"the document has no pages; {SAVE_AGAIN}")
    return inspection


def _inspect_pdf(path: str, password: str | None, limits: Limits) -> Inspection:
    with open_pdf(path, password) as pdf:
        if pdf.page_count > limits.pages:
            raise SourceError(
                Code.SOURCE_TOO_LARGE,
                f"{pdf.page_count} pages; at most {limits.pages}: raise MAX_PAGES or split the file",
            )
        return Inspection(tuple(_get_page_size(pdf, index) for index in range(pdf.page_count)), _read_meta(pdf))


def _get_page_size(pdf: Any, index: int) -> PageSize | None:
    try:
        with translate_pdf_errors(pdf.name):
            rect = pdf[index].rect
            has_annotations = pdf.xref_get_key(pdf.page_xref(index), "Annots")[0] != "null"
    except SourceError:
        return None
    if not (0 < rect.width < math.inf and 0 < rect.height < math.inf):
        return None
    return PageSize(rect.width, rect.height, has_annotations=has_annotations)


def _read_meta(pdf: Any) -> Meta:
    stored = pdf.metadata or {}
    try:
        with translate_pdf_errors(pdf.name):
            toc = pdf.get_toc(simple=True)
    except SourceError:
        toc = []
    outline = tuple(
        OutlineEntry(level=level, title=" ".join(title.split()), page=page if page > 0 else None)
        for level, title, page in toc
        if title.strip()
    )
    return Meta(
        title=_clean_text(stored.get("title")),
        author=_clean_text(stored.get("author")),
        subject=_clean_text(stored.get("subject")),
        date=_to_iso_date(stored.get("modDate") or stored.get("creationDate")),
        outline=outline,
    )


def _clean_text(text: str | None) -> str | None:
    # Damaged files contain surrogates and control characters, which cannot be written as UTF-8 JSON.
    clean = "".join(c for c in text or "" if c.isprintable()).strip()
    return clean.encode("utf-8", "ignore").decode() or None


def _to_iso_date(text: str | None) -> str | None:
    """Convert a PDF date, `D:20240131…`, to 2024-01-31; None for anything else."""
    match = re.match(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?", text or "")
    return "-".join(part for part in match.groups() if part) if match else None


def _inspect_image(path: str, limits: Limits) -> Inspection:
    with open_image(path, limits.image_pixels) as image:
        count = count_frames(image)
        if count > limits.pages:
            raise SourceError(Code.SOURCE_TOO_LARGE, f"{count} pages; at most {limits.pages}: raise MAX_PAGES")
        if image.format in _ANIMATIONS:  # whose frames have one size, and are decoded one after the other
            return Inspection((_get_frame_size(image, 0, limits.image_pixels),) * count, Meta())
        return Inspection(tuple(_get_frame_size(image, index, limits.image_pixels) for index in range(count)), Meta())


def _get_frame_size(image: Any, index: int, limit: int) -> PageSize | None:
    try:
        image.seek(index)
    except PILLOW_ERRORS:
        return None
    check_pixel_limit(image.size, limit)
    width, height = get_displayed_size(image)
    across, down = get_dpi(image)
    return PageSize(width * 72 / across, height * 72 / down, max(across, down))
