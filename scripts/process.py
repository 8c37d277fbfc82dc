"""A folder or file in, every document below it read in this process, `batch_summary.json` out.

python scripts/process.py DIR [--output output] [--preset 24] [--formats docjson,markdown] [--no-resume]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bars

from twopass import engine_settings, pipeline
from twopass.cli import terminal
from twopass.document import Status
from twopass.errors import EngineError, TwopassError
from twopass.job import Door, Job, Result
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"})
UNREAD = "unread"  # the batch was stopped, or something unforeseen befell the file, before it had a result
STOP_S = 30.0
STOPPED = 130  # the shell's exit code after Ctrl-C
GPUS = ("auto", *(name for name in (*engine_settings.PRESETS, *engine_settings.CARDS) if name != "cpu"))
PRESETS: dict[str | None, dict[str, Any]] = {
    None: {},  # ENGINE and PRESET of the environment
    "cpu": {"engine": "cpu"},
    **{name: {"engine": "vllm", "preset": name} for name in GPUS},
}


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    files = documents_below(args.path, args.output)
    if not files:
        wanted = f"no {', '.join(sorted(SUFFIXES))} outside the output folder {args.output}"
        print(f"nothing to read below {args.path}: {wanted}", file=sys.stderr)
        return 2
    settings = Settings(**PRESETS[args.preset])
    logs.set_up(settings)
    began = time.monotonic()
    ended: dict[Path, Result | TwopassError] = {}
    try:
        _read(files, args, settings, ended)
    except KeyboardInterrupt:
        print("stopped; the same command again goes on", file=sys.stderr)
        return STOPPED
    except EngineError as error:  # of an engine that did not open
        print(error, file=sys.stderr)
        return 1
    finally:  # whatever came between: what is known of the files is told
        summary = summary_of(files, ended, time.monotonic() - began)
        args.output.mkdir(parents=True, exist_ok=True)
        told = json.dumps(summary, ensure_ascii=False, indent=1) + "\n"
        # File names may hold bytes that are no UTF-8: JSON's own escape carries them.
        (args.output / "batch_summary.json").write_bytes(told.encode(errors="backslashreplace"))
        counts = f"{summary['success']} read, {summary['partial']} in part, {summary['failed']} failed"
        left = f", {summary['unread']} unread" if summary["unread"] else ""
        print(f"{counts}{left}; {args.output}/batch_summary.json")
    return 1 if summary["failed"] else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a folder, searched through, or one file")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for artefacts (default: output)")
    parser.add_argument("--preset", choices=["cpu", *GPUS], help="cpu, or vllm by GB of GPU memory (default: ENGINE's)")
    parser.add_argument("--formats", default="docjson,markdown", help="comma-separated (default: docjson,markdown)")
    parser.add_argument("--pages", help='as in a job: "1-5,8,11-"')
    parser.add_argument("--password", help="for encrypted PDFs")
    parser.add_argument("--no-resume", action="store_true", help="read everything again, into new folders")
    return parser.parse_args(arguments)


def documents_below(path: Path, output: Path) -> list[Path]:
    """The file itself, or all documents below the folder but our own crops, in a stable order."""
    if path.is_file():
        return [path]
    made = output.resolve()
    found = (file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    return sorted(file for file in found if not file.resolve().is_relative_to(made))


def _read(
    files: Sequence[Path], args: argparse.Namespace, settings: Settings, ended: dict[Path, Result | TwopassError]
) -> None:
    """Every file's result or error into `ended`, as it comes; raises what nobody foresaw when all are through."""
    with open_worker(settings) as worker, terminal.several() as shown:
        through = threading.Event()

        async def all_of_them() -> None:
            try:
                await read_all(files, args, worker, shown, ended)
            finally:
                through.set()

        work = worker.submit(all_of_them())
        try:
            work.result()
        finally:
            work.cancel()
            through.wait(STOP_S)  # pages under way let go of the workers before these are closed


async def read_all(
    files: Sequence[Path],
    args: argparse.Namespace,
    worker: Worker,
    shown: Bars,
    ended: dict[Path, Result | TwopassError],
) -> None:
    """The same on the house's loop; one file's misfortune leaves the others to be read."""
    places = asyncio.Semaphore(worker.settings.concurrency)

    async def one(file: Path) -> None:
        async with places:
            with terminal.one_of_many(shown, file.name) as listener:
                try:
                    job = Job.parse(_job(file, args), worker.settings, Door.LOCAL)
                    ended[file] = await pipeline.run(job, worker, Tracker(listener))
                except TwopassError as error:
                    ended[file] = error
            terminal.line(shown, _line(_row(file, ended[file])))

    outcomes = await asyncio.gather(*(one(file) for file in files), return_exceptions=True)
    if unforeseen := next(filter(None, outcomes), None):
        raise unforeseen


def job_id(file: Path, root: Path) -> str:
    """The same for a file on every run, and never that of another file."""
    name = file.relative_to(root) if file != root else Path(file.name)
    slug = re.sub(r"[^\w.]+", "-", str(name)).strip("-.")[:40]
    place = hashlib.sha256(str(file.resolve()).encode(errors="surrogateescape")).hexdigest()[:8]
    return f"process-{slug}-{place}"


def _job(file: Path, args: argparse.Namespace) -> dict[str, Any]:
    asked = {"pages": args.pages, "password": args.password}
    fixed = {"source": str(file), "output": str(args.output), "formats": args.formats.split(",")}
    job_input = {**fixed, "resume": not args.no_resume, **{name: value for name, value in asked.items() if value}}
    return {"id": job_id(file, args.path), "input": job_input}


def summary_of(files: Sequence[Path], ended: Mapping[Path, Result | TwopassError], seconds: float) -> dict[str, Any]:
    """What `batch_summary.json` holds."""
    rows = [_row(file, ended.get(file)) for file in files]
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


def _row(file: Path, result: Result | TwopassError | None) -> dict[str, Any]:
    if result is None:
        return {"file": str(file), "status": UNREAD}
    if isinstance(result, TwopassError):
        return {"file": str(file), "status": Status.FAILURE, "error": str(result)}
    document = result.documents[0]
    return {
        "file": str(file),
        "status": document.status,
        "id": document.id,
        "pages": document.pages,
        "elapsed": document.timings.get("duration_s"),
        "output": {name: artefact.uri for name, artefact in document.artefacts.items()},
        "problems": [problem.model_dump(mode="json", exclude_none=True) for problem in result.problems],
    }


def _line(row: Mapping[str, Any]) -> str:
    """What is said of a file that has its result: its status, its name, and its pages or why it failed."""
    name = row["file"].encode(errors="backslashreplace").decode()
    return f"{row['status']}: {name} ({row.get('error') or terminal.counted(row['pages'])})"


if __name__ == "__main__":
    raise SystemExit(main())
