"""Checkpoints, crops and artefacts in, objects below the document's folder out; the manifest last.

Knows names, order and the one-winner rule. Knows nothing of how anything was read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import secrets
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from twopass.document import (
    ACCIDENTS,
    Box,
    Canary,
    Checkpoint,
    Document,
    Element,
    Kind,
    Meta,
    Problem,
    ReadFrom,
    Severity,
    SourceInfo,
    Value,
)
from twopass.errors import Code, StoreError, TwopassError, WorkerDied
from twopass.format_options import Images, Writing
from twopass.formats import zip_archive
from twopass.formats.draft import Draft
from twopass.formats.registry import WRITERS
from twopass.job import Artefact, DocumentResult, Format
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool
from twopass.storage.store import Put, Store, uri_of

MANIFEST = "manifest.json"
JSON = "application/json"
RACES = 8  # workers that finish one document at the same moment
WEBP = "image/webp"
EMBEDDED = 20_000_000  # bytes of page pictures: as base64 and with the text a review page of 30 MB
PNG_LEVEL = 3  # two thirds of the time that 6 takes, and files of text and drawings get smaller
CROP_PADDING = 6  # pixels: a box of whole grid cells may cut a chart's outermost stroke


@dataclass(frozen=True)
class Folder:
    """One document's place in the output."""

    store: Store
    document_id: str

    def key(self, name: str) -> str:
        return f"{self.document_id}/{name}"

    def uri(self, name: str) -> str:
        return uri_of(self.store, self.key(name))


def page_name(number: int) -> str:
    return f"pages/{number:04d}.json"


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Made(Value):
    """What a manifest keeps so that every format can be made again from the checkpoints, without source or engine."""

    options: dict[str, Any]
    prompts: dict[str, str] = Field(default_factory=dict)
    writing: Writing = Writing()
    source: SourceInfo | None = Field(None, description="null in manifests of older versions")
    meta: Meta = Field(Meta(), description="what the file says about itself")
    selection: tuple[Problem, ...] = Field((), description="what was wrong with the pages asked for")


@dataclass(frozen=True)
class Finished:
    """What a manifest says: the document is complete, and what came of it."""

    result: DocumentResult
    problems: tuple[Problem, ...]
    made: Made

    @property
    def formats(self) -> tuple[Format, ...]:
        return tuple(name for name, writer in WRITERS.items() if writer.name in self.result.artefacts)

    @property
    def is_final(self) -> bool:
        """Whether no page was lost to an accident: another try would change nothing."""
        return not any(told.severity is Severity.ERROR and told.code in ACCIDENTS for told in self.problems)


async def finished(folder: Folder) -> Finished | None:
    """What the document's manifest says; None where there is none, or one that is not ours."""
    stored = await folder.store.get(folder.key(MANIFEST))
    return _told(stored.data) if stored else None


def _told(data: bytes) -> Finished | None:
    try:
        body = json.loads(data)
        problems = tuple(Problem.model_validate(problem) for problem in body["problems"])
        made = Made.model_validate({name: body[name] for name in Made.model_fields if name in body})
        return Finished(DocumentResult.model_validate(body["result"]), problems, made)
    except (ValueError, KeyError, TypeError):
        return None


def prepared(read: Checkpoint, job_id: str, info: SourceInfo, canary: Canary | None) -> Checkpoint:
    """The page as it is stored: crops named, tokens counted; job, source and the engine's canary noted."""
    tokens_in = sum(told.tokens_in for told in read.completions)
    tokens_out = sum(told.tokens_out for told in read.completions)
    nonce = secrets.token_hex(8)  # tells our own checkpoint from another worker's of the same page
    cost = {**read.cost, "job": job_id, "tokens_in": tokens_in, "tokens_out": tokens_out, "nonce": nonce}
    read_from = ReadFrom(uri=info.uri, etag=info.etag)
    return with_crops(read).model_copy(update={"read_from": read_from, "canary": canary, "cost": cost})


def with_crops(read: Checkpoint) -> Checkpoint:
    """The page with a name for each crop that is cut of it."""
    return read.model_copy(update={"elements": tuple(_with_crop(element) for element in read.elements)})


def _with_crop(element: Element) -> Element:
    if not (element.is_figure or element.kind is Kind.TABLE) or element.box is None:
        return element
    return element.model_copy(update={"image": f"images/{element.id}.png"})


async def checkpoint(folder: Folder, ours: Checkpoint) -> Checkpoint:
    """Store the page once: ours if we are first, else the one that is already there.

    One that was lost to an accident is not stored: who stores first wins, and the next job may read it.
    """
    if ours.page.is_accident:
        return await stored_page(folder, ours.page.number) or ours
    key = folder.key(page_name(ours.page.number))
    outcome = await folder.store.create(key, ours.model_dump_json().encode(), JSON)
    if outcome is Put.WRITTEN:
        return ours
    theirs = await stored_page(folder, ours.page.number)
    if theirs is None:  # there, but unreadable: ours is better than none
        await folder.store.put(key, ours.model_dump_json().encode(), JSON)
        return ours
    return theirs


async def stored_page(folder: Folder, number: int) -> Checkpoint | None:
    """The page's checkpoint; None when there is none or it cannot be read."""
    stored = await folder.store.get(folder.key(page_name(number)))
    if stored is None:
        return None
    try:
        return Checkpoint.model_validate_json(stored.data)
    except ValidationError:
        return None


async def existing(folder: Folder) -> frozenset[str]:
    """Names of everything below the document's folder."""
    prefix = folder.key("")
    return frozenset(key.removeprefix(prefix) for key in await folder.store.keys(prefix))


async def images(
    folder: Folder, page: Checkpoint, pixels: Pixels, page_pool: PagePool, there: frozenset[str]
) -> Checkpoint:
    """Cut the page's figures out of its picture; pure, so two workers write equal bytes.

    The page comes back without those that killed their worker twice.
    """
    for element in page.elements:
        if element.image and element.image not in there and element.box:
            try:
                png = await page_pool.insist(png_of, pixels, element.box)
            except WorkerDied as died:
                page = without_images(page, {element.image}, died)
            else:
                await folder.store.put(folder.key(element.image), png, "image/png")
    return page


def without_images(page: Checkpoint, names: Set[str], error: TwopassError) -> Checkpoint:
    """The page as a document tells of it when these could not be cut: no link leads nowhere, and it is said."""
    number, again = page.page.number, "resume false reads the document anew"
    message = f"page {number}: without {', '.join(sorted(names))}: {error.message}; {again}"
    lost = Problem(code=error.code, severity=Severity.WARNING, page=number, message=message)
    elements = tuple(e.model_copy(update={"image": None}) if e.image in names else e for e in page.elements)
    return page.model_copy(update={"elements": elements, "problems": (*page.problems, lost)})


def missing_images(page: Checkpoint, there: frozenset[str]) -> frozenset[str]:
    return frozenset(element.image for element in page.elements if element.image) - there


def png_of(pixels: Pixels, box: Box) -> bytes:
    """In a page worker: one crop as PNG."""
    x0, y0, x1, y1 = box.to_pixels(pixels.width, pixels.height, CROP_PADDING)
    buffer = io.BytesIO()
    pillow_image.image(pixels.array()[y0:y1, x0:x1]).save(buffer, "PNG", compress_level=PNG_LEVEL)
    return buffer.getvalue()


async def crops(folder: Folder, document: Document, writing: Writing) -> dict[str, str]:
    """Each crop as a data URI, where document.md is to hold them itself."""
    if writing.markdown.images is not Images.DATA:
        return {}
    paths = [element.image for element in document.elements if element.image]
    stored = [(path, await folder.store.get(folder.key(path))) for path in paths]
    return {path: _data_uri("image/png", crop.data) for path, crop in stored if crop}


def _data_uri(content_type: str, data: bytes) -> str:
    return f"data:{content_type};base64,{base64.b64encode(data).decode()}"


class Gallery:
    """Page pictures of the review page: held for it while they are few, files in review/ once they are many.

    Which of the two depends on their bytes alone, not on the order in which they come.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._held: dict[int, bytes] = {}
        self._stored: set[int] = set()

    async def add(self, number: int, picture: bytes) -> None:
        self._held[number] = picture
        if self._stored or sum(map(len, self._held.values())) > EMBEDDED:
            held, self._held = self._held, {}
            self._stored |= set(held)
            for page, data in held.items():
                await self._folder.store.put(self._folder.key(_picture_name(page)), data, WEBP)

    @property
    def addresses(self) -> dict[int, str]:
        return {
            **{number: _data_uri(WEBP, data) for number, data in sorted(self._held.items())},
            **{number: _picture_name(number) for number in sorted(self._stored)},
        }


def _picture_name(number: int) -> str:
    return f"review/p{number:04d}.webp"


async def artefacts(
    folder: Folder, draft: Draft, formats: Sequence[Format], beside: Sequence[str] = ()
) -> dict[str, Artefact]:
    """Write the formats asked for; what was written, by name. The archive holds them and what lies `beside`."""
    written: dict[str, Artefact] = {}
    for name in formats:
        writer = WRITERS[name]
        if writer.write is None:
            data = await _packed(folder, draft.document, [*written, *beside])
        else:
            data = await asyncio.to_thread(writer.write, draft)  # seconds for a thousand pages
        await folder.store.put(folder.key(writer.name), data, writer.content_type)
        written[writer.name] = described(folder, writer.name, data, writer.content_type)
    return written


async def _packed(folder: Folder, document: Document, names: Sequence[str]) -> bytes:
    """Those artefacts, and the crops and page pictures that they show."""
    crops = (element.image for element in document.elements if element.image)
    pictures = (_picture_name(page.number) for page in document.pages)
    packing = zip_archive.Packing()
    for name in sorted({*names, *crops, *(await existing(folder)).intersection(pictures)}):
        if stored := await folder.store.get(folder.key(name)):
            await asyncio.to_thread(packing.add, name, stored.data)
    return packing.packed()


def described(folder: Folder, name: str, data: bytes, content_type: str) -> Artefact:
    digest = hashlib.sha256(data).hexdigest()
    return Artefact(uri=folder.uri(name), bytes=len(data), sha256=digest, content_type=content_type)


async def manifest(folder: Folder, result: DocumentResult, problems: Sequence[Problem], made: Made) -> DocumentResult:
    """The commit mark: readers poll for it, so it is written last and nothing after it.

    Where one stands already, for other formats or by another worker, its artefacts are kept beside ours.
    """
    key = folder.key(MANIFEST)
    for _ in range(RACES):
        stored = await folder.store.get(key)
        told = _told(stored.data) if stored else None
        if told:
            result = result.model_copy(update={"artefacts": {**told.result.artefacts, **result.artefacts}})
        data = _manifest(result, problems, made)
        if stored is None and await folder.store.create(key, data, JSON) is Put.WRITTEN:
            return result
        if stored and await folder.store.replace(key, data, JSON, stored.etag):
            return result
    raise StoreError(Code.STORE_UNAVAILABLE, f"{folder.uri(MANIFEST)}: written by others {RACES} times in between")


def _manifest(result: DocumentResult, problems: Sequence[Problem], made: Made) -> bytes:
    told = result.model_dump(mode="json", exclude={"inline"})
    found = [problem.model_dump(mode="json") for problem in problems]
    body = {"schema": "twopass-manifest-1", **made.model_dump(mode="json"), "result": told, "problems": found}
    return as_json(body)
