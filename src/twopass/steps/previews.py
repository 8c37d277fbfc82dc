"""Prepare what the formats show besides text: crops, and page images for the review page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from twopass.document import Document, Page, Problem, Severity
from twopass.errors import SourceError, WorkerDied
from twopass.format_options import FormatOptions
from twopass.formats.writer_input import WriterInput
from twopass.job import Format
from twopass.pages.source_files import CheckedFile
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots, run_all
from twopass.steps import render, upload
from twopass.steps.upload import PagePreviews
from twopass.storage.document_folder import DocumentFolder

log = structlog.get_logger()


@dataclass(frozen=True)
class PreviewSource:
    """Where page images are rendered from, and the page slots that `owner` uses for it."""

    file: CheckedFile
    page_pool: PagePool
    page_slots: PageSlots
    owner: str


async def build_input(
    document: Document,
    options: FormatOptions,
    formats: Sequence[Format],
    folder: DocumentFolder,
    source: PreviewSource | None,
    on_page: Callable[[], None] = lambda: None,
) -> tuple[WriterInput, tuple[Problem, ...]]:
    """Build what the writers get; returns a warning for each page whose image is needed and cannot be rendered.

    `on_page` is called for each page whose image is needed, of `count_pages`.
    """
    crops = await upload.load_crops(folder, document, options)
    if Format.REVIEW not in formats or source is None:
        return WriterInput(document, options, crops), ()
    images, problems = await _render_pages(document, folder, source, on_page)
    return WriterInput(document, options, crops, images), problems


def count_pages(document: Document, formats: Sequence[Format]) -> int:
    """How many pages need an image in these formats."""
    return len(_select_pages(document)) if Format.REVIEW in formats else 0


def _select_pages(document: Document) -> list[Page]:
    return [page for page in document.pages if page.image]  # others were not rendered either


async def _render_pages(
    document: Document, folder: DocumentFolder, source: PreviewSource, on_page: Callable[[], None]
) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Page images are rendered from the source again, because the engine's images are gone by now."""
    previews = PagePreviews(folder)

    async def render_page(page: Page) -> Problem | None:
        try:
            await previews.add(page.number, await render.preview(source.file, page, source.page_pool))
        except (WorkerDied, SourceError) as error:
            log.warning("page image not rendered", page=page.number, code=error.code)
            message = f"page {page.number}: no image in review.html: {error.message}"
            return Problem(code=error.code, severity=Severity.WARNING, page=page.number, message=message)
        finally:
            on_page()
        return None

    problems = await run_all(render_page, _select_pages(document), source.page_slots, source.owner)
    return previews.addresses, tuple(problem for problem in problems if problem)
