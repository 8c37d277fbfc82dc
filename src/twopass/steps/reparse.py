"""A finished document's folder in, its formats made again out; or its recorded answers read again by today's grammar.

Asks no engine. Formats need no source, but for pictures of pages; answers need it for the text layer and crops. Knows
folders and checkpoints. Knows nothing of how a format looks or an answer is read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from twopass.document import Checkpoint, Document, Element, Problem, RawCompletion, Run, State, canary_of
from twopass.engines.interface import Completion, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, InvalidJob, SourceError, StoreError
from twopass.families import registry
from twopass.format_options import Writing
from twopass.formats import docjson
from twopass.formats.registry import WRITERS
from twopass.job import DocumentResult, Format, Job
from twopass.pages.rendered_page import Picture
from twopass.pages.source_files import CheckedFile
from twopass.runtime.page_pool import PagePool
from twopass.steps import assemble, enrich, pass1, pass2, previews, upload
from twopass.steps.previews import Drawing
from twopass.steps.upload import JSON, Finished, Folder, Made

Draw = Callable[[int], AbstractAsyncContextManager[Picture]]  # page number -> its picture, as it was read

UNASKED = "unasked"  # flag: today's grammar would ask about it, and nobody did when it was read
STANDS = frozenset({State.READ, State.REPAIRED})
_CHECKPOINT = re.compile(r"pages/(\d+)\.json")
_ABOUT_ELEMENT = re.compile(r"(?P<id>p\d+-e\d+)(?P<count>-\d+)?")


@dataclass(frozen=True)
class Finding:
    """What lies in a document's folder."""

    folder: Folder
    done: Finished
    pages: tuple[Checkpoint, ...]

    @property
    def made(self) -> Made:
        return self.done.made


async def found(folder: Folder) -> Finding:
    """Raises StoreError where the document is not finished, or a page of it was never stored."""
    done = await upload.finished(folder)
    if done is None:
        raise StoreError(Code.OUTPUT_MISSING, f"{folder.uri(upload.MANIFEST)}: none, or not ours; read the document")
    names = sorted(name for name in await upload.existing(folder) if _CHECKPOINT.fullmatch(name))
    stored = [await upload.stored_page(folder, int(name[6:-5])) for name in names]
    pages = tuple(page for page in stored if page)
    wanted = sum(done.result.pages.values())
    if len(pages) != wanted:
        message = f"{folder.uri('pages/')}: {len(pages)} of {wanted} pages; send the job again to read the others"
        raise StoreError(Code.OUTPUT_MISSING, message)
    return Finding(folder, done, pages)


async def document(finding: Finding) -> Document:
    """As the job assembled it; from document.json where the manifest is older than what that takes."""
    made, folder = finding.made, finding.folder
    if made.source is None:
        stored = await folder.store.get(folder.key("document.json"))
        if stored is None:
            raise StoreError(
                Code.OUTPUT_MISSING, f"{folder.uri('document.json')}: none; send the job again with docjson"
            )
        return docjson.loads(stored.data)
    there = await upload.existing(folder)
    gone = StoreError(Code.OUTPUT_MISSING, "not in the folder")
    pages = [
        upload.without_images(page, missing, gone) if (missing := upload.missing_images(page, there)) else page
        for page in finding.pages
    ]
    run = Run(options=made.options, prompts=made.prompts, canary=canary_of(pages))
    return assemble.document(made.source, made.meta, run, folder.document_id, pages, made.selection)


async def formats(
    finding: Finding, wanted: Sequence[Format], writing: Writing, drawing: Drawing | None
) -> tuple[DocumentResult, tuple[Problem, ...]]:
    """Those and the ones that lie there, written beside the checkpoints; and what could not be drawn."""
    if Format.REVIEW in wanted and drawing is None:
        raise InvalidJob(Code.INVALID_JOB, "formats: review needs the source, for pictures of its pages")
    there = {name for name in finding.done.formats if name is not Format.REVIEW or drawing}
    chosen = tuple(name for name in Format if name in {*wanted, *there})
    return await _written(finding, await document(finding), chosen, writing, drawing)


def job_of(made: Made) -> Job:
    """The reading options as a job has them."""
    names = ("mode", "dpi", "max_crops", "pass2", "task", "prompt", "sampling", "language", "pages")
    options = {name: made.options[name] for name in names if name in made.options}
    return Job.model_validate({"sources": ["recorded"], **options})


def check_source(finding: Finding, file: CheckedFile) -> None:
    """Pictures of another file's pages would lie; raises SourceError."""
    known = finding.made.source
    if known and known.sha256 != file.info.sha256:
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{file.info.uri}: is not the file that was read; name it in --source")


async def _written(
    finding: Finding, whole: Document, chosen: Sequence[Format], writing: Writing, drawing: Drawing | None
) -> tuple[DocumentResult, tuple[Problem, ...]]:
    folder = finding.folder
    draft, lost = await previews.draft(whole, writing, chosen, folder, drawing)
    beside = [name for name in finding.done.result.artefacts if name != WRITERS[Format.ZIP].name]
    artefacts = await upload.artefacts(folder, draft, chosen, beside)
    result = finding.done.result.model_copy(update={"artefacts": artefacts, "status": whole.status})
    problems = tuple(problem.model_copy(update={"document": folder.document_id}) for problem in whole.problems)
    made = finding.made.model_copy(update={"writing": writing})
    return await upload.manifest(folder, result, problems, made), lost


async def reread(
    finding: Finding, output: Folder, wanted: Sequence[Format], draw: Draw, page_pool: PagePool
) -> tuple[DocumentResult, tuple[int, ...]]:
    """The document as today's grammar reads its answers, in another place; and the pages that came out otherwise."""
    if output == finding.folder or await upload.finished(output):
        raise StoreError(Code.OUTPUT_DENIED, f"{output.uri('')}: holds a finished document; give another output")
    pages, changed = [], []
    for stored in finding.pages:
        read = stored
        if stored.completions:
            async with draw(stored.page.number) as picture:
                read = await page(stored, picture, finding.made, page_pool)
                await upload.images(output, read, picture.pixels, page_pool, frozenset())
        if read.elements != stored.elements:
            changed.append(stored.page.number)
        await output.store.put(output.key(upload.page_name(read.page.number)), read.model_dump_json().encode(), JSON)
        pages.append(read)
    states = dict(sorted(Counter(str(read.page.state) for read in pages).items()))
    result = finding.done.result.model_copy(update={"pages": states, "artefacts": {}})
    newer = Finding(output, replace(finding.done, result=result), tuple(pages))
    chosen = tuple(name for name in Format if name in {*wanted, *finding.done.formats} and name is not Format.REVIEW)
    written, _ = await _written(newer, await document(newer), chosen, finding.made.writing, None)
    return written, tuple(changed)


async def page(stored: Checkpoint, picture: Picture, made: Made, page_pool: PagePool) -> Checkpoint:
    """One page through the steps that read it, with the answers of then; as it was where no answer stands today."""
    family, job = registry.named(str(made.options.get("family"))), job_of(made)
    key, answers = _answers(stored.completions)
    first = await pass1.read(picture, key, job, Recorded(answers, family.name), family, page_pool)
    if first.page.state not in STANDS:
        return stored  # an answer that would not do: only an engine could give another
    names = _same_places(stored.elements, first.elements)
    about = Recorded(_renamed(answers, names, key), family.name)
    second = await pass2.read(first, picture, key, job, about, family, page_pool)
    unasked = {element.id: element for element in first.elements if f"{key}/{element.id}" in about.missed}
    read = tuple(_flagged(unasked[e.id]) if e.id in unasked else e for e in second.elements)
    enriched = await page_pool.call(enrich.page, second.model_copy(update={"elements": read}), job.language)
    found = upload.with_crops(enriched)
    if found.elements == stored.elements:
        return stored
    return stored.model_copy(update={"page": found.page, "elements": found.elements, "problems": found.problems})


class Recorded(ReplayEngine):
    """Repeats answers; what was never asked is an answer that cannot stand, and is remembered."""

    def __init__(self, answers: Mapping[str, Completion], family: str) -> None:
        super().__init__(answers, family)
        self.missed: set[str] = set()

    async def generate(self, prompt: Prompt) -> Completion:
        if prompt.id not in self._answers:
            self.missed.add(prompt.id)
            return Completion("", "error")
        return await super().generate(prompt)


def _answers(completions: Sequence[RawCompletion]) -> tuple[str, dict[str, Completion]]:
    """The source in prompt ids, and every answer by its own id."""
    key = completions[0].prompt_id.partition("/")[0]
    return key, {
        told.prompt_id: Completion(told.text, told.finish_reason, told.tokens_in, told.tokens_out)
        for told in completions
    }


def _same_places(old: Sequence[Element], new: Sequence[Element]) -> dict[str, str]:
    """Old id -> new id of elements in one place: a newer grammar may count otherwise."""
    places: dict[object, list[str]] = defaultdict(list)
    for element in new:
        places[element.boxes or element.text].append(element.id)
    found = {}
    for element in old:
        if left := places[element.boxes or element.text]:
            found[element.id] = left.pop(0)
    return found


def _renamed(answers: Mapping[str, Completion], names: Mapping[str, str], key: str) -> dict[str, Completion]:
    """Answers about elements under the ids that these have now."""
    renamed = {}
    for prompt_id, completion in answers.items():
        about = _ABOUT_ELEMENT.fullmatch(prompt_id.partition("/")[2])
        if about and about["id"] in names:
            renamed[f"{key}/{names[about['id']]}{about['count'] or ''}"] = completion
    return renamed


def _flagged(element: Element) -> Element:
    return element.model_copy(update={"flags": tuple(dict.fromkeys((*element.flags, UNASKED)))})
