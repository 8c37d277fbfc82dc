"""Write formats of a finished document again, or a new document from its recorded answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from twopass import locations
from twopass.formats import registry
from twopass.job import EntryPoint, Job
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import DocumentResult
from twopass.runtime.page_pool import open_page_pool
from twopass.settings import Settings
from twopass.steps import fetch, render, reparse
from twopass.steps.document_folder import DocumentFolder
from twopass.storage.outputs import create_store
from twopass.storage.sources import open_sources


@dataclass(frozen=True)
class Arguments:
    """The command's arguments; with `output` the recorded answers are parsed again."""

    folder: str
    formats: tuple[str, ...] = ()
    markdown: Mapping[str, Any] | None = None
    chunks: Mapping[str, Any] | None = None
    furniture: str | None = None
    hidden_text: str | None = None
    source: str | None = None
    password: str | None = None
    output: str | None = None


def run(arguments: Arguments, settings: Settings) -> dict[str, Any]:
    """The report to print: the artefacts' URIs, and problems or changed pages. Raises TwopassError."""
    return asyncio.run(_run(arguments, settings))


async def _run(arguments: Arguments, settings: Settings) -> dict[str, Any]:
    async with _open_folder(arguments.folder, settings) as folder, AsyncExitStack() as stack:
        stored = await reparse.load_document(folder)
        job = _make_job(arguments, stored, settings)
        sources = await stack.enter_async_context(open_sources(settings, job.s3))
        if not arguments.output:
            preview = None
            if not registry.NEEDS_SOURCE.isdisjoint(job.formats):
                opening = reparse.open_preview_source(stored, job, settings, sources)
                preview = await stack.enter_async_context(opening)
            format_options = job.resolve_format_options(stored.details.writing)
            result, lost = await reparse.write_formats(stored, job.formats_needed, format_options, preview)
            return {"problems": [problem.message for problem in lost], "artefacts": _list_uris(result)}
        buffers = PixelBufferPool(1, settings.max_page_pixels * 3)
        page_pool = await stack.enter_async_context(open_page_pool(settings, buffers))
        file = await stack.enter_async_context(fetch.document(job.sources[0], job, settings, page_pool, sources))
        reparse.check_source(stored, file)
        dpi = reparse.restore_job(stored.details).dpi

        def draw(number: int) -> AbstractAsyncContextManager[RenderedPage]:
            return render.page(file, number, dpi, settings.max_page_pixels, page_pool, buffers)

        uri = f"{arguments.output.rstrip('/')}/{folder.document_id}"
        output = await stack.enter_async_context(_open_folder(uri, settings))
        result, changed = await reparse.reread_document(stored, output, job.formats_needed, draw, page_pool)
        return {"pages_changed": changed, "artefacts": _list_uris(result)}


def _make_job(arguments: Arguments, stored: reparse.StoredDocument, settings: Settings) -> Job:
    """Parse and check the arguments as fields of a job."""
    recorded = stored.details.source.uri if stored.details.source else stored.manifest.result.source
    fields: dict[str, Any] = {"source": arguments.source or recorded, "formats": list(arguments.formats)}
    optional = {
        "markdown": arguments.markdown,
        "chunks": arguments.chunks,
        "furniture": arguments.furniture,
        "hidden_text": arguments.hidden_text,
        "password": arguments.password,
    }
    fields |= {name: value for name, value in optional.items() if value}
    job = Job.parse({"input": fields}, settings, EntryPoint.LOCAL)
    registry.check_installed(job.formats_needed)
    return job


def _list_uris(result: DocumentResult) -> dict[str, str]:
    return {name: artefact.uri for name, artefact in result.artefacts.items()}


@asynccontextmanager
async def _open_folder(place: str, settings: Settings) -> AsyncIterator[DocumentFolder]:
    parent, _, name = locations.absolute(place).rstrip("/").rpartition("/")
    store = create_store(parent, settings, None)
    try:
        yield DocumentFolder(store, name)
    finally:
        await store.close()
