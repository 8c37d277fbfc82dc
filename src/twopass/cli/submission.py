"""Send documents to an endpoint, wait for them, and write `submit_summary.json`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rich.console import Console

from twopass import locations
from twopass.cli import submit_summary
from twopass.cli.exit_codes import Exit
from twopass.cli.submit_summary import SummaryWriter
from twopass.errors import Code, EndpointError, InvalidSetting, TwopassError
from twopass.fleet import display, submission
from twopass.fleet.discovery import DocumentPreparer, DocumentRef, find_documents, open_page_counter
from twopass.fleet.estimate import estimate
from twopass.fleet.ledger import Ledger, lock
from twopass.fleet.submission import Submission
from twopass.settings import Settings

MANY = 2000  # documents, of which counting the pages may take longer than reading them


@dataclass(frozen=True)
class Options:
    """The command's arguments; `twopass submit --help` describes each."""

    places: tuple[str, ...]
    submission: Submission
    dry_run: bool
    cancel: bool
    pages_per_s: float | None
    workers: int


def run(options: Options, settings: Settings, console: Console) -> int:
    """Run the command and return its exit code; messages for the person go to the console."""
    try:
        options.submission.check(settings)
        _check_key(options)
        return asyncio.run(_run(options, settings, console))
    except KeyboardInterrupt:
        console.print(_describe_stop(options.submission))
        return Exit.STOPPED
    except EndpointError as error:
        return _fail(Exit.ENDPOINT, str(error), console)
    except (TwopassError, OSError) as error:
        return _fail(Exit.USAGE, str(error), console)


def _check_key(options: Options) -> None:
    """Raise InvalidSetting for an endpoint of RunPod without a key. Other addresses may need none."""
    endpoint = options.submission.endpoint
    is_used = endpoint and not locations.is_uri(endpoint) and (options.cancel or not options.dry_run)
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
        return _fail(Exit.USAGE, f"no document to read in {', '.join(options.places)}", console)
    if options.dry_run:
        return await _print_estimate(options, documents, settings, console)
    if options.submission.slice_pages and len(documents) > MANY:
        advice = "--slice-pages 0 avoids that; enough documents keep all workers busy without slices"
        console.print(f"remote documents are fetched to count their pages; {advice}", highlight=False)
    started = time.monotonic()
    with (
        display.CampaignDisplay(len(documents), console) as board,
        SummaryWriter(options.submission.folder, len(documents), board) as summary,
    ):
        await submission.send(documents, options.submission, settings, summary)
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
    options: Options, documents: Sequence[DocumentRef], settings: Settings, console: Console
) -> int:
    request, rows = options.submission, []
    plan = request.plan
    async with AsyncExitStack() as stack:
        counter = await stack.enter_async_context(open_page_counter(settings, request.job.get("password")))
        preparer = DocumentPreparer(counter, shares_files=True)  # nothing is sent, so nothing must be uploaded
        for document in documents:
            ready = await preparer.prepare(document)
            rows.append((document.name, plan.selected_pages(ready.pages), len(plan.slices(ready.pages)) + 1))
    last = submit_summary.load_last(request.folder)
    figures = estimate(rows, options.pages_per_s, options.workers, request.price_per_hour, last)
    display.print_counts(rows, console)
    # The estimate is a result: for a person, or for a program that reads what is printed.
    print(
        "\n".join(f"{name}: {value}" for name, value in figures.items()) if sys.stdout.isatty() else json.dumps(figures)
    )
    return Exit.SUCCESS
