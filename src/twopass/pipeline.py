"""The flow of one job: fetch, render, pass 1, missed text, pass 2, audit, assemble, upload.

    source --fetch--> checked file --render--> page images --pass 1--> elements with boxes
           --missed text--> elements for it --pass 2--> elements read again --audit--> findings --assemble--> Document
           --upload--> artefacts, manifest last

Pages run independently of each other; the page slots limit how many are in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import structlog

from twopass import contexts, locations
from twopass.contexts import DocumentContext, EngineFailureBudget, JobContext, PageListener, PageOrder
from twopass.document import Checkpoint, Document, Problem, State, derive_canary, list_canary_problems
from twopass.engines.interface import Identity
from twopass.errors import Code, EngineError, OutOfTime, SourceError, TwopassError, WorkerDied
from twopass.job import Job
from twopass.pages.rendered_page import RenderedPage
from twopass.result import Result
from twopass.runtime import admission, page_slots, retry, task_group
from twopass.runtime.admission import Ticket
from twopass.runtime.cpu_budget import RAISE_LIMIT, limit_cpu_time
from twopass.settings import Settings
from twopass.steps import (
    artefacts,
    assemble,
    audit,
    document_folder,
    enrich,
    fallback,
    fetch,
    missed_text,
    pass1,
    pass2,
    render,
    reparse,
    report,
)
from twopass.steps.document_folder import DocumentFolder, Manifest
from twopass.steps.report import Outcome
from twopass.storage.outputs import open_output
from twopass.storage.sources import open_sources
from twopass.storage.store import Store
from twopass.telemetry.progress import Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import Worker, choose_family

log = structlog.get_logger()


async def run(job: Job, worker: Worker, progress: Tracker, keeps_thumbnails: bool = False) -> Result:
    """Read every document of the job. A document's failure is in the result; raises TwopassError for the job's own."""
    contexts.check_supported(job, worker.family)
    watch, deadline = worker.stopwatch(), await contexts.resolve_deadline(job, worker)
    earlier_incidents = len(worker.engine.incidents)
    async with (
        open_output(job.output, worker.settings, job.s3, worker.checked_outputs) as output,
        open_sources(worker.settings, job.s3, job.upload) as sources,
    ):
        if duplicate := await report.find_duplicate(output, job, watch):
            return duplicate
        context = JobContext(job, worker, sources, output, deadline, progress, keeps_thumbnails=keeps_thumbnails)
        async with report.keep_progress_file(output, job.id, worker.settings, progress):
            progress.expect_documents(len(job.sources))
            outcomes = await admission.admit_all(partial(read_document, context), job.sources, context.admission_limits)
            progress.finish()
        incidents = worker.engine.incidents[earlier_incidents:]
        return await report.job_result(job, outcomes, output, watch, incidents)


async def run_single(
    job: Job,
    worker: Worker,
    output: Store,
    page_listener: PageListener | None = None,
    progress: Tracker | None = None,
) -> Outcome:
    """Read the job's only document into an open output, where nothing else is written of the job.

    Raises TwopassError if it fails.
    """
    contexts.check_supported(job, worker.family)
    earlier_incidents = len(worker.engine.incidents)
    async with open_sources(worker.settings, job.s3, job.upload) as sources:
        deadline = await contexts.resolve_deadline(job, worker)
        context = JobContext(job, worker, sources, output, deadline, progress or Tracker(), page_listener)
        context.progress.expect_documents(1)
        (outcome,) = await admission.admit_all(partial(_read_document, context), job.sources, context.admission_limits)
        context.progress.finish()
        incidents = report.to_warnings(worker.engine.incidents[earlier_incidents:])
        return replace(outcome, problems=(*outcome.problems, *incidents))


async def find_finished(job: Job, settings: Settings, identity: Identity, output: Store) -> Outcome | None:
    """The outcome of the job's only document if it is finished; formats that it lacks are written from its pages.

    `identity` is that of the engine which would read it. None also for an error: reading reports it.
    """
    if not job.resume or job.slice or job.idempotency_key or len(job.sources) > 1:
        return None
    with suppress(TwopassError):
        family, watch = choose_family(settings, identity.family), Stopwatch()
        contexts.check_supported(job, family)
        async with open_sources(settings, job.s3, job.upload) as sources:
            source = await fetch.identify(job.sources[0], sources)
            run = contexts.describe_run(job, identity, family, settings, source.converter)
            document_id = contexts.document_id(locations.stem(job.sources[0]), source.sha256, job, run)
            folder = DocumentFolder(output, document_id)
            problems: tuple[Problem, ...] = ()
            manifest = await folder.load_manifest()
            if manifest and manifest.is_final and not contexts.is_complete(job, manifest):
                manifest, problems = await reparse.add_formats(folder, job, settings, sources)
        if manifest and contexts.is_complete(job, manifest):
            outcome = report.existing_document(manifest, locations.redact(job.sources[0]), job, watch)
            return await outcome.with_problems(problems).with_inline(folder, job)
    return None


async def read_document(context: JobContext, source: str, ticket: Ticket) -> Outcome:
    """Read one document from its source to its manifest; its failure is its outcome and ends no other document."""
    try:
        return await _read_document(context, source, ticket)
    except TwopassError as error:
        log.warning("document failed", source=locations.redact(source), code=error.code)
        return report.failed_document(locations.redact(source), error)


async def _read_document(context: JobContext, source: str, ticket: Ticket) -> Outcome:
    async with _open_document(context, source, ticket) as doc:
        if doc.finished:
            return await _return_existing(doc, doc.finished)
        numbers, problems = contexts.select_pages(doc.job, doc.file)
        doc.page_progress.count(len(numbers))
        report.check_inline(doc.job, doc.progress.now.pages_total)
        doc = await _wait_to_start(doc, len(numbers))
        slots, order = doc.worker.page_slots, doc.page_order.order(numbers)
        pages = await page_slots.run_all(partial(read_page, doc), order, slots, doc.job.id)
        pages.sort(key=lambda checkpoint: checkpoint.page.number)
        return await _finish_document(doc, pages, problems)


async def read_page(doc: DocumentContext, number: int) -> Checkpoint:
    """Read one page; its failure is in its checkpoint. Raises StoreError if the store fails."""
    structlog.contextvars.bind_contextvars(page=number, document=doc.folder.document_id)  # only for this page's task
    stored: Checkpoint | None = None
    try:
        async with doc.job_context.start_work():
            with doc.ticket.watch(), limit_cpu_time(doc.worker.settings.worker_timeout_s, advice=RAISE_LIMIT):
                stored = await _load_checkpoint(doc, number)
                checkpoint = stored or await _process_page(doc, number)
    except OutOfTime as end:
        checkpoint = fallback.unread_page(number, end.code, end.message)
    except EngineError as error:  # discard the result of pass 1, too: a half-read page would be stored for good
        log.warning("page unread", page=number, code=error.code)
        stored = await doc.folder.load_checkpoint(number)  # another worker's engine may be alive
        checkpoint = stored or fallback.unread_page(
            number, error.code, f"{error.message}; {doc.job_context.resend_advice}"
        )
    doc.ticket.finish_page()
    if checkpoint.page.state is State.UNREAD:
        doc.page_progress.skip()
    else:
        doc.page_progress.finish(stored=stored is not None)
    if listener := doc.job_context.page_listener:
        await listener(doc, checkpoint)
    return checkpoint.without_completions


async def _process_page(doc: DocumentContext, number: int) -> Checkpoint:
    """Render the page, run both passes and what pass 1 missed, audit, enrich and store it.

    If a page worker crashes, the page is processed once more; if it cannot be rendered, its text layer is used.
    """
    worker, watch = doc.worker, doc.watch
    with watch.page(number), doc.failure_budget.track():
        for last_try in retry.PAGE.tries():
            try:
                async with _render(doc, number) as rendered:
                    await _wait_until_ready(doc)
                    page = doc.page_context(rendered)
                    with watch.stage("pass1"):
                        first = await missed_text.add(page, await pass1.read(page, last_try))
                    with watch.stage("pass2"), doc.progress.track_elements(len(first.elements)):
                        second = await pass2.read(page, first)
                        checkpoint = await audit.complete(page, first, second)
                        checkpoint = await enrich.within_limit(checkpoint, doc.job.language, worker.page_pool)
                    with watch.stage("upload"):
                        if doc.job_context.keeps_thumbnails:
                            await doc.folder.store_thumbnail(number, rendered.pixels, worker.page_pool)
                        checkpoint = await _store_checkpoint(doc, checkpoint)
                        return await _store_crops(doc, checkpoint, rendered)
            except (WorkerDied, SourceError) as error:
                log.warning("page not read", page=number, code=error.code, last_try=last_try)
                code, message = error.code, error.message  # not the error, which would keep the page in memory
                if not retry.is_worker_death(error):
                    break
        return await _store_checkpoint(doc, await _read_text_only(doc, number, code, message))


async def _wait_until_ready(doc: DocumentContext) -> None:
    """Wait for an engine that still opens. The wait belongs to no stage."""
    if await doc.worker.wait_until_ready():
        doc.progress.begin_reading()


async def _read_text_only(doc: DocumentContext, number: int, code: Code, message: str) -> Checkpoint:
    """Use the text layer of a page that cannot be rendered, as `code` and `message` say; without one, fail the page."""
    with suppress(WorkerDied, SourceError):
        if doc.file.is_pdf:
            page, words = await render.text_only(doc.file, number, doc.worker.page_pool)
            checkpoint = fallback.use_text_layer(Checkpoint(page=page), words, code)
            if checkpoint.elements:
                return audit.complete_unrendered(checkpoint, words)
    return fallback.failed_page(number, code, f"page {number}: {message}")


@asynccontextmanager
async def _open_document(context: JobContext, source: str, ticket: Ticket) -> AsyncIterator[DocumentContext]:
    """Fetch the source and look up what is stored of it; raises OutOfTime if there is no time left for that."""
    worker, job, watch = context.worker, context.job, context.worker.stopwatch()
    async with AsyncExitStack() as stack:
        page_progress = stack.enter_context(context.progress.track_document())
        async with context.start_work():
            fetching = fetch.document(source, job, worker.settings, worker.page_pool, context.sources)
            with ticket.watch(), limit_cpu_time(worker.settings.worker_timeout_s, advice=RAISE_LIMIT):
                file = await stack.enter_async_context(watch.time_entry("fetch", fetching))
        ticket.mark_fetched(file.info.bytes)
        run = contexts.describe_run(job, worker.engine, worker.family, worker.settings, file.converter)
        folder = DocumentFolder(context.output, contexts.document_id(file.stem, file.info.sha256, job, run))
        was_read = await stack.enter_async_context(ticket.exclusive(folder.document_id))
        async with context.start_work(), task_group.open_group() as group:
            loading = None if job.slice else group.create_task(folder.load_manifest())
            listing = group.create_task(folder.list_names())
        yield DocumentContext(
            job_context=context,
            file=file,
            folder=folder,
            run=run,
            manifest=loading.result() if loading else None,
            was_read=was_read,
            ticket=ticket,
            page_progress=page_progress,
            watch=watch,
            failure_budget=EngineFailureBudget(worker.page_slots.count),
            page_order=PageOrder(folder, listing.result(), worker.pick_start),
        )


async def _return_existing(doc: DocumentContext, manifest: Manifest) -> Outcome:
    """The outcome of a document that was finished before."""
    page_count = sum(manifest.result.pages.values())
    doc.page_progress.count(page_count)
    doc.page_progress.finish(page_count, stored=True)
    outcome = report.existing_document(manifest, doc.file.info.uri, doc.job, doc.watch)
    return await outcome.with_inline(doc.folder, doc.job)


async def _wait_to_start(doc: DocumentContext, page_count: int) -> DocumentContext:
    """Wait for free page slots; another worker may have stored pages meanwhile."""
    with suppress(OutOfTime):  # in that case every page is reported as unread
        async with doc.job_context.start_work():
            if await doc.ticket.wait_to_start(page_count):
                stored_names = await doc.folder.list_names()
                return replace(doc, page_order=PageOrder(doc.folder, stored_names, doc.worker.pick_start))
    return doc


async def _finish_document(
    doc: DocumentContext, pages: list[Checkpoint], selection_problems: Sequence[Problem]
) -> Outcome:
    """Assemble the document and write its artefacts; of a slice, report the pages only."""
    job, folder, watch, settings = doc.job, doc.folder, doc.watch, doc.worker.settings
    if job.slice:
        of_pages = (problem for page in pages for problem in page.problems)
        problems = (*selection_problems, *list_canary_problems(pages), *of_pages)
        uri = doc.file.info.uri
        read = [page.page for page in pages]
        return report.document_outcome(folder.document_id, uri, problems, pages, read, job, watch, settings)
    pages = [await _replace_lost(page, folder) for page in pages]
    with watch.stage("assemble"):
        document = await asyncio.to_thread(assemble_pages, doc, pages, selection_problems)
    uri = document.source.uri
    problems, audited = document.problems, document.pages
    outcome = report.document_outcome(document.id, uri, problems, pages, audited, job, watch, settings)
    is_complete = not any(page.page.state is State.UNREAD for page in pages)
    try:
        # An incomplete one might overwrite the document of a worker with more time.
        if is_complete or not folder.store.is_persistent:
            async with doc.worker.shutdown.finish_work(doc.write_deadline, doc.job_context.resend_advice):
                outcome = await _write_artefacts(doc, document, outcome, selection_problems if is_complete else None)
    except OutOfTime as end:
        outcome = outcome.unwritten(end)
    return await outcome.with_inline(folder, job)


def assemble_pages(
    doc: DocumentContext, pages: Sequence[Checkpoint], selection_problems: Sequence[Problem] = ()
) -> Document:
    """Assemble these pages of the document, which may be a single one, to a Document."""
    source = contexts.source_info(doc.file, pages)
    run = doc.run.model_copy(update={"canary": derive_canary(pages)})
    return assemble.document(source, doc.file.meta, run, doc.folder.document_id, pages, selection_problems)


async def _replace_lost(page: Checkpoint, folder: DocumentFolder) -> Checkpoint:
    """Replace a page that failed for a transient reason, if another worker has read it meanwhile."""
    stored = await folder.load_checkpoint(page.page.number) if page.page.is_transient_failure else None
    return stored.without_completions if stored else page


async def _write_artefacts(
    doc: DocumentContext, document: Document, outcome: Outcome, selection_problems: Sequence[Problem] | None
) -> Outcome:
    """Write the artefacts, and last the manifest if the document is complete (`selection_problems` is not None)."""
    folder = doc.folder
    if manifest := await folder.load_manifest():  # another worker may have written formats of fewer pages meanwhile
        doc = replace(doc, manifest=manifest)
    formats, parts = doc.formats, artefacts.count_parts(document, doc.formats)
    with doc.watch.stage("upload"), doc.progress.track_parts(parts) as finish_part:
        written = await artefacts.write(
            folder, document, formats, doc.format_options, doc.preview_source, on_part=finish_part
        )
    outcome = outcome.with_artefacts(written, doc.job, doc.watch)
    if selection_problems is not None:
        details = doc.manifest_details(document, selection_problems)
        result = await folder.write_manifest(outcome.result, outcome.problems, details)
        outcome = replace(outcome, result=result)
    return outcome


async def _load_checkpoint(doc: DocumentContext, number: int) -> Checkpoint | None:
    """The page's checkpoint; crops that are missing are cut again, or dropped with a warning.

    It is looked for even in a folder that was empty: workers that began together see each other only in this way.
    """
    checkpoint = await doc.folder.load_checkpoint(number)
    if checkpoint:
        await doc.page_order.record_other(number)
    if checkpoint and (missing := document_folder.find_missing_images(checkpoint, doc.page_order.stored_names)):
        for last_try in retry.PAGE.tries():
            try:
                async with _render(doc, number) as rendered:
                    return await _store_crops(doc, checkpoint, rendered)
            except (WorkerDied, SourceError) as error:
                if last_try or isinstance(error, SourceError):
                    return document_folder.drop_images(checkpoint, missing, error)
                log.warning("page worker died", page=number, code=error.code, last_try=last_try)
    return checkpoint


def _render(doc: DocumentContext, number: int) -> AbstractAsyncContextManager[RenderedPage]:
    worker = doc.worker
    limit, with_draft = worker.settings.max_page_pixels, worker.engine.uses_drafts
    rendering = render.page(doc.file, number, doc.job.dpi, limit, worker.page_pool, worker.buffers, with_draft)
    return doc.watch.time_entry("render", worker.start.enter_in_turn(rendering))


async def _store_checkpoint(doc: DocumentContext, checkpoint: Checkpoint) -> Checkpoint:
    """Store the page; returns the other worker's checkpoint if one was stored first."""
    stored, is_ours = await doc.folder.store_checkpoint(checkpoint, doc.job.id, doc.file.info, doc.worker.canary)
    if not is_ours:
        await doc.page_order.record_other(stored.page.number)
    return stored


async def _store_crops(doc: DocumentContext, checkpoint: Checkpoint, rendered: RenderedPage) -> Checkpoint:
    return await doc.folder.store_crops(checkpoint, rendered.pixels, doc.worker.page_pool, doc.page_order.stored_names)
