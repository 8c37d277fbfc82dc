"""Read many documents through one endpoint: slice them into jobs, run a limited number, retry and resume.

document --count pages--> slices --jobs--> checkpoints --a last job without slice--> artefacts, manifest
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import structlog
from pydantic import TypeAdapter, ValidationError

from twopass import locations
from twopass.errors import AnswerError, Code, EndpointError, LimitReached, Retry, TwopassError
from twopass.fleet.budget import Budget
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, PreparedDocument
from twopass.fleet.endpoints import answers
from twopass.fleet.endpoints.answers import JobResult, ProgressAnswer
from twopass.fleet.endpoints.interface import Endpoint, JobState, JobStatus
from twopass.fleet.ledger import Ledger
from twopass.page_range import PageRange
from twopass.runtime import retry, task_group

log = structlog.get_logger()

MAX_DUPLICATES = 9  # of a job that name one another: there is one for each answer that was lost
UNSENT = "unsent"  # status of a document of which a limit kept every job from being sent
_BOOLEAN = TypeAdapter(bool)
# Of failed jobs that may succeed at another attempt or on another worker.
_RETRYABLE = frozenset(code for code in Code if code.retry in (Retry.LATER, Retry.ELSEWHERE))


class CampaignListener(Protocol):
    """Receives the progress of every document. Calls may be frequent.

    The campaign keeps no outcome. It waits for `document_ended`, so that it reads no faster than results are saved.
    """

    def document_started(self, name: str, pages: int | None, jobs: int) -> None: ...

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None: ...

    def pages_found(self, name: str, pages: int) -> None:
        """So many pages of the document were found in the store; `pages_done` has them, too."""

    async def document_ended(self, outcome: DocumentOutcome) -> None: ...


@dataclass(frozen=True)
class DocumentOutcome:
    """How one document ended: its result from the worker, and the sums of all its jobs.

    `seconds` are engine seconds where the worker reports them, else job seconds. `pages_now` are the pages that were
    read now and not found in the store. `pages` is None if they could not be counted. `number` is the document's place
    in the campaign, from 0: documents end in any order. `runs` is how often its jobs ran, None if that is not known.
    """

    name: str
    pages: int | None
    jobs: int
    seconds: float = 0.0
    cost: float | None = None
    pages_now: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None
    number: int = 0
    runs: int | None = None

    @property
    def status(self) -> str:
        if self.runs == 0 and not self.result and (self.error or "").startswith(Code.COST_LIMIT):
            return UNSENT
        return str(self.result.get("status", "failure"))


@dataclass(frozen=True)
class Plan:
    """How documents become jobs. `fields` go into every job; `price` is the price of a second of one worker.

    With `outlives_command`, jobs go on at the endpoint when the command ends. Each then has an idempotency key, because
    an answer that is lost would leave a job there of which nothing is known.

    A job is given up after `attempts` runs in a row that stored no new page, and after `max_runs` in any case.
    `max_cost` is in dollars, for all jobs that the ledger knows.
    """

    fields: Mapping[str, Any]
    endpoint: str
    slice_pages: int = 100
    in_flight: int = 16
    attempts: int = retry.FLEET_JOB.attempts
    poll_s: float = 2.0
    price: float | None = None
    outlives_command: bool = False
    max_runs: int = 20  # 5,000 pages at half a page a second until each run's deadline
    max_cost: float | None = None

    @property
    def resumes(self) -> bool:
        """Whether a job continues from stored pages; the field is parsed as the worker parses it."""
        try:
            return _BOOLEAN.validate_python(self.fields.get("resume", True))
        except ValidationError:
            return True  # the worker refuses the job

    def slices(self, pages: int | None) -> list[str]:
        """Split the requested pages into ranges of `slice_pages`; an empty list if one job reads them all."""
        if not self.slice_pages or pages is None or not self.resumes:
            return []
        requested = self.fields.get("pages")
        numbers = PageRange.parse(requested).select(pages) if requested else tuple(range(1, pages + 1))
        parts = [numbers[at : at + self.slice_pages] for at in range(0, len(numbers), self.slice_pages)]
        return [f"{part[0]}-{part[-1]}" for part in parts] if len(parts) > 1 else []

    def selected_pages(self, pages: int | None) -> int | None:
        """How many of the document's pages are requested; None if they are not counted."""
        requested = self.fields.get("pages")
        return len(PageRange.parse(requested).select(pages)) if requested and pages is not None else pages

    def job_input(self, document: PreparedDocument, page_slice: str | None = None) -> dict[str, Any]:
        return {**self.fields, "source": document.source, **({"slice": page_slice} if page_slice else {})}


@dataclass(frozen=True)
class _JobOutcome:
    """How one job ended, summed over its runs. `keeps_pages`: the next run finds the pages that this one read."""

    result: JobResult = JobResult()
    error: str | None = None
    seconds: float = 0.0
    cost: float | None = None
    pages_now: int = 0
    runs: int = 0
    is_lost: bool = False
    keeps_pages: bool = False

    @property
    def unread_pages(self) -> int:
        return self.result.document.unread_pages if self.result.document else 0

    @property
    def read_pages(self) -> int:
        return self.result.document.read_pages if self.result.document else 0

    @property
    def should_retry(self) -> bool:
        code = (self.error or "").partition(":")[0]
        return self.is_lost or self.unread_pages > 0 or code in _RETRYABLE

    @property
    def failure(self) -> str:
        """Why the job is not complete, with a code."""
        return self.error or f"{Code.JOB_LOST}: {self.unread_pages} pages unread"

    def combine(self, later: _JobOutcome) -> _JobOutcome:
        """The later run with the sums of both. If it has no document, the earlier result is kept."""
        costs = [outcome.cost for outcome in (self, later) if outcome.cost is not None]
        return replace(
            later,
            result=later.result if later.result.document else self.result,
            seconds=self.seconds + later.seconds,
            cost=sum(costs) if costs else None,
            pages_now=self.pages_now + later.pages_now,
            runs=self.runs + later.runs,
        )


class _Tries:
    """Decides when a job is given up. A run makes progress if it leaves fewer pages unread than every run before it.

    Pages that were read are no progress in themselves: without a store, with `resume: false`, and in a store that
    forgets, each run reads the same pages, and costs as much.
    """

    def __init__(self, plan: Plan, unkept_runs: int) -> None:
        """`unkept_runs` are those of earlier commands that read pages in vain."""
        self._plan = plan
        self._runs, self._failures = 0, unkept_runs
        self._fewest_unread: int | None = None

    @property
    def refusal(self) -> str | None:
        """Why there is no run at all, because all that the job may have were in vain; None if there is one."""
        if self._failures < self._plan.attempts:
            return None
        runs = f"{self._failures} runs of earlier commands read pages that were not kept"
        return f"{Code.JOB_LOST}: not sent: {runs}{self._advice}, or name another --folder"

    def record(self, run: _JobOutcome) -> str | None:
        """Record a run that did not complete the job; returns why there is no further one, None if there is."""
        self._runs += 1
        self._failures = 0 if self._has_progressed(run) else self._failures + 1
        if self._failures >= self._plan.attempts:
            advice = self._advice if run.pages_now and not run.keeps_pages else ""
            return f"{run.failure}; given up after {self._failures} runs that stored no new page{advice}"
        if self._runs >= self._plan.max_runs:
            advice = "raise --max-runs, or repeat the command to continue"
            return f"{Code.RUN_LIMIT}: {self._runs} runs did not complete the job ({run.failure}); {advice}"
        return None

    def _has_progressed(self, run: _JobOutcome) -> bool:
        if not (run.keeps_pages and run.pages_now and run.result.document):
            return False
        if self._fewest_unread is not None and run.unread_pages >= self._fewest_unread:
            return False
        self._fewest_unread = run.unread_pages
        return True

    @property
    def _advice(self) -> str:
        return "; set --output, which keeps pages" if self._plan.resumes else "; leave out resume false"


_ReportProgress = Callable[[ProgressAnswer], None]


class _DocumentProgress:
    """The progress of a document's jobs, whose last one, without slice, finds the pages of the others."""

    def __init__(self, name: str, listener: CampaignListener) -> None:
        self._name, self._listener = name, listener
        self._done: dict[str | None, int] = {}
        self._stored: dict[str | None, int] = {}
        self.read_in_slices = 0

    def follow(self, page_slice: str | None) -> _ReportProgress:
        return partial(self._report, page_slice)

    def _report(self, page_slice: str | None, progress: ProgressAnswer) -> None:
        self._done[page_slice] = max(self._done.get(page_slice, 0), progress.pages_done)
        self._stored[page_slice] = max(self._stored.get(page_slice, 0), progress.pages_stored)
        in_slices, in_last = _sum_slices(self._stored), self._stored.get(None, 0) - self.read_in_slices
        if found := max(in_slices, in_last):
            self._listener.pages_found(self._name, found)
        # The last job counts the pages of the slices again, so the larger of the two counts is right.
        total = max(self._done.get(None, 0), _sum_slices(self._done))
        self._listener.document_progressed(self._name, total, progress.phase)


def _sum_slices(counts: Mapping[str | None, int]) -> int:
    return sum(count for page_slice, count in counts.items() if page_slice)


class Campaign:
    """Reads documents through one endpoint. Jobs that are done are in the ledger and are not sent again."""

    def __init__(
        self,
        endpoint: Endpoint,
        preparer: DocumentPreparer,
        ledger: Ledger,
        plan: Plan,
        listener: CampaignListener,
    ) -> None:
        self._endpoint, self._preparer, self._ledger = endpoint, preparer, ledger
        self._plan, self._listener = plan, listener
        self._job_slots = asyncio.Semaphore(plan.in_flight)
        self._budget = Budget(plan.max_cost, plan.price, ledger.spending)
        self._sends_keys = plan.outlives_command

    async def run(self, documents: Iterable[DocumentRef]) -> None:
        """Read the documents; the listener gets each outcome. Raises EndpointError if the endpoint fails.

        So many are counted, uploaded and read at once as jobs may be in flight.
        """
        numbered = enumerate(documents)

        async def run_documents() -> None:
            for number, document in numbered:  # whichever of the tasks is free takes the next one
                outcome = await self._try_document(document)
                await self._listener.document_ended(replace(outcome, number=number))
                await asyncio.sleep(0)  # recorded outcomes are found without waiting, and there may be many

        async with task_group.open_group() as group:
            for _ in range(self._plan.in_flight):
                group.create_task(run_documents())

    async def _try_document(self, document: DocumentRef) -> DocumentOutcome:
        """Run the document; an error other than the endpoint's own is its outcome."""
        try:
            return await self._run_document(document)
        except EndpointError:
            raise
        except TwopassError as error:
            return DocumentOutcome(document.name, None, 0, error=str(error), runs=0)

    async def _run_document(self, document: DocumentRef) -> DocumentOutcome:
        prepared = await self._preparer.prepare(document)
        slices = self._plan.slices(prepared.pages)
        pages = self._plan.selected_pages(prepared.pages)
        self._listener.document_started(document.name, pages, len(slices) + 1)
        await self._deliver(document, prepared, slices, pages)
        progress = _DocumentProgress(document.name, self._listener)
        tasks: list[asyncio.Task[_JobOutcome]] = []
        if slices:
            count = self._plan.slice_pages
            async with task_group.open_group() as group:
                tasks = [
                    group.create_task(self._run_job(prepared, part, count, progress.follow(part))) for part in slices
                ]
        done = [task.result() for task in tasks]
        progress.read_in_slices = sum(job.pages_now for job in done)
        left = None if pages is None else max(pages - sum(job.read_pages for job in done), 0)
        last = await self._run_job(prepared, None, left, progress.follow(None))  # reads what the slices left unread
        return _sum_up(document, pages, [*done, last])

    async def _deliver(
        self, document: DocumentRef, prepared: PreparedDocument, slices: Sequence[str], pages: int | None
    ) -> None:
        """Upload the file if a job has to be sent; raises LimitReached if all money is spent before the first one."""
        if not (prepared.upload or self._budget.is_spent):
            return
        keys = [self._key(prepared, part) for part in (*slices, None)]
        if all(self._find_recorded(key, prepared) for key in keys):
            return
        if self._budget.is_spent and not any(map(self._ledger.job_id, keys)):
            raise self._budget.refuse(pages)
        await self._preparer.deliver(document, prepared)

    async def _run_job(
        self, document: PreparedDocument, page_slice: str | None, pages: int | None, report_progress: _ReportProgress
    ) -> _JobOutcome:
        """Run one job of so many pages to its end, and again while that may help and the limits allow it."""
        job, key = self._plan.job_input(document, page_slice), self._key(document, page_slice)
        if recorded := self._find_recorded(key, document):
            return _JobOutcome(recorded)
        total, tries = _JobOutcome(), _Tries(self._plan, self._ledger.unkept_runs(key))
        if tries.refusal and not self._ledger.job_id(key):
            return replace(total, error=tries.refusal)
        has_key = self._sends_keys
        while True:
            try:
                run = await self._run_once(key, job, pages, report_progress)
            except (AnswerError, LimitReached) as error:
                return replace(total, error=str(error))
            if has_key and _refuses_key(run):
                self._sends_keys = has_key = False
                log.warning(
                    "jobs are sent without idempotency_key, which this endpoint's image does not know; update it"
                )
                continue
            total = total.combine(run)
            if not run.should_retry:
                self._record_done(key, run.result, document.version)
                return total
            if reason := tries.record(run):
                return replace(total, error=reason)
            source = locations.redact(document.source)[:200]
            log.warning("job sent again", document=source, slice=page_slice, reason=run.failure[:200])
            pages = run.unread_pages if run.keeps_pages and run.result.document else pages
            await asyncio.sleep(retry.FLEET_JOB.delay(1))

    async def _run_once(
        self, key: str, job: Mapping[str, Any], pages: int | None, report_progress: _ReportProgress
    ) -> _JobOutcome:
        """Run the job when there are a place and money for it; raises LimitReached, or AnswerError if it may go on."""
        async with self._job_slots:
            is_sent = self._ledger.job_id(key) is not None
            async with self._budget.reserve(pages, is_sent) as reservation:
                run = await self._follow_job(key, job, report_progress)
                reservation.settle(run.cost, run.pages_now)
                return run

    def _find_recorded(self, key: str, document: PreparedDocument) -> JobResult | None:
        """The result of a job that need not be sent again; None without one for this version of the document."""
        line = self._ledger.outcome(key)
        recorded = answers.parse_recorded(line) if line else None
        return None if recorded is None or _is_outdated(recorded.version, document) else recorded.output

    def _record_done(self, key: str, result: JobResult, version: str | None) -> None:
        """Record a job that need not be sent again; a worse result may improve when the command is repeated."""
        if result.is_done:
            recorded = {"output": result.as_record(), "error": None}
            self._ledger.record_outcome(key, {**recorded, **({"version": version} if version else {})})

    def _key(self, document: PreparedDocument, page_slice: str | None) -> str:
        """The ledger's key of a job."""
        job = self._plan.job_input(document, page_slice)
        return Ledger.key(self._plan.endpoint, document.sha256, {**job, "source": document.source[:4096]})

    async def _follow_job(self, key: str, job: Mapping[str, Any], report_progress: _ReportProgress) -> _JobOutcome:
        """Submit the job, unless an earlier run did, and poll it until it ends."""
        job_id = self._ledger.job_id(key) or await self._submit(key, job)
        followed = {job_id}
        while True:
            status = await self._wait_for_end(job_id, report_progress)
            try:
                result, error = answers.parse_end(status)
                original_id = result.duplicate_of if status.state is JobState.ENDED else None
                if original_id in followed or (original_id and len(followed) == MAX_DUPLICATES):
                    raise AnswerError(Code.ENDPOINT_ANSWER, f"job {job_id} ended as a duplicate of {original_id}")
            except AnswerError as failure:  # the job stays open in the ledger: sent again, it would cost as much
                return self._to_outcome(job, status, JobResult(), str(failure))
            if original_id is None:
                outcome = self._to_outcome(job, status, result, error)
                reason, is_kept = error and error[:300], outcome.keeps_pages
                self._ledger.forget_job(key, reason, outcome.cost, outcome.pages_now, is_kept)
                return outcome
            log.info("job was sent twice", job=original_id, duplicate=job_id)
            followed.add(original_id)
            self._ledger.record_job(key, job_id := original_id)

    async def _wait_for_end(self, job_id: str, report_progress: _ReportProgress) -> JobStatus:
        """Poll the job until it ends. Its seconds are measured here if the endpoint does not report them."""
        clock, began = asyncio.get_running_loop().time, None
        while (status := await self._endpoint.poll(job_id)).is_open:
            if began is None and status.state is JobState.RUNNING:
                began = clock()
            report_progress(answers.parse_progress(status))
            await asyncio.sleep(self._plan.poll_s)
        return replace(status, seconds=clock() - began) if status.seconds is None and began is not None else status

    async def _submit(self, key: str, job: Mapping[str, Any]) -> str:
        """Submit the job and return its id. If the answer to an earlier request was lost, repeat its idempotency key.

        The endpoint may then have two jobs: the one that starts second reads nothing and names the other.
        """
        if self._sends_keys:
            idempotency_key = self._ledger.unanswered(key)
            if idempotency_key is None:
                idempotency_key = f"{key}-{secrets.token_hex(4)}"
                self._ledger.record_sending(key, idempotency_key)
            job = {**job, "idempotency_key": idempotency_key}
        job_id = await self._endpoint.submit(job)
        self._ledger.record_job(key, job_id)
        return job_id

    def _to_outcome(
        self, job: Mapping[str, Any], status: JobStatus, result: JobResult, error: str | None
    ) -> _JobOutcome:
        usage, price = result.usage, self._plan.price
        seconds = usage.engine_s or status.seconds or 0.0
        return _JobOutcome(
            result=result,
            error=error,
            seconds=seconds,
            cost=usage.cost or (None if price is None else seconds * price),
            pages_now=usage.pages_read_now,
            runs=1,
            is_lost=status.state is JobState.GONE,
            keeps_pages=self._plan.resumes and bool(job.get("output") or result.has_store),
        )


def _sum_up(document: DocumentRef, pages: int | None, jobs: Sequence[_JobOutcome]) -> DocumentOutcome:
    """The document's outcome: the result of its last job, and the sums of all jobs."""
    last = jobs[-1]
    costs = [job.cost for job in jobs if job.cost is not None]
    read = last.result.document
    return DocumentOutcome(
        name=document.name,
        pages=sum(read.pages.values()) if read and read.pages else pages,
        jobs=len(jobs),
        seconds=round(sum(job.seconds for job in jobs), 3),
        cost=round(sum(costs), 9) if costs else None,
        pages_now=sum(job.pages_now for job in jobs),
        result=read.model_dump(mode="json", exclude_unset=True) if read else {},
        problems=last.result.problems,
        error=last.error,
        runs=sum(job.runs for job in jobs),
    )


def _is_outdated(version: str | None, document: PreparedDocument) -> bool:
    """Whether an outcome is that of another version of the document."""
    return version is not None and document.version is not None and version != document.version


def _refuses_key(outcome: _JobOutcome) -> bool:
    """Whether a worker of 0.2.0 or older refused the job, because it does not know the field."""
    return (outcome.error or "").startswith(f"{Code.INVALID_JOB}: idempotency_key: unknown field")
