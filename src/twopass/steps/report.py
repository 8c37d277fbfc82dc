"""Pages, artefacts and seconds in, results out: the document's, the job's, and the files that hold them.

Knows what a caller is told. Knows nothing of how anything was read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from twopass.document import Checkpoint, Document, Problem, Severity, State, Status, canary_of
from twopass.engines.interface import Incident
from twopass.errors import Code, OutOfTime, StoreError, TwopassError
from twopass.formats.registry import WRITERS
from twopass.job import INLINE_BYTES, Artefact, DocumentResult, FailedPages, Format, Inline, Job, Result, ranges
from twopass.pages.source_files import CheckedFile
from twopass.settings import Settings
from twopass.steps.upload import JSON, Finished, Folder, as_json
from twopass.storage.store import Store, uri_of
from twopass.telemetry.progress import Sender, Tracker
from twopass.telemetry.stopwatch import Stopwatch

log = structlog.get_logger()

RESULT_S = 10.0  # to store result.json: whoever waits for the answer waits for it too

# Of a page with little on it, to refuse only the hopeless early: slides have 390 and 6,600, papers 3,700 and 22,000.
PAGE_BYTES = {Inline.MARKDOWN: 300, Inline.DOCJSON: 2_000}


@dataclass(frozen=True)
class Outcome:
    """One document's result and its problems, which the job's result lists together."""

    result: DocumentResult
    problems: tuple[Problem, ...] = ()


def failed(source: str, error: TwopassError) -> Outcome:
    """A document that ended with a coded error."""
    problem = Problem(code=error.code, document=source, message=error.message)
    return Outcome(DocumentResult(source=source, status=Status.FAILURE), (problem,))


def read(document: Document, pages: Sequence[Checkpoint], job: Job, watch: Stopwatch, settings: Settings) -> Outcome:
    """A document that was read to its end, or to the job's deadline; nothing is written of it yet."""
    problems = _told_once(document.problems, pages)
    result = DocumentResult(
        id=document.id,
        source=document.source.uri,
        status=judged(_states(pages), problems, job.failed_pages),
        pages=_states(pages),
        failed=_in_state(State.FAILED, pages),
        left=_in_state(State.UNREAD, pages),
        canary=document.run.canary,
        timings=timings(watch),
        usage=_usage(pages, job, watch, settings),
    )
    return Outcome(result, tuple(_of(document.id, problem) for problem in problems))


def written(
    outcome: Outcome, artefacts: Mapping[str, Artefact], beside: Sequence[Problem], watch: Stopwatch
) -> Outcome:
    """The same with what lies there now; `beside` are problems of the writing and of no page."""
    found = tuple(_of(outcome.result.id, problem) for problem in beside)
    told = {"artefacts": dict(artefacts), "timings": timings(watch)}
    return Outcome(outcome.result.model_copy(update=told), (*outcome.problems, *found))


def unwritten(outcome: Outcome, end: OutOfTime) -> Outcome:
    """A document whose pages are all stored, and nothing else of it in time."""
    message = f"the pages are read, the document is not written: {end.message}"
    problem = Problem(code=end.code, document=outcome.result.id, message=message)
    result = outcome.result.model_copy(update={"status": Status.PARTIAL_SUCCESS})
    return Outcome(result, (*outcome.problems, problem))


def sliced(
    file: CheckedFile,
    folder: Folder,
    pages: Sequence[Checkpoint],
    problems: Sequence[Problem],
    job: Job,
    watch: Stopwatch,
    settings: Settings,
) -> Outcome:
    """A slice: its checkpoints lie in the store, nothing is assembled."""
    found = _told_once((*problems, *(problem for page in pages for problem in page.problems)), pages)
    result = DocumentResult(
        id=folder.document_id,
        source=file.info.uri,
        status=judged(_states(pages), found, job.failed_pages),
        pages=_states(pages),
        failed=_in_state(State.FAILED, pages),
        left=_in_state(State.UNREAD, pages),
        canary=canary_of(pages),
        timings=timings(watch),
        usage=_usage(pages, job, watch, settings),
    )
    return Outcome(result, tuple(_of(folder.document_id, problem) for problem in found))


def _of(document_id: str | None, problem: Problem) -> Problem:
    return problem.model_copy(update={"document": document_id})


def _states(pages: Sequence[Checkpoint]) -> dict[str, int]:
    return dict(sorted(Counter(str(page.page.state) for page in pages).items()))


def _in_state(state: State, pages: Sequence[Checkpoint]) -> str | None:
    return ranges(page.page.number for page in pages if page.page.state is state)


def judged(states: Mapping[str, int], problems: Sequence[Problem], policy: FailedPages) -> Status:
    """A document's status by its pages' states; the job's policy says how many failed ones count."""
    total, failed, unread = sum(states.values()), states.get(State.FAILED, 0), states.get(State.UNREAD, 0)
    if failed + unread == total or policy.are_too_many(failed, total):
        return Status.FAILURE
    wrong = any(told.severity is Severity.ERROR and told.page is None for told in problems)
    return Status.PARTIAL_SUCCESS if wrong or unread or policy.are_some(failed, total) else Status.SUCCESS


def _told_once(problems: Sequence[Problem], pages: Sequence[Checkpoint]) -> tuple[Problem, ...]:
    """The problems, those of unread pages as one for each reason: a thousand of them would hide all others."""
    unread = {page.page.number: page for page in pages if page.page.state is State.UNREAD}
    reasons: dict[tuple[Code, str], list[int]] = {}
    for number, page in unread.items():
        for told in page.problems:
            reasons.setdefault((told.code, told.message.partition(": ")[2]), []).append(number)
    gathered = (
        Problem(code=code, page=numbers[0], message=f"page {numbers[0]}: {why}")
        if len(numbers) == 1
        else Problem(code=code, message=f"pages {ranges(numbers)}: {why}")
        for (code, why), numbers in reasons.items()
    )
    return (*(told for told in problems if told.page not in unread), *gathered)


def timings(watch: Stopwatch) -> dict[str, Any]:
    finished = datetime.now(UTC)
    started = finished - timedelta(seconds=watch.seconds)
    return {
        "started": started.isoformat(timespec="milliseconds"),
        "finished": finished.isoformat(timespec="milliseconds"),
        "duration_s": round(watch.seconds, 3),
        "stages": watch.stages(),
    }


def _usage(pages: Sequence[Checkpoint], job: Job, watch: Stopwatch, settings: Settings) -> dict[str, Any]:
    """What this job spent; pages that it found were paid for by the job that read them."""
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
    return usage if price is None else {**usage, **_cost(engine_s * price, watch.pages_timed)}


def _cost(cost: float, pages: int) -> dict[str, float]:
    """In the currency of PRICE_PER_SECOND; start-up and idle time are the platform's to tell."""
    cost = round(cost, 9)  # before it is divided: a job of one document tells the document's figures
    return {"cost": cost, **({"cost_per_1000_pages": round(1000 * cost / pages, 6)} if pages else {})}


def check_inline(job: Job, pages: int) -> None:
    """Refuse before reading what cannot fit into an answer and has nowhere else to go; `pages` of the whole job."""
    expected = pages * sum(PAGE_BYTES[name] for name in job.inline or ())
    if job.output is None and expected > INLINE_BYTES:
        raise StoreError(Code.OUTPUT_MISSING, f"{pages} pages are too many to return inline; set output")


def repeated(done: Finished, file: CheckedFile, job: Job, watch: Stopwatch) -> Outcome:
    """A document that was finished before: its artefacts and problems, nothing spent now."""
    now = {
        "source": file.info.uri,
        "status": judged(done.result.pages, done.problems, job.failed_pages),
        "timings": timings(watch),
        "usage": {"pages_read_now": 0},
    }
    return Outcome(done.result.model_copy(update=now), done.problems)


async def with_inline(outcome: Outcome, folder: Folder, job: Job) -> Outcome:
    """The outcome with the artefacts that the answer itself carries."""
    inline: dict[str, Any] = {}
    for name in job.inline or ():
        stored = await folder.store.get(folder.key(WRITERS[Format(name)].name))
        if stored:
            inline[name] = json.loads(stored.data) if name is Inline.DOCJSON else stored.data.decode()
    return replace(outcome, result=outcome.result.model_copy(update={"inline": inline}))


async def result(
    job: Job,
    outcomes: Sequence[Outcome],
    output: Store,
    watch: Stopwatch,
    settings: Settings,
    befell: Sequence[Incident] = (),
) -> Result:
    """The job's result, stored whole beside its documents before it is returned; `befell`: the engine, meanwhile."""
    kept, refused = _within_inline_limit(job, outcomes)
    documents = tuple(outcome.result for outcome in kept)
    whole = Result(
        status=_status(documents),
        documents=documents if output.keeps else tuple(_without_artefacts(d) for d in documents),
        problems=(*(problem for outcome in kept for problem in outcome.problems), *refused, *_told(befell)),
        timings={**({} if job.queued_s is None else {"queued_s": job.queued_s}), **timings(watch)},
        usage=_total(documents),
        store=None if output.conditional is None else ("conditional" if output.conditional else "head_then_put"),
    )
    if not output.keeps:
        return whole
    key = f"jobs/{job.id}/result.json"
    whole = whole.model_copy(update={"result_uri": uri_of(output, key)})
    told = whole.model_dump_json(exclude_none=True, exclude={"documents": {"__all__": {"inline"}}})
    try:
        async with asyncio.timeout(RESULT_S):
            await output.put(key, told.encode(), JSON)
    except (StoreError, TimeoutError) as error:  # the answer still tells it
        code = error.code if isinstance(error, StoreError) else Code.STORE_UNAVAILABLE
        lost = Problem(code=code, severity=Severity.WARNING, message="result.json could not be stored")
        return whole.model_copy(update={"result_uri": None, "problems": (*whole.problems, lost)})
    return whole


def _told(befell: Sequence[Incident]) -> tuple[Problem, ...]:
    return tuple(Problem(code=one.code, severity=Severity.WARNING, message=one.message) for one in befell)


def _without_artefacts(document: DocumentResult) -> DocumentResult:
    return document.model_copy(update={"artefacts": {}})


def _within_inline_limit(job: Job, outcomes: Sequence[Outcome]) -> tuple[list[Outcome], list[Problem]]:
    """The outcomes without what goes beyond the limit, and a problem for each that lost something."""
    kept, refused, used = [], [], 0
    for outcome in outcomes:
        size = len(as_json(outcome.result.inline))
        if used + size > INLINE_BYTES:
            message = f"{size} bytes do not fit into an answer of {INLINE_BYTES}"
            there = "; they lie in the output" if job.output else "; set output and send the job again"
            severity = Severity.WARNING if job.output else Severity.ERROR
            refused.append(
                Problem(
                    code=Code.OUTPUT_MISSING, severity=severity, document=outcome.result.id, message=message + there
                )
            )
            status = outcome.result.status if job.output else Status.FAILURE
            outcome = replace(outcome, result=outcome.result.model_copy(update={"inline": {}, "status": status}))
            size = 0
        used += size
        kept.append(outcome)
    return kept, refused


def _status(documents: Sequence[DocumentResult]) -> Status:
    statuses = {document.status for document in documents}
    return statuses.pop() if len(statuses) == 1 else Status.PARTIAL_SUCCESS


def _total(documents: Sequence[DocumentResult]) -> dict[str, Any]:
    """What the job took. Equal files are one document: each tells what all of the job's pages of it took."""
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
    return {**total, **_cost(total["cost"], total.get("pages_read_now", 0))} if "cost" in total else total


@asynccontextmanager
async def progress_file(output: Store, job_id: str, settings: Settings, progress: Tracker) -> AsyncIterator[None]:
    """Keep `jobs/{job id}/progress.json` up to date while the job is read; it survives lost posts."""
    if not output.keeps:
        yield
        return

    async def put(now: dict[str, Any]) -> None:
        body = {**now, "updated_at": round(time.time(), 3)}
        try:
            await output.put(f"jobs/{job_id}/progress.json", as_json(body), JSON)
        except StoreError as error:  # no reason to lose a page: what the job itself writes will say it
            log.warning("progress not stored", code=error.code)

    async with Sender(put, settings.progress_interval_s, settings.progress_drain_s) as sender:
        progress.listen(sender.offer)
        yield
