"""Read one document in this process, whole or page by page.

The keyword arguments are fields of a job. The workers of the process are each opened at the first use, shared by all
calls, and closed at exit.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypedDict
from uuid import uuid4

from twopass import pipeline
from twopass.api.document import MARKDOWN, Document, attach
from twopass.contexts import DocumentContext, PageListener
from twopass.document import Checkpoint, Severity
from twopass.engines import factory
from twopass.errors import Code, InvalidJob, TwopassError, suggest
from twopass.formats import docjson, registry
from twopass.formats.registry import WRITERS
from twopass.job import EntryPoint, Format, Job
from twopass.runtime import loop_thread
from twopass.settings import Settings, load_settings
from twopass.steps import artefacts
from twopass.steps.document_folder import DocumentFolder
from twopass.steps.report import Outcome
from twopass.storage.outputs import open_output
from twopass.storage.store import Store
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

Source = str | os.PathLike[str] | bytes
Location = str | os.PathLike[str]

_lock = threading.Lock()
# by process, because a forked child has none of its parent's threads
_workers: dict[tuple[int, Settings], tuple[Worker, ExitStack]] = {}


class ReadOptions(TypedDict, total=False):
    """Fields of a job; docs/contract.md describes each."""

    pages: str | None
    password: str | None
    language: str | None
    formats: Sequence[str]
    markdown: Mapping[str, Any] | None
    chunks: Mapping[str, Any] | None
    furniture: str | None
    hidden_text: str | None
    mode: str
    dpi: int
    max_crops: int | None
    pass2: str
    figure_descriptions: str
    task: str
    prompt: str | None
    sampling: Mapping[str, Any]
    failed_pages: Mapping[str, Any]
    strict: bool
    deadline_s: float | None
    resume: bool
    s3: Mapping[str, Any] | None


class SubmitOptions(ReadOptions, total=False):
    """Fields of a job for an endpoint."""

    inline: Sequence[str] | None


def read(source: Source, output: Location | None, settings: Settings | None, options: ReadOptions) -> Document:
    """Read a document, or load it from the output if it is finished there: then no engine is started."""
    settings = settings or load_settings()
    job = parse_job(source, output, options, settings)
    if job.output and not _is_started(settings):
        with loop_thread.open_loop() as loop:
            if found := loop_thread.run(_find_finished(job, job.output, settings), loop):
                return found
    worker = _get_worker(settings)
    return worker.run(_read(job, worker, None))


async def read_from_loop(
    source: Source, output: Location | None, settings: Settings, options: ReadOptions, progress: Tracker
) -> Document:
    """As `read`, for a program with an event loop. A cancellation is raised when nothing of the reading runs."""
    job = parse_job(source, output, options, settings)
    if job.output and not _is_started(settings) and (found := await _find_finished(job, job.output, settings)):
        return found
    worker = await asyncio.to_thread(_get_worker, settings)
    task = await loop_thread.run_from_loop(worker.guard(_read(job, worker, None, progress)), worker.loop)
    return task.result()


def _is_started(settings: Settings) -> bool:
    return (os.getpid(), settings) in _workers


async def _find_finished(job: Job, output: str, settings: Settings) -> Document | None:
    if identity := await factory.identify(settings):
        async with open_output(output, settings, job.s3) as store:
            if outcome := await pipeline.find_finished(job, settings, identity, store):
                return await _load(outcome, store)
    return None


def read_pages(
    source: Source, output: Location | None, settings: Settings | None, options: ReadOptions
) -> Iterator[Document]:
    """Yield each page as a document of its own as soon as it is finished."""
    settings = settings or load_settings()
    job = parse_job(source, output, options, settings)
    worker = _get_worker(settings)

    async def start(emit: Callable[[Document], None]) -> None:
        await worker.guard(_read(job, worker, partial(_emit_page, emit)))

    return loop_thread.stream(start, worker.loop)


async def _read(
    job: Job, worker: Worker, page_listener: PageListener | None, progress: Tracker | None = None
) -> Document:
    async with open_output(job.output, worker.settings, job.s3) as output:
        outcome = await pipeline.run_single(job, worker, output, page_listener, progress)
        return await _load(outcome, output)


async def _load(outcome: Outcome, output: Store) -> Document:
    """Load the document that was written, with all of its files but the checkpoints."""
    files = await DocumentFolder(output, str(outcome.result.id)).read_artefacts()
    if WRITERS[Format.DOCJSON].name not in files:
        # Pages are left, which the same call reads.
        first = next(problem for problem in outcome.problems if problem.severity is Severity.ERROR)
        raise TwopassError(first.code, first.message)
    document = docjson.loads(files[WRITERS[Format.DOCJSON].name])
    update = {"status": outcome.result.status, "problems": outcome.problems}
    return attach(document.model_copy(update=update), files)


async def _emit_page(emit: Callable[[Document], None], doc: DocumentContext, page: Checkpoint) -> None:
    document = pipeline.assemble_pages(doc, [page])
    inputs = await artefacts.load_input(doc.folder, document, doc.format_options)
    files = {MARKDOWN: inputs.markdown[0].encode()}
    for element in document.elements:
        if element.image and (crop := await doc.folder.read(element.image)) is not None:
            files[element.image] = crop
    emit(attach(inputs.with_spans, files))


def parse_job(source: Source, output: Location | None, options: ReadOptions, settings: Settings) -> Job:
    """Make the job that reads one source. Its DocJSON is always written. Raises InvalidJob naming the option."""
    if unknown := set(options) - set(ReadOptions.__annotations__):
        known = list(ReadOptions.__annotations__)
        advice = suggest(min(unknown), known) or f"; the options are {', '.join(known)}"
        message = f"{min(unknown)}: not an option here{advice}"
        raise InvalidJob(Code.INVALID_JOB, message)
    fields = {**options, "source": _to_uri(source), "output": output and os.fspath(output), "inline": []}
    job = Job.parse({"id": f"read-{uuid4().hex[:12]}", "input": fields}, settings, EntryPoint.LOCAL)
    formats = tuple(name for name in Format if name in {*job.formats, Format.DOCJSON})
    registry.check_installed(job.formats_needed)  # before a worker starts
    # A default bucket is for workers: a program's files go only where it says.
    return job.model_copy(update={"formats": formats, "output": job.output if output else None})


def _to_uri(source: Source) -> str:
    if isinstance(source, bytes):
        return f"data:application/octet-stream;base64,{base64.b64encode(source).decode()}"
    return os.fspath(source)


def _get_worker(settings: Settings) -> Worker:
    """The worker of this process with these settings, whose engine may still be opening, once more if that failed.

    Raises EngineError if the engine cannot be started.
    """
    key = os.getpid(), settings
    with _lock:
        worker, stack = _workers.get(key, (None, ExitStack()))
        if worker and worker.start.failure:
            worker = None
            stack.close()
        if worker is None:
            logs.use_standard_logging()
            worker = stack.enter_context(open_worker(settings, begins_early=True))
            _workers[key] = worker, stack
            atexit.register(_close_worker, stack, os.getpid())
        return worker


def _close_worker(stack: ExitStack, owner: int) -> None:
    if os.getpid() == owner:
        stack.close()
