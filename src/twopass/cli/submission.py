"""Send documents to an endpoint, wait for them, and write `submit_summary.json`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

from pydantic import Field, ValidationError
from rich.console import Console

from twopass import locations
from twopass.cli.exit_codes import Exit
from twopass.errors import Code, EndpointError, InvalidSetting, TwopassError
from twopass.fleet import display, submission
from twopass.fleet.budget import estimate
from twopass.fleet.campaign import UNSENT, CampaignListener, DocumentOutcome
from twopass.fleet.discovery import (
    DocumentPreparer,
    DocumentRef,
    Skipped,
    describe_skipped,
    find_documents,
    open_page_counter,
    sum_up_skipped,
)
from twopass.fleet.display import MAX_SHOWN
from twopass.fleet.ledger import Ledger, lock
from twopass.fleet.submission import Submission
from twopass.settings import Settings
from twopass.values import Value

SUMMARY = "submit_summary.json"
MANY = 2000  # documents, of which counting the pages may take longer than reading them


@dataclass(frozen=True)
class Arguments:
    """The command's arguments; `twopass submit --help` describes each."""

    places: tuple[str, ...]
    submission: Submission
    dry_run: bool
    cancel: bool
    pages_per_s: float | None
    workers: int


def run(arguments: Arguments, settings: Settings, console: Console) -> int:
    """Run the command and return its exit code; messages for the person go to the console."""
    try:
        arguments.submission.check(settings)
        _check_key(arguments)
        return asyncio.run(_run(arguments, settings, console))
    except KeyboardInterrupt:
        console.print(_describe_stop(arguments.submission))
        return Exit.STOPPED
    except EndpointError as error:
        return _fail(Exit.ENDPOINT, str(error), console)
    except (TwopassError, OSError) as error:
        return _fail(Exit.USAGE, str(error), console)


def _check_key(arguments: Arguments) -> None:
    """Raise InvalidSetting for an endpoint of RunPod without a key. Other addresses may need none."""
    endpoint = arguments.submission.endpoint
    is_used = endpoint and not locations.is_uri(endpoint) and (arguments.cancel or not arguments.dry_run)
    if is_used and not arguments.submission.api_key:
        message = "RUNPOD_API_KEY: not set; create a key in RunPod's settings and set it"
        raise InvalidSetting(Code.INVALID_SETTING, message)


def _fail(code: int, message: str, console: Console) -> int:
    console.print(message, style="red", markup=False, soft_wrap=True)
    return code


def _describe_stop(request: Submission) -> str:
    if request.local or request.ray:
        return "stopped; the same command continues from the pages that were stored"
    count = len(Ledger(request.state_file).open_jobs)
    return f"stopped; {count} jobs go on at the endpoint: the same command picks them up, --cancel cancels them"


async def _run(arguments: Arguments, settings: Settings, console: Console) -> int:
    if arguments.cancel:
        return await _cancel_jobs(arguments.submission, settings, console)
    documents, skipped = await find_documents(arguments.places, settings, arguments.submission.results)
    if skipped:
        console.print(describe_skipped(skipped), highlight=False, markup=False)
    if not documents:
        return _fail(Exit.USAGE, f"no document to read in {', '.join(arguments.places)}", console)
    if arguments.dry_run:
        return await _print_estimate(arguments, documents, settings, console)
    if arguments.submission.slice_pages and len(documents) > MANY:
        advice = "--slice-pages 0 avoids that; enough documents keep all workers busy without slices"
        console.print(f"remote documents are fetched to count their pages; {advice}", highlight=False)
    started = time.monotonic()
    with (
        display.CampaignDisplay(len(documents), console) as board,
        SummaryWriter(arguments.submission.folder, len(documents), board, skipped) as summary,
    ):
        await submission.send(documents, arguments.submission, settings, summary)
        summary.finish(time.monotonic() - started)
    display.print_summary(summary.shown, len(documents), console)
    console.print(f"{summary.success_count} of {len(documents)} documents read; {summary.path}", highlight=False)
    if summary.limit:
        _fail(Exit.FAILED, f"{summary.unsent_count} documents were not sent: {summary.limit}", console)
    return Exit.SUCCESS if summary.success_count == len(documents) else Exit.FAILED


async def _cancel_jobs(request: Submission, settings: Settings, console: Console) -> int:
    async with AsyncExitStack() as stack:
        stack.enter_context(lock(request.folder))
        ledger = Ledger(request.state_file)
        endpoint = await stack.enter_async_context(request.open_endpoint(settings))
        for key, job_id in ledger.open_jobs.items():
            await endpoint.cancel(job_id)
            ledger.forget_job(key)
            console.print(f"cancelled {job_id}")
    if count := ledger.unanswered_count:
        advice = "the same command without --cancel finds them"
        console.print(f"{count} jobs may be at the endpoint too, but it did not answer with their ids: {advice}")
    return Exit.SUCCESS


async def _print_estimate(
    arguments: Arguments, documents: Sequence[DocumentRef], settings: Settings, console: Console
) -> int:
    request, rows = arguments.submission, []
    plan = request.plan
    async with AsyncExitStack() as stack:
        counter = await stack.enter_async_context(open_page_counter(settings, request.job.get("password")))
        preparer = DocumentPreparer(counter, shares_files=True)  # nothing is sent, so nothing must be uploaded
        for document in documents:
            ready = await preparer.prepare(document)
            rows.append((document.name, plan.selected_pages(ready.pages), len(plan.slices(ready.pages)) + 1))
    last = load_last(request.folder)
    figures = estimate(rows, arguments.pages_per_s, arguments.workers, request.price_per_hour, last)
    display.print_counts(rows, console)
    # The estimate is a result: for a person, or for a program that reads what is printed.
    lines = "\n".join(f"{name}: {value}" for name, value in figures.items())
    print(lines if sys.stdout.isatty() else json.dumps(figures))
    return Exit.SUCCESS


class _LastRun(Value, extra="ignore", allow_inf_nan=False):
    """What an estimate needs of the last summary."""

    pages_per_s: float | None = Field(default=None, gt=0)
    cost_per_1000_pages: float | None = Field(default=None, ge=0)


class SummaryWriter:
    """Takes each outcome as it ends and passes all events on to the next listener.

    The rows wait in a temporary file, because the results of all documents together may not fit into memory. `shown`
    are the outcomes for the console: all, or of more than MAX_SHOWN documents the first that were not read completely.
    """

    def __init__(
        self, folder: Path, documents: int, listener: CampaignListener, skipped: Sequence[Skipped] = ()
    ) -> None:
        self.path = folder / SUMMARY
        self.shown: list[DocumentOutcome] = []
        self._documents, self._listener, self._skipped = documents, listener, skipped
        self._places = array("q", [-1]) * documents  # where each document's row begins
        self._statuses: Counter[str] = Counter()
        self._pages_now, self._cost = 0, 0.0
        self._has_cost = False
        self.limit: str | None = None  # why jobs were not sent

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = TemporaryFile(dir=self.path.parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._rows.close()

    def document_started(self, name: str, pages: int | None, jobs: int) -> None:
        self._listener.document_started(name, pages, jobs)

    def document_progressed(self, name: str, pages_done: int, phase: str) -> None:
        self._listener.document_progressed(name, pages_done, phase)

    def pages_found(self, name: str, pages: int) -> None:
        self._listener.pages_found(name, pages)

    async def document_ended(self, outcome: DocumentOutcome) -> None:
        self._places[outcome.number] = self._rows.tell()
        self._rows.write(json.dumps(_make_row(outcome)).encode() + b"\n")
        self._statuses[outcome.status] += 1
        self._pages_now += outcome.pages_now
        if (outcome.error or "").startswith(Code.COST_LIMIT):
            self.limit = self.limit or outcome.error
        if outcome.cost is not None:
            self._has_cost, self._cost = True, self._cost + outcome.cost
        is_shown = self._documents <= MAX_SHOWN or outcome.status != "success"
        if is_shown and len(self.shown) < MAX_SHOWN:
            self.shown.append(outcome)
        await self._listener.document_ended(outcome)

    @property
    def success_count(self) -> int:
        return self._statuses["success"]

    @property
    def unsent_count(self) -> int:
        return self._statuses[UNSENT]

    def finish(self, seconds: float) -> None:
        """Write the file, after the last document of a run that took so many seconds."""
        self.shown.sort(key=lambda outcome: outcome.number)
        head = json.dumps(self._sum_up(seconds), indent=1).removesuffix("\n}")
        with self.path.open("wb") as file:
            file.write(f'{head},\n "documents": [\n  '.encode())
            for number, place in enumerate(self._places):
                self._rows.seek(place)
                file.write((b",\n  " if number else b"") + self._rows.readline().rstrip(b"\n"))
            file.write(b"\n ]\n}\n")

    def _sum_up(self, seconds: float) -> dict[str, Any]:
        pages, cost = self._pages_now, round(self._cost, 9) if self._has_cost else None
        return {
            "total_documents": self._documents,
            "success": self._statuses["success"],
            "partial": self._statuses["partial_success"],
            "failed": self._statuses["failure"],
            **({"unsent": self.unsent_count, "limit": self.limit} if self.limit else {}),
            "skipped": sum_up_skipped(self._skipped),
            "pages_read_now": pages,
            "total_time": round(seconds, 3),
            "pages_per_s": round(pages / seconds, 4) if pages else None,
            "cost": cost,
            "cost_per_1000_pages": round(1000 * cost / pages, 6) if cost is not None and pages else None,
        }


def load_last(folder: Path) -> dict[str, Any]:
    """The figures of the last run with this folder; empty where there was none."""
    try:
        return _LastRun.model_validate_json((folder / SUMMARY).read_bytes()).model_dump(exclude_none=True)
    except (FileNotFoundError, ValidationError):
        return {}


def _make_row(outcome: DocumentOutcome) -> dict[str, Any]:
    artefacts = outcome.result.get("artefacts", {})
    row = {
        "source": outcome.name,
        "status": outcome.status,
        "id": outcome.result.get("id"),
        "pages": dict(outcome.result.get("pages", {})),
        "jobs": outcome.jobs,
        "runs": outcome.runs,
        "seconds": outcome.seconds,
        "cost": outcome.cost,
        "artefacts": {name: artefact["uri"] for name, artefact in artefacts.items()},
        "problems": list(outcome.problems),
        "error": outcome.error,
    }
    return {name: value for name, value in row.items() if value is not None}
