"""A finished Document in, a Draft out: with the crops and page pictures that the formats asked for show.

Page pictures are drawn again from the source, never taken from the engine. Knows nothing of how any format looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from twopass.document import Document, Page, Problem, Severity
from twopass.errors import SourceError, WorkerDied
from twopass.format_options import Writing
from twopass.formats.draft import Draft
from twopass.job import Format
from twopass.pages.source_files import CheckedFile
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots, windowed
from twopass.steps import render, upload
from twopass.steps.upload import Folder, Gallery

log = structlog.get_logger()


@dataclass(frozen=True)
class Drawing:
    """Where page pictures come from, and how many are drawn at once on whose behalf."""

    file: CheckedFile
    page_pool: PagePool
    window: PageSlots
    owner: str


async def draft(
    document: Document, writing: Writing, formats: Sequence[Format], folder: Folder, drawing: Drawing | None
) -> tuple[Draft, tuple[Problem, ...]]:
    """The draft, and a warning for each page whose picture was asked for and cannot be drawn."""
    crops = await upload.crops(folder, document, writing)
    if Format.REVIEW not in formats or drawing is None:
        return Draft(document, writing, crops), ()
    pages, lost = await _pictures(document, folder, drawing)
    return Draft(document, writing, crops, pages), lost


async def _pictures(document: Document, folder: Folder, drawing: Drawing) -> tuple[dict[int, str], tuple[Problem, ...]]:
    gallery = Gallery(folder)

    async def one(page: Page) -> Problem | None:
        try:
            await gallery.add(page.number, await render.preview(drawing.file, page, drawing.page_pool))
        except (WorkerDied, SourceError) as error:
            log.warning("page picture not drawn", page=page.number, code=error.code)
            message = f"page {page.number}: no picture of it in review.html: {error.message}"
            return Problem(code=error.code, severity=Severity.WARNING, page=page.number, message=message)
        return None

    lost = await windowed(one, [page for page in document.pages if page.width_pt], drawing.window, drawing.owner)
    return gallery.addresses, tuple(problem for problem in lost if problem)
