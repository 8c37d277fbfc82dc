"""A folder or file in, every document below it read in this process, `batch_summary.json` out.

python scripts/process.py DIR [--output output] [--preset cpu] [--formats docjson,markdown] [--no-resume]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bars

from twopass import bars, house, logs, pipeline
from twopass.document import Status
from twopass.errors import TwopassError
from twopass.house import House
from twopass.job import Door, Job, Result
from twopass.progress import Tracker
from twopass.settings import Settings

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"})
PRESETS: dict[str, dict[str, Any]] = {"cpu": {"engine": "cpu"}}  # the GPU's presets come with its engine


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    files = documents_below(args.path)
    if not files:
        print(f"nothing to read below {args.path}: no {', '.join(sorted(SUFFIXES))}", file=sys.stderr)
        return 2
    settings = Settings(**PRESETS[args.preset])
    logs.set_up(settings)
    began = time.monotonic()
    with house.opened(settings) as open_house, bars.several() as shown:
        results = open_house.submit(_all(files, args, open_house, shown)).result()
    summary = summary_of(files, results, time.monotonic() - began)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "batch_summary.json").write_text(json.dumps(summary, ensure_ascii=False, indent=1) + "\n")
    counts = f"{summary['success']} read, {summary['partial']} in part, {summary['failed']} failed"
    print(f"{counts}; {args.output}/batch_summary.json")
    return 1 if summary["failed"] else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a folder, searched through, or one file")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder for artefacts (default: output)")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu")
    parser.add_argument("--formats", default="docjson,markdown", help="comma-separated (default: docjson,markdown)")
    parser.add_argument("--pages", help='as in a job: "1-5,8,11-"')
    parser.add_argument("--password", help="for encrypted PDFs")
    parser.add_argument("--no-resume", action="store_true", help="read everything again, into new folders")
    return parser.parse_args(arguments)


def documents_below(path: Path) -> list[Path]:
    """The file itself, or all documents below the folder, in a stable order."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())


async def _all(
    files: Sequence[Path], args: argparse.Namespace, open_house: House, shown: Bars
) -> list[Result | TwopassError]:
    places = asyncio.Semaphore(open_house.settings.concurrency)

    async def one(file: Path) -> Result | TwopassError:
        async with places:
            try:
                job = Job.parse(_job(file, args), open_house.settings, Door.LOCAL)
                return await pipeline.run(job, open_house, Tracker(bars.listener(shown, file.name)))
            except TwopassError as error:
                return error

    return await asyncio.gather(*(one(file) for file in files))


def _job(file: Path, args: argparse.Namespace) -> dict[str, Any]:
    asked = {"pages": args.pages, "password": args.password}
    fixed = {"source": str(file), "output": str(args.output), "formats": args.formats.split(",")}
    job_input = {**fixed, "resume": not args.no_resume, **{name: value for name, value in asked.items() if value}}
    return {"id": f"process-{file.stem}", "input": job_input}


def summary_of(files: Sequence[Path], results: Sequence[Result | TwopassError], seconds: float) -> dict[str, Any]:
    """What `batch_summary.json` holds."""
    rows = [_row(file, result) for file, result in zip(files, results, strict=True)]
    statuses = [row["status"] for row in rows]
    return {
        "total_files": len(files),
        "success": statuses.count(Status.SUCCESS),
        "partial": statuses.count(Status.PARTIAL_SUCCESS),
        "failed": statuses.count(Status.FAILURE),
        "total_time": round(seconds, 3),
        "results": rows,
    }


def _row(file: Path, result: Result | TwopassError) -> dict[str, Any]:
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


if __name__ == "__main__":
    raise SystemExit(main())
