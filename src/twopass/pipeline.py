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
from twopass.contexts import Company, Errand, Patience, Reading
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
from twopass.worker import House

log = structlog.get_logger()


async def run(job: Job, house: House, progress: Tracker) -> Result:
    """Read every document of the job; what goes wrong with one of them is in the result. Raises TwopassError."""
    contexts.check(job, house.family)
    watch = house.stopwatch()
    deadline = contexts.deadline(job, house)
    incidents = len(house.engine.incidents)
    async with (
        opened_output(job.output, house.settings, job.s3) as output,
        opened_sources(house.settings, job.s3) as sources,
    ):
        errand = Errand(job, house, sources, output, deadline, progress)
        async with report.progress_file(output, job.id, house.settings, progress):
            outcomes = await taken_in(partial(attempted, errand), job.sources, contexts.room(house))
            progress.phase(Phase.DONE)
        befell = house.engine.incidents[incidents:]
        return await report.result(job, outcomes, output, watch, house.settings, befell)


async def attempted(errand: Errand, source: str, arrival: Arrival) -> Outcome:
    """The document's outcome, a coded failure included: it ends this document and no other."""
    try:
        return await document(errand, source, arrival)
    except TwopassError as error:
        log.warning("document failed", source=shown(source), code=error.code)
        return report.failed(shown(source), error)


async def document(errand: Errand, source: str, arrival: Arrival) -> Outcome:
    """One document from its source to its manifest; raises TwopassError."""
    job, house, deadline, progress = errand.job, errand.house, errand.deadline, errand.progress
    watch = house.stopwatch()
    async with _fetched(source, errand, watch) as file:
        arrival.fetched(file.info.bytes)
        run = Run(options=contexts.options(job, house), prompts=dict(house.family.prompts))
        folder = Folder(errand.output, contexts.document_id(file, job, run.options))
        async with arrival.alone(folder.document_id) as was_read:
            async with house.closing.before(deadline):
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
                async with house.closing.before(deadline):
                    if await arrival.begin(len(numbers)):  # somebody may have read some of it meanwhile
                        there = await upload.existing(folder)
            patience, company = Patience.of(house), Company(expected=bool(there))
            desk = Reading(
                job, house, file, folder, there, formats, writing, deadline, progress, watch, patience, company, arrival
            )
            return await _read_through(desk, run, numbers, problems)


async def _read_through(desk: Reading, run: Run, numbers: Sequence[int], problems: Sequence[Problem]) -> Outcome:
    """Every page, and the document from them; of a slice, what became of its pages."""
    job, house = desk.job, desk.house
    pages = await windowed(lambda number: page(number, desk), desk.in_turn(numbers), house.window, job.id)
    pages.sort(key=lambda read: read.page.number)
    if job.slice:
        return report.sliced(desk.file, desk.folder, pages, problems, job, desk.watch, house.settings)
    return await assembled(desk, run, pages, problems)


async def assembled(desk: Reading, run: Run, pages: list[Checkpoint], problems: Sequence[Problem]) -> Outcome:
    """The document from its pages: artefacts, and the manifest when no page is left to read."""
    job, folder, watch = desk.job, desk.folder, desk.watch
    desk.progress.phase(Phase.ASSEMBLING)
    pages = [await _looked_again(read, folder) for read in pages]
    with watch.stage("assemble"):
        source = contexts.source(desk.file, pages)
        run = run.model_copy(update={"canary": canary_of(pages)})
        assembling = (source, desk.file.meta, run, folder.document_id, pages, problems)
        whole = await asyncio.to_thread(assemble.document, *assembling)
    outcome = report.read(whole, pages, job, watch, desk.house.settings)
    complete = not any(page.page.state is State.UNREAD for page in pages)
    try:
        if complete or not folder.store.keeps:  # else it might replace that of a worker that had more time
            async with desk.house.closing.finishing(desk.last_call):
                outcome = await _written(desk, whole, outcome, problems if complete else None)
    except OutOfTime as end:
        outcome = report.unwritten(outcome, end)
    return await report.with_inline(outcome, folder, job)


async def _looked_again(read: Checkpoint, folder: Folder) -> Checkpoint:
    """A page that was lost to an accident, as another worker may have read it meanwhile."""
    theirs = await upload.stored_page(folder, read.page.number) if read.page.is_accident else None
    return theirs.without_completions if theirs else read


async def _written(desk: Reading, whole: Document, outcome: Outcome, selection: Sequence[Problem] | None) -> Outcome:
    """The document's artefacts; where it is complete, its manifest last, which says what was selected."""
    folder = desk.folder
    with desk.watch.stage("upload"):
        draft, unseen = await previews.draft(whole, desk.writing, desk.formats, folder, desk.drawing)
        artefacts = await upload.artefacts(folder, draft, desk.formats)
    outcome = report.written(outcome, artefacts, unseen, desk.watch)
    if selection is not None:
        result = await upload.manifest(folder, outcome.result, outcome.problems, desk.made(whole, selection))
        outcome = replace(outcome, result=result)
    return outcome


@asynccontextmanager
async def _fetched(source: str, errand: Errand, watch: Stopwatch) -> AsyncIterator[CheckedFile]:
    """The checked file; raises OutOfTime when the deadline or the worker's end comes before it."""
    house = errand.house
    async with AsyncExitStack() as stack:
        async with house.closing.before(errand.deadline):
            fetching = fetch.document(source, errand.job, house.settings, house.workers, errand.sources)
            file = await stack.enter_async_context(watch.entered("fetch", fetching))
        yield file


async def page(number: int, desk: Reading) -> Checkpoint:
    """One page, from its checkpoint or through both passes; raises only when a store is gone."""
    structlog.contextvars.bind_contextvars(page=number, document=desk.folder.document_id)  # of this page's task
    try:
        async with desk.house.closing.before(desk.deadline):
            read = await _stored(number, desk) or await _read(number, desk)
    except OutOfTime as end:
        read = pass1.unread(number, end.code, end.message)
    except EngineError as error:  # what pass 1 read goes too: half a page, once stored, would stand for ever
        log.warning("page unread", page=number, code=error.code)
        theirs = await upload.stored_page(desk.folder, number)  # another worker's engine may live
        read = theirs or pass1.unread(number, error.code, f"{error.message}; {AGAIN}")
    desk.arrival.page_read()
    if read.page.state is not State.UNREAD:
        desk.progress.pages_done(1)
    return read.without_completions


async def _stored(number: int, desk: Reading) -> Checkpoint | None:
    """The page as somebody already read it, its images cut again where they are missing."""
    if not (desk.has(number) or desk.company.expected):
        return None
    stored = await upload.stored_page(desk.folder, number)
    if stored and not desk.has(number):
        desk.company.meet()
    if stored and (missing := upload.missing_images(stored, desk.there)):
        try:
            return await _twice(lambda _: _cut_again(stored, desk), number)
        except (WorkerDied, SourceError) as error:
            return upload.without_images(stored, missing, error)
    return stored


async def _cut_again(stored: Checkpoint, desk: Reading) -> Checkpoint:
    async with _drawn(stored.page.number, desk) as picture:
        return await upload.images(desk.folder, stored, picture.pixels, desk.house.workers, desk.there)


async def _read(number: int, desk: Reading) -> Checkpoint:
    """The page through both passes, tried again alone if its worker died, and failed with a code after that."""
    with desk.watch.page(number), desk.patience.tried():
        try:
            return await _twice(lambda last_try: _passes(number, desk, last_try), number)
        except (WorkerDied, SourceError) as error:
            failed = pass1.failed(number, error.code, f"page {number}: {error.message}")
            return await _stored_first(failed, desk)


async def _twice(work: Callable[[bool], Awaitable[Checkpoint]], number: int) -> Checkpoint:
    """The work on a page, done again alone if a worker died over it; the work is told whether it is the last try."""
    try:
        return await work(False)
    except WorkerDied as died:
        log.warning("page tried again", page=number, code=died.code)
        return await work(True)


async def _passes(number: int, desk: Reading, last_try: bool) -> Checkpoint:
    """Render, pass 1, pass 2, checkpoint."""
    house, job, watch = desk.house, desk.job, desk.watch
    async with _drawn(number, desk) as picture:
        with watch.stage("pass1"):
            read = await _structured(picture, desk, last_try)
        with watch.stage("pass2"), desk.progress.elements(len(read.elements)):
            read = await pass2.read(read, picture, desk.source_key, job, house.engine, house.family, house.workers)
            read = await _enriched(read, desk)
        with watch.stage("upload"):
            stored = await _stored_first(read, desk)
            return await upload.images(desk.folder, stored, picture.pixels, house.workers, desk.there)


async def _structured(picture: Picture, desk: Reading, last_try: bool) -> Checkpoint:
    """Pass 1; where the page breaks it, or kills its worker a second time, the page's own text."""
    house = desk.house
    try:
        return await pass1.read(picture, desk.source_key, desk.job, house.engine, house.family, house.workers)
    except (WorkerDied, SourceError) as error:
        if isinstance(error, WorkerDied) and not last_try:
            raise
        return pass1.fallen_back(Checkpoint(page=picture.page, problems=picture.problems), picture, error.code)


async def _enriched(read: Checkpoint, desk: Reading) -> Checkpoint:
    """The page with keywords and summaries, or without when they cannot be had: no reason to lose what was read."""
    try:
        return await desk.house.workers.call(enrich.page, read, desk.job.language)
    except WorkerDied as died:
        message = f"page {read.page.number}: without keywords and summaries: {died.message}"
        lost = Problem(code=died.code, severity=Severity.WARNING, page=read.page.number, message=message)
        return read.model_copy(update={"problems": (*read.problems, lost)})


async def _stored_first(read: Checkpoint, desk: Reading) -> Checkpoint:
    ours = upload.prepared(read, desk.job.id, desk.file.info, desk.house.canary)
    stored = await upload.checkpoint(desk.folder, ours)
    if stored.cost.get("nonce") != ours.cost["nonce"]:
        desk.company.meet()
    return stored


def _drawn(number: int, desk: Reading) -> AbstractAsyncContextManager[Picture]:
    house = desk.house
    limit = house.settings.max_page_pixels
    drawing = render.page(desk.file, number, desk.job.dpi, limit, house.workers, house.slabs)
    return desk.watch.entered("render", drawing)
