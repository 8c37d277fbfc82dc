"""Send documents to an endpoint, wait for them, and write `submit_summary.json`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from twopass.errors import Code, EndpointError, InvalidSetting, TwopassError
from twopass.fleet import display, submission
from twopass.fleet.campaign import DocumentOutcome
from twopass.fleet.discovery import DocumentRef, find_documents
from twopass.fleet.estimate import estimate
from twopass.fleet.ledger import Ledger
from twopass.fleet.submission import Submission
from twopass.settings import Settings

SUCCESS, INCOMPLETE, USAGE_ERROR, ENDPOINT_ERROR, STOPPED = 0, 1, 2, 3, 130  # exit codes
SUMMARY = "submit_summary.json"


@dataclass(frozen=True)
class Options:
    """The command's arguments; `twopass submit --help` describes each."""

    places: tuple[str, ...]
    submission: Submission
    dry_run: bool
    cancel: bool
    pages_per_s: float | None
    workers: int

    @property
    def summary_file(self) -> Path:
        return self.submission.folder / SUMMARY


def run(options: Options, settings: Settings, console: Console) -> int:
    """Run the command and return its exit code; messages for the person go to the console."""
    try:
        options.submission.check(settings)
        _check_key(options)
        return asyncio.run(_run(options, settings, console))
    except KeyboardInterrupt:
        console.print(_describe_stop(options.submission))
        return STOPPED
    except EndpointError as error:
        return _fail(ENDPOINT_ERROR, str(error), console)
    except (TwopassError, OSError) as error:
        return _fail(USAGE_ERROR, str(error), console)


def _check_key(options: Options) -> None:
    """Raise InvalidSetting for an endpoint of RunPod without a key. Other addresses may need none."""
    endpoint = options.submission.endpoint
    is_used = endpoint and "://" not in endpoint and (options.cancel or not options.dry_run)
    if is_used and not options.submission.api_key:
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


async def _run(options: Options, settings: Settings, console: Console) -> int:
    if options.cancel:
        return await _cancel_jobs(options.submission, settings, console)
    documents = await find_documents(options.places, settings, options.submission.results)
    if not documents:
        return _fail(USAGE_ERROR, f"no document to read in {', '.join(options.places)}", console)
    if options.dry_run:
        return await _print_estimate(options, documents, settings, console)
    with display.CampaignDisplay(len(documents), console) as board:
        started = time.monotonic()
        outcomes = await submission.send(documents, options.submission, settings, board)
    summary = summarize(outcomes, time.monotonic() - started)
    options.submission.folder.mkdir(parents=True, exist_ok=True)
    options.summary_file.write_text(json.dumps(summary, ensure_ascii=True, indent=1) + "\n")
    display.print_summary(outcomes, console)
    console.print(f"{summary['success']} of {len(outcomes)} documents read; {options.summary_file}", highlight=False)
    return SUCCESS if summary["success"] == len(outcomes) else INCOMPLETE


async def _cancel_jobs(request: Submission, settings: Settings, console: Console) -> int:
    ledger = Ledger(request.state_file)
    async with request.open_endpoint(settings) as endpoint:
        for key, job_id in ledger.open_jobs.items():
            await endpoint.cancel(job_id)
            ledger.forget_job(key)
            console.print(f"cancelled {job_id}")
    if count := ledger.unanswered_count:
        advice = "the same command without --cancel finds them"
        console.print(f"{count} jobs may be at the endpoint too, but it did not answer with their ids: {advice}")
    return SUCCESS


async def _print_estimate(
    options: Options, documents: Sequence[DocumentRef], settings: Settings, console: Console
) -> int:
    request, rows = options.submission, []
    plan = request.plan
    async with AsyncExitStack() as stack:
        preparer = await submission.open_preparer(request, settings, stack, counts_pages=True)
        for document in documents:
            ready = await preparer.prepare(document, upload=False)
            rows.append((document.name, plan.selected_pages(ready.pages), len(plan.slices(ready.pages)) + 1))
    last = _load_last_summary(options)
    figures = estimate(rows, options.pages_per_s, options.workers, request.price_per_hour, last)
    display.print_estimate(rows, figures, console)
    print(json.dumps(figures))
    return SUCCESS


def _load_last_summary(options: Options) -> dict[str, Any]:
    """The summary of the last run in this folder; empty where there was none."""
    path = options.summary_file
    return dict(json.loads(path.read_text())) if path.exists() else {}


def summarize(outcomes: Sequence[DocumentOutcome], seconds: float) -> dict[str, Any]:
    """Build what `submit_summary.json` holds."""
    statuses = [outcome.status for outcome in outcomes]
    pages_now = sum(outcome.pages_now for outcome in outcomes)
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    cost = round(sum(costs), 9) if costs else None
    return {
        "total_documents": len(outcomes),
        "success": statuses.count("success"),
        "partial": statuses.count("partial_success"),
        "failed": statuses.count("failure"),
        "pages_read_now": pages_now,
        "total_time": round(seconds, 3),
        "pages_per_s": round(pages_now / seconds, 4) if pages_now else None,
        "cost": cost,
        "cost_per_1000_pages": round(1000 * cost / pages_now, 6) if cost is not None and pages_now else None,
        "documents": [_make_row(outcome) for outcome in outcomes],
    }


def _make_row(outcome: DocumentOutcome) -> dict[str, Any]:
    artefacts = outcome.result.get("artefacts", {})
    row = {
        "source": outcome.name,
        "status": outcome.status,
        "id": outcome.result.get("id"),
        "pages": dict(outcome.result.get("pages", {})),
        "jobs": outcome.jobs,
        "seconds": outcome.seconds,
        "cost": outcome.cost,
        "artefacts": {name: artefact["uri"] for name, artefact in artefacts.items()},
        "problems": list(outcome.problems),
        "error": outcome.error,
    }
    return {name: value for name, value in row.items() if value is not None}
