"""An output URI in, a place for artefacts out: S3, a folder or memory, written whole or not at all.

Every call runs on threads of the store's own, so any event loop may await it. Knows nothing of documents.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from twopass import job
from twopass.errors import Code, StoreError
from twopass.settings import Settings
from twopass.storage import error_mapping

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 16  # calls of one store at once
TEMPORARY = ".twopass-tmp-"  # how a folder's unfinished files begin; never listed as keys


class Put(StrEnum):
    """How a conditional put ended."""

    WRITTEN = "written"
    EXISTS = "exists"


@dataclass(frozen=True)
class Stored:
    """An object as it lies in the store; the etag is what `replace` wants back."""

    data: bytes
    etag: str


class Store(Protocol):
    """An output prefix; keys are below it. `conditional` is None until known, False: "exists?" and then put."""

    uri: str
    conditional: bool | None
    keeps: bool  # False: everything is gone with the job

    async def prepare(self) -> None:
        """Make sure that something can be written; raises StoreError."""

    async def get(self, key: str) -> Stored | None: ...

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        """Write, over whatever is there."""

    async def create(self, key: str, data: bytes, content_type: str) -> Put:
        """Write unless the key exists. A put of ours that was retried and landed twice is WRITTEN."""

    async def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        """Write over exactly this version; False when it is no longer the one."""

    async def keys(self, prefix: str) -> frozenset[str]:
        """All keys that begin with the prefix."""

    async def close(self) -> None: ...


def open_output(uri: str | None, settings: Settings, s3: job.S3 | None) -> Store:
    """The store behind an output URI, one in memory without. Connects to nothing before its first call."""
    if uri is None:
        return MemoryStore()
    if not uri.startswith("s3://"):
        return FolderStore(Path(uri))
    from twopass.storage.s3_store import S3Store  # here: s3 builds upon this module

    return S3Store(uri, settings, s3)


@asynccontextmanager
async def opened_output(uri: str | None, settings: Settings, s3: job.S3 | None) -> AsyncIterator[Store]:
    """The store while the context lasts; raises StoreError, before anything is read, when nothing can be written."""
    store = open_output(uri, settings, s3)
    try:
        await store.prepare()
        yield store
    finally:
        await store.close()


def uri_of(store: Store, key: str) -> str:
    return f"{store.uri.rstrip('/')}/{key}"


def checked(key: str) -> str:
    """A key that stays below its store's prefix."""
    if not key or key.startswith("/") or "\0" in key or ".." in key.split("/"):
        raise StoreError(Code.OUTPUT_DENIED, f"{key[:100]!r} leads out of the output")
    return key


class _Threaded(Protocol):
    uri: str
    _threads: ThreadPoolExecutor


S = TypeVar("S", bound=_Threaded)


def threaded(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method on its store's threads, with the errors of other libraries translated."""

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            with error_mapping.translated(self.uri, StoreError):
                return method(self, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    return update_wrapper(call, method)


class FolderStore:
    """A folder of this machine or a mounted volume, with the promises of S3."""

    keeps = True

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder)
        self.conditional: bool | None = True  # until the file system turns out to have no hard links
        self._folder = folder.absolute()
        self._threads = ThreadPoolExecutor(THREADS, "twopass-folder")

    @threaded
    def prepare(self) -> None:
        with self._written("any key", b""):
            pass  # the folder could be made and written

    @threaded
    def get(self, key: str) -> Stored | None:
        return self._get(self._path(key))

    @threaded
    def put(self, key: str, data: bytes, content_type: str) -> None:
        with self._written(key, data) as (temporary, path):
            os.replace(temporary, path)

    @threaded
    def create(self, key: str, data: bytes, content_type: str) -> Put:
        with self._written(key, data) as (temporary, path):
            try:
                os.link(temporary, path)
            except FileExistsError:
                return Put.EXISTS
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                    raise
                self.conditional = False
                if path.exists():
                    return Put.EXISTS
                os.replace(temporary, path)
        return Put.WRITTEN

    @threaded
    def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        with self._written(key, data) as (temporary, path), _locked(path.parent):
            stored = self._get(path)
            if stored is None or stored.etag != etag:
                return False
            os.replace(temporary, path)
        return True

    @threaded
    def keys(self, prefix: str) -> frozenset[str]:
        start = self._folder / (checked(prefix).rpartition("/")[0] if prefix else "")
        files = (Path(where, name) for where, _, names in os.walk(start) for name in names)
        keys = (path.relative_to(self._folder).as_posix() for path in files if not path.name.startswith(TEMPORARY))
        return frozenset(key for key in keys if key.startswith(prefix))

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)

    def _path(self, key: str) -> Path:
        path = self._folder / checked(key)
        if not path.resolve().is_relative_to(self._folder.resolve()):  # by way of a link
            raise StoreError(Code.OUTPUT_DENIED, f"{key[:100]!r} leads out of the output")
        return path

    def _get(self, path: Path) -> Stored | None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        return Stored(data, hashlib.sha256(data).hexdigest())

    @contextmanager
    def _written(self, key: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        """The data in a file beside its place, and that place; the file is gone afterwards."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        try:
            temporary.write_bytes(data)
            yield temporary, path
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone among the processes of this machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class MemoryStore:
    """For jobs that want their answer inline and name no output: gone with the job."""

    uri = "memory:"
    conditional: bool | None = None
    keeps = False

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def prepare(self) -> None:
        """Nothing can stand in its way."""

    async def get(self, key: str) -> Stored | None:
        data = self._objects.get(key)
        return None if data is None else Stored(data, hashlib.sha256(data).hexdigest())

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        self._objects[key] = data

    async def create(self, key: str, data: bytes, content_type: str) -> Put:
        return Put.WRITTEN if self._objects.setdefault(key, data) is data else Put.EXISTS

    async def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        stored = await self.get(key)
        if stored is None or stored.etag != etag:
            return False
        self._objects[key] = data
        return True

    async def keys(self, prefix: str) -> frozenset[str]:
        return frozenset(key for key in self._objects if key.startswith(prefix))

    async def close(self) -> None:
        self._objects.clear()
