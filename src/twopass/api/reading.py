"""Read one document in this process, whole or page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from twopass import pipeline
from twopass.api import options as api_options
from twopass.api import workers
from twopass.api.document import MARKDOWN, Document, attach
from twopass.api.options import Location, ReadOptions, Source
from twopass.contexts import DocumentContext, PageListener
from twopass.document import Checkpoint, Severity
from twopass.engines import factory
from twopass.errors import TwopassError
from twopass.formats import docjson
from twopass.formats.registry import WRITERS
from twopass.job import Format, Job
from twopass.runtime import loop_thread
from twopass.settings import Settings, load_settings
from twopass.steps import artefacts
from twopass.steps.document_folder import DocumentFolder
from twopass.steps.report import Outcome
from twopass.storage.outputs import open_output
from twopass.storage.store import Store
from twopass.worker import Worker


def read(source: Source, output: Location | None, settings: Settings | None, options: ReadOptions) -> Document:
    """Read a document, or load it from the output if it is finished there: then no engine is started."""
    settings = settings or load_settings()
    job = api_options.parse_job(source, output, options, settings)
    if job.output and not workers.is_open(settings):
        with loop_thread.open_loop() as loop:
            if found := loop_thread.run(_find_finished(job, job.output, settings), loop):
                return found
    worker = workers.get_worker(settings)
    return worker.run(_read(job, worker, None))


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
    job = api_options.parse_job(source, output, options, settings)
    worker = workers.get_worker(settings)

    async def start(emit: Callable[[Document], None]) -> None:
        await _read(job, worker, partial(_emit_page, emit))

    return loop_thread.stream(start, worker.loop)


async def _read(job: Job, worker: Worker, page_listener: PageListener | None) -> Document:
    async with open_output(job.output, worker.settings, job.s3) as output:
        outcome = await pipeline.run_single(job, worker, output, page_listener)
        return await _load(outcome, output)


async def _load(outcome: Outcome, output: Store) -> Document:
    """Load the document that was written, with all of its files but the checkpoints."""
    files = await DocumentFolder(output, str(outcome.result.id)).read_artefacts()
    if WRITERS[Format.DOCJSON].name not in files:
        raise _describe_unwritten(outcome)
    document = docjson.loads(files[WRITERS[Format.DOCJSON].name])
    update = {"status": outcome.result.status, "problems": outcome.problems}
    return attach(document.model_copy(update=update), files)


def _describe_unwritten(outcome: Outcome) -> TwopassError:
    """Why the document is not in the output: pages are left, which the same call reads."""
    first = next(problem for problem in outcome.problems if problem.severity is Severity.ERROR)
    return TwopassError(first.code, first.message)


async def _emit_page(emit: Callable[[Document], None], doc: DocumentContext, page: Checkpoint) -> None:
    document = pipeline.assemble_pages(doc, [page])
    inputs = await artefacts.load_input(doc.folder, document, doc.format_options)
    files = {MARKDOWN: inputs.markdown[0].encode()}
    for element in document.elements:
        if element.image and (crop := await doc.folder.read(element.image)) is not None:
            files[element.image] = crop
    emit(attach(inputs.with_spans, files))
