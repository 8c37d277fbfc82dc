"""Documents in, a table of processor milliseconds per page and stage out; with --memory, peak memory too.

    python scripts/bench_stages.py [FILE_OR_FOLDER …] [--pages 1-4] [--memory]

One page at a time and one worker, so that this process's own seconds belong to the stage they fall in.
Peak memory is the proportional set size of this process and its workers, sampled while 50 and 1,000
pages of text are read with the default window.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pymupdf
from rich.console import Console
from rich.table import Table

from bench_usage import host_sampled
from twopass import pipeline
from twopass.job import Door, Job, Result
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import Worker, open_worker

STAGES = ("fetch", "render", "pass1", "pass2", "assemble", "upload")
SAMPLE_EVERY_S = 0.2
LINES = 40


class SoloStopwatch(Stopwatch):
    """Counts this process's own seconds too: right while only one stage runs at a time."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.process_time()
        with super().stage(name):
            yield
            self._cpu[name] += time.process_time() - began


class SoloHouse(Worker):
    def stopwatch(self) -> Stopwatch:
        return SoloStopwatch(self.observer)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("samples/sample.pdf")])
    parser.add_argument("--pages", default="1-", help="of each document (default: all)")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/log/")
    args = parser.parse_args(arguments)
    files = [file for path in args.paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    _print(_stages(files, args.pages), args.markdown)
    if args.memory:
        _print(_memory(), args.markdown)


def _stages(files: Sequence[Path], pages: str) -> Table:
    table = Table("file", "pages", *(f"{stage} ms" for stage in STAGES), "all ms", title="CPU per page")
    settings = Settings(window=1, page_workers=1, log_level="ERROR")
    logs.set_up(settings)
    with open_worker(settings) as opened:
        solo = SoloHouse(**{field.name: getattr(opened, field.name) for field in fields(Worker)})
        for file in files:
            table.add_row(*_row(file, _read(file, pages, solo)))
    return table


def _row(file: Path, result: Result) -> list[str]:
    document = result.documents[0]
    count = sum(document.pages.values())
    if not count:
        return [file.name, "0", *("" for _ in STAGES), result.problems[0].code]
    stages = document.timings["stages"]
    spent = [1000 * stages.get(stage, {"cpu_s": 0.0})["cpu_s"] / count for stage in STAGES]
    return [file.name, str(count), *(f"{ms:.1f}" for ms in spent), f"{sum(spent):.1f}"]


def _read(file: Path, pages: str, opened: Worker) -> Result:
    with tempfile.TemporaryDirectory() as output:
        given = {"source": str(file), "output": output, "pages": pages}
        job = Job.parse({"id": "bench", "input": given}, opened.settings, Door.LOCAL)
        return opened.submit(pipeline.run(job, opened, Tracker())).result()


def _memory() -> Table:
    table = Table("pages", "seconds", "peak MiB", title="peak memory")
    for count in (50, 1000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{count}.pdf"
            make_text_pdf(path, count)
            began = time.monotonic()
            with open_worker(Settings(log_level="ERROR")) as opened, host_sampled(SAMPLE_EVERY_S) as samples:
                _read(path, "1-", opened)
            table.add_row(str(count), f"{time.monotonic() - began:.1f}", f"{max(mib for _, mib in samples):.0f}")
    return table


def make_text_pdf(path: Path, count: int) -> None:
    """Pages of forty lines that differ, so that nothing repeats like a running header."""
    with pymupdf.open() as pdf:
        for page in range(count):
            lines = [
                f"Line {line} of page {page} tells of the {page * line % 977}th gauge by the river."
                for line in range(LINES)
            ]
            pdf.new_page().insert_text((72, 90), lines, fontsize=10)
        pdf.save(path)


def _print(table: Table, markdown: bool) -> None:
    if not markdown:
        Console(width=160).print(table)
        return
    columns: list[list[Any]] = [list(column.cells) for column in table.columns]
    print("| " + " | ".join(str(column.header) for column in table.columns) + " |")
    print("|" + "---|" * len(columns))
    for row in zip(*columns, strict=True):
        print("| " + " | ".join(row) + " |")
    print()  # or the next table would be rows of this one


if __name__ == "__main__":
    main()
