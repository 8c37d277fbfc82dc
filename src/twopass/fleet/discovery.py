"""Find documents in files, folders, S3 prefixes and lists, count their pages and make them available to a worker.

What is in these places and is not read is listed, too, with the reason.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from twopass import locations
from twopass.errors import Code, InvalidJob, SourceError, TwopassError
from twopass.fleet.ledger import Ledger, PageCount
from twopass.pages import file_types
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch
from twopass.storage import error_mapping
from twopass.storage.s3 import S3Store
from twopass.storage.sources import Sources, open_sources
from twopass.storage.store import Store, uri_of

_MAX_INLINE_BYTES = 7_000_000  # in base64 these fit into the 10 MB that RunPod accepts in a /run request
_MAX_SHOWN = 10  # skipped files in one line
_MAX_LISTED = 10_000  # in a summary: a prefix may hold millions
_NAME_IT = "pass it by name if it is a PDF or a picture all the same"
_NESTED_LIST = "a list in a list; pass it by name"
_LINKED_FOLDER = f"a link to a folder; {_NAME_IT}"


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """One document as the user named it: a path of this machine, or a URI.

    `version` changes with the document's bytes; None where a listing did not say it.
    """

    location: str
    version: str | None = field(default=None, compare=False)

    @property
    def is_local(self) -> bool:
        return not locations.is_uri(self.location)

    @property
    def name(self) -> str:
        return locations.redact(self.location)


@dataclass(frozen=True)
class PreparedDocument:
    """One document as a job names it. Pages are None where they could not be counted on this machine.

    `upload` is the key under which the file must be stored before a job is sent; None if a worker sees it already.
    `version` is that of a document that was not hashed.
    """

    source: str
    sha256: str | None
    pages: int | None
    upload: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or folder in a place that is not read, and why, with what to do."""

    name: str
    reason: str


class Found(NamedTuple):
    """What places hold: the documents, and all else, so that nothing is left out unseen."""

    documents: list[DocumentRef]
    skipped: list[Skipped]


async def find_documents(places: Sequence[str], settings: Settings, excluded: Collection[str]) -> Found:
    """List what is in these places, each once, in a stable order, without what is below `excluded` ones.

    A place is a file, a folder, `s3://bucket/prefix/`, the URI of a document, or `@list`: a file with one place a line.
    `excluded` are folders and prefixes. Raises TwopassError.
    """
    return join([await _expand(place, settings, excluded) for place in places])


def join(places: Sequence[Found]) -> Found:
    """What is in all of them, each once."""
    documents = dict.fromkeys(one for found in places for one in found.documents)
    skipped = dict.fromkeys(one for found in places for one in found.skipped)
    return Found(list(documents), list(skipped))


def describe_skipped(skipped: Sequence[Skipped]) -> str:
    """Say how many files are not read, and which and why; of many, the first few."""
    shown = [f"{file.name} ({file.reason})" for file in skipped[:_MAX_SHOWN]]
    more = [f"and {len(skipped) - _MAX_SHOWN} more"] if len(skipped) > _MAX_SHOWN else []
    return f"not read: {len(skipped)} {'file' if len(skipped) == 1 else 'files'}: {', '.join([*shown, *more])}"


def sum_up_skipped(skipped: Sequence[Skipped]) -> dict[str, Any]:
    """What a summary says of files that are not read: their number, and which and why."""
    files = [{"file": file.name, "reason": file.reason} for file in skipped[:_MAX_LISTED]]
    return {"count": len(skipped), "files": files}


async def _expand(place: str, settings: Settings, excluded: Collection[str]) -> Found:
    if place.startswith("@"):
        with error_mapping.map_errors(place, SourceError):
            text = Path(place[1:]).read_text(errors="surrogateescape")  # as Python keeps file names that are not UTF-8
        lines = [line.strip() for line in text.splitlines()]
        places = [line for line in lines if line and not line.startswith(("#", "@"))]
        lists = [Skipped(line, _NESTED_LIST) for line in lines if line.startswith("@")]
        found = await find_documents(places, settings, excluded)
        return Found(found.documents, [*found.skipped, *lists])
    place = locations.normalize(place)
    if locations.S3.begins(place) and place.endswith("/"):
        return await _list_prefix(place, settings, excluded)
    if locations.is_uri(place):
        return Found([DocumentRef(place)], [])
    path = Path(place)
    if path.is_dir():
        return _list_folder(path, [locations.absolute(folder) for folder in excluded if not locations.is_uri(folder)])
    if not path.exists():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{place}: no such file or folder; check its path")
    return Found([DocumentRef(place)], [])


def _list_folder(folder: Path, excluded: Sequence[str]) -> Found:
    """What is in the folder and below; links to folders are not followed, because they may lead back."""
    found, errors = Found([], []), list[OSError]()
    paths = [
        Path(parent, name)
        for parent, folders, files in os.walk(folder, onerror=errors.append)
        for name in (*files, *(name for name in folders if os.path.islink(os.path.join(parent, name))))
    ]
    for path in sorted(paths):
        if any(map(Path(os.path.realpath(path)).is_relative_to, excluded)):
            continue
        if reason := _find_reason(path):
            found.skipped.append(Skipped(str(path), reason))
        else:
            found.documents.append(DocumentRef(str(path)))
    found.skipped.extend(Skipped(str(error.filename), f"{error.strerror}; check its permissions") for error in errors)
    return found


def _find_reason(path: Path) -> str | None:
    """Why a path in a folder is not read; None for a document."""
    if path.is_dir():
        return _LINKED_FOLDER
    if path.is_symlink() and not path.exists():
        return "a link to a file that does not exist"
    return _judge_name(path.name) or (None if path.is_file() else "not a regular file")


def _judge_name(name: str) -> str | None:
    """Why a file with this name is not taken for a document; None for one that is."""
    suffix = Path(name).suffix.lower()
    if suffix in file_types.IN_FOLDERS:
        return None
    return f"{suffix} is no type that is read; {_NAME_IT}" if suffix else f"its name has no suffix; {_NAME_IT}"


async def _list_prefix(prefix: str, settings: Settings, excluded: Collection[str]) -> Found:
    store, found = S3Store(prefix, settings, None), Found([], [])
    try:
        versions = await store.versions("")
    finally:
        await store.close()
    results = tuple(f"{locations.normalize(folder).rstrip('/')}/" for folder in excluded)
    for key in sorted(versions):
        uri = prefix + key
        if uri.startswith(results) or uri.endswith("/"):  # an object that stands for a folder
            continue
        if reason := _judge_name(key):
            found.skipped.append(Skipped(uri, reason))
        else:
            found.documents.append(DocumentRef(uri, versions[key]))
    return found


@dataclass(frozen=True)
class PageCounter:
    """Fetches documents and counts their pages in a child process, so that a file that crashes it costs only its count.

    All documents share the connections of `sources`.
    """

    page_pool: PagePool
    sources: Sources
    settings: Settings
    password: str | None = None

    async def count(self, path: Path) -> int | None:
        """How many pages the file has; None if only the worker's converter can tell.

        None also if it cannot be opened: the worker will report why, with its code.
        """
        limits = fetch.Limits(self.settings.max_pages, self.settings.max_image_pixels)
        try:
            kind = file_types.detect(path, path.suffix)
            if kind.converter:
                return None
            inspection = await self.page_pool.call(fetch.inspect, str(path), kind.mime, self.password, limits)
            return len(inspection.pages)
        except TwopassError:
            return None


@asynccontextmanager
async def open_page_counter(settings: Settings, password: str | None = None) -> AsyncIterator[PageCounter]:
    """Start the child process."""
    buffers = PixelBufferPool(0, 0)
    page_pool = PagePool(1, buffers)
    await page_pool.open()
    try:
        async with open_sources(settings) as sources:
            yield PageCounter(page_pool, sources, settings, password)
    finally:
        await page_pool.close()
        buffers.close()


@dataclass(frozen=True)
class DocumentPreparer:
    """Makes documents available to a worker.

    Local files go to the store `upload`, or into the job itself without one; with `shares_files` the worker sees this
    machine's files. Without a `counter` no pages are counted, and remote sources are not fetched. What was counted is
    remembered in the `ledger`, for as long as a document's version stays the same.
    """

    counter: PageCounter | None = None
    upload: Store | None = None
    shares_files: bool = False
    ledger: Ledger | None = None

    async def prepare(self, document: DocumentRef) -> PreparedDocument:
        """Count the document's pages, and say how a job names it. Raises TwopassError."""
        if not document.is_local:
            unknown = PreparedDocument(document.location, None, None, version=document.version)
            if not self.counter:
                return unknown
            try:
                counted = await self._count(document)
            except SourceError:
                return unknown  # the worker's credentials may be able to read it
            return PreparedDocument(document.location, counted.sha256, counted.pages)
        path = Path(document.location)
        if not path.is_file():
            raise SourceError(Code.SOURCE_NOT_FOUND, f"{path}: no such file; check its path")
        counted = await self._count(document)
        if self.shares_files:
            return PreparedDocument(str(path.resolve()), counted.sha256, counted.pages)
        if self.upload is None:
            source = await asyncio.to_thread(_to_data_uri, document, path)
            return PreparedDocument(source, counted.sha256, counted.pages)
        # The key contains the hash: a file is uploaded once, and a changed file never replaces one that is being read.
        key = f"{counted.sha256[:16]}/{path.name}"
        return PreparedDocument(uri_of(self.upload, key), counted.sha256, counted.pages, key)

    async def deliver(self, document: DocumentRef, prepared: PreparedDocument) -> None:
        """Upload the file if a worker cannot see it yet."""
        if prepared.upload is None or self.upload is None:
            return
        path = Path(document.location)
        if prepared.upload not in await self.upload.keys(prepared.upload):
            await self.upload.put(prepared.upload, await asyncio.to_thread(path.read_bytes), _guess_mime(path))

    async def _count(self, document: DocumentRef) -> PageCount:
        """Hash the document and count its pages, or return what an earlier run has counted of this version."""
        key = self._version_key(document)
        known = self.ledger.count(key) if self.ledger and key else None
        if known and (known.pages is not None or not self.counter):
            return known
        with TemporaryDirectory(prefix="submit-") as folder:
            path = Path(document.location) if document.is_local else Path(folder) / "source"
            if document.is_local:
                sha256 = await asyncio.to_thread(_hash_file, path)
            else:
                assert self.counter
                sha256 = (await self.counter.sources.fetch(document.location, path)).sha256
            pages = await self.counter.count(path) if self.counter else None
            counted = PageCount(sha256=sha256, pages=pages)
        if self.ledger and key and (counted.pages is not None or not self.counter):
            self.ledger.record_count(key, counted)
        return counted

    def _version_key(self, document: DocumentRef) -> str | None:
        """The key of what is counted; None if nothing says when the document's bytes change."""
        if not document.is_local:
            return Ledger.key("counted", document.location, document.version) if document.version else None
        path = Path(document.location).resolve()
        status = path.stat()
        return Ledger.key("counted", str(path), status.st_size, status.st_mtime_ns)


def _hash_file(path: Path) -> str:
    with error_mapping.map_errors(str(path), SourceError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_data_uri(document: DocumentRef, path: Path) -> str:
    size = path.stat().st_size
    if size > _MAX_INLINE_BYTES:
        limit = f"and a job can hold {_MAX_INLINE_BYTES:,}; set a bucket with --upload"
        message = f"source: {document.name} has {size:,} bytes {limit}"
        raise InvalidJob(Code.INVALID_JOB, message)
    return f"data:{_guess_mime(path)};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _guess_mime(path: Path) -> str:
    kind = file_types.of_suffix(path.suffix)
    return kind.mime if kind else "application/octet-stream"
