"""What the documents of one job share while they are read, and what the pages of one document share."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby

from twopass import job as contract
from twopass.document import Checkpoint, Document, Problem, Run, Severity, SourceInfo
from twopass.engines.interface import Engine, Identity, describe
from twopass.errors import Code, EngineError, InvalidJob, SourceError
from twopass.families.interface import Family
from twopass.format_options import FormatOptions
from twopass.formats import registry
from twopass.job import EntryPoint, Format, Job
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.source_files import CheckedFile
from twopass.runtime import scratch
from twopass.runtime.admission import AdmissionLimits, Ticket
from twopass.runtime.shutdown import RESEND_HINT
from twopass.settings import MISSED_QUESTIONS, Settings
from twopass.steps import enrich
from twopass.steps.artefacts import PreviewSource
from twopass.steps.document_folder import DocumentFolder, Manifest, ManifestDetails, page_name
from twopass.steps.page_context import PageContext
from twopass.storage.sources import Sources
from twopass.storage.store import Store
from twopass.telemetry.progress import PageProgress, Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import Worker

_NOT_STORED_HINT = "sent again, the job begins anew, because it has no output; set output to keep pages"
_NOT_RESUMED_HINT = "sent again, the job begins anew, because resume is false; leave it out to keep pages"
EXTRA_FAILURES = 32  # consecutive lost pages beyond those in flight; after so many the engine will not recover soon


class EngineFailureBudget:
    """How many pages in a row a document may lose to the engine before it stops asking it."""

    def __init__(self, pages_in_flight: int) -> None:
        self._pages = pages_in_flight + EXTRA_FAILURES
        self._lost_in_a_row = 0
        self._last_error: EngineError | None = None

    @contextmanager
    def track(self) -> Iterator[None]:
        """Track one page; a page that succeeds resets the count. Raises EngineError at once if the budget is spent."""
        if self._last_error and self._lost_in_a_row >= self._pages:
            raise EngineError(self._last_error.code, self._last_error.message)
        try:
            yield
        except EngineError as error:
            self._lost_in_a_row, self._last_error = self._lost_in_a_row + 1, error
            raise
        self._lost_in_a_row = 0


class PageOrder:
    """In which order a worker reads a document's pages, so that workers that share it seldom read the same ones.

    Each worker starts at another page and looks for a page's checkpoint before it reads the page. If it finds one of
    another worker, it lists the folder and continues in the middle of the longest run of pages that are not stored.
    """

    def __init__(self, folder: DocumentFolder, stored_names: frozenset[str], pick_start: Callable[[int], int]) -> None:
        self.stored_names = stored_names
        self._folder = folder
        self._pick_start = pick_start
        self._listing = asyncio.Lock()
        self._is_changed = False

    def is_stored(self, number: int) -> bool:
        """Whether the page had a checkpoint when the folder was last listed."""
        return page_name(number) in self.stored_names

    async def record_other(self, number: int) -> None:
        """Another worker has stored this page: list the folder, unless that was done since."""
        async with self._listing:
            if not self.is_stored(number):
                self.stored_names = await self._folder.list_names()
                self._is_changed = True

    def order(self, numbers: Sequence[int]) -> Iterator[int]:
        """Yield every number once. Stored pages come first, so that a deadline does not leave them out."""
        stored = frozenset(number for number in numbers if self.is_stored(number))  # which changes while pages are read
        remaining = deque(number for number in numbers if number not in stored)
        yield from (number for number in numbers if number in stored)
        if remaining and self._folder.store.is_persistent:  # no other worker sees a store in memory
            remaining.rotate(-self._pick_start(len(remaining)))
        while remaining:
            if self._is_changed:
                self._is_changed = False
                remaining = deque(self._reorder(sorted(remaining)))
            yield remaining.popleft()

    def _reorder(self, numbers: Sequence[int]) -> list[int]:
        """Begin in the middle of the longest run of unread pages; the stored pages, which are only loaded, are last."""
        unread = [number for number in numbers if not self.is_stored(number)]
        runs = (list(run) for _, run in groupby(enumerate(unread), lambda item: item[1] - item[0]))
        longest = max(runs, key=len, default=[])
        middle = longest[len(longest) // 2][0] if longest else 0
        return unread[middle:] + unread[:middle] + [number for number in numbers if self.is_stored(number)]


@dataclass(frozen=True)
class JobContext:
    """What all documents of one job share. `deadline` is a time on the loop's clock, None for no deadline.

    `page_listener` is called with each page that has ended, read or not. With `keeps_thumbnails`, a small picture of
    each page is stored before its checkpoint, for people who watch the job.
    """

    job: Job
    worker: Worker
    sources: Sources
    output: Store
    deadline: float | None
    progress: Tracker
    page_listener: PageListener | None = None
    keeps_thumbnails: bool = False

    @property
    def admission_limits(self) -> AdmissionLimits:
        """The limits of one of the jobs that a worker runs at once."""
        settings = self.worker.settings

        def free_bytes() -> int:
            return scratch.free_bytes() // settings.concurrency

        return AdmissionLimits(self.worker.page_slots.count, settings.max_source_bytes, free_bytes)

    @property
    def resend_advice(self) -> str:
        """What to do about pages that remain unread; the same job continues only from pages that it finds again."""
        if not self.output.is_persistent:
            return _NOT_STORED_HINT
        return RESEND_HINT if self.job.resume else _NOT_RESUMED_HINT

    def start_work(self) -> AbstractAsyncContextManager[None]:
        """Start work of this job; raises OutOfTime."""
        return self.worker.shutdown.start_work(self.deadline, self.resend_advice)


@dataclass(frozen=True)
class DocumentContext:
    """What all pages of one document share.

    `manifest` is what its folder held when the document was opened; `was_read` says whether this job has already read a
    document with the same id.
    """

    job_context: JobContext
    file: CheckedFile
    folder: DocumentFolder
    run: Run
    manifest: Manifest | None
    was_read: bool
    ticket: Ticket
    watch: Stopwatch
    failure_budget: EngineFailureBudget
    page_order: PageOrder
    page_progress: PageProgress

    @property
    def job(self) -> Job:
        return self.job_context.job

    @property
    def worker(self) -> Worker:
        return self.job_context.worker

    @property
    def progress(self) -> Tracker:
        return self.job_context.progress

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats to write: the requested ones, and the existing ones, which may know fewer pages."""
        names = {*self.job.formats_needed, *(self.manifest.formats if self.manifest else ())}
        return tuple(name for name in Format if name in names)

    @property
    def format_options(self) -> FormatOptions:
        return self.job.resolve_format_options(self.manifest.details.writing if self.manifest else None)

    @property
    def finished(self) -> Manifest | None:
        """The manifest, if the existing document has everything that the job asks for."""
        manifest = self.manifest
        return manifest if manifest and (self.was_read or is_complete(self.job, manifest)) else None

    @property
    def write_deadline(self) -> float | None:
        """When the artefacts must be written; a reserve after the deadline for reading."""
        deadline = self.job_context.deadline
        return None if deadline is None else deadline + self.worker.settings.write_reserve_s

    @property
    def preview_source(self) -> PreviewSource:
        return PreviewSource(self.file, self.worker.page_pool, self.worker.page_slots, self.job.id)

    def page_context(self, rendered: RenderedPage) -> PageContext:
        """What both passes over a rendered page need."""
        worker, key = self.worker, self.file.info.sha256[:12]
        questions = worker.settings.missed_questions
        return PageContext(rendered, key, self.job, worker.engine, worker.family, worker.page_pool, questions)

    def manifest_details(self, document: Document, selection: Sequence[Problem]) -> ManifestDetails:
        """What the manifest keeps besides the result."""
        return ManifestDetails(
            options=document.run.options,
            prompts=document.run.prompts,
            writing=self.format_options,
            source=document.source,
            meta=self.file.meta,
            selection=tuple(selection),
            audits=document.audits,
        )


PageListener = Callable[[DocumentContext, Checkpoint], Awaitable[None]]


def check_supported(job: Job, family: Family) -> None:
    """Reject options that this worker's model or installation does not support; raises InvalidJob."""
    registry.check_installed(job.formats_needed)
    for name, requested, supported in (("mode", job.mode, family.modes), ("task", job.task, family.tasks)):
        if requested not in supported:
            known = ", ".join(choice for choice in type(requested) if choice in supported)
            message = f"{name}: {family.name} does not support {requested}; use one of {known}"
            raise InvalidJob(Code.INVALID_JOB, message)
    if job.max_crops and job.max_crops > family.crops.most:
        message = f"max_crops: {family.name} on this worker takes 2 to {family.crops.most}"
        raise InvalidJob(Code.INVALID_JOB, message)


async def resolve_deadline(job: Job, worker: Worker) -> float | None:
    """The job's deadline on the loop's clock; its seconds begin when the engine is ready.

    Jobs that no platform ends after a time have no deadline unless they set one.
    """
    is_unlimited = job.entry_point in (EntryPoint.LOCAL, EntryPoint.SERVER)
    seconds = job.deadline_s or (None if is_unlimited else worker.settings.deadline_s)
    if seconds is None:
        return None
    await worker.wait_until_ready()
    return asyncio.get_running_loop().time() + seconds


def describe_run(
    job: Job, engine: Engine | Identity, family: Family, settings: Settings, converter: str | None = None
) -> Run:
    """Every option that affects what is read, of the job and of the worker, the source's converter, and the prompts.

    This is the only way into documents' ids. What the settings change is named by the engine or by the family, so that
    a setting which does nothing for them changes no id.
    """
    reader = {"family": family.name, "revision": family.revision, **describe(engine)}
    reader |= enrich.describe_options()
    if converter:
        reader["converter"] = converter
    crops = {"max_crops": job.max_crops or family.crops.default}
    if family.canary and settings.missed_questions != MISSED_QUESTIONS:
        reader["missed_questions"] = settings.missed_questions
    return Run(options={**job.reading_options, **crops, **reader, **family.options}, prompts=dict(family.prompts))


def document_id(stem: str, sha256: str, job: Job, run: Run) -> str:
    """The document's id. `resume: false` adds a suffix, so that a finished document is never overwritten."""
    suffix = "" if job.resume else "-" + hashlib.sha256(job.id.encode()).hexdigest()[:6]
    return contract.document_id(stem, sha256, run.options) + suffix


def is_complete(job: Job, manifest: Manifest) -> bool:
    """Whether the existing document has all formats that the job asks for, with the same options."""
    return (
        manifest.is_final
        and set(job.formats_needed) <= set(manifest.formats)
        and job.resolve_format_options(manifest.details.writing) == manifest.details.writing
    )


def select_pages(job: Job, file: CheckedFile) -> tuple[tuple[int, ...], tuple[Problem, ...]]:
    """The pages to read, and warnings about what is on no page and pages that do not exist.

    Raises SourceError if no page is left.
    """
    count = file.info.page_count
    numbers: tuple[int, ...] = tuple(range(1, count + 1))
    problems = []
    for selection in (job.page_range, job.slice_range):
        if selection is None:
            continue
        if selection.exceeds(count):
            message = f"pages {selection.text} requested, but the document has {count}"
            problems.append(Problem(code=Code.PAGE_RANGE, severity=Severity.WARNING, message=message))
        numbers = tuple(sorted(set(numbers) & set(selection.select(count))))
    if not numbers:
        message = f"{problems[0].message}: no page to read" if problems else "pages and slice have no page in common"
        raise SourceError(Code.PAGE_RANGE, message)
    if file.hidden:
        message = f"{' and '.join(file.hidden)} of the file are on no page and were not read"
        problems.append(Problem(code=Code.HIDDEN_PARTS, severity=Severity.WARNING, message=message))
    return numbers, tuple(problems)


def source_info(file: CheckedFile, pages: Sequence[Checkpoint]) -> SourceInfo:
    """The source as recorded with the first page, so that the document depends only on the checkpoints."""
    recorded = pages[0].read_from
    return file.info if recorded is None else file.info.model_copy(update={"uri": recorded.uri, "etag": recorded.etag})
