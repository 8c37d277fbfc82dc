"""The bytes of a source land in a file: counted, hashed, refused when there are too many.

Knows files and limits. Knows nothing of where the bytes come from.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from twopass import job
from twopass.errors import Code, SourceError
from twopass.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

CHUNK = 1 << 20


@dataclass(frozen=True)
class Downloaded:
    """What is known of a source that now lies in the target file; None where nobody said."""

    etag: str | None
    bytes: int
    sha256: str
    content_type: str | None


class Target:
    """The file that a source is written to: counted, hashed, gone again when something is wrong."""

    def __init__(self, path: Path, limit_bytes: int, label: str) -> None:
        self._path = path
        self._limit = limit_bytes
        self._label = label
        self._size = 0
        self._hash = hashlib.sha256()

    def __enter__(self) -> Target:
        self._file = self._path.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(OSError) if kind else self._landed():  # of a full disk, which was told already
            self._file.close()
        if kind:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def _landed(self) -> Iterator[None]:
        """What a disk says becomes ours: it is this machine's, and not the place that the source lies in."""
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            message = f"{self._label}: no room for it on the worker's disk ({why}); give the worker a larger one"
            raise SourceError(Code.STORE_UNAVAILABLE, message) from error

    def expect(self, size: int) -> None:
        """Raises SourceError when so many bytes are too many."""
        if size > self._limit:
            raise SourceError(
                Code.SOURCE_TOO_LARGE, f"{self._label}: over {self._limit:,} bytes; raise MAX_SOURCE_BYTES or split it"
            )

    def write(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self.expect(self._size)
        self._hash.update(chunk)
        with self._landed():
            self._file.write(chunk)

    def finished(self, etag: str | None = None, content_type: str | None = None) -> Downloaded:
        with self._landed():
            self._file.flush()
        etag = etag.removeprefix("W/").strip('"') if etag else None
        mime = content_type.partition(";")[0].strip().lower() if content_type else None
        return Downloaded(etag or None, self._size, self._hash.hexdigest(), mime or None)


async def on_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work` on a thread of its own: asyncio's are few, and slow sources would hold them all."""
    thread = ThreadPoolExecutor(1, "twopass-fetch")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, partial(work, *args, **kwargs))
    finally:
        thread.shutdown(wait=False)  # ends with its work, which a cancelled await leaves running


def label(uri: str) -> str:
    """What a source is called in messages: without query and password."""
    try:
        return job.shown(uri)
    except ValueError:  # no URI at all
        return uri.partition(":")[0][:20]


def late(uri: str, settings: Settings) -> SourceError:
    return SourceError(
        Code.STORE_UNAVAILABLE,
        f"{label(uri)}: not here after {settings.fetch_timeout_s:.0f} s; try again or raise FETCH_TIMEOUT_S",
    )
