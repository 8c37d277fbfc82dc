"""Read many files in this process and write `batch_summary.json`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bars

from twopass import pipeline
from twopass.cli import terminal
from twopass.document import Status
from twopass.errors import Code, EngineError, SourceError, TwopassError
from twopass.fleet import discovery
from twopass.fleet.discovery import SUFFIXES
from twopass.job import EntryPoint, Job
from twopass.page_range import PageRange
from twopass.result import Result
from twopass.settings import Settings
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

SUMMARY = "batch_summary.json"
UNREAD = "unread"  # status of a file that has no result: the batch was stopped, or an unexpected error came first
STOPPED = 130  # the shell's exit code after Ctrl-C

Outcome = Result | TwopassError


@dataclass(frozen=True)
class Options:
    """What is asked for every file of the batch."""

    output: Path
    formats: tuple[str, ...] = ("docjson", "markdown")
    pages: str | None = None
    password: str | None = None
    resume: bool = True

    def check(self, settings: Settings) -> None:
        """Raise InvalidJob, naming the option, where no file could be read with these options."""
        Job.parse({"input": self.make_input("any")}, settings, EntryPoint.LOCAL)

    def make_input(self, source: str) -> dict[str, Any]:
        """The input of one file's job."""
        required = {
            "source": source,
            "output": str(self.output),
            "formats": list(self.formats),
            "resume": self.resume,
        }
        optional = {"pages": self.pages, "password": self.password}
        return {**required, **{name: value for name, value in optional.items() if value}}


@dataclass(frozen=True)
class InputFile:
    """A file to read and the path of the command line below which it was found."""

    path: Path
    root: Path

    @property
    def job_id(self) -> str:
        """The same id in every run, and a different one for every file."""
        name = self.path.relative_to(self.root) if self.path != self.root else Path(self.path.name)
        slug = re.sub(r"[^\w.]+", "-", str(name)).strip("-.")[:40]
        digest = hashlib.sha256(str(self.path.resolve()).encode(errors="surrogateescape")).hexdigest()[:8]
        return f"process-{slug}-{digest}"


def find_files(paths: Iterable[Path], output: Path) -> list[InputFile]:
    """List files and the documents below folders, each once, in a stable order, without those in the output folder."""
    found: dict[str, InputFile] = {}
    for root in paths:
        for path in [root] if root.is_file() else _find_below(root, output.resolve()):
            found.setdefault(os.path.abspath(path), InputFile(path, root))
    return list(found.values())


def _find_below(folder: Path, output: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted(path for path in found if not path.resolve().is_relative_to(output))


def check_pages(files: Sequence[InputFile], options: Options, settings: Settings) -> None:
    """Raise SourceError if `options.pages` names no page of any file.

    A file that cannot be opened is not counted: reading it tells why, with its code.
    """
    selection = PageRange.parse(options.pages) if options.pages else None
    if selection and not selection.select(1):
        asyncio.run(_check_pages(files, selection, options, settings))


async def _check_pages(files: Sequence[InputFile], selection: PageRange, options: Options, settings: Settings) -> None:
    async with discovery.open_page_counter() as page_pool:
        for file in files:
            count = await discovery.count_pages(file.path, page_pool, settings, options.password)
            if count is None or selection.select(count):
                return
    found = f"{file.path} has {count}" if len(files) == 1 else f"none of the {len(files)} documents has them"
    raise SourceError(Code.PAGE_RANGE, f"--pages: pages {selection.text} requested, but {found}: no page to read")


def run(files: Sequence[InputFile], options: Options, settings: Settings) -> int:
    """Read the files, write the summary whatever happens, and return the command's exit code."""
    started = time.monotonic()
    outcomes: dict[Path, Outcome] = {}
    try:
        _read_in_worker(files, options, settings, outcomes)
    except KeyboardInterrupt:
        print("stopped; the same command continues", file=sys.stderr)
        return STOPPED
    except EngineError as error:  # the engine did not open
        print(error, file=sys.stderr)
        return 1
    finally:
        summary = summarize(files, outcomes, time.monotonic() - started)
        _write_summary(summary, options.output)
    return 1 if summary["failed"] else 0


def _read_in_worker(
    files: Sequence[InputFile], options: Options, settings: Settings, outcomes: dict[Path, Outcome]
) -> None:
    """Open a worker and read the files, adding each outcome to `outcomes` at once, for a summary after Ctrl-C."""
    with open_worker(settings) as worker, terminal.open_progress() as bars:
        worker.run(read_files(files, options, worker, bars, outcomes))


async def read_files(
    files: Sequence[InputFile], options: Options, worker: Worker, bars: Bars, outcomes: dict[Path, Outcome]
) -> None:
    """Read the files on the worker's loop; raises an unexpected error of one file after all others were read."""
    slots = asyncio.Semaphore(worker.settings.concurrency)

    async def read_file(file: InputFile) -> None:
        async with slots:
            with terminal.track_file(bars, file.path.name) as listener:
                try:
                    delivered = {"id": file.job_id, "input": options.make_input(str(file.path))}
                    job = Job.parse(delivered, worker.settings, EntryPoint.LOCAL)
                    outcomes[file.path] = await pipeline.run(job, worker, Tracker(listener))
                except TwopassError as error:
                    outcomes[file.path] = error
            terminal.print_line(bars, _format_line(_make_row(file.path, outcomes[file.path])))

    errors = await asyncio.gather(*(read_file(file) for file in files), return_exceptions=True)
    if unexpected := next(filter(None, errors), None):
        raise unexpected


def summarize(files: Sequence[InputFile], outcomes: Mapping[Path, Outcome], seconds: float) -> dict[str, Any]:
    """Build what `batch_summary.json` holds."""
    rows = [_make_row(file.path, outcomes.get(file.path)) for file in files]
    statuses = [row["status"] for row in rows]
    return {
        "total_files": len(files),
        "success": statuses.count(Status.SUCCESS),
        "partial": statuses.count(Status.PARTIAL_SUCCESS),
        "failed": statuses.count(Status.FAILURE),
        "unread": statuses.count(UNREAD),
        "total_time": round(seconds, 3),
        "results": rows,
    }


def _write_summary(summary: Mapping[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, ensure_ascii=False, indent=1) + "\n"
    # File names may hold bytes that are not UTF-8; backslashreplace writes them as JSON's own escapes.
    (output / SUMMARY).write_bytes(text.encode(errors="backslashreplace"))
    counts = f"{summary['success']} read, {summary['partial']} in part, {summary['failed']} failed"
    unread = f", {summary['unread']} unread" if summary["unread"] else ""
    print(f"{counts}{unread}; {output}/{SUMMARY}")


def _make_row(file: Path, outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"file": str(file), "status": UNREAD}
    if isinstance(outcome, TwopassError):
        return {"file": str(file), "status": Status.FAILURE, "error": str(outcome)}
    document = outcome.documents[0]
    return {
        "file": str(file),
        "status": document.status,
        "id": document.id,
        "pages": document.pages,
        "elapsed": document.timings.get("duration_s"),
        "output": {name: artefact.uri for name, artefact in document.artefacts.items()},
        "problems": [problem.model_dump(mode="json", exclude_none=True) for problem in outcome.problems],
    }


def _format_line(row: Mapping[str, Any]) -> str:
    """Format a finished file's status, its name, and its page counts or why it failed."""
    name = row["file"].encode(errors="backslashreplace").decode()
    reason = row.get("error") or terminal.format_page_counts(row["pages"])
    reason = reason or next((f"{problem['code']}: {problem['message']}" for problem in row["problems"]), "no result")
    return f"{row['status']}: {name} ({reason})"
