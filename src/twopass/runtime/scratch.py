"""Temporary folders that are deleted with their user; folders of killed processes are deleted at the next start.

All of them are inside one folder of this process, which is locked while it is in use; the kernel releases the lock of
a killed process. Process ids cannot identify the owner, because in containers every worker is process 1. There is one
lock per process and not one per document, because a job has hundreds of documents open and each lock takes a file
descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from twopass.runtime import retry

_PREFIX, _SUFFIX = "twopass-", ".scratch"  # with the suffix, a user's own /tmp/twopass-something is not deleted


class _ProcessFolder:
    """This process's folder, created for its first user and deleted with its last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stack = ExitStack()
        self._path = Path()

    @contextmanager
    def use(self) -> Iterator[Path]:
        with self._lock:
            if not self._users:
                self._path = self._stack.enter_context(_create())
            self._users += 1
        try:
            yield self._path
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._stack.close()


_process_folder = _ProcessFolder()


@contextmanager
def open_folder() -> Iterator[Path]:
    """An empty folder, deleted with its contents; raises OSError if the disk is full."""
    with _process_folder.use() as parent:
        path = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)  # files that a thread still writes are deleted with the parent


def folder() -> Path:
    """Where the folders are."""
    return Path(tempfile.gettempdir())


def free_bytes() -> int:
    """Free disk space where the folders are."""
    return shutil.disk_usage(folder()).free


@contextmanager
def _create() -> Iterator[Path]:
    with ExitStack() as stack:
        path = _create_locked(stack)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _create_locked(stack: ExitStack) -> Path:
    for _ in range(retry.SCRATCH_FOLDER.attempts):
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX))
        with suppress(BlockingIOError, FileNotFoundError):  # another worker that starts now takes it for an orphan
            try:
                stack.enter_context(_lock(path))
            except OSError:
                with suppress(OSError):
                    path.rmdir()  # rmtree would need a file descriptor, which may be what is missing
                raise
            if path.exists():
                return path
    message = "temporary folders disappear as soon as they are created"
    raise FileNotFoundError(errno.ENOENT, message, tempfile.gettempdir())


def remove_orphans() -> int:
    """Delete the folders of killed workers; returns how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError), _lock(path):  # OSError: in use, or owned by another user
            shutil.rmtree(path)
            removed += 1
    return removed


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lock the folder against all other processes; raises BlockingIOError if one of them holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
