"""Files, folders, S3 prefixes or a list in, every document read by an endpoint's workers, a summary out.

    python scripts/submit.py papers/ --endpoint abc123 --upload s3://bucket/in/ --output s3://bucket/out/
    python scripts/submit.py s3://bucket/in/ --endpoint abc123 --output s3://bucket/out/ --dry-run
    python scripts/submit.py samples --local http://localhost:8000 --output output --save

The same command goes on after Ctrl-C. Exit code: 0 every document read, 1 not every one, 2 nothing to do or a wrong
argument, 3 the endpoint refuses or is away, 130 stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from twopass.errors import EndpointError, TwopassError
from twopass.fleet import display, save_results
from twopass.fleet.campaign import Campaign, Ended, Plan
from twopass.fleet.discovery import Inbox, Item, counter, found
from twopass.fleet.endpoints.runpod import LocalApi, RunPod
from twopass.fleet.estimate import estimate
from twopass.fleet.ledger import Ledger
from twopass.job import Door, Job
from twopass.settings import Settings
from twopass.telemetry import logs

STOPPED = 130  # the shell's exit code after Ctrl-C
STATE, SUMMARY = "state.jsonl", "submit_summary.json"
GRACE_S = 60.0  # between the job's own deadline and the end that RunPod makes of it


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    settings = Settings()
    logs.set_up(settings)
    return command(args, settings, Console(stderr=True))


def command(args: argparse.Namespace, settings: Settings, console: Console) -> int:
    """The exit code; everything a person is told goes to the console."""
    try:
        Job.parse({"input": {**_fields(args), "source": "any"}}, settings, Door.LOCAL)  # before anything is spent
        return asyncio.run(_run(args, settings, console))
    except KeyboardInterrupt:
        out = len(Ledger(args.folder / STATE).out)
        if args.local:
            console.print("stopped; the same command goes on, from the pages that were stored")
        else:
            console.print(
                f"stopped; {out} jobs go on at the endpoint: the same command picks them up, --cancel ends them"
            )
        return STOPPED
    except EndpointError as error:
        console.print(str(error), style="red")
        return 3
    except (TwopassError, OSError) as error:
        console.print(str(error), style="red")
        return 2


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("places", nargs="*", help="files, folders, s3://bucket/prefix/, URIs of documents, @list with one a line")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--endpoint", help="id or address of a RunPod endpoint; the key is RUNPOD_API_KEY")
    where.add_argument("--local", metavar="URL", help="a worker's local API, which sees this machine's files")
    add("--output", help="where artefacts go: s3://bucket/prefix/, a folder with --local (default: the endpoint's)")
    add("--upload", help="s3://bucket/prefix/ for files of this machine; without it, small ones travel in the job")
    add("--folder", type=Path, default=Path("submitted"), help="state and summary (default: submitted)")
    add("--save", action="store_true", help="fetch every document's artefacts into the folder too")
    add("--job", type=json.loads, default={}, help='more fields of every job, as JSON: \'{"mode": "base"}\'')
    add("--slice-pages", type=int, default=100, help="pages of one job; 0: never slice nor look in (default: 100)")
    add("--in-flight", type=int, default=16, choices=range(1, 201), metavar="1-200", help="jobs at once (default: 16)")
    add("--tries", type=int, default=4, help="of a job that comes no further (default: 4)")
    add("--poll-s", type=float, default=2.0, help="seconds between two looks at a job (default: 2)")
    add("--dry-run", action="store_true", help="count pages, estimate minutes and dollars, send nothing")
    add("--cancel", action="store_true", help="end the jobs that an earlier run left at the endpoint")
    add("--price-per-hour", type=float, help="dollars of one worker")
    add("--pages-per-s", type=float, help="of one worker, for --dry-run (default: the last summary's, else an H200's)")
    add("--workers", type=int, default=1, help="at once, for --dry-run (default: 1)")
    args = parser.parse_args(arguments)
    if not args.places and not args.cancel:
        parser.error("name at least one file, folder, prefix or @list")
    if not (args.endpoint or args.local or args.dry_run):
        parser.error("name an --endpoint or a --local URL, or try --dry-run")
    if not isinstance(args.job, dict):
        parser.error("--job: must be a JSON object")
    return args


async def _run(args: argparse.Namespace, settings: Settings, console: Console) -> int:
    ledger = Ledger(args.folder / STATE)
    async with AsyncExitStack() as stack:
        if args.cancel:
            endpoint = await stack.enter_async_context(_endpoint(args))
            for key, job_id in ledger.out.items():
                await endpoint.cancel(job_id)
                ledger.forget(key)
                console.print(f"cancelled {job_id}")
            return 0
        items = await found(args.places, settings, args.folder)
        if not items:
            console.print("nothing to read there")
            return 2
        inbox = await _inbox(args, settings, stack)
        if args.dry_run:
            return await _dry_run(args, items, inbox, console)
        endpoint = await stack.enter_async_context(_endpoint(args))
        shown = stack.enter_context(display.Board(len(items), console))
        began = time.monotonic()
        watcher = save_results.Saver(shown, args.folder, settings, everything=args.save)
        ended = await Campaign(endpoint, inbox, ledger, _plan(args), watcher).run(items)
        await watcher.saved()
    summary = summary_of(ended, time.monotonic() - began)
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / SUMMARY).write_text(json.dumps(summary, ensure_ascii=True, indent=1) + "\n")
    display.print_summary(ended, console)
    console.print(f"{summary['success']} of {len(ended)} documents read; {args.folder / SUMMARY}", highlight=False)
    return 0 if summary["success"] == len(ended) else 1


async def _inbox(args: argparse.Namespace, settings: Settings, stack: AsyncExitStack) -> Inbox:
    count = args.slice_pages or args.dry_run
    workers = await stack.enter_async_context(counter()) if count else None
    upload = args.upload or (f"{settings.default_output}in/" if settings.default_output else None)
    return Inbox(settings, workers, upload, bool(args.local), args.job.get("password"))


def _endpoint(args: argparse.Namespace) -> AbstractAsyncContextManager[RunPod | LocalApi]:
    if args.local:
        return LocalApi(args.local)
    deadline_s = float(args.job.get("deadline_s") or Settings.model_fields["deadline_s"].default)
    return RunPod(args.endpoint or "", os.environ.get("RUNPOD_API_KEY"), deadline_s + GRACE_S)


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    """What every job carries."""
    output = args.output
    if output and "://" not in output:
        output = str(Path(output).resolve())  # the worker stands in a folder of its own
    return {**args.job, **({"output": output} if output else {})}


def _plan(args: argparse.Namespace) -> Plan:
    price = None if args.price_per_hour is None else args.price_per_hour / 3600
    where = args.endpoint or args.local or ""
    return Plan(_fields(args), where, args.slice_pages, args.in_flight, args.tries, args.poll_s, price)


async def _dry_run(args: argparse.Namespace, items: Sequence[Item], inbox: Inbox, console: Console) -> int:
    plan, rows = _plan(args), []
    for item in items:
        ready = await inbox.ready(item, send=False)
        rows.append((item.name, plan.selected(ready.pages), len(plan.slices(ready.pages)) + 1))
    told = estimate(rows, args.pages_per_s, args.workers, args.price_per_hour, _earlier(args.folder))
    display.print_estimate(rows, told, console)
    print(json.dumps(told))
    return 0


def _earlier(folder: Path) -> dict[str, Any]:
    """The last run's summary, where there is one."""
    path = folder / SUMMARY
    return dict(json.loads(path.read_text())) if path.exists() else {}


def summary_of(ended: Sequence[Ended], seconds: float) -> dict[str, Any]:
    """What `submit_summary.json` holds."""
    statuses = [one.status for one in ended]
    now = sum(one.pages_now for one in ended)
    costs = [one.cost for one in ended if one.cost is not None]
    cost = round(sum(costs), 9) if costs else None
    return {
        "total_documents": len(ended),
        "success": statuses.count("success"),
        "partial": statuses.count("partial_success"),
        "failed": statuses.count("failure"),
        "pages_read_now": now,
        "total_time": round(seconds, 3),
        "pages_per_s": round(now / seconds, 4) if now else None,
        "cost": cost,
        "cost_per_1000_pages": round(1000 * cost / now, 6) if cost is not None and now else None,
        "documents": [_row(one) for one in ended],
    }


def _row(one: Ended) -> dict[str, Any]:
    artefacts = one.result.get("artefacts", {})
    row = {
        "source": one.name,
        "status": one.status,
        "id": one.result.get("id"),
        "pages": dict(one.result.get("pages", {})),
        "jobs": one.jobs,
        "seconds": one.seconds,
        "cost": one.cost,
        "artefacts": {name: artefact["uri"] for name, artefact in artefacts.items()},
        "problems": list(one.problems),
        "error": one.error,
    }
    return {name: value for name, value in row.items() if value is not None}


if __name__ == "__main__":
    sys.exit(main())
