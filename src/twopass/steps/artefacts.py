"""Write a document's formats with what they show besides text: crops, page images, and the pages of the source."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from twopass.document import Document, Element, Page, Problem, Severity
from twopass.errors import SourceError, WorkerDied
from twopass.format_options import FormatOptions, Images
from twopass.formats.registry import NEEDS_SOURCE, WRITERS, Writer, ZipBuilder
from twopass.formats.words import Loss
from twopass.formats.writer_input import WriterInput
from twopass.job import Format
from twopass.pages.searchable_pdf import PageText, PlacedText
from twopass.pages.source_files import CheckedFile
from twopass.result import Artefact
from twopass.runtime import task_group
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots, run_all
from twopass.steps import render, searchable
from twopass.steps.document_folder import WEBP, DocumentFolder, preview_name

MAX_EMBEDDED_BYTES = 20_000_000  # bytes of page images in review.html: with base64 and the text about 30 MB

log = structlog.get_logger()


@dataclass(frozen=True)
class Written:
    """The artefacts by name, and what went wrong while they were written."""

    artefacts: dict[str, Artefact]
    lost_pages: tuple[Problem, ...]
    losses: tuple[Loss, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (*self.lost_pages, *self.lost_words)

    @property
    def lost_words(self) -> tuple[Problem, ...]:
        return tuple(loss.problem for loss in self.losses)


@dataclass(frozen=True)
class PreviewSource:
    """Where pages are shown from, and the page slots that `owner` uses for it."""

    file: CheckedFile
    page_pool: PagePool
    page_slots: PageSlots
    owner: str


async def write(
    folder: DocumentFolder,
    document: Document,
    formats: Sequence[Format],
    options: FormatOptions,
    source: PreviewSource | None,
    existing: Sequence[str] = (),
    on_part: Callable[[], None] = lambda: None,
) -> Written:
    """Write the formats, and compare the words of each with those of the document.

    The ZIP archive also contains the `existing` artefacts. `on_part` is called for each of `count_parts`.
    """
    inputs, problems = await load_input(folder, document, options), tuple[Problem, ...]()
    if Format.REVIEW in formats and source:
        images, problems = await _render_pages(document, folder, source, on_part)
        inputs = replace(inputs, pages=images)
    pdf, unplaced = None, list[Loss]()
    if Format.PDF in formats and source:
        pdf, failures, unplaced = await _write_pdf(document, folder, source, on_part)
        problems += failures
    written, losses = await _write_all(folder, inputs, formats, pdf, existing, on_part)
    return Written(written, problems, (*unplaced, *losses))


def count_parts(document: Document, formats: Sequence[Format]) -> int:
    """How many parts writing these formats has: the formats, and the pages that some of them show."""
    return len(formats) + len(NEEDS_SOURCE.intersection(formats)) * len(_select_pages(document))


async def load_input(folder: DocumentFolder, document: Document, options: FormatOptions) -> WriterInput:
    """What formats without page images are written from: crops are loaded if markdown and HTML embed them."""
    if options.markdown.images is not Images.DATA:
        return WriterInput(document, options)
    paths = [element.image for element in document.elements if element.image]
    stored = [(path, await folder.read(path)) for path in paths]
    return WriterInput(
        document, options, {path: _to_data_uri("image/png", data) for path, data in stored if data is not None}
    )


def _to_data_uri(content_type: str, data: bytes) -> str:
    return f"data:{content_type};base64,{base64.b64encode(data).decode()}"


def _select_pages(document: Document) -> list[Page]:
    return [page for page in document.pages if page.image]  # others were not rendered either


async def _render_pages(
    document: Document, folder: DocumentFolder, source: PreviewSource, on_page: Callable[[], None]
) -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Page images are rendered from the source again, because the engine's images are gone by now."""
    previews = _PagePreviews(folder)

    async def render_page(page: Page) -> Problem | None:
        try:
            await previews.add(page.number, await render.preview(source.file, page, source.page_pool))
        except (WorkerDied, SourceError) as error:
            log.warning("page image not rendered", page=page.number, code=error.code)
            return Problem.warning(page.number, error.code, f"no image in review.html: {error.message}")
        finally:
            on_page()
        return None

    problems = await run_all(render_page, _select_pages(document), source.page_slots, source.owner)
    return previews.addresses, tuple(problem for problem in problems if problem)


class _PagePreviews:
    """Page images of review.html: embedded while they are small in total, otherwise files in review/.

    Which of the two depends only on their total size, not on the order in which they arrive.
    """

    def __init__(self, folder: DocumentFolder) -> None:
        self._folder = folder
        self._held: dict[int, bytes] = {}
        self._stored: set[int] = set()

    async def add(self, number: int, image: bytes) -> None:
        self._held[number] = image
        if self._stored or sum(map(len, self._held.values())) > MAX_EMBEDDED_BYTES:
            held, self._held = self._held, {}
            self._stored |= set(held)
            for page, data in held.items():
                await self._folder.write(preview_name(page), data, WEBP)

    @property
    def addresses(self) -> dict[int, str]:
        return {
            **{number: _to_data_uri(WEBP, data) for number, data in sorted(self._held.items())},
            **{number: preview_name(number) for number in sorted(self._stored)},
        }


async def _write_pdf(
    document: Document, folder: DocumentFolder, source: PreviewSource, on_page: Callable[[], None]
) -> tuple[bytes | None, tuple[Problem, ...], list[Loss]]:
    """The source as a PDF whose words can be found, what failed, and the words lost; such a page stays as it was."""
    described, texts, problems = dict[int, PageText](), list[PlacedText](), list[Problem]()
    elements: dict[int, list[Element]] = defaultdict(list)
    for element in document.elements:
        elements[element.page].append(element)

    async def place_page(page: Page) -> None:
        try:
            checkpoint = await folder.load_checkpoint(page.number)
            answers = [answer.text for answer in checkpoint.completions] if checkpoint else []
            text = searchable.describe(page, elements[page.number], answers, source.file)
            if text.texts:
                described[page.number] = text
                texts.append(await searchable.place(text, source.page_pool))
        except (WorkerDied, SourceError) as error:
            problems.append(Problem.warning(page.number, error.code, f"no text in document.pdf: {error.message}"))
        finally:
            on_page()

    await run_all(place_page, _select_pages(document), source.page_slots, source.owner)
    try:
        data = await searchable.write(source.file, sorted(texts), source.page_pool)
    except (WorkerDied, SourceError) as error:
        message = f"document.pdf is not written: {error.message}"
        problem = Problem(code=error.code, severity=Severity.WARNING, message=message)
        return None, (*problems, problem), [_lose(number, text) for number, text in sorted(described.items())]
    losses = [_lose(number, described[number]) for number in sorted(described.keys() - {text.number for text in texts})]
    return data, tuple(sorted(problems, key=lambda problem: problem.page or 0)), losses


def _lose(number: int, page: PageText) -> Loss:
    return Loss(Format.PDF, number, tuple(word for text in page.texts for word in text.all_text.split()), ())


async def _write_all(
    folder: DocumentFolder,
    inputs: WriterInput,
    formats: Sequence[Format],
    pdf: bytes | None,
    existing: Sequence[str],
    on_written: Callable[[], None],
) -> tuple[dict[str, Artefact], list[Loss]]:
    async def store(writer: Writer, data: bytes) -> Artefact:
        await folder.write(writer.name, data, writer.content_type)
        on_written()
        digest = hashlib.sha256(data).hexdigest()
        return Artefact(uri=folder.uri(writer.name), bytes=len(data), sha256=digest, content_type=writer.content_type)

    writers, storing = [WRITERS[name] for name in formats], dict[str, asyncio.Task[Artefact]]()
    losses: list[Loss] = []
    async with task_group.open_group() as group:
        for writer in writers:
            if writer.write:
                data, found = await asyncio.to_thread(_write_one, writer, inputs)  # takes seconds for a thousand pages
                losses += found
                storing[writer.name] = group.create_task(store(writer, data))
    written = {name: task.result() for name, task in storing.items()}
    if pdf is not None:
        writer = WRITERS[Format.PDF]
        written[writer.name] = await store(writer, pdf)
    if Format.ZIP in formats:
        writer = WRITERS[Format.ZIP]
        written[writer.name] = await store(writer, await _build_zip(folder, inputs.document, [*written, *existing]))
    return written, losses


def _write_one(writer: Writer, inputs: WriterInput) -> tuple[bytes, Sequence[Loss]]:
    assert writer.write
    data = writer.write(inputs)
    losses = writer.check(inputs, data) if writer.check else ()
    for loss in losses:
        log.warning("words lost in a format", page=loss.page, format=loss.format, words=loss.finding.count)
    return data, losses


async def _build_zip(folder: DocumentFolder, document: Document, names: Sequence[str]) -> bytes:
    """Pack these artefacts with the crops and page images that they refer to."""
    crops = (element.image for element in document.elements if element.image)
    pictures = (preview_name(page.number) for page in document.pages)
    packing = ZipBuilder()
    for name in sorted({*names, *crops, *(await folder.list_names()).intersection(pictures)}):
        if (data := await folder.read(name)) is not None:
            await asyncio.to_thread(packing.add, name, data)
    return packing.finish()
