"""A job in, its result out: fetch, render, pass 1, pass 2, assemble, upload.

    source --fetch--> checked file --render--> page images --pass 1--> elements with boxes
           --pass 2--> every element analysed --assemble--> Document --upload--> artefacts, manifest last

Pages flow through on their own; the window bounds how many are in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import structlog

from twopass import contexts
from twopass.contexts import ConcurrentReaders, DocumentContext, EngineFailureBudget, JobContext
from twopass.document import Checkpoint, Document, Problem, Run, Severity, State, canary_of
from twopass.errors import EngineError, OutOfTime, SourceError, TwopassError, WorkerDied
from twopass.job import Job, Result, shown
from twopass.pages.rendered_page import Picture
from twopass.pages.source_files import CheckedFile
from twopass.runtime.admission import Arrival, taken_in
from twopass.runtime.page_slots import windowed
from twopass.runtime.shutdown import AGAIN
from twopass.steps import assemble, enrich, fetch, pass1, pass2, previews, render, report, upload
from twopass.steps.report import Outcome
from twopass.steps.upload import Folder
from twopass.storage.sources import opened_sources
from twopass.storage.store import opened_output
from twopass.telemetry.progress import Phase, Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import Worker

log = structlog.get_logger()


async def run(job: Job, worker: Worker, progress: Tracker) -> Result:
    """Read every document of the job; what goes wrong with one of them is in the result. Raises TwopassError."""
    contexts.check(job, worker.family)
    watch = worker.stopwatch()
    deadline = contexts.deadline(job, worker)
    incidents = len(worker.engine.incidents)
    async with (
        opened_output(job.output, worker.settings, job.s3) as output,
        opened_sources(worker.settings, job.s3) as sources,
    ):
        context = JobContext(job, worker, sources, output, deadline, progress)
        async with report.progress_file(output, job.id, worker.settings, progress):
            outcomes = await taken_in(partial(attempted, context), job.sources, contexts.room(worker))
            progress.phase(Phase.DONE)
        befell = worker.engine.incidents[incidents:]
        return await report.result(job, outcomes, output, watch, worker.settings, befell)


async def attempted(context: JobContext, source: str, arrival: Arrival) -> Outcome:
    """The document's outcome, a coded failure included: it ends this document and no other."""
    try:
        return await document(context, source, arrival)
    except TwopassError as error:
        log.warning("document failed", source=shown(source), code=error.code)
        return report.failed(shown(source), error)


async def document(context: JobContext, source: str, arrival: Arrival) -> Outcome:
    """One document from its source to its manifest; raises TwopassError."""
    job, worker, deadline, progress = context.job, context.worker, context.deadline, context.progress
    watch = worker.stopwatch()
    async with _fetched(source, context, watch) as file:
        arrival.fetched(file.info.bytes)
        run = Run(options=contexts.options(job, worker), prompts=dict(worker.family.prompts))
        folder = Folder(context.output, contexts.document_id(file, job, run.options))
        async with arrival.alone(folder.document_id) as was_read:
            async with worker.closing.before(deadline):
                done = None if job.slice else await upload.finished(folder)
                there = await upload.existing(folder)
            if done and (was_read or contexts.is_finished(job, done)):
                progress.pages_found(sum(done.result.pages.values()))
                progress.pages_done(sum(done.result.pages.values()))
                return await report.with_inline(report.repeated(done, file, job, watch), folder, job)
            numbers, problems = contexts.selected(job, file)
            progress.pages_found(len(numbers))
            report.check_inline(job, progress.now.pages_total)
            formats, writing = contexts.wanted(job, done), job.writing(done.made.writing if done else None)
            with suppress(OutOfTime):  # its pages say so, one by one
                async with worker.closing.before(deadline):
                    if await arrival.begin(len(numbers)):  # somebody may have read some of it meanwhile
                        there = await upload.existing(folder)
            patience, company = EngineFailureBudget.of(worker), ConcurrentReaders(expected=bool(there))
            doc = DocumentContext(
                job,
                worker,
                file,
                folder,
                there,
                formats,
                writing,
                deadline,
                progress,
                watch,
                patience,
                company,
                arrival,
            )
            return await _read_through(doc, run, numbers, problems)


async def _read_through(doc: DocumentContext, run: Run, numbers: Sequence[int], problems: Sequence[Problem]) -> Outcome:
    """Every page, and the document from them; of a slice, what became of its pages."""
    job, worker = doc.job, doc.worker
    pages = await windowed(lambda number: page(number, doc), doc.in_turn(numbers), worker.window, job.id)
    pages.sort(key=lambda read: read.page.number)
    if job.slice:
        return report.sliced(doc.file, doc.folder, pages, problems, job, doc.watch, worker.settings)
    return await assembled(doc, run, pages, problems)


async def assembled(doc: DocumentContext, run: Run, pages: list[Checkpoint], problems: Sequence[Problem]) -> Outcome:
    """The document from its pages: artefacts, and the manifest when no page is left to read."""
    job, folder, watch = doc.job, doc.folder, doc.watch
    doc.progress.phase(Phase.ASSEMBLING)
    pages = [await _looked_again(read, folder) for read in pages]
    with watch.stage("assemble"):
        source = contexts.source(doc.file, pages)
        run = run.model_copy(update={"canary": canary_of(pages)})
        assembling = (source, doc.file.meta, run, folder.document_id, pages, problems)
        whole = await asyncio.to_thread(assemble.document, *assembling)
    outcome = report.read(whole, pages, job, watch, doc.worker.settings)
    complete = not any(page.page.state is State.UNREAD for page in pages)
    try:
        if complete or not folder.store.keeps:  # else it might replace that of a worker that had more time
            async with doc.worker.closing.finishing(doc.last_call):
                outcome = await _written(doc, whole, outcome, problems if complete else None)
    except OutOfTime as end:
        outcome = report.unwritten(outcome, end)
    return await report.with_inline(outcome, folder, job)


async def _looked_again(read: Checkpoint, folder: Folder) -> Checkpoint:
    """A page that was lost to an accident, as another worker may have read it meanwhile."""
    theirs = await upload.stored_page(folder, read.page.number) if read.page.is_accident else None
    return theirs.without_completions if theirs else read


async def _written(
    doc: DocumentContext, whole: Document, outcome: Outcome, selection: Sequence[Problem] | None
) -> Outcome:
    """The document's artefacts; where it is complete, its manifest last, which says what was selected."""
    folder = doc.folder
    with doc.watch.stage("upload"):
        draft, unseen = await previews.draft(whole, doc.writing, doc.formats, folder, doc.drawing)
        artefacts = await upload.artefacts(folder, draft, doc.formats)
    outcome = report.written(outcome, artefacts, unseen, doc.watch)
    if selection is not None:
        result = await upload.manifest(folder, outcome.result, outcome.problems, doc.made(whole, selection))
        outcome = replace(outcome, result=result)
    return outcome


@asynccontextmanager
async def _fetched(source: str, context: JobContext, watch: Stopwatch) -> AsyncIterator[CheckedFile]:
    """The checked file; raises OutOfTime when the deadline or the worker's end comes before it."""
    worker = context.worker
    async with AsyncExitStack() as stack:
        async with worker.closing.before(context.deadline):
            fetching = fetch.document(source, context.job, worker.settings, worker.page_pool, context.sources)
            file = await stack.enter_async_context(watch.entered("fetch", fetching))
        yield file


async def page(number: int, doc: DocumentContext) -> Checkpoint:
    """One page, from its checkpoint or through both passes; raises only when a store is gone."""
    structlog.contextvars.bind_contextvars(page=number, document=doc.folder.document_id)  # of this page's task
    try:
        async with doc.worker.closing.before(doc.deadline):
            read = await _stored(number, doc) or await _read(number, doc)
    except OutOfTime as end:
        read = pass1.unread(number, end.code, end.message)
    except EngineError as error:  # what pass 1 read goes too: half a page, once stored, would stand for ever
        log.warning("page unread", page=number, code=error.code)
        theirs = await upload.stored_page(doc.folder, number)  # another worker's engine may live
        read = theirs or pass1.unread(number, error.code, f"{error.message}; {AGAIN}")
    doc.arrival.page_read()
    if read.page.state is not State.UNREAD:
        doc.progress.pages_done(1)
    return read.without_completions


async def _stored(number: int, doc: DocumentContext) -> Checkpoint | None:
    """The page as somebody already read it, its images cut again where they are missing."""
    if not (doc.has(number) or doc.company.expected):
        return None
    stored = await upload.stored_page(doc.folder, number)
    if stored and not doc.has(number):
        doc.company.meet()
    if stored and (missing := upload.missing_images(stored, doc.there)):
        try:
            return await _twice(lambda _: _cut_again(stored, doc), number)
        except (WorkerDied, SourceError) as error:
            return upload.without_images(stored, missing, error)
    return stored


async def _cut_again(stored: Checkpoint, doc: DocumentContext) -> Checkpoint:
    async with _drawn(stored.page.number, doc) as picture:
        return await upload.images(doc.folder, stored, picture.pixels, doc.worker.page_pool, doc.there)


async def _read(number: int, doc: DocumentContext) -> Checkpoint:
    """The page through both passes, tried again alone if its worker died, and failed with a code after that."""
    with doc.watch.page(number), doc.patience.tried():
        try:
            return await _twice(lambda last_try: _passes(number, doc, last_try), number)
        except (WorkerDied, SourceError) as error:
            failed = pass1.failed(number, error.code, f"page {number}: {error.message}")
            return await _stored_first(failed, doc)


async def _twice(work: Callable[[bool], Awaitable[Checkpoint]], number: int) -> Checkpoint:
    """The work on a page, done again alone if a worker died over it; the work is told whether it is the last try."""
    try:
        return await work(False)
    except WorkerDied as died:
        log.warning("page tried again", page=number, code=died.code)
        return await work(True)


async def _passes(number: int, doc: DocumentContext, last_try: bool) -> Checkpoint:
    """Render, pass 1, pass 2, checkpoint."""
    worker, job, watch = doc.worker, doc.job, doc.watch
    async with _drawn(number, doc) as picture:
        with watch.stage("pass1"):
            read = await _structured(picture, doc, last_try)
        with watch.stage("pass2"), doc.progress.elements(len(read.elements)):
            read = await pass2.read(read, picture, doc.source_key, job, worker.engine, worker.family, worker.page_pool)
            read = await _enriched(read, doc)
        with watch.stage("upload"):
            stored = await _stored_first(read, doc)
            return await upload.images(doc.folder, stored, picture.pixels, worker.page_pool, doc.there)


async def _structured(picture: Picture, doc: DocumentContext, last_try: bool) -> Checkpoint:
    """Pass 1; where the page breaks it, or kills its worker a second time, the page's own text."""
    worker = doc.worker
    try:
        return await pass1.read(picture, doc.source_key, doc.job, worker.engine, worker.family, worker.page_pool)
    except (WorkerDied, SourceError) as error:
        if isinstance(error, WorkerDied) and not last_try:
            raise
        return pass1.fallen_back(Checkpoint(page=picture.page, problems=picture.problems), picture, error.code)


async def _enriched(read: Checkpoint, doc: DocumentContext) -> Checkpoint:
    """The page with keywords and summaries, or without when they cannot be had: no reason to lose what was read."""
    try:
        return await doc.worker.page_pool.call(enrich.page, read, doc.job.language)
    except WorkerDied as died:
        message = f"page {read.page.number}: without keywords and summaries: {died.message}"
        lost = Problem(code=died.code, severity=Severity.WARNING, page=read.page.number, message=message)
        return read.model_copy(update={"problems": (*read.problems, lost)})


async def _stored_first(read: Checkpoint, doc: DocumentContext) -> Checkpoint:
    ours = upload.prepared(read, doc.job.id, doc.file.info, doc.worker.canary)
    stored = await upload.checkpoint(doc.folder, ours)
    if stored.cost.get("nonce") != ours.cost["nonce"]:
        doc.company.meet()
    return stored


def _drawn(number: int, doc: DocumentContext) -> AbstractAsyncContextManager[Picture]:
    worker = doc.worker
    limit = worker.settings.max_page_pixels
    drawing = render.page(doc.file, number, doc.job.dpi, limit, worker.page_pool, worker.buffers)
    return doc.watch.entered("render", drawing)
