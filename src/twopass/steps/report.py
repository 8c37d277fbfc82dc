"""Report what becomes of a job: the results of its documents, its own result and its progress.

A job's own files in the output are below `jobs/`. Of several jobs with the same idempotency key, only one reads.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from twopass.document import Checkpoint, Page, Problem, Severity, State, Status, count_states, derive_canary
from twopass.engines.interface import Incident
from twopass.errors import Code, OutOfTime, StoreError, TwopassError
from twopass.formats.registry import WRITERS
from twopass.job import Format, Inline, Job
from twopass.page_range import format_page_ranges
from twopass.result import INLINE_BYTES, AuditSum, DocumentResult, Result
from twopass.settings import Settings
from twopass.steps.artefacts import Written
from twopass.steps.document_folder import JSON, DocumentFolder, Manifest, to_json
from twopass.storage.store import CreateResult, Store, Stored, uri_of
from twopass.telemetry.progress import Sender, Tracker
from twopass.telemetry.stopwatch import Stopwatch

log = structlog.get_logger()

_RESULT_TIMEOUT_S = 10.0  # to store result.json; it delays the answer

# Bytes of a page with little text, so that only hopeless jobs are refused early: markdown and DocJSON of slides have
# 390 and 6,600 bytes a page, of papers 3,700 and 22,000.
_EXPECTED_PAGE_BYTES = {Inline.MARKDOWN: 300, Inline.DOCJSON: 2_000}


@dataclass(frozen=True)
class Outcome:
    """The result of one document, and its problems, which the job's result lists for all documents."""

    result: DocumentResult
    problems: tuple[Problem, ...] = ()

    def with_artefacts(self, written: Written, job: Job, watch: Stopwatch) -> Outcome:
        """Add the artefacts that were written, and what went wrong while they were."""
        update: dict[str, Any] = {"artefacts": written.artefacts, "timings": measure_timings(watch)}
        if written.losses:
            audit = (self.result.audit or AuditSum()).add((loss.page, loss.finding) for loss in written.losses)
            status = _judge_status(self.result.pages, self.problems, audit, job)
            update |= {"audit": audit, "status": status}
        return replace(self, result=self.result.model_copy(update=update)).with_problems(written.problems)

    def with_problems(self, problems: Sequence[Problem]) -> Outcome:
        """Add problems of the document."""
        return replace(self, problems=(*self.problems, *_assign_document(self.result.id, problems)))

    def unwritten(self, end: OutOfTime) -> Outcome:
        """Add a problem: all pages are stored, but there was no time to write the document."""
        message = f"the pages are read, but the document is not written: {end.message}"
        result = self.result.model_copy(update={"status": Status.PARTIAL_SUCCESS})
        return replace(self, result=result).with_problems([Problem(code=end.code, message=message)])

    async def with_inline(self, folder: DocumentFolder, job: Job) -> Outcome:
        """Add the artefacts that are returned in the answer itself."""
        inline: dict[str, Any] = {}
        for name in job.inline or ():
            if (data := await folder.read(WRITERS[Format(name)].name)) is not None:
                inline[name] = json.loads(data) if name is Inline.DOCJSON else data.decode()
        return replace(self, result=self.result.model_copy(update={"inline": inline}))


def failed_document(source: str, error: TwopassError) -> Outcome:
    """The outcome of a document that ended with an error."""
    problem = Problem(code=error.code, document=source, message=error.message)
    return Outcome(DocumentResult(source=source, status=Status.FAILURE), (problem,))


def existing_document(manifest: Manifest, uri: str, job: Job, watch: Stopwatch) -> Outcome:
    """The outcome of a document that was finished before: its artefacts and problems, and no usage."""
    update = {
        "source": uri,
        "status": _judge_status(manifest.result.pages, manifest.problems, manifest.result.audit, job),
        "timings": measure_timings(watch),
        "usage": {"pages_read_now": 0},
    }
    return Outcome(manifest.result.model_copy(update=update), manifest.problems)


def document_outcome(
    document_id: str,
    uri: str,
    problems: Sequence[Problem],
    pages: Sequence[Checkpoint],
    audited: Iterable[Page],
    job: Job,
    watch: Stopwatch,
    settings: Settings,
) -> Outcome:
    """The outcome of a document or slice whose pages were read, completely or until the deadline.

    `audited` are the pages as the document has them. Artefacts are added later.
    """
    problems, states = _merge_unread(problems, pages), count_states(pages)
    audit = AuditSum.of(audited)
    result = DocumentResult(
        id=document_id,
        source=uri,
        status=_judge_status(states, problems, audit, job),
        pages=states,
        failed=_pages_in_state(State.FAILED, pages),
        left=_pages_in_state(State.UNREAD, pages),
        audit=audit,
        canary=derive_canary(pages),
        timings=measure_timings(watch),
        usage=_measure_usage(pages, job, watch, settings),
    )
    return Outcome(result, _assign_document(document_id, problems))


def _assign_document(document_id: str | None, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    return tuple(problem.model_copy(update={"document": document_id}) for problem in problems)


def _pages_in_state(state: State, pages: Sequence[Checkpoint]) -> str | None:
    return format_page_ranges(page.page.number for page in pages if page.page.state is state)


def _judge_status(states: Mapping[str, int], problems: Sequence[Problem], audit: AuditSum | None, job: Job) -> Status:
    """The document's status from the counts of its page states and from its audit.

    The job sets how many failed pages matter, and whether a loss is a failure.
    """
    policy, has_loss = job.failed_pages, audit is not None and audit.has_loss
    total, failed, unread = sum(states.values()), states.get(State.FAILED, 0), states.get(State.UNREAD, 0)
    if failed + unread == total or policy.is_failure(failed, total):
        return Status.FAILURE
    has_error = any(problem.severity is Severity.ERROR and problem.page is None for problem in problems)
    if job.strict and (has_loss or has_error or failed or unread):
        return Status.FAILURE
    if has_loss or has_error or unread or policy.is_partial_success(failed, total):
        return Status.PARTIAL_SUCCESS
    return Status.SUCCESS


def _merge_unread(problems: Sequence[Problem], pages: Sequence[Checkpoint]) -> tuple[Problem, ...]:
    """Merge the problems of unread pages into one per reason: a thousand of them would hide all others."""
    unread = {page.page.number: page for page in pages if page.page.state is State.UNREAD}
    reasons: dict[tuple[Code, str], list[int]] = {}
    for number, page in unread.items():
        for problem in page.problems:
            reasons.setdefault((problem.code, problem.message.partition(": ")[2]), []).append(number)
    merged = (
        Problem(code=code, page=numbers[0], message=f"page {numbers[0]}: {reason}")
        if len(numbers) == 1
        else Problem(code=code, message=f"pages {format_page_ranges(numbers)}: {reason}")
        for (code, reason), numbers in reasons.items()
    )
    return (*(problem for problem in problems if problem.page not in unread), *merged)


def measure_timings(watch: Stopwatch) -> dict[str, Any]:
    finished = datetime.now(UTC)
    started = finished - timedelta(seconds=watch.seconds)
    return {
        "started": started.isoformat(timespec="milliseconds"),
        "finished": finished.isoformat(timespec="milliseconds"),
        "duration_s": round(watch.seconds, 3),
        "stages": watch.stages(),
    }


def _measure_usage(pages: Sequence[Checkpoint], job: Job, watch: Stopwatch, settings: Settings) -> dict[str, Any]:
    """What this job used. Pages that were stored before count for the job that read them."""
    costs = [page.cost for page in pages if page.cost.get("job") == job.id]
    engine_s = sum(cost.get("engine_s", 0.0) for cost in costs)
    usage = {
        "tokens_in": sum(cost.get("tokens_in", 0) for cost in costs),
        "tokens_out": sum(cost.get("tokens_out", 0) for cost in costs),
        "engine_s": round(engine_s, 3),
        "pages_per_s": round(watch.pages_timed / watch.seconds, 3) if watch.seconds else None,
        "page_p95_s": watch.page_p95,
        "pages_read_now": watch.pages_timed,
    }
    price = settings.price_per_second
    return usage if price is None else {**usage, **_describe_cost(engine_s * price, watch.pages_timed)}


def _describe_cost(cost: float, pages: int) -> dict[str, float]:
    """In the currency of PRICE_PER_SECOND. Start-up and idle time are not included; the platform bills them."""
    cost = round(cost, 9)  # before dividing, so that a job of one document has the document's figures
    return {"cost": cost, **({"cost_per_1000_pages": round(1000 * cost / pages, 6)} if pages else {})}


def check_inline(job: Job, pages: int) -> None:
    """Reject a job without output whose `pages` cannot fit into the answer; raises StoreError."""
    expected = pages * sum(_EXPECTED_PAGE_BYTES[name] for name in job.inline or ())
    if job.output is None and expected > INLINE_BYTES:
        raise StoreError(Code.OUTPUT_MISSING, f"{pages} pages are too many to return inline; set output")


async def job_result(
    job: Job,
    outcomes: Sequence[Outcome],
    output: Store,
    watch: Stopwatch,
    incidents: Sequence[Incident] = (),
) -> Result:
    """Build the job's result and store it as result.json. `incidents` are the engine's during the job."""
    kept, dropped = _apply_inline_limit(job, outcomes)
    documents = tuple(outcome.result for outcome in kept)
    result = Result(
        status=_job_status(documents),
        documents=documents if output.is_persistent else tuple(_drop_artefacts(d) for d in documents),
        problems=(*(problem for outcome in kept for problem in outcome.problems), *dropped, *to_warnings(incidents)),
        audit=AuditSum.merge([document.audit for document in documents if document.audit]),
        timings={**({} if job.queued_s is None else {"queued_s": job.queued_s}), **measure_timings(watch)},
        usage=_sum_usage(documents),
        store=None if output.conditional is None else ("conditional" if output.conditional else "head_then_put"),
    )
    if not output.is_persistent:
        return result
    key = f"jobs/{job.id}/result.json"
    result = result.model_copy(update={"result_uri": uri_of(output, key)})
    body = result.model_dump_json(exclude_none=True, exclude={"documents": {"__all__": {"inline"}}})
    try:
        async with asyncio.timeout(_RESULT_TIMEOUT_S):
            await output.put(key, body.encode(), JSON)
    except (StoreError, TimeoutError) as error:  # the answer has the result, too
        code = error.code if isinstance(error, StoreError) else Code.STORE_UNAVAILABLE
        lost = Problem(code=code, severity=Severity.WARNING, message="result.json could not be stored")
        return result.model_copy(update={"result_uri": None, "problems": (*result.problems, lost)})
    return result


def to_warnings(incidents: Sequence[Incident]) -> tuple[Problem, ...]:
    """What happened to the engine meanwhile, as problems that cost no page."""
    return tuple(
        Problem(code=incident.code, severity=Severity.WARNING, message=incident.message) for incident in incidents
    )


def _drop_artefacts(document: DocumentResult) -> DocumentResult:
    return document.model_copy(update={"artefacts": {}})


def _apply_inline_limit(job: Job, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Problem]]:
    """Drop inline artefacts beyond the limit; returns the outcomes, and a problem for each that lost some."""
    kept, problems, used = [], [], 0
    for outcome in outcomes:
        size = len(to_json(outcome.result.inline))
        if used + size > INLINE_BYTES:
            message = f"{size} bytes of inline artefacts exceed the limit of {INLINE_BYTES} for one answer"
            advice = "; read them from the output" if job.output else "; set output and send the job again"
            severity = Severity.WARNING if job.output else Severity.ERROR
            problems.append(
                Problem(
                    code=Code.OUTPUT_MISSING, severity=severity, document=outcome.result.id, message=message + advice
                )
            )
            status = outcome.result.status if job.output else Status.FAILURE
            outcome = replace(outcome, result=outcome.result.model_copy(update={"inline": {}, "status": status}))
            size = 0
        used += size
        kept.append(outcome)
    return kept, problems


def _job_status(documents: Sequence[DocumentResult]) -> Status:
    statuses = {document.status for document in documents}
    return statuses.pop() if len(statuses) == 1 else Status.PARTIAL_SUCCESS


def _sum_usage(documents: Sequence[DocumentResult]) -> dict[str, Any]:
    """The job's usage. Equal files are one document, and each of them reports the usage of that document."""
    usages: dict[str | int, dict[str, Any]] = {}
    for number, document in enumerate(documents):
        before = usages.setdefault(document.id or number, {})
        for name in ("tokens_in", "tokens_out", "engine_s", "cost"):
            if name in document.usage:
                before[name] = max(before.get(name, 0), document.usage[name])
        if "pages_read_now" in document.usage:
            before["pages_read_now"] = before.get("pages_read_now", 0) + document.usage["pages_read_now"]
    names = {name: None for usage in usages.values() for name in usage}
    total = {name: round(sum(usage.get(name, 0) for usage in usages.values()), 9) for name in names}
    return {**total, **_describe_cost(total["cost"], total.get("pages_read_now", 0))} if "cost" in total else total


async def find_duplicate(output: Store, job: Job, watch: Stopwatch) -> Result | None:
    """Claim the job's idempotency key; returns the job's result if another job reads in its place.

    A client whose request was cut off does not know whether a job was created. It sends the same key again, and the job
    that starts second ends with the id of the first. A job that the platform delivers again has the same id, so it
    finds its own claim. The claim is never deleted: a duplicate may wait in the queue for longer than the first job
    takes.
    """
    if job.idempotency_key is None or not output.is_persistent:
        return None
    key = f"jobs/claims/{job.idempotency_key}.json"
    if await output.create(key, to_json({"job": job.id}), JSON) is CreateResult.WRITTEN:
        return None
    owner = _parse_owner(await output.get(key))
    if owner is None or owner == job.id:
        return None
    message = f"job {owner} has the same idempotency_key and reads in place of this one; wait for its result"
    problem = Problem(code=Code.DUPLICATE, message=message)
    return Result(status=Status.FAILURE, problems=(problem,), timings=measure_timings(watch), duplicate_of=owner)


def _parse_owner(stored: Stored | None) -> str | None:
    """The job id in a claim; None if it was deleted or cannot be parsed, which must not keep a job from reading."""
    try:
        claim = json.loads(stored.data) if stored else None
    except (ValueError, RecursionError):
        return None
    owner = claim.get("job") if isinstance(claim, dict) else None
    return owner if isinstance(owner, str) else None


@asynccontextmanager
async def keep_progress_file(output: Store, job_id: str, settings: Settings, progress: Tracker) -> AsyncIterator[None]:
    """Keep `jobs/{job id}/progress.json` up to date while the job runs, also if progress posts are lost."""
    if not output.is_persistent:
        yield
        return

    async def put(now: dict[str, Any]) -> None:
        body = {**now, "updated_at": round(time.time(), 3)}
        try:
            await output.put(f"jobs/{job_id}/progress.json", to_json(body), JSON)
        except StoreError as error:  # not fatal: if the store is down, storing the pages reports it
            log.warning("progress not stored", code=error.code)

    interval_s, drain_s = settings.progress_file_interval_s, settings.progress_drain_s
    async with Sender(put, interval_s, drain_s, spares_phases=True) as sender:
        progress.add_listener(sender.offer)
        yield
