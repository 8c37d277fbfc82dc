"""Send documents to an endpoint, wait for them, and write `submit_summary.json`."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from twopass.errors import Code, EndpointError, InvalidSetting, TwopassError
from twopass.fleet import display, save_results
from twopass.fleet.campaign import Campaign, DocumentOutcome, Plan
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, find_documents, open_page_counter
from twopass.fleet.endpoints.local_api import LocalApi
from twopass.fleet.endpoints.runpod import RunPod
from twopass.fleet.estimate import estimate
from twopass.fleet.ledger import Ledger
from twopass.job import EntryPoint, Job
from twopass.settings import Settings

SUCCESS, INCOMPLETE, USAGE_ERROR, ENDPOINT_ERROR, STOPPED = 0, 1, 2, 3, 130  # exit codes
STATE, SUMMARY = "state.jsonl", "submit_summary.json"
GRACE_S = 60.0  # from the job's own deadline to the moment at which RunPod ends the job


@dataclass(frozen=True)
class Options:
    """The command's arguments; `twopass submit --help` describes each."""

    places: tuple[str, ...]
    endpoint: str | None
    local: str | None
    output: str | None
    upload: str | None
    folder: Path
    save: bool
    job: Mapping[str, Any]
    slice_pages: int
    in_flight: int
    tries: int
    poll_s: float
    dry_run: bool
    cancel: bool
    price_per_hour: float | None
    pages_per_s: float | None
    workers: int

    @property
    def state_file(self) -> Path:
        return self.folder / STATE

    @property
    def summary_file(self) -> Path:
        return self.folder / SUMMARY

    @property
    def job_fields(self) -> dict[str, Any]:
        """The fields of every job."""
        output = self.output
        if output and "://" not in output:
            output = str(Path(output).resolve())  # the worker's current folder is another one
        return {**self.job, **({"output": output} if output else {})}

    @property
    def plan(self) -> Plan:
        price = None if self.price_per_hour is None else self.price_per_hour / 3600
        where = self.endpoint or self.local or ""
        return Plan(self.job_fields, where, self.slice_pages, self.in_flight, self.tries, self.poll_s, price)


def run(options: Options, settings: Settings, console: Console) -> int:
    """Run the command and return its exit code; messages for the person go to the console."""
    try:
        # Wrong fields are reported before pages are counted or anything is sent.
        Job.parse({"input": {**options.job_fields, "source": "any"}}, settings, EntryPoint.LOCAL)
        _check_key(options)
        return asyncio.run(_run(options, settings, console))
    except KeyboardInterrupt:
        console.print(_describe_stop(options))
        return STOPPED
    except EndpointError as error:
        return _fail(ENDPOINT_ERROR, str(error), console)
    except (TwopassError, OSError) as error:
        return _fail(USAGE_ERROR, str(error), console)


def _check_key(options: Options) -> None:
    """Raise InvalidSetting for an endpoint of RunPod without a key. Other addresses may need none."""
    is_used = options.endpoint and "://" not in options.endpoint and (options.cancel or not options.dry_run)
    if is_used and not os.environ.get("RUNPOD_API_KEY"):
        message = "RUNPOD_API_KEY: not set; create a key in RunPod's settings and set it"
        raise InvalidSetting(Code.INVALID_SETTING, message)


def _fail(code: int, message: str, console: Console) -> int:
    console.print(message, style="red", markup=False, soft_wrap=True)
    return code


def _describe_stop(options: Options) -> str:
    if options.local:
        return "stopped; the same command continues from the pages that were stored"
    count = len(Ledger(options.state_file).open_jobs)
    return f"stopped; {count} jobs go on at the endpoint: the same command picks them up, --cancel cancels them"


async def _run(options: Options, settings: Settings, console: Console) -> int:
    ledger = Ledger(options.state_file)
    if options.cancel:
        return await _cancel_jobs(options, ledger, console)
    async with AsyncExitStack() as stack:
        documents = await find_documents(options.places, settings, options.folder)
        if not documents:
            return _fail(USAGE_ERROR, f"no document to read in {', '.join(options.places)}", console)
        preparer = await _open_preparer(options, settings, stack)
        if options.dry_run:
            return await _print_estimate(options, documents, preparer, console)
        endpoint = await stack.enter_async_context(_open_endpoint(options))
        board = stack.enter_context(display.CampaignDisplay(len(documents), console))
        started = time.monotonic()
        saver = save_results.ResultSaver(board, options.folder, settings, everything=options.save)
        outcomes = await Campaign(endpoint, preparer, ledger, options.plan, saver).run(documents)
        await saver.wait()
    summary = summarize(outcomes, time.monotonic() - started)
    options.folder.mkdir(parents=True, exist_ok=True)
    options.summary_file.write_text(json.dumps(summary, ensure_ascii=True, indent=1) + "\n")
    display.print_summary(outcomes, console)
    console.print(f"{summary['success']} of {len(outcomes)} documents read; {options.summary_file}", highlight=False)
    return SUCCESS if summary["success"] == len(outcomes) else INCOMPLETE


async def _cancel_jobs(options: Options, ledger: Ledger, console: Console) -> int:
    async with _open_endpoint(options) as endpoint:
        for key, job_id in ledger.open_jobs.items():
            await endpoint.cancel(job_id)
            ledger.forget_job(key)
            console.print(f"cancelled {job_id}")
    return SUCCESS


async def _open_preparer(options: Options, settings: Settings, stack: AsyncExitStack) -> DocumentPreparer:
    counts_pages = options.slice_pages or options.dry_run
    page_pool = await stack.enter_async_context(open_page_counter()) if counts_pages else None
    upload = options.upload or (f"{settings.default_output}in/" if settings.default_output else None)
    return DocumentPreparer(settings, page_pool, upload, bool(options.local), options.job.get("password"))


def _open_endpoint(options: Options) -> AbstractAsyncContextManager[RunPod | LocalApi]:
    if options.local:
        return LocalApi(options.local)
    deadline_s = float(options.job.get("deadline_s") or Settings.model_fields["deadline_s"].default)
    return RunPod(options.endpoint or "", os.environ.get("RUNPOD_API_KEY"), deadline_s + GRACE_S)


async def _print_estimate(
    options: Options, documents: Sequence[DocumentRef], preparer: DocumentPreparer, console: Console
) -> int:
    plan, rows = options.plan, []
    for document in documents:
        ready = await preparer.prepare(document, upload=False)
        rows.append((document.name, plan.selected_pages(ready.pages), len(plan.slices(ready.pages)) + 1))
    last = _load_last_summary(options)
    figures = estimate(rows, options.pages_per_s, options.workers, options.price_per_hour, last)
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
