"""Read many files in this process and write `batch_summary.json`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from twopass import pipeline
from twopass.cli import batch_files
from twopass.cli.batch_files import InputFile
from twopass.cli.display import terminal
from twopass.cli.display.batch_progress import BatchProgress
from twopass.cli.display.figures import Figures
from twopass.cli.display.reporters import Reporter
from twopass.document import State, Status
from twopass.engines import factory
from twopass.errors import EngineError, StoreError, TwopassError
from twopass.job import EntryPoint, Job
from twopass.result import Result
from twopass.runtime import task_group
from twopass.settings import Settings
from twopass.storage import outputs
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

SUMMARY = "batch_summary.json"
UNREAD = "unread"  # status of a file that has no result: the batch was stopped, or an unexpected error came first
STOPPED = 130  # the shell's exit code after Ctrl-C

Outcome = Result | TwopassError


@dataclass(frozen=True)
class Options:
    """What is asked for every file of the batch. `output` is a folder or s3://bucket/prefix."""

    output: str
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
            "output": self.output,
            "formats": list(self.formats),
            "resume": self.resume,
        }
        optional = {"pages": self.pages, "password": self.password}
        return {**required, **{name: value for name, value in optional.items() if value}}


def check_output(output: str, settings: Settings) -> None:
    """Raise StoreError if nothing can be written to the output."""
    asyncio.run(_prepare(output, settings))


async def _prepare(output: str, settings: Settings) -> None:
    async with outputs.open_output(output, settings, None):
        pass  # it was written to


class Batch:
    """Files that are read with the same options, and what is known of them so far.

    They are read in the order that `arrange` returns, which is random by default: other processes may read the same
    files into the same output.
    """

    def __init__(
        self,
        files: Sequence[InputFile],
        options: Options,
        reporter: Reporter,
        arrange: Callable[[Sequence[InputFile]], Sequence[InputFile]] = batch_files.shuffle,
    ) -> None:
        self.files = files
        self.reading_order = arrange(files)
        self.options = options
        self.reporter = reporter
        self.outcomes: dict[InputFile, Outcome] = {}
        self.progress: BatchProgress[InputFile] | None = None
        self.started = time.monotonic()
        self.opened: float | None = None  # when the engine was open
        self.found = 0  # files that were finished before the engine was opened

    @contextmanager
    def show_progress(self) -> Iterator[BatchProgress[InputFile]]:
        folders = {file: file.folder for file in self.files}
        with self.reporter.show_progress() as show:
            self.progress = BatchProgress(folders, show)
            yield self.progress

    @property
    def unfinished(self) -> list[InputFile]:
        """The files without an outcome, in the order in which they are read."""
        return [file for file in self.reading_order if file not in self.outcomes]

    def finish(self, file: InputFile, outcome: Outcome) -> None:
        self.outcomes[file] = outcome
        self.reporter.report_document(_make_row(file, outcome))

    def figures(self) -> Figures:
        ended = time.monotonic()
        documents = [outcome.documents[0] for outcome in self.outcomes.values() if isinstance(outcome, Result)]
        return Figures.measure(documents, (self.opened or ended) - self.started, ended - self.started)


def run(files: Sequence[InputFile], options: Options, settings: Settings, reporter: Reporter) -> int:
    """Read the files, write the summary whatever happens, and return the command's exit code."""
    batch = Batch(files, options, reporter)
    try:
        with end_at_second_interrupt():
            _read_in_worker(batch, settings)
    except KeyboardInterrupt:
        return STOPPED
    except EngineError as error:  # the engine did not open
        reporter.report_event(str(error), is_error=True, code=error.code)
        return 1
    finally:
        summary = summarize(files, batch.outcomes, batch.figures())
        _write_summary(summary, batch, settings)
        reporter.report_summary(_format_summary(summary, batch.figures(), options.output), summary)
    return 0 if _is_complete(summary) else 1


@contextmanager
def end_at_second_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first Ctrl-C, and let the second end the process at once. On the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        raise KeyboardInterrupt

    def end(number: int, frame: FrameType | None) -> None:
        terminal.show_cursor()
        os._exit(STOPPED)  # page workers die with their parent

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:  # after an interrupt, the process only has to end
            signal.signal(signal.SIGINT, previous)


def _read_in_worker(batch: Batch, settings: Settings) -> None:
    """Open a worker and read the files that are not finished. After Ctrl-C, report what is stored."""
    with ExitStack() as stack:
        try:
            asyncio.run(find_finished(batch, settings))
            if not batch.unfinished:
                batch.opened = batch.started  # no engine was needed
                return
            worker = stack.enter_context(open_worker(settings))
            batch.opened = time.monotonic()
            worker.run(read_files(batch, worker))
        except KeyboardInterrupt:
            _report_stop(batch)
            raise


def _report_stop(batch: Batch) -> None:
    stored, counted, opened = 0, 0, 0
    if progress := batch.progress:
        stored, counted, opened = progress.pages_done, progress.pages_counted, progress.files_counted
    unopened = len(batch.files) - batch.found - opened
    message = f"stopped: {stored} of {counted} pages are stored" if counted else "stopped before pages were read"
    message += f", and {unopened} files were not opened" if counted and unopened else ""
    advice = "run the same command again to continue"
    if not batch.options.resume:
        advice = "with --no-resume, the same command begins again"
    batch.reporter.report_event(
        f"{message}; {advice}", is_error=False, pages_stored=stored, pages_counted=counted, files_unopened=unopened
    )


async def find_finished(batch: Batch, settings: Settings) -> None:
    """Finish the files that were read before, up to the first one that needs an engine, which may take a minute."""
    identity = await factory.identify(settings) if batch.options.resume else None
    slots, checked_outputs = asyncio.Semaphore(settings.concurrency), dict[str, bool]()
    needs_engine = identity is None

    async def find(file: InputFile) -> None:
        nonlocal needs_engine
        async with slots:
            if needs_engine or identity is None:
                return
            result = None
            with suppress(TwopassError):  # reading the file reports it
                job = _make_job(file, batch.options, settings)
                result = await pipeline.run_finished(job, settings, identity, checked_outputs)
            if result:
                batch.finish(file, result)
            else:
                needs_engine = True

    async with task_group.open_group() as group:
        for file in batch.reading_order:
            group.create_task(find(file))
    batch.found = len(batch.outcomes)


async def read_files(batch: Batch, worker: Worker) -> None:
    """Read the files on the worker's loop; raises an unexpected error of one file after all others were read.

    Files that come after the engine is gone for good stay unread: another process, or the next run, can read them.

    Each file is a job of its own, so that its artefacts and its line do not wait for other files.
    """
    slots = asyncio.Semaphore(worker.settings.concurrency)

    async def read_file(file: InputFile) -> None:
        async with slots:
            if worker.engine.is_gone:
                return
            listener = progress.start(file)
            try:
                outcome = await _read_file(file, batch.options, worker, Tracker(listener))
            finally:
                progress.finish(file)
            batch.finish(file, outcome)

    with batch.show_progress() as progress:
        errors = await asyncio.gather(*(read_file(file) for file in batch.unfinished), return_exceptions=True)
    if unexpected := next(filter(None, errors), None):
        raise unexpected


async def _read_file(file: InputFile, options: Options, worker: Worker, tracker: Tracker) -> Outcome:
    try:
        return await pipeline.run(_make_job(file, options, worker.settings), worker, tracker)
    except TwopassError as error:
        return error


def _make_job(file: InputFile, options: Options, settings: Settings) -> Job:
    return Job.parse({"id": file.job_id, "input": options.make_input(file.location)}, settings, EntryPoint.LOCAL)


def summarize(files: Sequence[InputFile], outcomes: Mapping[InputFile, Outcome], figures: Figures) -> dict[str, Any]:
    """Build what `batch_summary.json` holds."""
    rows = [_make_row(file, outcomes.get(file)) for file in files]
    statuses = [row["status"] for row in rows]
    return {
        "total_files": len(files),
        "success": statuses.count(Status.SUCCESS),
        "partial": statuses.count(Status.PARTIAL_SUCCESS),
        "failed": statuses.count(Status.FAILURE),
        "unread": statuses.count(UNREAD),
        "total_time": round(figures.total_s, 3),
        **figures.as_dict(),
        "results": rows,
    }


def _is_complete(summary: Mapping[str, Any]) -> bool:
    """Whether no document failed and no page is unread."""
    unread = any(row.get("pages", {}).get(State.UNREAD) for row in summary["results"])
    return not (summary["failed"] or summary["unread"] or unread)


def _write_summary(summary: Mapping[str, Any], batch: Batch, settings: Settings) -> None:
    """Write the summary to the output. Of several processes with one output, the last one's remains; each lists all."""
    text = json.dumps(summary, ensure_ascii=False, indent=1) + "\n"
    # File names may hold bytes that are not UTF-8; backslashreplace writes them as JSON's own escapes.
    data = text.encode(errors="backslashreplace")
    try:
        asyncio.run(_put_summary(data, batch.options.output, settings))
    except StoreError as error:
        batch.reporter.report_event(f"{SUMMARY} is not written: {error}", is_error=True, code=error.code)


async def _put_summary(data: bytes, output: str, settings: Settings) -> None:
    async with outputs.open_output(output, settings, None) as store:
        await store.put(SUMMARY, data, "application/json")


def _format_summary(summary: Mapping[str, Any], figures: Figures, output: str) -> str:
    counts = f"{summary['success']} read, {summary['partial']} in part, {summary['failed']} failed"
    unread = f", {summary['unread']} unread" if summary["unread"] else ""
    return f"{counts}{unread}: {figures.describe()}; {output.rstrip('/')}/{SUMMARY}"


def _make_row(file: InputFile, outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"file": file.name, "status": UNREAD}
    if isinstance(outcome, TwopassError):
        return {"file": file.name, "status": Status.FAILURE, "error": str(outcome)}
    document = outcome.documents[0]
    return {
        "file": file.name,
        "status": document.status,
        "id": document.id,
        "pages": document.pages,
        "elapsed": document.timings.get("duration_s"),
        "output": {name: artefact.uri for name, artefact in document.artefacts.items()},
        "problems": [problem.model_dump(mode="json", exclude_none=True) for problem in outcome.problems],
    }
