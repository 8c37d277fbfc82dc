"""Read many documents through one endpoint: slice them into jobs, run a limited number, retry and resume.

document --count pages--> slices --jobs--> checkpoints --a last job without slice--> artefacts, manifest
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from twopass.errors import Code, EndpointError, TwopassError
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, PreparedDocument
from twopass.fleet.endpoints.interface import Endpoint, JobState, JobStatus
from twopass.fleet.ledger import Ledger
from twopass.job import redact_uri
from twopass.page_range import PageRange
from twopass.runtime import retry, task_group

log = structlog.get_logger()

RETRYABLE_CODES = frozenset(  # of failed jobs that may succeed at another attempt or on another worker
    {
        *(Code.STORE_UNAVAILABLE, Code.ENGINE_DEAD, Code.ENGINE_MEMORY, Code.DEADLINE, Code.SHUTDOWN),
        *(Code.CANARY, Code.WEIGHTS_MISSING, Code.INTERNAL),
    }
)


class CampaignListener(Protocol):
    """Receives the progress of every document. Calls may be frequent.

    The campaign keeps no outcome. It waits for `document_ended`, so that it reads no faster than results are saved.
    """

    def document_started(self, name: str, pages: int | None, jobs: int) -> None: ...

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None: ...

    async def document_ended(self, outcome: DocumentOutcome) -> None: ...


@dataclass(frozen=True)
class DocumentOutcome:
    """How one document ended: its result from the worker, and the sums of all its jobs.

    `seconds` are engine seconds where the worker reports them, else job seconds. `pages_now` are the pages that were
    read now and not found in the store. `pages` is None if they could not be counted. `number` is the document's place
    in the campaign, from 0: documents end in any order.
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

    @property
    def status(self) -> str:
        return str(self.result.get("status", "failure"))


@dataclass(frozen=True)
class Plan:
    """How documents become jobs. `fields` go into every job; `price` is the price of a second of one worker.

    With `outlives_command`, jobs go on at the endpoint when the command ends. Each then has an idempotency key, because
    an answer that is lost would leave a job there of which nothing is known.
    """

    fields: Mapping[str, Any]
    endpoint: str
    slice_pages: int = 100
    in_flight: int = 16
    attempts: int = retry.FLEET_JOB.attempts
    poll_s: float = 2.0
    price: float | None = None
    outlives_command: bool = False

    def slices(self, pages: int | None) -> list[str]:
        """Split the requested pages into ranges of `slice_pages`; an empty list if one job reads them all."""
        if not self.slice_pages or pages is None or self.fields.get("resume") is False:
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
    """How one job ended, summed over its attempts."""

    output: Mapping[str, Any]
    error: str | None
    seconds: float
    cost: float | None
    pages_now: int = 0

    @property
    def document(self) -> Mapping[str, Any]:
        documents = self.body.get("documents")
        return documents[0] if isinstance(documents, list) and documents else {}

    @property
    def body(self) -> Mapping[str, Any]:
        """The result, which is in the `detail` of a failed job."""
        detail = self.output.get("detail")
        return detail if isinstance(detail, dict) else self.output

    @property
    def unread_pages(self) -> int:
        return int(self.document.get("pages", {}).get("unread", 0))

    def combine(self, later: _JobOutcome) -> _JobOutcome:
        """The later attempt with the sums of both. If it has no document, the earlier output is kept."""
        costs = [outcome.cost for outcome in (self, later) if outcome.cost is not None]
        return replace(
            later,
            output=later.output if later.document else self.output or later.output,
            seconds=self.seconds + later.seconds,
            cost=sum(costs) if costs else None,
            pages_now=self.pages_now + later.pages_now,
        )


ReportProgress = Callable[[Mapping[str, Any]], None]


class Campaign:
    """Reads documents through one endpoint. Jobs that succeeded are in the ledger and are not sent again."""

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
            return DocumentOutcome(document.name, None, 0, error=str(error))

    async def _run_document(self, document: DocumentRef) -> DocumentOutcome:
        prepared = await self._preparer.prepare(document)
        slices = self._plan.slices(prepared.pages)
        pages = self._plan.selected_pages(prepared.pages)
        self._listener.document_started(document.name, pages, len(slices) + 1)
        if prepared.upload and not all(self._ledger.has_outcome(self._key(prepared, part)) for part in (*slices, None)):
            await self._preparer.deliver(document, prepared)
        done: dict[str | None, int] = {}  # pages by slice; None: the last job, without slice

        def progress_callback(page_slice: str | None) -> ReportProgress:
            def report(progress: Mapping[str, Any]) -> None:
                done[page_slice] = max(done.get(page_slice, 0), int(progress.get("pages_done", 0)))
                # The last job counts the pages of the slices again, so the larger of the two counts is right.
                total = max(done.get(None, 0), sum(count for name, count in done.items() if name))
                self._listener.document_progressed(document.name, total, str(progress.get("phase", "")))

            return report

        tasks: list[asyncio.Task[_JobOutcome]] = []
        if slices:
            async with task_group.open_group() as group:
                tasks = [group.create_task(self._run_job(prepared, part, progress_callback(part))) for part in slices]
        last = await self._run_job(prepared, None, progress_callback(None))  # reads pages that the slices left unread
        return _sum_up(document, pages, [*(task.result() for task in tasks), last])

    async def _run_job(
        self, document: PreparedDocument, page_slice: str | None, report_progress: ReportProgress
    ) -> _JobOutcome:
        """Run one job to its end, and again while that may help; the error is JOB_LOST if all attempts fail."""
        job, key = self._plan.job_input(document, page_slice), self._key(document, page_slice)
        recorded = self._ledger.outcome(key)
        if recorded and not _is_outdated(recorded, document):
            return _JobOutcome(recorded["output"], recorded["error"], 0.0, None)
        remaining, reason = self._plan.attempts, "never sent"
        total = _JobOutcome({}, None, 0.0, None)
        while remaining:
            async with self._job_slots:
                status = await self._follow_job(key, job, report_progress)
            outcome = self._to_outcome(status)
            if _refuses_key(outcome):
                self._sends_keys = False
                log.warning(
                    "jobs are sent without idempotency_key, which this endpoint's image does not know; update it"
                )
                continue
            total = total.combine(outcome)
            reason = outcome.error or f"{outcome.unread_pages} pages unread"
            is_lost = status.state is JobState.GONE
            is_hopeless = remaining == 1 and not is_lost and not outcome.pages_now
            if is_hopeless or not (is_lost or _should_retry(outcome)):
                self._record_success(key, outcome, document.version)
                return total
            log.warning(
                "job sent again", document=redact_uri(document.source)[:200], slice=page_slice, reason=reason[:200]
            )
            remaining -= 0 if outcome.pages_now else 1  # a job that read pages has not failed
            await asyncio.sleep(retry.FLEET_JOB.delay(1))
        lost = EndpointError(Code.JOB_LOST, f"{reason}, {self._plan.attempts} times")
        return replace(total, error=str(lost))

    def _record_success(self, key: str, outcome: _JobOutcome, version: str | None) -> None:
        """Record a job that need not be sent again; a worse result may improve when the command is repeated."""
        if outcome.body.get("status") == "success":
            recorded = {"output": _strip_inline(outcome.output), "error": None}
            self._ledger.record_outcome(key, {**recorded, **({"version": version} if version else {})})

    def _key(self, document: PreparedDocument, page_slice: str | None) -> str:
        """The ledger's key of a job."""
        job = self._plan.job_input(document, page_slice)
        return Ledger.key(self._plan.endpoint, document.sha256, {**job, "source": document.source[:4096]})

    async def _follow_job(self, key: str, job: Mapping[str, Any], report_progress: ReportProgress) -> JobStatus:
        """Submit the job, unless an earlier run did, and poll it until it ends."""
        job_id = self._ledger.job_id(key) or await self._submit(key, job)
        while True:
            status = await self._endpoint.poll(job_id)
            original_id = _find_original(status)
            if original_id and original_id != job_id:
                log.info("job was sent twice", job=original_id, duplicate=job_id)
                self._ledger.record_job(key, job_id := original_id)
            elif not status.is_open:
                self._ledger.forget_job(key, status.error and status.error[:300])
                return status
            else:
                report_progress(status.output if isinstance(status.output, dict) else {"phase": str(status.state)})
                await asyncio.sleep(self._plan.poll_s)

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

    def _to_outcome(self, status: JobStatus) -> _JobOutcome:
        output = status.output if isinstance(status.output, dict) else {}
        outcome = _JobOutcome(output, status.error, status.seconds or 0.0, None)
        usage = outcome.body.get("usage", {})
        seconds = usage.get("engine_s") or outcome.seconds
        price = self._plan.price
        cost = usage.get("cost") or (None if price is None else seconds * price)
        return replace(outcome, seconds=seconds, cost=cost, pages_now=int(usage.get("pages_read_now", 0)))


def _sum_up(document: DocumentRef, pages: int | None, jobs: Sequence[_JobOutcome]) -> DocumentOutcome:
    """The document's outcome: the result of its last job, and the sums of all jobs."""
    last = jobs[-1]
    costs = [job.cost for job in jobs if job.cost is not None]
    counts = last.document.get("pages", {})
    return DocumentOutcome(
        name=document.name,
        pages=sum(counts.values()) if counts else pages,
        jobs=len(jobs),
        seconds=round(sum(job.seconds for job in jobs), 3),
        cost=round(sum(costs), 9) if costs else None,
        pages_now=sum(job.pages_now for job in jobs),
        result=last.document,
        problems=tuple(last.body.get("problems", ())),
        error=last.error,
    )


def _is_outdated(recorded: Mapping[str, Any], document: PreparedDocument) -> bool:
    """Whether the outcome is that of another version of the document."""
    version = recorded.get("version")
    return version is not None and document.version is not None and version != document.version


def _find_original(status: JobStatus) -> str | None:
    """The id of the job that reads in place of this one, if this one ended as a duplicate."""
    output = status.output if isinstance(status.output, dict) else {}
    detail = output.get("detail")
    original_id = detail.get("duplicate_of") if isinstance(detail, dict) else None
    return original_id if status.state is JobState.ENDED and isinstance(original_id, str) else None


def _refuses_key(outcome: _JobOutcome) -> bool:
    """Whether a worker of 0.2.0 or older refused the job, because it does not know the field."""
    return (outcome.error or "").startswith(f"{Code.INVALID_JOB}: idempotency_key: unknown field")


def _should_retry(outcome: _JobOutcome) -> bool:
    if outcome.error is None:
        return outcome.unread_pages > 0
    return outcome.unread_pages > 0 or outcome.error.partition(":")[0] in RETRYABLE_CODES


def _strip_inline(output: Mapping[str, Any]) -> dict[str, Any]:
    """The output for the ledger, without inline artefacts, which are saved as files."""
    documents = output.get("documents")
    if not isinstance(documents, list):
        return dict(output)
    stripped = [{name: value for name, value in document.items() if name != "inline"} for document in documents]
    return {**output, "documents": stripped}
