"""Read many files in this process, and write a summary of the run.

They are found in files, folders, prefixes and lists; a document may come on stdin.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from twopass import locations, pipeline
from twopass.cli import reporters
from twopass.cli.exit_codes import Exit
from twopass.cli.reporters import BatchProgress, Figures, Reporter
from twopass.contexts import DocumentContext
from twopass.document import Checkpoint, State, Status
from twopass.engines import factory
from twopass.engines.interface import Identity
from twopass.errors import Code, EngineError, SourceError, StoreError, TwopassError
from twopass.fleet import discovery
from twopass.fleet.discovery import Skipped
from twopass.formats import registry
from twopass.job import EntryPoint, Format, Job, Upload
from twopass.page_range import PageRange
from twopass.result import AuditSum, DocumentResult, merge_problems
from twopass.runtime import scratch, task_group
from twopass.settings import Settings
from twopass.steps import report
from twopass.steps.report import Outcome
from twopass.storage import outputs, sources
from twopass.storage.store import Store
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, hide_memory, open_worker

SUMMARY = "batch_summary.json"  # of the last run
RUNS = "runs"  # the folder with the summary of every run
UNREAD = "unread"  # status of a file that was not read to its end: the run was stopped, or an unexpected error came
FORMATS = (Format.DOCJSON, Format.MARKDOWN)
_STDIN = "-"  # as a place
_STDIN_NAME = "stdin"


@dataclass(frozen=True)
class InputFile:
    """A document to read, as a path or URI, and the argument of the command line that named it or its folder.

    `upload` is a document that came on stdin.
    """

    location: str
    root: str
    upload: Upload | None = None

    @property
    def is_local(self) -> bool:
        return not locations.is_uri(self.location)

    @property
    def source(self) -> str | None:
        """The source in the document's job; None if the document is sent with the job."""
        return None if self.upload else self.location

    @property
    def path(self) -> Path:
        """Where a local document is."""
        return self.upload.path if self.upload else Path(self.location)

    @property
    def name(self) -> str:
        return locations.redact(self.location)

    @property
    def job_id(self) -> str:
        """The same id in every run, and a different one for every file."""
        slug = re.sub(r"[^\w.]+", "-", self._name_below_root()).strip("-.")[:40]
        place = locations.absolute(self.location).encode(errors="surrogateescape")
        digest = hashlib.sha256(place).hexdigest()[:8]
        return f"read-{slug}-{digest}"

    @property
    def folder(self) -> str:
        """The folder in whose bar it is counted."""
        is_in_folder = self.upload or self.location != self.root
        return self.root if is_in_folder else os.path.dirname(self.name) or "."

    def _name_below_root(self) -> str:
        if self.is_local and Path(self.root).is_dir():
            return str(Path(self.location).relative_to(self.root))
        return os.path.basename(self.name)


@contextmanager
def keep_stdin(places: Sequence[str], settings: Settings) -> Iterator[Upload | None]:
    """Keep what comes on stdin in a temporary file, if it is one of the places; raises SourceError."""
    if _STDIN not in places:
        yield None
        return
    if sys.stdin is None or sys.stdin.isatty():
        message = f"{_STDIN}: no document comes on stdin; write twopass read {_STDIN} < file.pdf"
        raise SourceError(Code.SOURCE_NOT_FOUND, message)
    with scratch.open_folder() as folder:
        path = folder / _STDIN_NAME
        sources.write_stream(sys.stdin.buffer, path, settings.max_source_bytes, _STDIN_NAME)
        yield Upload(_STDIN_NAME, path)


async def find_files(
    places: Sequence[str], output: str | None, settings: Settings, stdin: Upload | None = None
) -> tuple[list[InputFile], list[Skipped]]:
    """List the documents in these places, each once, in a stable order, without those in the output; and what is not
    read.

    Raises TwopassError, which names a place that does not exist.
    """
    found, skipped = dict[str, InputFile](), dict[Skipped, None]()
    for place in map(locations.normalize, places):
        if place == _STDIN:
            found[place] = InputFile(_STDIN_NAME, _STDIN_NAME, stdin)
            continue
        documents, others = await discovery.find_documents([place], settings, (output,) if output else ())
        skipped.update(dict.fromkeys(others))
        for document in documents:
            file = InputFile(document.location, place)
            found.setdefault(os.path.abspath(file.location) if file.is_local else file.location, file)
    return list(found.values()), list(skipped)


def shuffle(files: Sequence[InputFile]) -> list[InputFile]:
    """The files in random order, so that processes with the same arguments read different documents first."""
    return random.SystemRandom().sample(files, len(files))


@dataclass(frozen=True)
class Arguments:
    """What is asked for every file of the batch.

    `output` is a folder or s3://bucket/prefix, or None if nothing is kept. `prints` is the format that goes to stdout.
    """

    output: str | None
    formats: tuple[str, ...] = FORMATS
    pages: str | None = None
    password: str | None = None
    resume: bool = True
    prints: Format | None = None
    strict: bool = False
    furniture: str | None = None
    hidden_text: str | None = None

    def check(self, settings: Settings) -> None:
        """Raise InvalidJob, naming the option, where no file could be read with these arguments."""
        job = self.make_job(InputFile("any", "any"), settings)
        registry.check_installed(job.formats_needed)

    def make_job(self, file: InputFile, settings: Settings) -> Job:
        """The job that reads one file; raises InvalidJob."""
        required = {
            "output": self.output,
            "formats": list(self.formats),
            "resume": self.resume,
            "inline": [],
            "strict": self.strict,
        }
        optional = {
            "source": file.source,
            "pages": self.pages,
            "password": self.password,
            "furniture": self.furniture,
            "hidden_text": self.hidden_text,
        }
        fields = {**required, **{name: value for name, value in optional.items() if value}}
        job = Job.parse({"id": file.job_id, "input": fields, "upload": file.upload}, settings, EntryPoint.LOCAL)
        return job.model_copy(update={"output": self.output})  # no default bucket if nothing is to be kept


async def check_files(files: Sequence[InputFile], arguments: Arguments, settings: Settings) -> None:
    """Raise TwopassError if nothing can be written to the output, or if `pages` names no page of any file.

    A file that cannot be opened is not counted: reading it tells why, with its code. Neither is any if one is remote.
    """
    if arguments.output:
        async with outputs.open_output(arguments.output, settings, None):
            pass  # it was written to
    selection = PageRange.parse(arguments.pages) if arguments.pages else None
    if not selection or selection.select(1) or not all(file.is_local for file in files):
        return
    async with discovery.open_page_counter(settings, arguments.password) as counter:
        for file in files:
            count = await counter.count(file.path)
            if count is None or selection.select(count):
                return
    found = f"{file.location} has {count}" if len(files) == 1 else f"none of the {len(files)} documents has them"
    raise SourceError(Code.PAGE_RANGE, f"--pages: pages {selection.text} requested, but {found}: no page to read")


@dataclass
class _Reading:
    """What is known of a document while it is read, in case it is not read to its end."""

    tracker: Tracker
    states: Counter[str] = field(default_factory=Counter)
    doc: DocumentContext | None = None

    async def record(self, doc: DocumentContext, page: Checkpoint) -> None:
        """Count a page that has ended."""
        self.doc = doc
        self.states[page.page.state] += 1

    def describe(self, file: InputFile) -> DocumentResult:
        """The document's result so far: its stored pages, and how many are left."""
        left = self.tracker.now.pages_total - self.states.total() + self.states[State.UNREAD]
        states = {**self.states, State.UNREAD: left} if left else self.states
        if self.doc is None:
            return DocumentResult(source=file.name, status=Status.FAILURE)
        return DocumentResult(
            id=self.doc.folder.document_id,
            source=file.name,
            status=Status.FAILURE,
            pages={str(state): count for state, count in sorted(states.items()) if count},
            timings=report.measure_timings(self.doc.watch),
            usage={"pages_read_now": self.doc.watch.pages_timed},
        )


class Batch:
    """Files that are read with the same arguments, and what is known of them so far.

    They are read in the order that `arrange` returns, which is random by default: other processes may read the same
    files into the same output. `stdout` gets what is asked for besides the files: an object for each document
    (`as_json`), or the text of the only one. `skipped` was found beside the files and is not read.
    """

    def __init__(
        self,
        files: Sequence[InputFile],
        arguments: Arguments,
        reporter: Reporter,
        arrange: Callable[[Sequence[InputFile]], Sequence[InputFile]] = shuffle,
        stdout: BinaryIO | None = None,
        as_json: bool = False,
        skipped: Sequence[Skipped] = (),
    ) -> None:
        self.files = files
        self.skipped = skipped
        self.reading_order = arrange(files)
        self.arguments = arguments
        self.reporter = reporter
        self.outcomes: dict[InputFile, Outcome] = {}
        self.progress: BatchProgress[InputFile] | None = None
        self.begun = datetime.now(UTC)
        self.started = time.monotonic()
        self.opened: float | None = None  # when the engine was open
        self._suffix = secrets.token_hex(3)
        self._readings: dict[InputFile, _Reading] = {}
        self._stdout, self._as_json = stdout, as_json

    @property
    def run_name(self) -> str:
        """The name of this run's summary; later runs have later names, and two of one second different ones."""
        return f"{RUNS}/{self.begun:%Y%m%dT%H%M%SZ}-{self._suffix}.json"

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

    def forget_readings(self) -> None:
        """No page was read of the documents that have no outcome."""
        self._readings.clear()

    def begin(self, file: InputFile, tracker: Tracker) -> _Reading:
        self._readings[file] = _Reading(tracker)
        return self._readings[file]

    def finish(self, file: InputFile, outcome: Outcome, text: bytes = b"") -> None:
        """Report a document; `text` is its artefact for stdout."""
        self.outcomes[file] = outcome
        row = self._make_row(file)
        self.reporter.report_document(row)
        self._print(to_json(row) if self._as_json else text)

    def count_unopened(self) -> int:
        """How many files have neither ended nor are known by their pages."""
        known = {file for file, reading in self._readings.items() if reading.tracker.now.pages_total}
        return len(set(self.files) - known - set(self.outcomes))

    def print_unread(self) -> None:
        """Print the objects of the documents that were not read to their end."""
        if self._as_json:
            for file in self.files:
                if file not in self.outcomes:
                    self._print(to_json(self._make_row(file)))

    def _print(self, data: bytes) -> None:
        """Write to stdout. Who reads it may leave, as `head` does: the documents are read nevertheless."""
        try:
            while data and self._stdout:
                data = data[self._stdout.write(data) :]
        except BrokenPipeError:
            self._stdout = None

    def _make_row(self, file: InputFile) -> dict[str, Any]:
        """A document in the summary."""
        outcome = self.outcomes.get(file)
        if outcome:
            return _describe(file, outcome.result.status, outcome, self.arguments.output)
        if reading := self._readings.get(file):
            return _describe(file, UNREAD, Outcome(reading.describe(file)), self.arguments.output)
        return {"file": file.name, "status": UNREAD}

    def figures(self) -> Figures:
        ended = time.monotonic()
        finished = [outcome.result for outcome in self.outcomes.values()]
        others = [reading.describe(file) for file, reading in self._readings.items() if file not in self.outcomes]
        return Figures.measure([*finished, *others], (self.opened or ended) - self.started, ended - self.started)

    @property
    def audit(self) -> AuditSum | None:
        """What was lost in all documents; None if no page was audited."""
        results = [outcome.result for outcome in self.outcomes.values()]
        return AuditSum.merge([result.audit for result in results if result.audit])

    def summarize(self) -> dict[str, Any]:
        """Build what the summary holds."""
        rows = [self._make_row(file) for file in self.files]
        statuses = [row["status"] for row in rows]
        figures = self.figures()
        return {
            "run": self.run_name,
            "total_files": len(rows),
            "success": statuses.count(Status.SUCCESS),
            "partial": statuses.count(Status.PARTIAL_SUCCESS),
            "failed": statuses.count(Status.FAILURE),
            "unread": statuses.count(UNREAD),
            "skipped": discovery.sum_up_skipped(self.skipped),
            "total_time": round(figures.total_s, 3),
            **figures.as_dict(),
            "audit": self.audit.model_dump(mode="json", exclude_none=True) if self.audit else None,
            "results": rows,
        }


def run(batch: Batch, settings: Settings) -> Exit:
    """Read the files, write the summary whatever happens, and return the command's exit code."""
    try:
        with end_at_second_interrupt():
            _read_in_worker(batch, settings)
    except KeyboardInterrupt:
        return Exit.STOPPED
    except EngineError as error:  # the engine did not open
        batch.forget_readings()
        batch.reporter.report_event(str(error), is_error=True, code=error.code)
        return Exit.FAILED
    finally:
        batch.print_unread()
        summary = batch.summarize()
        if output := batch.arguments.output:
            _write_summary(summary, batch, output, settings)
        batch.reporter.report_summary(_format_summary(batch, summary), summary)
    return Exit.SUCCESS if _is_complete(summary) else Exit.FAILED


@contextmanager
def end_at_second_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first Ctrl-C, and let the second end the process at once. On the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        raise KeyboardInterrupt

    def end(number: int, frame: FrameType | None) -> None:
        reporters.show_cursor()
        os._exit(Exit.STOPPED)  # page workers die with their parent

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
            hide_memory(settings)
            asyncio.run(_finish_stored(batch, settings))
            if not batch.unfinished:
                batch.opened = batch.started  # no engine was needed
                return
            batch.reporter.report_start(len(batch.unfinished), settings.engine)
            worker = stack.enter_context(open_worker(settings, begins_early=True))
            try:
                worker.run(read_files(batch, worker))
            finally:
                batch.opened = worker.start.ended
            batch.opened = batch.opened or batch.started  # nothing waited for the engine
        except KeyboardInterrupt:
            _report_stop(batch)
            raise


def _report_stop(batch: Batch) -> None:
    stored, counted, unopened = 0, 0, batch.count_unopened()
    if progress := batch.progress:
        stored, counted = progress.pages_done, progress.pages_counted
    kept, advice = "are stored", "run the same command again to continue"
    if not (batch.arguments.resume and batch.arguments.output):
        option = "without --output" if batch.arguments.resume else "with --no-resume"
        kept, advice = "were read", f"{option}, the same command begins again"
    message = f"stopped: {stored} of {counted} pages {kept}" if counted else "stopped before pages were read"
    if counted and unopened:
        message += f", and {unopened} {'file was' if unopened == 1 else 'files were'} not opened"
    batch.reporter.report_event(
        f"{message}; {advice}", is_error=False, pages_stored=stored, pages_counted=counted, files_unopened=unopened
    )


async def _finish_stored(batch: Batch, settings: Settings) -> None:
    """Finish the files that were read before, up to the first one that needs an engine, which may take a minute."""
    keeps_documents = batch.arguments.output and batch.arguments.resume
    identity = await factory.identify(settings) if keeps_documents else None
    slots, checked_outputs = asyncio.Semaphore(settings.concurrency), dict[str, bool]()
    needs_engine = identity is None

    async def find(file: InputFile) -> None:
        nonlocal needs_engine
        async with slots:
            if needs_engine or identity is None:
                return
            if found := await _find_finished(file, batch.arguments, settings, identity, checked_outputs):
                batch.finish(file, *found)
            else:
                needs_engine = True

    async with task_group.open_group() as group:
        for file in batch.reading_order:
            group.create_task(find(file))


async def _find_finished(
    file: InputFile, arguments: Arguments, settings: Settings, identity: Identity, checked_outputs: dict[str, bool]
) -> tuple[Outcome, bytes] | None:
    """The outcome of a file that was read before, and the artefact that is printed; None if it has to be read."""
    with suppress(TwopassError):  # reading the file reports it
        job = arguments.make_job(file, settings)
        async with outputs.open_output(job.output, settings, None, checked_outputs) as output:
            if outcome := await pipeline.find_finished(job, settings, identity, output):
                return outcome, await _load_printed(outcome, arguments, output)
    return None


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
                outcome, text = await _read_file(file, batch, worker, Tracker(listener))
            finally:
                progress.finish(file)
            batch.finish(file, outcome, text)

    with batch.show_progress() as progress:
        errors = await asyncio.gather(*(read_file(file) for file in batch.unfinished), return_exceptions=True)
    if unexpected := next(filter(None, errors), None):
        raise unexpected


async def _read_file(file: InputFile, batch: Batch, worker: Worker, tracker: Tracker) -> tuple[Outcome, bytes]:
    """Read one file; returns its outcome, and the artefact that is printed."""
    reading = batch.begin(file, tracker)
    try:
        job = batch.arguments.make_job(file, worker.settings)
        async with outputs.open_output(job.output, worker.settings, None, worker.checked_outputs) as output:
            outcome = await pipeline.run_single(job, worker, output, reading.record, tracker)
            return outcome, await _load_printed(outcome, batch.arguments, output)
    except TwopassError as error:
        return report.failed_document(file.name, error), b""


async def _load_printed(outcome: Outcome, arguments: Arguments, output: Store) -> bytes:
    """The artefact that goes to stdout; empty without one."""
    name = registry.WRITERS[arguments.prints].name if arguments.prints else ""
    stored = await output.get(f"{outcome.result.id}/{name}") if name in outcome.result.artefacts else None
    return stored.data if stored else b""


def _is_complete(summary: Mapping[str, Any]) -> bool:
    """Whether no document failed and no page is unread."""
    unread = any(row.get("pages", {}).get(State.UNREAD) for row in summary["results"])
    return not (summary["failed"] or summary["unread"] or unread)


def _write_summary(summary: Mapping[str, Any], batch: Batch, output: str, settings: Settings) -> None:
    """Write the summary to the output.

    Of several processes with one output, each lists all documents; the last one's is also SUMMARY.
    """
    data = to_json(summary, indent=1)

    async def put() -> None:
        async with outputs.open_output(output, settings, None) as store:
            for name in (batch.run_name, SUMMARY):
                await store.put(name, data, "application/json")

    try:
        asyncio.run(put())
    except StoreError as error:
        batch.reporter.report_event(f"{SUMMARY} is not written: {error}", is_error=True, code=error.code)


def to_json(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """JSON and a line feed. File names may hold bytes that are not UTF-8, which become JSON's own escapes."""
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode(errors="backslashreplace")


def _format_summary(batch: Batch, summary: Mapping[str, Any]) -> str:
    """The run in one line, below lines of files that are not read and of what pages lack."""
    counts = f"files: {summary['success']} read, {summary['partial']} in part, {summary['failed']} failed"
    unread = f", {summary['unread']} unread" if summary["unread"] else ""
    output = batch.arguments.output
    place = f"; {output.rstrip('/')}/{SUMMARY}" if output else ""
    lines = [discovery.describe_skipped(batch.skipped)] if batch.skipped else []
    if missing := [*_describe_failed_pages(summary), *_describe_lost_parts(batch, summary)]:
        lines.append("; ".join(missing))
    return "\n".join([*lines, f"{counts}{unread}; {batch.figures().describe()}{place}"])


def _describe_failed_pages(summary: Mapping[str, Any]) -> list[str]:
    """How many pages failed; nothing if none did."""
    rows = summary["results"]
    failed = [row["pages"][State.FAILED] for row in rows if row.get("pages", {}).get(State.FAILED)]
    what = f"{sum(failed)} page{'s' if sum(failed) > 1 else ''} failed{_name_share(len(failed), len(rows))}"
    return [what] if failed else []


def _describe_lost_parts(batch: Batch, summary: Mapping[str, Any]) -> list[str]:
    """What the audit found lost on pages that were read; nothing if it found no loss."""
    if not (batch.audit and batch.audit.has_loss):
        return []
    rows = summary["results"]
    files = _name_share(len([row for row in rows if "lost" in row]), len(rows))
    return [f"parts lost{files}: {'; '.join(batch.audit.describe_losses())}"]


def _name_share(count: int, of: int) -> str:
    return f" in {count} of {of} files" if of > 1 else ""


def _describe(file: InputFile, status: str, outcome: Outcome, output: str | None) -> dict[str, Any]:
    document = outcome.result
    row = {
        "file": file.name,
        "status": status,
        "id": document.id,
        "folder": f"{output.rstrip('/')}/{document.id}" if output and document.id else None,
        "pages": document.pages,
        "elapsed": document.timings.get("duration_s"),
        "output": {name: artefact.uri for name, artefact in document.artefacts.items()} if output else {},
        "problems": [problem.model_dump(mode="json", exclude_none=True) for problem in outcome.problems],
    }
    if document.audit and document.audit.has_loss:
        row["lost"] = document.audit.describe_losses()
    error = next((f"{problem.code}: {problem.message}" for problem in merge_problems(outcome.problems)), None)
    return {**row, "error": error} if status == Status.FAILURE else row
