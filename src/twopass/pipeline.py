"""A job in, its result out: fetch, render, pass 1, pass 2, assemble, upload.

    source --fetch--> checked file --render--> page images --pass 1--> elements with boxes
           --pass 2--> every element analysed --assemble--> Document --upload--> artefacts, manifest last

Pages flow through on their own; the window bounds how many are in flight.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import structlog

from twopass import report
from twopass.document import Checkpoint, Problem, Run, Severity, SourceInfo, State
from twopass.engines.seam import describe
from twopass.errors import Code, SourceError, TwopassError, WorkerDied
from twopass.files import CheckedFile
from twopass.house import House
from twopass.job import Door, Job, Result, document_id, shown
from twopass.picture import Picture
from twopass.progress import Phase, Tracker
from twopass.report import Outcome
from twopass.steps import assemble, elements, enrich, fetch, render, structure, upload
from twopass.steps.upload import Folder
from twopass.stopwatch import Stopwatch
from twopass.store import Store, opened_output
from twopass.window import Window, windowed

DOCUMENTS_AT_ONCE = 2  # of one job: the next is fetched and begun while the last pages of this one are read

log = structlog.get_logger()


@dataclass(frozen=True)
class Reading:
    """One document while it is read: what every page of it needs."""

    job: Job
    house: House
    file: CheckedFile
    folder: Folder
    there: frozenset[str]
    deadline: float | None
    progress: Tracker
    watch: Stopwatch

    @property
    def source_key(self) -> str:
        return self.file.info.sha256[:12]


async def run(job: Job, house: House, progress: Tracker) -> Result:
    """Read every document of the job; what goes wrong with one of them is in the result."""
    watch = house.stopwatch()
    deadline = _deadline(job, house)
    async with opened_output(job.output, house.settings, job.s3) as output:

        async def one(source: str) -> Outcome:
            return await attempted(source, job, house, output, deadline, progress)

        async with report.progress_file(output, job.id, house.settings, progress):
            outcomes = await windowed(one, job.sources, Window(DOCUMENTS_AT_ONCE), job.id)
            progress.phase(Phase.DONE)
        return await report.result(job, outcomes, output, watch, house.settings)


async def attempted(
    source: str, job: Job, house: House, output: Store, deadline: float | None, progress: Tracker
) -> Outcome:
    """The document's outcome, a coded failure included: it ends this document and no other."""
    try:
        return await document(source, job, house, output, deadline, progress)
    except TwopassError as error:
        log.warning("document failed", source=shown(source), code=error.code)
        return report.failed(shown(source), error)


async def document(
    source: str, job: Job, house: House, output: Store, deadline: float | None, progress: Tracker
) -> Outcome:
    """One document from its source to its manifest; raises TwopassError."""
    watch = house.stopwatch()
    async with _fetched(source, job, house, deadline, watch) as file:
        run = Run(options=_options(job, house), prompts=dict(house.family.prompts))
        folder = Folder(output, document_id(file.stem, file.info.sha256, run.options) + _suffix(job))
        done = None if job.slice else await upload.finished(folder)
        if done and done.has(job.formats_needed):
            progress.pages_found(sum(done.result.pages.values()))
            progress.pages_done(sum(done.result.pages.values()))
            return await report.with_inline(report.repeated(done, file, watch), folder, job)
        numbers, problems = _selected(job, file)
        progress.pages_found(len(numbers))
        report.check_inline(job, progress.now.pages_total)
        reading = Reading(job, house, file, folder, await upload.existing(folder), deadline, progress, watch)
        pages = await windowed(lambda number: page(number, reading), numbers, house.window, job.id)
        if job.slice:
            return report.sliced(file, folder, pages, problems, watch, house.settings)
        progress.phase(Phase.ASSEMBLING)
        with watch.stage("assemble"):
            assembling = (_first_read(file, pages), file.meta, run, folder.document_id, pages, problems)
            whole = await asyncio.to_thread(assemble.document, *assembling)
        complete = not any(page.page.state is State.UNREAD for page in pages)
        artefacts = {}
        if complete or not output.keeps:  # else they might replace those of a worker that had more time
            with watch.stage("upload"):
                artefacts = await upload.artefacts(folder, whole, job.formats_needed)
        outcome = report.read(whole, pages, artefacts, watch, house.settings)
        if complete:
            result = await upload.manifest(folder, outcome.result, outcome.problems, run.options)
            outcome = replace(outcome, result=result)
        return await report.with_inline(outcome, folder, job)


@asynccontextmanager
async def _fetched(
    source: str, job: Job, house: House, deadline: float | None, watch: Stopwatch
) -> AsyncIterator[CheckedFile]:
    """The checked file; a deadline that comes first ends the document with its code."""
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout_at(deadline):
                fetching = watch.entered("fetch", fetch.document(source, job, house.settings, house.workers))
                file = await stack.enter_async_context(fetching)
        except TimeoutError:
            late = "the job's deadline came before the source; send the same job again to go on"
            raise TwopassError(Code.DEADLINE, late) from None
        yield file


def _first_read(file: CheckedFile, pages: list[Checkpoint]) -> SourceInfo:
    """The source as the first page's reader knew it: a function of the checkpoints, whoever assembles."""
    told = pages[0].read_from
    return file.info if told is None else file.info.model_copy(update={"uri": told.uri, "etag": told.etag})


def _options(job: Job, house: House) -> dict[str, Any]:
    """Everything that changes what is read, and nothing else."""
    reader = {"family": house.family.name, "revision": house.family.revision, **describe(house.engine)}
    return {**job.reading_options, **reader}


async def page(number: int, reading: Reading) -> Checkpoint:
    """One page, from its checkpoint or through both passes; raises only when a store or an engine is gone."""
    try:
        async with asyncio.timeout_at(reading.deadline):
            read = await _stored(number, reading) or await _read(number, reading)
    except TimeoutError:
        late = f"page {number}: the job's deadline came first; send the same job again to go on"
        read = structure.failed(number, Code.DEADLINE, late, State.UNREAD)
    reading.progress.pages_done(1)
    return read.without_completions


async def _stored(number: int, reading: Reading) -> Checkpoint | None:
    """The page as somebody already read it, its images cut again where they are missing."""
    if upload.page_name(number) not in reading.there:
        return None
    stored = await upload.stored_page(reading.folder, number)
    if stored and upload.missing_images(stored, reading.there):
        async with _drawn(number, reading) as picture:
            await upload.images(reading.folder, stored, picture.pixels, reading.house.workers, reading.there)
    return stored


async def _read(number: int, reading: Reading) -> Checkpoint:
    """The page through both passes, tried again alone if its worker died, and failed with a code after that."""
    with reading.watch.page():
        try:
            try:
                return await _passes(number, reading, last_try=False)
            except WorkerDied as died:
                log.warning("page tried again", page=number, code=died.code)
                return await _passes(number, reading, last_try=True)
        except (WorkerDied, SourceError) as error:
            failed = structure.failed(number, error.code, f"page {number}: {error.message}")
            return await _stored_first(failed, reading)


async def _passes(number: int, reading: Reading, last_try: bool) -> Checkpoint:
    """Render, pass 1, pass 2, checkpoint."""
    house, job, watch = reading.house, reading.job, reading.watch
    async with _drawn(number, reading) as picture:
        with watch.stage("pass1"):
            read = await _structured(picture, reading, last_try)
        with watch.stage("pass2"), reading.progress.elements(len(read.elements)):
            read = await elements.read(
                read, picture, reading.source_key, job, house.engine, house.family, house.workers
            )
            read = await _enriched(read, reading)
        with watch.stage("upload"):
            stored = await _stored_first(read, reading)
            await upload.images(reading.folder, stored, picture.pixels, house.workers, reading.there)
    return stored


async def _structured(picture: Picture, reading: Reading, last_try: bool) -> Checkpoint:
    """Pass 1; where the page breaks it, or kills its worker a second time, the page's own text."""
    house = reading.house
    try:
        return await structure.read(picture, reading.source_key, reading.job, house.engine, house.family, house.workers)
    except (WorkerDied, SourceError) as error:
        if isinstance(error, WorkerDied) and not last_try:
            raise
        return structure.fallen_back(Checkpoint(page=picture.page, problems=picture.problems), picture, error.code)


async def _enriched(read: Checkpoint, reading: Reading) -> Checkpoint:
    """The page with keywords and summaries, or without when they cannot be had: no reason to lose what was read."""
    try:
        return await reading.house.workers.call(enrich.page, read, reading.job.language)
    except WorkerDied as died:
        message = f"page {read.page.number}: without keywords and summaries: {died.message}"
        lost = Problem(code=died.code, severity=Severity.WARNING, page=read.page.number, message=message)
        return read.model_copy(update={"problems": (*read.problems, lost)})


async def _stored_first(read: Checkpoint, reading: Reading) -> Checkpoint:
    return await upload.checkpoint(reading.folder, upload.prepared(read, reading.job.id, reading.file.info))


def _drawn(number: int, reading: Reading) -> AbstractAsyncContextManager[Picture]:
    house = reading.house
    limit = house.settings.max_page_pixels
    drawing = render.page(reading.file, number, reading.job.dpi, limit, house.workers, house.slabs)
    return reading.watch.entered("render", drawing)


def _selected(job: Job, file: CheckedFile) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """The pages to read and what to say about those that do not exist; raises SourceError when none is left."""
    count = file.info.page_count
    numbers: tuple[int, ...] = tuple(range(1, count + 1))
    problems = []
    for asked in (job.page_range, job.slice_range):
        if asked is None:
            continue
        if asked.beyond(count):
            message = f"pages {asked.text} asked for, the document has {count}"
            problems.append(Problem(code=Code.PAGE_RANGE, severity=Severity.WARNING, message=message))
        numbers = tuple(sorted(set(numbers) & set(asked.select(count))))
    if not numbers:
        raise SourceError(Code.PAGE_RANGE, f"{problems[0].message}: nothing to read" if problems else "no page is left")
    return numbers, tuple(problems)


def _deadline(job: Job, house: House) -> float | None:
    """On the loop's clock; a local run without a deadline of its own has all the time it needs."""
    seconds = job.deadline_s or (None if job.door is Door.LOCAL else house.settings.deadline_s)
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _suffix(job: Job) -> str:
    """`resume: false` reads into a folder of its own, never over a finished document."""
    return "" if job.resume else "-" + hashlib.sha256(job.id.encode()).hexdigest()[:6]
