"""Rebuild a finished document without an engine: its formats, or its elements from the recorded answers.

Formats need the source only for page images. Recorded answers need it for the text layer and the crops.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from twopass.document import (
    Checkpoint,
    Document,
    Element,
    Flag,
    Problem,
    RawCompletion,
    Run,
    State,
    Status,
    count_states,
    derive_canary,
)
from twopass.engines.interface import Completion, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, InvalidJob, SourceError, StoreError
from twopass.families import registry
from twopass.families.interface import Family, FamilyOptions
from twopass.format_options import FormatOptions
from twopass.formats import docjson
from twopass.formats.registry import NEEDS_SOURCE, WRITERS
from twopass.job import Format, Job
from twopass.pages.rendered_page import RenderedPage
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.pages.source_files import CheckedFile
from twopass.result import AuditSum, DocumentResult
from twopass.runtime.page_pool import PagePool, open_page_pool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import MISSED_QUESTIONS, Settings
from twopass.steps import artefacts, assemble, audit, document_folder, enrich, fetch, missed_text, pass1, pass2
from twopass.steps.artefacts import PreviewSource, Written
from twopass.steps.document_folder import DocumentFolder, Manifest, ManifestDetails
from twopass.steps.page_context import PageContext
from twopass.storage.sources import Sources

_RenderPage = Callable[[int], AbstractAsyncContextManager[RenderedPage]]  # page number -> the page as it was read

_SLOTS_OWNER = "reparse"  # the name under which pages of the review page occupy page slots
_USABLE_STATES = frozenset({State.READ, State.REPAIRED})
_ELEMENT_PROMPT = re.compile(r"(?P<id>p\d+-e\d+)(?P<count>-\d+)?")


@dataclass(frozen=True)
class StoredDocument:
    """A finished document as stored in its folder."""

    folder: DocumentFolder
    manifest: Manifest
    pages: tuple[Checkpoint, ...]

    @property
    def details(self) -> ManifestDetails:
        return self.manifest.details


async def load_document(folder: DocumentFolder) -> StoredDocument:
    """Load a finished document; raises StoreError if it is not, or does not have the pages that are stored."""
    manifest, pages = await folder.require_manifest(), await folder.load_checkpoints()
    expected = sum(manifest.result.pages.values())
    if len(pages) != expected:
        message = f"{folder.uri('pages/')}: {len(pages)} of {expected} pages; send the job again to read the others"
        raise StoreError(Code.OUTPUT_MISSING, message)
    if count_states(pages) != manifest.result.pages:  # a job was cut off after it had read what another one could not
        message = f"{folder.uri('pages/')}: read after the document was written; send the job again to write it anew"
        raise StoreError(Code.OUTPUT_MISSING, message)
    return StoredDocument(folder, manifest, pages)


async def _assemble_document(stored: StoredDocument) -> Document:
    """Assemble the document as its job did. Manifests of older versions lack the data; then document.json is loaded."""
    details, folder = stored.details, stored.folder
    if details.source is None:
        name = WRITERS[Format.DOCJSON].name
        if (data := await folder.read(name)) is None:
            message = f"{folder.uri(name)}: missing; send the job again with format docjson"
            raise StoreError(Code.OUTPUT_MISSING, message)
        return docjson.loads(data)
    stored_names = await folder.list_names()
    not_stored = StoreError(Code.OUTPUT_MISSING, "missing in the folder")
    pages = [
        document_folder.drop_images(page, missing, not_stored)
        if (missing := document_folder.find_missing_images(page, stored_names))
        else page
        for page in stored.pages
    ]
    run = Run(options=details.options, prompts=details.prompts, canary=derive_canary(pages))
    parts = (details.source, details.meta, run, folder.document_id, pages, details.selection)
    return await asyncio.to_thread(assemble.document, *parts)  # takes seconds for a thousand pages


async def write_formats(
    stored: StoredDocument, wanted: Sequence[Format], options: FormatOptions, source: PreviewSource | None
) -> tuple[DocumentResult, tuple[Problem, ...]]:
    """Write the wanted formats and the existing ones; returns warnings about pages that cannot be shown."""
    if source is None and (lacking := sorted(NEEDS_SOURCE.intersection(wanted))):
        raise InvalidJob(Code.INVALID_JOB, f"formats: {lacking[0]} needs the source for its pages; set --source")
    existing = {name for name in stored.manifest.formats if name not in NEEDS_SOURCE or source}
    formats = tuple(name for name in Format if name in {*wanted, *existing})
    return await _write(stored, await _assemble_document(stored), formats, options, source)


async def write_one_format(folder: DocumentFolder, name: Format) -> Written:
    """Write one more format of a finished document, which needs no page images."""
    stored = await load_document(folder)
    document = await _assemble_document(stored)
    written = await artefacts.write(folder, document, (name,), stored.details.writing, None)
    await folder.add_artefacts(written.artefacts, written.lost_words)
    return written


async def add_formats(
    folder: DocumentFolder, job: Job, settings: Settings, sources: Sources
) -> tuple[Manifest | None, tuple[Problem, ...]]:
    """Write the formats that the job asks for to a finished document, from its pages.

    Returns its manifest then, and warnings about page images. Raises TwopassError, also if a page or crop is missing.
    """
    stored, stored_names = await load_document(folder), await folder.list_names()
    if missing := {name for page in stored.pages for name in document_folder.find_missing_images(page, stored_names)}:
        raise StoreError(Code.OUTPUT_MISSING, f"{folder.uri(min(missing))}: missing; send the job again")
    options = job.resolve_format_options(stored.details.writing)
    async with AsyncExitStack() as stack:
        source = None
        if not NEEDS_SOURCE.isdisjoint({*job.formats_needed, *stored.manifest.formats}):
            source = await stack.enter_async_context(open_preview_source(stored, job, settings, sources))
        _, problems = await write_formats(stored, job.formats_needed, options, source)
    return await folder.load_manifest(), problems


@asynccontextmanager
async def open_preview_source(
    stored: StoredDocument, job: Job, settings: Settings, sources: Sources
) -> AsyncIterator[PreviewSource]:
    """Fetch the source again, and start page workers that render its pages. Raises SourceError for another file."""
    async with (
        open_page_pool(settings, PixelBufferPool(0, 0)) as page_pool,
        fetch.document(job.sources[0], job, settings, page_pool, sources) as file,
    ):
        check_source(stored, file)
        yield PreviewSource(file, page_pool, PageSlots(2 * settings.page_worker_count), _SLOTS_OWNER)


def restore_job(details: ManifestDetails) -> Job:
    """A job with the reading options of the manifest."""
    options = {name: value for name, value in details.options.items() if name in Job.model_fields}
    return Job.model_validate({"sources": ["recorded"], **options})


def restore_family(options: Mapping[str, Any]) -> Family:
    """The family that read the document, with the options that change how its answers are parsed."""
    return registry.get_family(str(options.get("family")), FamilyOptions.recorded(options), "run.options.family")


def check_source(stored: StoredDocument, file: CheckedFile) -> None:
    """Check that this is the file that was read; raises SourceError."""
    source = stored.details.source
    if source and source.sha256 != file.info.sha256:
        message = f"{file.info.uri}: not the file that was read; name the right one with --source"
        raise SourceError(Code.SOURCE_NOT_FOUND, message)


async def _write(
    stored: StoredDocument,
    document: Document,
    formats: Sequence[Format],
    options: FormatOptions,
    source: PreviewSource | None,
) -> tuple[DocumentResult, tuple[Problem, ...]]:
    folder = stored.folder
    existing = [name for name in stored.manifest.result.artefacts if name != WRITERS[Format.ZIP].name]
    written = await artefacts.write(folder, document, formats, options, source, existing)
    status, sums = document.status, AuditSum.of(document.pages)
    if written.losses:
        sums = (sums or AuditSum()).add((loss.page, loss.finding) for loss in written.losses)
        status = Status.PARTIAL_SUCCESS if status is Status.SUCCESS else status
    update = {"artefacts": written.artefacts, "status": status, "audit": sums}
    result = stored.manifest.result.model_copy(update=update)
    found = (*document.problems, *written.lost_words)
    problems = tuple(problem.model_copy(update={"document": folder.document_id}) for problem in found)
    details = stored.details.model_copy(update={"writing": options, "audits": document.audits})
    return await folder.write_manifest(result, problems, details), written.problems


async def reread_document(
    stored: StoredDocument,
    output: DocumentFolder,
    wanted: Sequence[Format],
    render_page: _RenderPage,
    page_pool: PagePool,
) -> tuple[DocumentResult, tuple[int, ...]]:
    """Parse the recorded answers with the current family, into another folder; returns the changed pages, too."""
    if output == stored.folder or await output.load_manifest():
        message = f"{output.uri('')}: contains a finished document; choose another output"
        raise StoreError(Code.OUTPUT_DENIED, message)
    pages, changed = [], []
    for old in stored.pages:
        new = old
        if old.completions:
            async with render_page(old.page.number) as rendered:
                new = await _reread_page(old, rendered, stored.details, page_pool)
                await output.store_crops(new, rendered.pixels, page_pool)
        if new.elements != old.elements:
            changed.append(old.page.number)
        await output.replace_checkpoint(new)
        pages.append(new)
    result = stored.manifest.result.model_copy(update={"pages": count_states(pages), "artefacts": {}})
    reread = StoredDocument(output, replace(stored.manifest, result=result), tuple(pages))
    names = {*wanted, *stored.manifest.formats}
    formats = tuple(name for name in Format if name in names and name not in NEEDS_SOURCE)
    written, _ = await _write(reread, await _assemble_document(reread), formats, stored.details.writing, None)
    return written, tuple(changed)


async def _reread_page(
    old: Checkpoint, rendered: RenderedPage, details: ManifestDetails, page_pool: PagePool
) -> Checkpoint:
    """Run both passes on one page with its recorded answers; returns the old page if none of them is usable now."""
    family, job = restore_family(details.options), restore_job(details)
    key, answers = _index_answers(old.completions)
    questions = int(details.options.get("missed_questions", MISSED_QUESTIONS))
    page = PageContext(rendered, key, job, _RecordedEngine(answers, family.name), family, page_pool, questions)
    first = await missed_text.add(page, await pass1.read(page))
    if first.page.state not in _USABLE_STATES:
        return old  # only an engine could give another answer
    new_ids = _match_elements(old.elements, first.elements)
    engine = _RecordedEngine(_rename_answers(answers, new_ids, key), family.name)
    second = await pass2.read(replace(page, engine=engine), first)
    missed = {prompt_id.removeprefix(f"{key}/") for prompt_id in engine.missed}
    before = {element.id: element for element in first.elements}
    elements = tuple(_flag_unasked(before.get(element.id, element), element, missed) for element in second.elements)
    second = await audit.complete(page, first, second.model_copy(update={"elements": elements}))
    if second.page.is_lost:
        return old
    enriched = await enrich.within_limit(second, job.language, page_pool)
    new = document_folder.name_crops(enriched)
    if new.elements == old.elements and new.page.audit == old.page.audit:
        return old
    return old.model_copy(update={"page": new.page, "elements": new.elements, "problems": new.problems})


class _RecordedEngine(ReplayEngine):
    """Repeats recorded answers. A prompt without one gets an error, and its id is kept in `missed`."""

    def __init__(self, answers: Mapping[str, Completion], family: str) -> None:
        super().__init__(answers, family)
        self.missed: set[str] = set()

    async def generate(self, prompt: Prompt) -> Completion:
        if prompt.id not in self._answers:
            self.missed.add(prompt.id)
            return Completion("", "error")
        return await super().generate(prompt)


def _index_answers(completions: Sequence[RawCompletion]) -> tuple[str, dict[str, Completion]]:
    """The source's key in prompt ids, and the answers by prompt id."""
    key = completions[0].prompt_id.partition("/")[0]
    return key, {
        raw.prompt_id: Completion(raw.text, raw.finish_reason, raw.tokens_in, raw.tokens_out) for raw in completions
    }


def _match_elements(old: Sequence[Element], new: Sequence[Element]) -> dict[str, str]:
    """Map old element ids to new ones by position: the current family may number elements differently.

    Ids that no old element has stay as they are: the answers about them were merged into other elements.
    """
    places: dict[object, list[str]] = defaultdict(list)
    for element in new:
        places[element.boxes or element.text].append(element.id)
    old_ids = {element.id for element in old}
    new_ids = {element.id: element.id for element in new if element.id not in old_ids}
    for element in old:
        # An element that another one was merged into has the boxes of both, its own first.
        if candidates := places[element.boxes or element.text] or places[element.boxes[:1]]:
            new_ids[element.id] = candidates.pop(0)
    return new_ids


def _rename_answers(answers: Mapping[str, Completion], new_ids: Mapping[str, str], key: str) -> dict[str, Completion]:
    """Answers about elements, with the new element ids in their prompt ids."""
    renamed = {}
    for prompt_id, completion in answers.items():
        match = _ELEMENT_PROMPT.fullmatch(prompt_id.partition("/")[2])
        if match and match["id"] in new_ids:
            renamed[f"{key}/{new_ids[match['id']]}{match['count'] or ''}"] = completion
    return renamed


def _flag_unasked(first: Element, second: Element, missed: Collection[str]) -> Element:
    """The element of the pass that the recorded answers reach; `missed` holds names of prompts without one."""
    names = {name for name in missed if name.startswith(second.id)}
    if not names:
        return second
    element = first if second.id in names else second
    element = element if element is first else element.without_flag(Flag.PASS2_CUT)  # of the missing answer
    return element.with_flags(Flag.UNASKED)
