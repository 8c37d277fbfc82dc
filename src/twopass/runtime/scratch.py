"""A folder for one document's files, gone with whoever uses it; at boot, those of processes that are gone.

They lie in one folder of this process, which is locked while any of them is there, and the kernel unlocks what a killed
one leaves: a number would not do, for in containers every worker is process 1. One lock and not one a document: a
job has hundreds open, and a lock takes a descriptor. Knows nothing of what lies in the folders.
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

PREFIX, SUFFIX = "twopass-", ".scratch"  # a person's own /tmp/twopass-something is none of ours
TRIES = 5  # to make a folder


class _Room:
    """This process's folder, made for the first document and removed with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stack = ExitStack()
        self._path = Path()

    @contextmanager
    def used(self) -> Iterator[Path]:
        with self._lock:
            if not self._users:
                self._path = self._stack.enter_context(_made())
            self._users += 1
        try:
            yield self._path
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._stack.close()


_room = _Room()


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder of one's own, removed with all that lies in it; raises OSError where there is no room."""
    with _room.used() as room:
        path = Path(tempfile.mkdtemp(dir=room))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)  # what a thread still writes into goes with the room, or at boot


def free_bytes() -> int:
    """Where the folders lie."""
    return shutil.disk_usage(tempfile.gettempdir()).free


@contextmanager
def _made() -> Iterator[Path]:
    """A folder that is this process's while the context lasts."""
    with ExitStack() as stack:
        path = _locked_anew(stack)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _locked_anew(stack: ExitStack) -> Path:
    for _ in range(TRIES):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX))
        with suppress(BlockingIOError, FileNotFoundError):  # another worker, just starting, takes it for an orphan
            try:
                stack.enter_context(_locked(path))
            except OSError:
                with suppress(OSError):
                    path.rmdir()  # rmtree would want a descriptor, too
                raise
            if path.exists():
                return path
    raise FileNotFoundError(errno.ENOENT, "temporary folders vanish as they are made", tempfile.gettempdir())


def sweep() -> int:
    """Remove what killed workers left behind; how many folders that were."""
    swept = 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError), _locked(path):  # somebody's, or nobody's business
            shutil.rmtree(path)
            swept += 1
    return swept


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone in this folder among all processes; raises BlockingIOError when another is there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
