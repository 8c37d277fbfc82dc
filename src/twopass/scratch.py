"""A folder for one document's files, gone with whoever uses it; at boot, those of processes that are gone.

Each folder is locked by its owner, and the kernel unlocks what a killed one leaves: a number would not
do, for in containers every worker is process 1. Knows nothing of what lies in the folders.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PREFIX, SUFFIX = "twopass-", ".scratch"  # a person's own /tmp/twopass-something is none of ours
TRIES = 5  # to make a folder


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder of one's own, removed with all that lies in it; raises OSError where there is no room."""
    with ExitStack() as stack:
        yield stack.enter_context(_removed(_new(stack)))


def _new(stack: ExitStack) -> Path:
    """A folder that is ours until the stack ends."""
    for _ in range(TRIES):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX))
        with suppress(OSError):
            stack.enter_context(_locked(path))
            if path.exists():
                return path
        # Another worker, just starting, took it for an orphan before it was locked.
    raise FileNotFoundError(errno.ENOENT, "temporary folders vanish as they are made", tempfile.gettempdir())


@contextmanager
def _removed(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # what a thread still writes into goes when the next worker starts


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
