"""Store checkpoints, crops and artefacts in the document's folder, the manifest last.

Of several workers that store the same page, the first wins.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import re
import secrets
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from twopass.document import (
    TRANSIENT_CODES,
    Box,
    Canary,
    Checkpoint,
    Document,
    Element,
    Kind,
    Meta,
    Problem,
    Severity,
    SourceInfo,
    SourceVersion,
    Value,
)
from twopass.errors import Code, StoreError, TwopassError, WorkerDied
from twopass.format_options import FormatOptions, Images
from twopass.formats.registry import WRITERS, Writer, ZipBuilder
from twopass.formats.writer_input import WriterInput
from twopass.job import Format
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import Pixels
from twopass.result import Artefact, DocumentResult
from twopass.runtime import retry, task_group
from twopass.runtime.page_pool import PagePool
from twopass.storage.document_folder import (
    MANIFEST,
    DocumentFolder,
    crop_name,
    page_name,
    preview_name,
    thumbnail_name,
)
from twopass.storage.store import CreateResult

_ELEMENT_ID = re.compile(r"p\d+-e\d+")

JSON = "application/json"
WEBP = "image/webp"
MAX_EMBEDDED_BYTES = 20_000_000  # bytes of page images in review.html: with base64 and the text about 30 MB
PNG_LEVEL = 3  # two thirds of the time of level 6, and smaller files for text and drawings
THUMBNAIL_PX, THUMBNAIL_QUALITY = 160, 60  # of the longer side; a page of text takes about 2 kB
CROP_PADDING = 6  # pixels: boxes are rounded to the model's grid, which may cut a chart's outermost stroke


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class ManifestDetails(Value):
    """What the manifest keeps, so that every format can be rebuilt from checkpoints without source or engine."""

    options: dict[str, Any]
    prompts: dict[str, str] = Field(default_factory=dict)
    writing: FormatOptions = FormatOptions()
    source: SourceInfo | None = Field(None, description="null in manifests of older versions")
    meta: Meta = Field(Meta(), description="metadata of the source file")
    selection: tuple[Problem, ...] = Field((), description="problems of the page selection")


@dataclass(frozen=True)
class Manifest:
    """A parsed manifest. It exists only for complete documents."""

    result: DocumentResult
    problems: tuple[Problem, ...]
    details: ManifestDetails

    @property
    def formats(self) -> tuple[Format, ...]:
        return tuple(name for name, writer in WRITERS.items() if writer.name in self.result.artefacts)

    @property
    def is_final(self) -> bool:
        """Whether no page was lost to a transient failure, so that another try would change nothing."""
        return not any(
            problem.severity is Severity.ERROR and problem.code in TRANSIENT_CODES for problem in self.problems
        )


async def load_manifest(folder: DocumentFolder) -> Manifest | None:
    """The document's manifest; None if there is none or it cannot be parsed."""
    stored = await folder.store.get(folder.key(MANIFEST))
    return _parse_manifest(stored.data) if stored else None


def _parse_manifest(data: bytes) -> Manifest | None:
    try:
        body = json.loads(data)
        problems = tuple(Problem.model_validate(problem) for problem in body["problems"])
        details = ManifestDetails.model_validate(
            {name: body[name] for name in ManifestDetails.model_fields if name in body}
        )
        return Manifest(DocumentResult.model_validate(body["result"]), problems, details)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def prepare_checkpoint(page: Checkpoint, job_id: str, info: SourceInfo, canary: Canary | None) -> Checkpoint:
    """Add what is stored with the page: names of crops, token counts, job, source and the engine's canary."""
    tokens_in = sum(completion.tokens_in for completion in page.completions)
    tokens_out = sum(completion.tokens_out for completion in page.completions)
    nonce = secrets.token_hex(8)  # distinguishes this checkpoint from another worker's of the same page
    cost = {**page.cost, "job": job_id, "tokens_in": tokens_in, "tokens_out": tokens_out, "nonce": nonce}
    read_from = SourceVersion(uri=info.uri, etag=info.etag)
    return name_crops(page).model_copy(update={"read_from": read_from, "canary": canary, "cost": cost})


def name_crops(page: Checkpoint) -> Checkpoint:
    """Name the image file of each figure and table."""
    return page.model_copy(update={"elements": tuple(_name_crop(element) for element in page.elements)})


def _name_crop(element: Element) -> Element:
    """Name its file; a page worker that a document has taken over must not name another one, by an id with `..`."""
    has_crop = (element.is_figure or element.kind is Kind.TABLE) and element.box is not None
    is_named = has_crop and _ELEMENT_ID.fullmatch(element.id)
    return element.model_copy(update={"image": crop_name(element.id) if is_named else None})


async def store_checkpoint(folder: DocumentFolder, ours: Checkpoint) -> Checkpoint:
    """Store the page unless it is stored already; returns the stored one.

    A page with a transient failure is not stored, because the first one stored wins, and the next job may read it.
    """
    if ours.page.is_transient_failure:
        return await load_checkpoint(folder, ours.page.number) or ours
    key = folder.key(page_name(ours.page.number))
    outcome = await folder.store.create(key, ours.model_dump_json().encode(), JSON)
    if outcome is CreateResult.WRITTEN:
        return ours
    theirs = await load_checkpoint(folder, ours.page.number)
    if theirs is None:  # the stored object is unreadable
        await folder.store.put(key, ours.model_dump_json().encode(), JSON)
        return ours
    return theirs


async def load_checkpoint(folder: DocumentFolder, number: int) -> Checkpoint | None:
    """The page's checkpoint; None if there is none or it cannot be parsed."""
    stored = await folder.store.get(folder.key(page_name(number)))
    if stored is None:
        return None
    try:
        return Checkpoint.model_validate_json(stored.data)
    except ValidationError:
        return None


async def store_crops(
    folder: DocumentFolder, page: Checkpoint, pixels: Pixels, page_pool: PagePool, stored_names: frozenset[str]
) -> Checkpoint:
    """Store the crops of the page's figures and tables that are missing; two workers write equal bytes.

    Crops whose page worker died twice are removed from the returned page.
    """

    async def store(name: str, box: Box) -> WorkerDied | None:
        try:
            png = await page_pool.call_with_retry(encode_png, pixels, box)
        except WorkerDied as died:
            return died
        await folder.store.put(folder.key(name), png, "image/png")
        return None

    missing = [(e.image, e.box) for e in page.elements if e.image and e.image not in stored_names and e.box]
    async with task_group.open_group() as group:
        tasks = {name: group.create_task(store(name, box)) for name, box in missing}
    for name, task in tasks.items():
        if died := task.result():
            page = drop_images(page, {name}, died)
    return page


def drop_images(page: Checkpoint, names: Set[str], error: TwopassError) -> Checkpoint:
    """Remove these images from the page, so that no link is broken, and add a warning."""
    number, advice = page.page.number, "set resume to false to read the document again"
    message = f"page {number}: {', '.join(sorted(names))} could not be created: {error.message}; {advice}"
    lost = Problem(code=error.code, severity=Severity.WARNING, page=number, message=message)
    elements = tuple(e.model_copy(update={"image": None}) if e.image in names else e for e in page.elements)
    return page.model_copy(update={"elements": elements, "problems": (*page.problems, lost)})


def missing_images(page: Checkpoint, stored_names: frozenset[str]) -> frozenset[str]:
    return frozenset(element.image for element in page.elements if element.image) - stored_names


async def store_thumbnail(folder: DocumentFolder, number: int, pixels: Pixels, page_pool: PagePool) -> None:
    """Store a small picture of the page; a page worker that dies meanwhile costs only the picture."""
    with suppress(WorkerDied):
        image = await page_pool.call(encode_thumbnail, pixels)
        await folder.store.put(folder.key(thumbnail_name(number)), image, WEBP)


def encode_thumbnail(pixels: Pixels) -> bytes:
    """Runs in a page worker: encode the whole page as a small WebP image."""
    buffer = io.BytesIO()
    image = pillow_image.to_image(pixels.array())
    image.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX))
    image.save(buffer, "WEBP", quality=THUMBNAIL_QUALITY)
    return buffer.getvalue()


def encode_png(pixels: Pixels, box: Box) -> bytes:
    """Runs in a page worker: encode one crop as PNG."""
    x0, y0, x1, y1 = box.to_pixels(pixels.width, pixels.height, CROP_PADDING)
    buffer = io.BytesIO()
    pillow_image.to_image(pixels.array()[y0:y1, x0:x1]).save(buffer, "PNG", compress_level=PNG_LEVEL)
    return buffer.getvalue()


async def load_crops(folder: DocumentFolder, document: Document, options: FormatOptions) -> dict[str, str]:
    """Each crop as a data URI, if document.md and document.html embed their images; otherwise none."""
    if options.markdown.images is not Images.DATA:
        return {}
    paths = [element.image for element in document.elements if element.image]
    stored = [(path, await folder.store.get(folder.key(path))) for path in paths]
    return {path: _to_data_uri("image/png", crop.data) for path, crop in stored if crop}


def _to_data_uri(content_type: str, data: bytes) -> str:
    return f"data:{content_type};base64,{base64.b64encode(data).decode()}"


class PagePreviews:
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
                await self._folder.store.put(self._folder.key(preview_name(page)), data, WEBP)

    @property
    def addresses(self) -> dict[int, str]:
        return {
            **{number: _to_data_uri(WEBP, data) for number, data in sorted(self._held.items())},
            **{number: preview_name(number) for number in sorted(self._stored)},
        }


async def write_artefacts(
    folder: DocumentFolder,
    inputs: WriterInput,
    formats: Sequence[Format],
    existing: Sequence[str] = (),
    on_written: Callable[[], None] = lambda: None,
) -> dict[str, Artefact]:
    """Write the formats; returns the artefacts by name. The ZIP archive also contains the `existing` artefacts."""

    async def store(writer: Writer, data: bytes) -> Artefact:
        await folder.store.put(folder.key(writer.name), data, writer.content_type)
        on_written()
        return describe_artefact(folder, writer.name, data, writer.content_type)

    writers, storing = [WRITERS[name] for name in formats], dict[str, asyncio.Task[Artefact]]()
    async with task_group.open_group() as group:
        for writer in writers:
            if writer.write:
                data = await asyncio.to_thread(writer.write, inputs)  # takes seconds for a thousand pages
                storing[writer.name] = group.create_task(store(writer, data))
    written = {name: task.result() for name, task in storing.items()}
    for writer in writers:
        if writer.write is None:
            data = await _build_zip(folder, inputs.document, [*written, *existing])
            written[writer.name] = await store(writer, data)
    return written


async def _build_zip(folder: DocumentFolder, document: Document, names: Sequence[str]) -> bytes:
    """Pack these artefacts with the crops and page images that they refer to."""
    crops = (element.image for element in document.elements if element.image)
    pictures = (preview_name(page.number) for page in document.pages)
    packing = ZipBuilder()
    for name in sorted({*names, *crops, *(await folder.list_names()).intersection(pictures)}):
        if stored := await folder.store.get(folder.key(name)):
            await asyncio.to_thread(packing.add, name, stored.data)
    return packing.finish()


def describe_artefact(folder: DocumentFolder, name: str, data: bytes, content_type: str) -> Artefact:
    digest = hashlib.sha256(data).hexdigest()
    return Artefact(uri=folder.uri(name), bytes=len(data), sha256=digest, content_type=content_type)


async def write_manifest(
    folder: DocumentFolder, result: DocumentResult, problems: Sequence[Problem], details: ManifestDetails
) -> DocumentResult:
    """Write the manifest, which marks the document as complete: readers poll for it, so it is written last.

    The artefacts of an existing manifest, for other formats or by another worker, are kept.
    """
    key = folder.key(MANIFEST)
    for _ in range(retry.MANIFEST_WRITE.attempts):
        stored = await folder.store.get(key)
        existing = _parse_manifest(stored.data) if stored else None
        if existing:
            result = result.model_copy(update={"artefacts": {**existing.result.artefacts, **result.artefacts}})
        data = _serialize_manifest(result, problems, details)
        if stored is None and await folder.store.create(key, data, JSON) is CreateResult.WRITTEN:
            return result
        if stored and await folder.store.replace(key, data, JSON, stored.etag):
            return result
    message = f"{folder.uri(MANIFEST)}: other workers replaced it {retry.MANIFEST_WRITE.attempts} times"
    raise StoreError(Code.STORE_UNAVAILABLE, message)


def _serialize_manifest(result: DocumentResult, problems: Sequence[Problem], details: ManifestDetails) -> bytes:
    return to_json(
        {
            "schema": "twopass-manifest-1",
            **details.model_dump(mode="json"),
            "result": result.model_dump(mode="json", exclude={"inline"}),
            "problems": [problem.model_dump(mode="json") for problem in problems],
        }
    )
