"""A finished document's folder in, more of its formats out, from its checkpoints and without an engine.

    python scripts/reparse.py output/report-3f2a9c01b7de --formats review,chunks [--source report.pdf]
    python scripts/reparse.py s3://papers/out/report-3f2a9c01b7de --formats docling
    python scripts/reparse.py output/report-3f2a9c01b7de --reread --output newer

--reread reads the recorded answers again by today's grammar and writes the document to --output, never over what is
finished. It wants the source, for the text layer and crops, and so does the review page, for pictures of its pages; by
default the source is looked for where it was read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from twopass.errors import TwopassError
from twopass.formats import registry
from twopass.job import DocumentResult, Door, Format, Job
from twopass.pages.rendered_page import Picture
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.steps import fetch, render, reparse
from twopass.steps.previews import Drawing
from twopass.steps.upload import Folder
from twopass.storage.sources import opened_sources
from twopass.storage.store import open_output
from twopass.telemetry import logs

NAME = "reparse"  # the owner of its places in the window


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    settings = Settings()
    logs.set_up(settings)
    try:
        print(json.dumps(asyncio.run(_reparsed(args, settings)), ensure_ascii=False, indent=1))
    except TwopassError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a document's folder: a path, or s3://bucket/prefix/document-id")
    parser.add_argument("--formats", default="", help=f"comma-separated: {', '.join(Format)}")
    parser.add_argument("--markdown", type=json.loads, help='as in a job: \'{"maths": "\\\\("}\'')
    parser.add_argument("--chunks", type=json.loads, help="as in a job: '{\"max_tokens\": 256}'")
    parser.add_argument("--source", help="where the source lies now (default: where it was read)")
    parser.add_argument("--password", help="for encrypted PDFs")
    parser.add_argument("--reread", action="store_true", help="read the recorded answers by today's grammar")
    parser.add_argument("--output", help="for --reread: where the newer document goes")
    args = parser.parse_args(arguments)
    if args.reread != bool(args.output):
        parser.error("--reread and --output go together")
    return args


async def _reparsed(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """What was written, as the manifest tells it. Raises TwopassError."""
    buffers = PixelBufferPool(1, settings.max_page_pixels * 3)
    async with (
        _opened(args.folder, settings) as folder,
        _page_pool(settings, buffers) as page_pool,
        AsyncExitStack() as stack,
    ):
        finding = await reparse.found(folder)
        job = _job(args, finding, settings)
        file = None
        if args.reread or Format.REVIEW in job.formats:
            sources = await stack.enter_async_context(opened_sources(settings, job.s3))
            file = await stack.enter_async_context(fetch.document(job.sources[0], job, settings, page_pool, sources))
            reparse.check_source(finding, file)
        if not args.reread or file is None:
            drawing = Drawing(file, page_pool, PageSlots(2 * settings.page_worker_count), NAME) if file else None
            writing = job.writing(finding.made.writing)
            result, lost = await reparse.formats(finding, job.formats_needed, writing, drawing)
            return _told(result, problems=[problem.message for problem in lost])
        dpi = reparse.job_of(finding.made).dpi

        def draw(number: int) -> AbstractAsyncContextManager[Picture]:
            return render.page(file, number, dpi, settings.max_page_pixels, page_pool, buffers)

        output = await stack.enter_async_context(_opened(f"{args.output.rstrip('/')}/{folder.document_id}", settings))
        result, changed = await reparse.reread(finding, output, job.formats_needed, draw, page_pool)
        return _told(result, pages_changed=changed)


def _job(args: argparse.Namespace, finding: reparse.Finding, settings: Settings) -> Job:
    """What is asked for, parsed and checked as every job is."""
    source = args.source or (finding.made.source.uri if finding.made.source else finding.done.result.source)
    asked = {"source": source, "formats": [name for name in args.formats.split(",") if name]}
    asked |= {name: getattr(args, name) for name in ("markdown", "chunks", "password") if getattr(args, name)}
    job = Job.parse({"input": asked}, settings, Door.LOCAL)
    registry.check(job.formats_needed)
    return job


def _told(result: DocumentResult, **beside: Any) -> dict[str, Any]:
    return {**beside, "artefacts": {name: artefact.uri for name, artefact in result.artefacts.items()}}


@asynccontextmanager
async def _opened(place: str, settings: Settings) -> AsyncIterator[Folder]:
    parent, _, name = (place if place.startswith("s3://") else str(Path(place).resolve())).rstrip("/").rpartition("/")
    store = open_output(parent, settings, None)
    try:
        yield Folder(store, name)
    finally:
        await store.close()


@asynccontextmanager
async def _page_pool(settings: Settings, buffers: PixelBufferPool) -> AsyncIterator[PagePool]:
    page_pool = PagePool(settings.page_worker_count, buffers, settings.worker_timeout_s)
    try:
        await page_pool.open()
        yield page_pool
    finally:
        await page_pool.close()
        buffers.close()


if __name__ == "__main__":
    raise SystemExit(main())
