"""Files, folders, S3 prefixes and lists in, documents that a worker can fetch out, their pages counted.

Knows where documents lie and how they come to a bucket. Knows no endpoint.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from twopass.errors import Code, InvalidJob, SourceError, TwopassError
from twopass.job import shown
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch
from twopass.storage import error_mapping
from twopass.storage.download import CHUNK, Downloaded
from twopass.storage.sources import opened_sources
from twopass.storage.store import open_output

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"})
DATA_BYTES = 7_000_000  # as base64 within the 10 MB that RunPod takes of a /run
MIME = {".pdf": "application/pdf", ".png": "image/png", ".webp": "image/webp", ".tif": "image/tiff"}


@dataclass(frozen=True)
class Item:
    """One document as the user named it: a path of this machine, or a URI."""

    place: str

    @property
    def is_here(self) -> bool:
        return "://" not in self.place

    @property
    def name(self) -> str:
        return shown(self.place)


@dataclass(frozen=True)
class Ready:
    """One document as a job names it; pages are None where nobody here could count them."""

    source: str
    sha256: str | None
    pages: int | None


async def found(named: Sequence[str], settings: Settings, outside: Path) -> list[Item]:
    """Every document below the places named, each once, in a stable order; nothing from the folder `outside`.

    A place is a file, a folder, `s3://bucket/prefix/`, any URI of a document, or `@list` with one place a line.
    Raises TwopassError.
    """
    items: dict[Item, None] = {}
    for place in named:
        items.update(dict.fromkeys(await _below(place, settings, outside)))
    return list(items)


async def _below(place: str, settings: Settings, outside: Path) -> list[Item]:
    if place.startswith("@"):
        lines = [line.strip() for line in Path(place[1:]).read_text().splitlines()]
        return await found([line for line in lines if line and not line.startswith(("#", "@"))], settings, outside)
    if place.startswith("s3://") and place.endswith("/"):
        return await _listed(place, settings)
    if "://" in place:
        return [Item(place)]
    path = Path(place)
    if path.is_dir():
        made = outside.resolve()
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        return [Item(str(file)) for file in files if not file.resolve().is_relative_to(made)]
    if not path.exists():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{place}: there is no such file or folder")
    return [Item(place)]


async def _listed(prefix: str, settings: Settings) -> list[Item]:
    store = open_output(prefix, settings, None)
    try:
        keys = await store.keys("")
    finally:
        await store.close()
    return [Item(prefix + key) for key in sorted(keys) if Path(key).suffix.lower() in SUFFIXES]


@asynccontextmanager
async def counter() -> AsyncIterator[PagePool]:
    """The child process that opens strangers' files to count their pages, and may die of one."""
    buffers = PixelBufferPool(0, 0)
    workers = PagePool(1, buffers)
    await workers.open()
    try:
        yield workers
    finally:
        await workers.close()
        buffers.close()


@dataclass(frozen=True)
class Inbox:
    """Makes documents ready for jobs. `upload` is where files of this machine go; `paths`: the worker sees them.

    Without `workers` no pages are counted, and no source that is elsewhere is fetched.
    """

    settings: Settings
    workers: PagePool | None
    upload: str | None = None
    paths: bool = False
    password: str | None = None

    async def ready(self, item: Item, *, send: bool = True) -> Ready:
        """The document counted and, with `send`, where a worker can fetch it. Raises TwopassError."""
        if not item.is_here and not self.workers:
            return Ready(item.place, None, None)
        with TemporaryDirectory(prefix="submit-") as folder:
            path = Path(item.place) if item.is_here else Path(folder) / "source"
            try:
                got = await self._fetched(item, path)
            except SourceError:
                if item.is_here:
                    raise
                return Ready(item.place, None, None)  # the worker's keys may open what ours do not
            pages = await self._counted(path, self.workers) if self.workers else None
            source = await self._sent(item, path, got) if send and item.is_here else item.place
        return Ready(source, got.sha256, pages)

    async def _fetched(self, item: Item, path: Path) -> Downloaded:
        if not item.is_here:
            async with opened_sources(self.settings) as sources:
                return await sources.fetch(item.place, path)
        if not path.is_file():
            raise SourceError(Code.SOURCE_NOT_FOUND, f"{path}: there is no such file")
        return await asyncio.to_thread(_hashed, path)

    async def _counted(self, path: Path, workers: PagePool) -> int | None:
        """None for what cannot be opened here: the worker's answer says why, with its code."""
        limits = fetch.Limits(self.settings.max_pages, self.settings.max_image_pixels)
        try:
            mime = fetch.told_by_content(path)
            return len((await workers.call(fetch.inspect, str(path), mime, self.password, limits)).pages)
        except TwopassError:
            return None

    async def _sent(self, item: Item, path: Path, got: Downloaded) -> str:
        if self.paths:
            return str(path.resolve())
        if self.upload is None:
            return _inline(item, path, got.bytes)
        # Under its content: the same file goes up once, and a changed one never over a source under way.
        store = open_output(self.upload, self.settings, None)
        key = f"{got.sha256[:16]}/{path.name}"
        try:
            if key not in await store.keys(f"{got.sha256[:16]}/"):
                await store.put(key, await asyncio.to_thread(path.read_bytes), _mime(path))
        finally:
            await store.close()
        return f"{self.upload.rstrip('/')}/{key}"


def _hashed(path: Path) -> Downloaded:
    digest = hashlib.sha256()
    with error_mapping.translated(str(path), SourceError), path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        return Downloaded(None, file.tell(), digest.hexdigest(), None)


def _inline(item: Item, path: Path, size: int) -> str:
    if size > DATA_BYTES:
        message = f"source: {item.name} has {size:,} bytes, a job carries {DATA_BYTES:,}; name a bucket in --upload"
        raise InvalidJob(Code.INVALID_JOB, message)
    return f"data:{_mime(path)};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _mime(path: Path) -> str:
    return MIME.get(path.suffix.lower(), "image/jpeg")
