"""Measure CPU time a page by stage of a job, with the engine of the environment; with --memory, peak memory, too.

    python -m scripts.bench stages [FILE_OR_FOLDER …] [--pages 1-4] [--memory]

One page at a time and one page worker, so that the CPU time of this process belongs to the stage that is running.
Peak memory is the proportional set size of this process and its page workers, sampled while 50 and 1,000 pages of text
are read with the default settings.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pymupdf
from rich.table import Table

from scripts.bench.harness import create_parser, print_table
from scripts.bench.usage import sample_memory
from twopass import pipeline
from twopass.job import EntryPoint, Job
from twopass.result import Result
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import Worker, open_worker

STAGES = ("fetch", "render", "pass1", "pass2", "assemble", "upload")
SAMPLE_EVERY_S = 0.2
LINES = 40


class SoloStopwatch(Stopwatch):
    """Count the CPU time of this process, too; this is right only while one stage runs at a time."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.process_time()
        with super().stage(name):
            yield
            self._cpu[name] += time.process_time() - started


class SoloWorker(Worker):
    """A worker that reads one page at a time."""

    def stopwatch(self) -> Stopwatch:
        return SoloStopwatch(self.observer)


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench stages", __doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("samples/sample.pdf")])
    parser.add_argument("--pages", default="1-", help="pages of each document (default: all)")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/log/")
    options = parser.parse_args(arguments)
    files = [file for path in options.paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    print_table(measure_stages(files, options.pages), options.markdown)
    if options.memory:
        print_table(measure_memory(), options.markdown)


def measure_stages(files: Sequence[Path], pages: str) -> Table:
    table = Table("file", "pages", *(f"{stage} ms" for stage in STAGES), "all ms", title="CPU per page")
    settings = Settings(window=1, page_workers=1, log_level="ERROR")
    logs.set_up(settings)
    with open_worker(settings) as worker:
        solo = SoloWorker(**{field.name: getattr(worker, field.name) for field in fields(Worker)})
        for file in files:
            table.add_row(*_format_row(file, _run_job(file, pages, solo)))
    return table


def _format_row(file: Path, result: Result) -> list[str]:
    document = result.documents[0]
    count = sum(document.pages.values())
    if not count:
        return [file.name, "0", *("" for _ in STAGES), result.problems[0].code]
    stages = document.timings["stages"]
    milliseconds = [1000 * stages.get(stage, {"cpu_s": 0.0})["cpu_s"] / count for stage in STAGES]
    return [file.name, str(count), *(f"{ms:.1f}" for ms in milliseconds), f"{sum(milliseconds):.1f}"]


def _run_job(file: Path, pages: str, worker: Worker) -> Result:
    with tempfile.TemporaryDirectory() as output:
        job_input = {"source": str(file), "output": output, "pages": pages}
        job = Job.parse({"id": "bench", "input": job_input}, worker.settings, EntryPoint.LOCAL)
        return worker.submit(pipeline.run(job, worker, Tracker())).result()


def measure_memory() -> Table:
    table = Table("pages", "seconds", "peak MiB", title="peak memory")
    for count in (50, 1000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{count}.pdf"
            make_text_pdf(path, count)
            started = time.monotonic()
            with open_worker(Settings(log_level="ERROR")) as worker, sample_memory(SAMPLE_EVERY_S) as samples:
                _run_job(path, "1-", worker)
            table.add_row(str(count), f"{time.monotonic() - started:.1f}", f"{max(mib for _, mib in samples):.0f}")
    return table


def make_text_pdf(path: Path, count: int) -> None:
    """Write pages of forty lines that all differ, so that none is taken for a running header."""
    with pymupdf.open() as pdf:
        for page in range(count):
            lines = [
                f"Line {line} of page {page} tells of the {page * line % 977}th gauge by the river."
                for line in range(LINES)
            ]
            pdf.new_page().insert_text((72, 90), lines, fontsize=10)
        pdf.save(path)
