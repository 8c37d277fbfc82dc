"""Find documents in files, folders, S3 prefixes and lists, count their pages and make them available to a worker."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from twopass.errors import Code, InvalidJob, SourceError, TwopassError
from twopass.job import redact_uri
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch
from twopass.storage import error_mapping
from twopass.storage.download import CHUNK_BYTES, DownloadResult
from twopass.storage.outputs import create_store
from twopass.storage.sources import open_sources

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"})
MAX_INLINE_BYTES = 7_000_000  # in base64 these fit into the 10 MB that RunPod accepts in a /run request
MIME = {".pdf": "application/pdf", ".png": "image/png", ".webp": "image/webp", ".tif": "image/tiff"}


@dataclass(frozen=True)
class DocumentRef:
    """One document as the user named it: a path of this machine, or a URI."""

    location: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.location

    @property
    def name(self) -> str:
        return redact_uri(self.location)


@dataclass(frozen=True)
class PreparedDocument:
    """One document as a job names it. Pages are None where they could not be counted on this machine."""

    source: str
    sha256: str | None
    pages: int | None


async def find_documents(places: Sequence[str], settings: Settings, excluded: Collection[str]) -> list[DocumentRef]:
    """List every document in these places, each once, in a stable order, without those below `excluded` ones.

    A place is a file, a folder, `s3://bucket/prefix/`, the URI of a document, or `@list`: a file with one place a line.
    `excluded` are folders and prefixes. Raises TwopassError.
    """
    documents: dict[DocumentRef, None] = {}
    for place in places:
        documents.update(dict.fromkeys(await _expand(place, settings, excluded)))
    return list(documents)


async def _expand(place: str, settings: Settings, excluded: Collection[str]) -> list[DocumentRef]:
    if place.startswith("@"):
        lines = [line.strip() for line in Path(place[1:]).read_text().splitlines()]
        places = [line for line in lines if line and not line.startswith(("#", "@"))]
        return await find_documents(places, settings, excluded)
    if place.startswith("s3://") and place.endswith("/"):
        return await _list_prefix(place, settings, excluded)
    if "://" in place:
        return [DocumentRef(place)]
    path = Path(place)
    if path.is_dir():
        folders = [Path(folder).resolve() for folder in excluded if "://" not in folder]
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        return [DocumentRef(str(file)) for file in files if not any(map(file.resolve().is_relative_to, folders))]
    if not path.exists():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{place}: no such file or folder")
    return [DocumentRef(place)]


async def _list_prefix(prefix: str, settings: Settings, excluded: Collection[str]) -> list[DocumentRef]:
    store = create_store(prefix, settings, None)
    try:
        keys = await store.keys("")
    finally:
        await store.close()
    uris = [prefix + key for key in sorted(keys) if Path(key).suffix.lower() in SUFFIXES]
    results = tuple(f"{folder.rstrip('/')}/" for folder in excluded)
    return [DocumentRef(uri) for uri in uris if not uri.startswith(results)]


@asynccontextmanager
async def open_page_counter() -> AsyncIterator[PagePool]:
    """Start a child process that opens untrusted files to count their pages; a crash there costs only the count."""
    buffers = PixelBufferPool(0, 0)
    page_pool = PagePool(1, buffers)
    await page_pool.open()
    try:
        yield page_pool
    finally:
        await page_pool.close()
        buffers.close()


async def count_pages(path: Path, page_pool: PagePool, settings: Settings, password: str | None) -> int | None:
    """Return None for a file that cannot be opened: the job on the worker will report why, with its code."""
    limits = fetch.Limits(settings.max_pages, settings.max_image_pixels)
    try:
        mime = fetch.detect_type(path)
        return len((await page_pool.call(fetch.inspect, str(path), mime, password, limits)).pages)
    except TwopassError:
        return None


@dataclass(frozen=True)
class DocumentPreparer:
    """Makes documents available to a worker.

    Local files go to the prefix `upload`, or into the job itself without one; with `shares_files` the worker sees this
    machine's files. Without a `page_pool` no pages are counted, and remote sources are not fetched.
    """

    settings: Settings
    page_pool: PagePool | None
    upload: str | None = None
    shares_files: bool = False
    password: str | None = None

    async def prepare(self, document: DocumentRef, *, upload: bool = True) -> PreparedDocument:
        """Count the document's pages and, with `upload`, put it where a worker can fetch it. Raises TwopassError."""
        if not document.is_local and not self.page_pool:
            return PreparedDocument(document.location, None, None)
        with TemporaryDirectory(prefix="submit-") as folder:
            path = Path(document.location) if document.is_local else Path(folder) / "source"
            try:
                file = await self._fetch(document, path)
            except SourceError:
                if document.is_local:
                    raise
                # The worker's credentials may be able to read it.
                return PreparedDocument(document.location, None, None)
            pages = None
            if self.page_pool:
                pages = await count_pages(path, self.page_pool, self.settings, self.password)
            needs_upload = upload and document.is_local
            source = await self._upload(document, path, file) if needs_upload else document.location
        return PreparedDocument(source, file.sha256, pages)

    async def _fetch(self, document: DocumentRef, path: Path) -> DownloadResult:
        if not document.is_local:
            async with open_sources(self.settings) as sources:
                return await sources.fetch(document.location, path)
        if not path.is_file():
            raise SourceError(Code.SOURCE_NOT_FOUND, f"{path}: no such file")
        return await asyncio.to_thread(_hash_file, path)

    async def _upload(self, document: DocumentRef, path: Path, file: DownloadResult) -> str:
        """Return the source for the job: a path, a data: URI, or the URI of the uploaded file."""
        if self.shares_files:
            return str(path.resolve())
        if self.upload is None:
            return _to_data_uri(document, path, file.bytes)
        # The key contains the hash: a file is uploaded once, and a changed file never replaces one that is being read.
        store = create_store(self.upload, self.settings, None)
        key = f"{file.sha256[:16]}/{path.name}"
        try:
            if key not in await store.keys(f"{file.sha256[:16]}/"):
                await store.put(key, await asyncio.to_thread(path.read_bytes), _guess_mime(path))
        finally:
            await store.close()
        return f"{self.upload.rstrip('/')}/{key}"


def _hash_file(path: Path) -> DownloadResult:
    digest = hashlib.sha256()
    with error_mapping.map_errors(str(path), SourceError), path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
        return DownloadResult(None, file.tell(), digest.hexdigest(), None)


def _to_data_uri(document: DocumentRef, path: Path, size: int) -> str:
    if size > MAX_INLINE_BYTES:
        limit = f"and a job can hold {MAX_INLINE_BYTES:,}; set a bucket with --upload"
        message = f"source: {document.name} has {size:,} bytes {limit}"
        raise InvalidJob(Code.INVALID_JOB, message)
    return f"data:{_guess_mime(path)};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _guess_mime(path: Path) -> str:
    return MIME.get(path.suffix.lower(), "image/jpeg")
