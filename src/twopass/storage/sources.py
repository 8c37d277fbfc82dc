"""Write sources into files: those of other machines, which a reader downloads, data: URIs, and paths of this machine.

Bytes are counted and hashed as they are written, and a source that is too large is refused.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import pkgutil
import re
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, ParamSpec, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from twopass import job, locations
from twopass.errors import Code, SourceError
from twopass.locations import Scheme
from twopass.settings import Settings
from twopass.storage import error_mapping

P = ParamSpec("P")
T = TypeVar("T")

CHUNK_BYTES = 1 << 20
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class DownloadResult:
    """What is known of a downloaded source. `etag` and `content_type` are None where the server sent none."""

    etag: str | None
    bytes: int
    sha256: str
    content_type: str | None


class TargetFile:
    """The file that a source is written to. It counts and hashes the bytes, and is removed after any error."""

    def __init__(self, path: Path, limit_bytes: int, label: str) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._label = label
        self._size = 0
        self._hash = hashlib.sha256()

    def __enter__(self) -> TargetFile:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(OSError) if kind else self._map_disk_errors():  # a full disk was already reported
            self._file.close()
        if kind:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _map_disk_errors(self) -> Iterator[None]:
        """Report an OSError of the worker's disk, so that it is not taken for an error of the source's store."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            message = f"{self._label}: no room for it on the worker's disk ({reason}); give the worker a larger disk"
            raise SourceError(Code.STORE_UNAVAILABLE, message) from error

    def check_size(self, size: int) -> None:
        """Raise SourceError when a source of this many bytes is too large."""
        if size > self._limit_bytes:
            raise SourceError(
                Code.SOURCE_TOO_LARGE,
                f"{self._label}: over {self._limit_bytes:,} bytes; raise MAX_SOURCE_BYTES or split it",
            )

    def write(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self.check_size(self._size)
        self._hash.update(chunk)
        with self._map_disk_errors():
            self._file.write(chunk)

    def finish(self, etag: str | None = None, content_type: str | None = None) -> DownloadResult:
        """Flush the file. The etag loses its quotes and weak prefix, the content type its parameters."""
        with self._map_disk_errors():
            self._file.flush()
        etag = etag.removeprefix("W/").strip('"') if etag else None
        mime = content_type.partition(";")[0].strip().lower() if content_type else None
        return DownloadResult(etag or None, self._size, self._hash.hexdigest(), mime or None)


class Reader(Protocol):
    """Downloads the sources of one scheme, all those of a job. A scheme of `locations` names its class."""

    def __init__(self, settings: Settings, s3: job.S3 | None) -> None: ...

    async def download(self, uri: str, target: Path, limit_bytes: int) -> DownloadResult:
        """Write the source to the target file; raises SourceError."""

    def close(self) -> None: ...


class Sources:
    """Downloads the sources of one job, all those of a scheme through one reader."""

    def __init__(self, settings: Settings, s3: job.S3 | None = None, upload: job.Upload | None = None) -> None:
        self._settings, self._s3, self._upload = settings, s3, upload
        self._readers: dict[Scheme, Reader] = {}

    async def fetch(self, uri: str, target: Path) -> DownloadResult:
        """Write a source of any scheme to the target file; raises SourceError and leaves no file then."""
        limit_bytes, scheme = self._settings.max_source_bytes, locations.find_scheme(uri)
        if self._upload and uri == self._upload.uri:
            return await run_in_thread(_copy, self._upload.path, target, limit_bytes, self._upload.name)
        if scheme is locations.DATA:
            return await run_in_thread(_write_data, uri, target, limit_bytes)
        if scheme:
            return await self._download(scheme, uri, target)
        if locations.is_uri(uri):
            message = f"{uri.partition(':')[0][:20]}: sources of this kind are not supported; use s3 or https"
            raise SourceError(Code.SOURCE_UNSUPPORTED, message)
        return await run_in_thread(_copy, Path(uri), target, limit_bytes, uri)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    async def _download(self, scheme: Scheme, uri: str, target: Path) -> DownloadResult:
        try:
            async with asyncio.timeout(self._settings.fetch_timeout_s):
                return await self._reader(scheme).download(uri, target, self._settings.max_source_bytes)
        except TimeoutError as error:
            limit = f"not downloaded within {self._settings.fetch_timeout_s:.0f} s"
            message = f"{locations.redact(uri)}: {limit}; try again or raise FETCH_TIMEOUT_S"
            raise SourceError(Code.STORE_UNAVAILABLE, message) from error

    def _reader(self, scheme: Scheme) -> Reader:
        if scheme not in self._readers:
            kind: type[Reader] = pkgutil.resolve_name(scheme.reader)
            self._readers[scheme] = kind(self._settings, self._s3)
        return self._readers[scheme]


@asynccontextmanager
async def open_sources(
    settings: Settings, s3: job.S3 | None = None, upload: job.Upload | None = None
) -> AsyncIterator[Sources]:
    """Open the sources of a job. Without `s3`, the worker's own S3 access is used. Connects at the first fetch."""
    sources = Sources(settings, s3, upload)
    try:
        yield sources
    finally:
        sources.close()


def write_stream(file: BinaryIO, target: Path, limit_bytes: int, label: str) -> DownloadResult:
    """Write what comes from the stream to the target file; raises SourceError."""
    with error_mapping.map_errors(label, SourceError), TargetFile(target, limit_bytes, label) as copy:
        while chunk := file.read(CHUNK_BYTES):
            copy.write(chunk)
        return copy.finish()


def _copy(path: Path, target: Path, limit_bytes: int, label: str) -> DownloadResult:
    """Copy a file of this machine, so that the bytes that are hashed are those that are read."""
    if path.is_dir():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{path}: a folder, not a file; name one of its files")
    if not path.is_file():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{label}: no such file; check its path")
    with error_mapping.map_errors(label, SourceError), path.open("rb") as file:
        TargetFile(target, limit_bytes, label).check_size(path.stat().st_size)
        return write_stream(file, target, limit_bytes, label)


def decode_data(uri: str, limit: int) -> tuple[bytes, str]:
    """Bytes and MIME type of a data: URI. Anything malformed raises SourceError, so that no byte is lost."""
    head, comma, body = uri.partition(",")
    mime, _, parameters = head.partition(":")[2].partition(";")
    if not (locations.DATA.begins(uri) and comma):
        raise SourceError(Code.SOURCE_UNSUPPORTED, "data: not a data URI; write data:application/pdf;base64,…")
    if not body.isascii() or _BAD_ESCAPE.search(body):
        raise SourceError(Code.SOURCE_UNSUPPORTED, "data: the part after the comma is not percent-encoded")
    data = unquote_to_bytes(body)
    if parameters.lower().rpartition(";")[2].strip() == "base64":
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise SourceError(Code.SOURCE_UNSUPPORTED, "data: the part after the comma is not base64") from None
    if len(data) > limit:
        raise SourceError(Code.SOURCE_TOO_LARGE, f"data: over {limit:,} bytes; put the source on S3")
    return data, mime.strip().lower() or "text/plain"


def _write_data(uri: str, target: Path, limit_bytes: int) -> DownloadResult:
    data, mime = decode_data(uri, limit_bytes)
    with error_mapping.map_errors("data:", SourceError), TargetFile(target, limit_bytes, "data:") as file:
        file.write(data)
        return file.finish(None, mime)


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` on a thread of its own: slow sources would occupy all of asyncio's few threads."""
    executor = ThreadPoolExecutor(1, "twopass-fetch")
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, partial(work, *args, **kwargs))
    finally:
        executor.shutdown(wait=False)  # a cancelled await leaves the work running; the thread ends with it
