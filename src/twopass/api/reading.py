"""Read one document in this process, whole or page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Unpack

from twopass import pipeline
from twopass.api import options as api_options
from twopass.api import workers
from twopass.api.document import MARKDOWN, Document, attach
from twopass.api.options import Location, ReadOptions, Source
from twopass.contexts import DocumentContext, PageListener
from twopass.document import Checkpoint, Severity
from twopass.errors import TwopassError
from twopass.formats import docjson
from twopass.formats.registry import WRITERS
from twopass.job import Format, Job
from twopass.runtime import environment, loop_thread
from twopass.settings import Settings
from twopass.steps import previews
from twopass.steps.report import Outcome
from twopass.storage.document_folder import CHECKPOINTS, MANIFEST, DocumentFolder
from twopass.storage.memory_store import MemoryStore
from twopass.storage.outputs import open_output
from twopass.storage.store import Store
from twopass.worker import Worker


def read(
    source: Source,
    *,
    output: Location | None = None,
    settings: Settings | None = None,
    **options: Unpack[ReadOptions],
) -> Document:
    """Read a document: a path, the bytes of a file, or an https://, s3:// or data: address.

    `output` is a folder, or s3://bucket/prefix/, that keeps the files and every page that was read: the same call then
    reads only what is missing. Without it nothing is written. `settings` chooses the engine; by default the
    environment does. The engine is started once for all calls with equal settings.

    A page that cannot be read is in the document's `problems`. Raises TwopassError, with a `code`, if there is no
    document: InvalidJob for a wrong option, SourceError for a source that cannot be used, and others.
    """
    settings = settings or environment.load_settings()
    job = api_options.parse_job(source, output, options, settings)
    worker = workers.get_worker(settings)
    return worker.run(_read(job, worker, None))


def read_pages(
    source: Source,
    *,
    output: Location | None = None,
    settings: Settings | None = None,
    **options: Unpack[ReadOptions],
) -> Iterator[Document]:
    """Read a document as `read` does, and yield each page as soon as it is finished, as a document of one page.

    Pages may come in any order. What only the whole document shows is missing: running headers, heading levels,
    paragraphs that continue on another page. If the loop is left early, reading stops.
    """
    settings = settings or environment.load_settings()
    job = api_options.parse_job(source, output, options, settings)
    worker = workers.get_worker(settings)

    async def start(emit: Callable[[Document], None]) -> None:
        await _read(job, worker, partial(_emit_page, emit))

    return loop_thread.stream(start, worker.loop)


async def _read(job: Job, worker: Worker, page_listener: PageListener | None) -> Document:
    async with _open_output(job, worker) as output:
        outcome = await pipeline.run_single(job, worker, output, page_listener)
        return await _load(outcome, output)


def _open_output(job: Job, worker: Worker) -> AbstractAsyncContextManager[Store]:
    return open_output(job.output, worker.settings, job.s3) if job.output else nullcontext(MemoryStore())


async def _load(outcome: Outcome, output: Store) -> Document:
    """Load the document that was written, with all of its files but the checkpoints."""
    folder = DocumentFolder(output, str(outcome.result.id))
    names = await folder.list_names()
    artefacts = {}
    for name in sorted(names - {MANIFEST}):
        stored = None if name.startswith(CHECKPOINTS) else await output.get(folder.key(name))
        if stored:
            artefacts[name] = stored.data
    if WRITERS[Format.DOCJSON].name not in artefacts:
        raise _describe_unwritten(outcome)
    document = docjson.loads(artefacts[WRITERS[Format.DOCJSON].name])
    update = {"status": outcome.result.status, "problems": outcome.problems}
    return attach(document.model_copy(update=update), artefacts)


def _describe_unwritten(outcome: Outcome) -> TwopassError:
    """Why the document is not in the output: pages are left, which the same call reads."""
    first = next(problem for problem in outcome.problems if problem.severity is Severity.ERROR)
    return TwopassError(first.code, first.message)


async def _emit_page(emit: Callable[[Document], None], doc: DocumentContext, page: Checkpoint) -> None:
    document = pipeline.assemble_pages(doc, [page])
    draft, _ = await previews.build_draft(document, doc.format_options, (), doc.folder, None)
    artefacts = {MARKDOWN: draft.markdown[0].encode()}
    for element in document.elements:
        if element.image and (stored := await doc.folder.store.get(doc.folder.key(element.image))):
            artefacts[element.image] = stored.data
    emit(attach(draft.with_spans, artefacts))
