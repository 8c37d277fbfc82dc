"""One document's folder in the output: the checkpoints of its pages, their crops, and the manifest.

Only this module knows the names of the files, except those of the formats. Of several workers that store the same page,
the first wins.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field, ValidationError

from twopass.document import (
    Box,
    Canary,
    Checkpoint,
    Element,
    Kind,
    Meta,
    PageAudit,
    Problem,
    Severity,
    SourceInfo,
    SourceVersion,
)
from twopass.errors import Code, Retry, StoreError, TwopassError, WorkerDied
from twopass.format_options import FormatOptions
from twopass.formats.registry import WRITERS
from twopass.job import Format
from twopass.pages import pillow_image
from twopass.pages.shared_pixels import Pixels
from twopass.result import Artefact, DocumentResult
from twopass.runtime import retry, task_group
from twopass.runtime.page_pool import PagePool
from twopass.steps import audit
from twopass.storage.store import CreateResult, Store, uri_of
from twopass.values import Value

JSON = "application/json"
WEBP = "image/webp"
_PNG_LEVEL = 3  # two thirds of the time of level 6, and smaller files for text and drawings
_THUMBNAIL_PX, _THUMBNAIL_QUALITY = 160, 60  # of the longer side; a page of text takes about 2 kB
_CROP_PADDING = 6  # pixels: boxes are rounded to the model's grid, which may cut a chart's outermost stroke

_MANIFEST = "manifest.json"
_CHECKPOINTS = "pages/"
_CHECKPOINT = re.compile(rf"{_CHECKPOINTS}(\d+)\.json")
_ELEMENT_ID = re.compile(r"p\d+-e\d+")


def page_name(number: int) -> str:
    """The name of a page's checkpoint."""
    return f"{_CHECKPOINTS}{number:04d}.json"


def preview_name(number: int) -> str:
    """The name of a page's picture in the review page."""
    return f"review/p{number:04d}.webp"


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
    audits: dict[int, PageAudit] = Field(default_factory=dict, description="by page")


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
            problem.severity is Severity.ERROR and problem.code.retry is Retry.AT_ONCE for problem in self.problems
        )

    @classmethod
    def parse(cls, data: bytes) -> Manifest | None:
        """The manifest in these bytes; None if it cannot be parsed."""
        try:
            body = json.loads(data)
            problems = tuple(Problem.model_validate(problem) for problem in body["problems"])
            details = ManifestDetails.model_validate(
                {name: body[name] for name in ManifestDetails.model_fields if name in body}
            )
            return cls(DocumentResult.model_validate(body["result"]), problems, details)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def serialize(self) -> bytes:
        return to_json(
            {
                "schema": "twopass-manifest-1",
                **self.details.model_dump(mode="json"),
                "result": self.result.model_dump(mode="json", exclude={"inline"}),
                "problems": [problem.model_dump(mode="json") for problem in self.problems],
            }
        )


@dataclass(frozen=True)
class DocumentFolder:
    """The keys of a store that begin with the document's id. Every method raises StoreError if the store fails."""

    store: Store
    document_id: str

    def key(self, name: str) -> str:
        return f"{self.document_id}/{name}"

    def uri(self, name: str) -> str:
        return uri_of(self.store, self.key(name))

    async def list_names(self) -> frozenset[str]:
        """The names of all files in the folder."""
        prefix = self.key("")
        return frozenset(key.removeprefix(prefix) for key in await self.store.keys(prefix))

    async def read(self, name: str) -> bytes | None:
        stored = await self.store.get(self.key(name))
        return stored.data if stored else None

    async def read_artefacts(self) -> dict[str, bytes]:
        """All files but the manifest and the checkpoints, by name."""
        names = sorted(name for name in await self.list_names() if name != _MANIFEST)
        files = [(name, await self.read(name)) for name in names if not name.startswith(_CHECKPOINTS)]
        return {name: data for name, data in files if data is not None}

    async def write(self, name: str, data: bytes, content_type: str) -> None:
        """Write a file, replacing any that exists."""
        await self.store.put(self.key(name), data, content_type)

    # ---- checkpoints ----------------------------------------------------------------------------

    async def load_checkpoint(self, number: int) -> Checkpoint | None:
        """The page's checkpoint; None if there is none or it cannot be parsed."""
        if (data := await self.read(page_name(number))) is None:
            return None
        try:
            return audit.restore(Checkpoint.model_validate_json(data))
        except ValidationError:
            return None

    async def load_checkpoints(self) -> tuple[Checkpoint, ...]:
        """All checkpoints that can be parsed, in the order of their names."""
        found = (_CHECKPOINT.fullmatch(name) for name in sorted(await self.list_names()))
        checkpoints = [await self.load_checkpoint(int(match[1])) for match in found if match]
        return tuple(checkpoint for checkpoint in checkpoints if checkpoint)

    async def store_checkpoint(
        self, page: Checkpoint, job_id: str, info: SourceInfo, canary: Canary | None
    ) -> tuple[Checkpoint, bool]:
        """Store the page unless it is stored already; returns the stored one, and whether it is ours.

        A page with a transient failure is not stored, because the first one stored wins, and the next job may read it.
        """
        ours, number = _complete(page, job_id, info, canary), page.page.number
        if not ours.page.is_transient_failure:
            data = ours.model_dump_json().encode()
            if await self.store.create(self.key(page_name(number)), data, JSON) is CreateResult.WRITTEN:
                return ours, True
        if theirs := await self.load_checkpoint(number):
            return theirs, theirs.cost.get("nonce") == ours.cost["nonce"]
        if not ours.page.is_transient_failure:  # the stored object is unreadable
            await self.replace_checkpoint(ours)
        return ours, True

    async def replace_checkpoint(self, page: Checkpoint) -> None:
        """Store the page, also if it is stored already."""
        await self.write(page_name(page.page.number), page.model_dump_json().encode(), JSON)

    # ---- pictures -------------------------------------------------------------------------------

    async def store_crops(
        self, page: Checkpoint, pixels: Pixels, page_pool: PagePool, stored_names: Set[str] = frozenset()
    ) -> Checkpoint:
        """Store the crops of the page's figures and tables that are missing; two workers write equal bytes.

        Crops whose page worker died twice are removed from the returned page.
        """

        async def store(name: str, box: Box) -> WorkerDied | None:
            try:
                png = await page_pool.call_with_retry(encode_png, pixels, box)
            except WorkerDied as died:
                return died
            await self.write(name, png, "image/png")
            return None

        missing = [(e.image, e.box) for e in page.elements if e.image and e.image not in stored_names and e.box]
        async with task_group.open_group() as group:
            tasks = {name: group.create_task(store(name, box)) for name, box in missing}
        for name, task in tasks.items():
            if died := task.result():
                page = drop_images(page, {name}, died)
        return page

    async def store_thumbnail(self, number: int, pixels: Pixels, page_pool: PagePool) -> None:
        """Store a small picture of the page, which `twopass serve` shows while the job runs.

        A page worker that dies meanwhile costs only the picture.
        """
        with suppress(WorkerDied):
            image = await page_pool.call(encode_thumbnail, pixels)
            await self.write(f"thumbnails/p{number:04d}.webp", image, WEBP)

    # ---- manifest -------------------------------------------------------------------------------

    async def load_manifest(self) -> Manifest | None:
        """The document's manifest; None if there is none or it cannot be parsed."""
        data = await self.read(_MANIFEST)
        return None if data is None else Manifest.parse(data)

    async def require_manifest(self) -> Manifest:
        """The document's manifest; raises StoreError if the document is not finished."""
        if manifest := await self.load_manifest():
            return manifest
        message = f"{self.uri(_MANIFEST)}: missing or not a twopass manifest; read the document first"
        raise StoreError(Code.OUTPUT_MISSING, message)

    async def write_manifest(
        self, result: DocumentResult, problems: Sequence[Problem], details: ManifestDetails
    ) -> DocumentResult:
        """Write the manifest, which marks the document as complete: readers poll for it, so it is written last.

        The artefacts of an existing manifest, for other formats or by another worker, are kept if they are of the same
        pages. Others lack what was read since, and are deleted.
        """

        def merge(existing: Manifest | None) -> Manifest:
            kept = existing.result.artefacts if existing and existing.result.pages == result.pages else {}
            merged = result.model_copy(update={"artefacts": {**kept, **result.artefacts}})
            return Manifest(merged, tuple(problems), details)

        before, after = await self._change_manifest(merge)
        for name in before.result.artefacts.keys() - after.result.artefacts.keys() if before else ():
            with suppress(StoreError):  # the keys may not allow it; nothing names the file any more
                await self.store.delete(self.key(name))
        return after.result

    async def add_artefacts(self, artefacts: Mapping[str, Artefact], problems: Sequence[Problem]) -> None:
        """List artefacts that were written later in the manifest, so that who changes the document writes them, too."""

        def merge(existing: Manifest | None) -> Manifest:
            if existing is None:
                raise StoreError(Code.OUTPUT_MISSING, f"{self.uri(_MANIFEST)}: deleted meanwhile")
            merged = {**existing.result.artefacts, **artefacts}
            new = [problem.model_copy(update={"document": self.document_id}) for problem in problems]
            unknown = [problem for problem in new if problem not in existing.problems]
            result = existing.result.model_copy(update={"artefacts": merged})
            return replace(existing, result=result, problems=(*existing.problems, *unknown))

        await self._change_manifest(merge)

    async def _change_manifest(self, change: Callable[[Manifest | None], Manifest]) -> tuple[Manifest | None, Manifest]:
        """Replace the manifest by what `change` makes of the stored one; returns both."""
        key = self.key(_MANIFEST)
        for _ in range(retry.MANIFEST_WRITE.attempts):
            stored = await self.store.get(key)
            before = Manifest.parse(stored.data) if stored else None
            after = change(before)
            data = after.serialize()
            if stored is None and await self.store.create(key, data, JSON) is CreateResult.WRITTEN:
                return before, after
            if stored and await self.store.replace(key, data, JSON, stored.etag):
                return before, after
        message = f"{self.uri(_MANIFEST)}: other workers replaced it {retry.MANIFEST_WRITE.attempts} times"
        raise StoreError(Code.STORE_UNAVAILABLE, message)


def _complete(page: Checkpoint, job_id: str, info: SourceInfo, canary: Canary | None) -> Checkpoint:
    """Add what is stored with the page: names of crops, token counts, job, source and the engine's canary."""
    tokens_in = sum(completion.tokens_in for completion in page.completions)
    tokens_out = sum(completion.tokens_out for completion in page.completions)
    nonce = secrets.token_hex(8)  # distinguishes this checkpoint from another worker's of the same page
    cost = {**page.cost, "job": job_id, "tokens_in": tokens_in, "tokens_out": tokens_out, "nonce": nonce}
    read_from = SourceVersion(uri=info.uri, etag=info.etag)
    return name_crops(page).model_copy(update={"read_from": read_from, "canary": canary, "cost": cost})


def name_crops(page: Checkpoint) -> Checkpoint:
    """Name the image file of each figure and table, and of text that was not read."""
    return page.model_copy(update={"elements": tuple(_name_crop(element) for element in page.elements)})


def _name_crop(element: Element) -> Element:
    """Name its file; a page worker that a document has taken over must not name another one, by an id with `..`."""
    is_shown = element.is_figure or element.kind is Kind.TABLE or element.is_unread_ink
    has_crop = is_shown and element.box is not None
    is_named = has_crop and _ELEMENT_ID.fullmatch(element.id)
    return element.model_copy(update={"image": f"images/{element.id}.png" if is_named else None})


def drop_images(page: Checkpoint, names: Set[str], error: TwopassError) -> Checkpoint:
    """Remove these images from the page, so that no link is broken, and add a warning."""
    advice = "set resume to false to read the document again"
    what = f"{', '.join(sorted(names))} could not be created: {error.message}; {advice}"
    elements = tuple(e.model_copy(update={"image": None}) if e.image in names else e for e in page.elements)
    page = page.model_copy(update={"elements": elements})
    return page.with_problems([Problem.warning(page.page.number, error.code, what)])


def find_missing_images(page: Checkpoint, stored_names: Set[str]) -> frozenset[str]:
    return frozenset(element.image for element in page.elements if element.image) - stored_names


def encode_thumbnail(pixels: Pixels) -> bytes:
    """In a page worker: encode the whole page as a small WebP image."""
    buffer = io.BytesIO()
    image = pillow_image.to_image(pixels.array())
    image.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX))
    image.save(buffer, "WEBP", quality=_THUMBNAIL_QUALITY)
    return buffer.getvalue()


def encode_png(pixels: Pixels, box: Box) -> bytes:
    """In a page worker: encode one crop as PNG."""
    x0, y0, x1, y1 = box.to_pixels(pixels.width, pixels.height, _CROP_PADDING)
    buffer = io.BytesIO()
    pillow_image.to_image(pixels.array()[y0:y1, x0:x1]).save(buffer, "PNG", compress_level=_PNG_LEVEL)
    return buffer.getvalue()
