"""A store in a folder of this machine or a mounted volume, with the same guarantees as S3."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from twopass import locations
from twopass.errors import Code, StoreError
from twopass.runtime import retry
from twopass.runtime.retry import RetryPolicy
from twopass.storage import error_mapping
from twopass.storage.store import THREADS, CreateResult, Stored, check_key, retry_call, run_on_threads

_TEMPORARY_PREFIX = ".twopass-tmp-"  # of unfinished files, which are not listed as keys
LOCK = f"{_TEMPORARY_PREFIX}lock"

# Errors of os.link on a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderStore:
    """Files below a folder. A file is written beside its place and then moved there.

    Calls are repeated, as `retries` says, while the disk is full or a mounted volume does not answer.
    """

    is_persistent = True

    def __init__(self, folder: Path, retries: RetryPolicy = retry.ONCE) -> None:
        self.uri = str(folder)
        self.conditional: bool | None = True  # until the file system turns out to have no hard links
        self._folder = folder.absolute()
        self._threads = ThreadPoolExecutor(THREADS, "twopass-folder")
        self._retries = replace(retries, is_retryable=error_mapping.is_transient_file_error)
        self._closing = threading.Event()

    @run_on_threads
    def prepare(self) -> None:
        self._retries.shorten(retry.STORE_PREPARE.budget_s).run(self._check_writable, self._closing)

    @run_on_threads
    @retry_call
    def get(self, key: str) -> Stored | None:
        return _read(self._path(key))

    @run_on_threads
    @retry_call
    def put(self, key: str, data: bytes, content_type: str) -> None:
        with self._write_temporary(key, data) as (temporary, path):
            os.replace(temporary, path)

    @run_on_threads
    @retry_call
    def create(self, key: str, data: bytes, content_type: str) -> CreateResult:
        with self._write_temporary(key, data) as (temporary, path):
            try:
                os.link(temporary, path)
            except FileExistsError:
                return CreateResult.EXISTS
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self.conditional = False
                if path.exists():
                    return CreateResult.EXISTS
                os.replace(temporary, path)
        return CreateResult.WRITTEN

    @run_on_threads
    @retry_call
    def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        with self._write_temporary(key, data) as (temporary, path), _lock(path.with_name(LOCK)):
            stored = _read(path)
            if stored is None or stored.etag != etag:
                return False
            os.replace(temporary, path)
        return True

    @run_on_threads
    @retry_call
    def keys(self, prefix: str) -> frozenset[str]:
        start = self._folder / (check_key(prefix).rpartition("/")[0] if prefix else "")
        files = (Path(folder, name) for folder, _, names in os.walk(start) for name in names)
        finished = (path for path in files if not path.name.startswith(_TEMPORARY_PREFIX))
        keys = (path.relative_to(self._folder).as_posix() for path in finished)
        return frozenset(key for key in keys if key.startswith(prefix))

    @run_on_threads
    @retry_call
    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    async def close(self) -> None:
        """Wait for running calls. Further attempts are dropped."""
        self._closing.set()
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)

    def _check_writable(self) -> None:
        with self._write_temporary("any key", b""):
            pass  # the folder exists or was created, and can be written

    def _path(self, key: str) -> Path:
        path = self._folder / check_key(key)
        if not locations.is_below(str(path), str(self._folder)):  # through a symbolic link
            raise StoreError(Code.OUTPUT_DENIED, f"{key[:100]!r} leads out of the output")
        return path

    @contextmanager
    def _write_temporary(self, key: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        """Write a temporary file beside the key's path; yields both paths and removes the file afterwards."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}")
        try:
            temporary.write_bytes(data)
            yield temporary, path
        finally:
            temporary.unlink(missing_ok=True)


def _read(path: Path) -> Stored | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return Stored(data, hashlib.sha256(data).hexdigest())


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of this file, which excludes other threads and processes, and delete it afterwards.

    It is a file of its own, opened for writing, because NFS locks neither folders nor files opened for reading.
    """
    descriptor = _open_locked(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock is released: another process may hold the next file
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    """Open and lock the file, again if its holder has deleted it meanwhile."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_same_file(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
