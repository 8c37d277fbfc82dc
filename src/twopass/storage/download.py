"""Write the bytes of a source into a file: count and hash them, and refuse a source that is too large."""

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

from twopass import locations
from twopass.errors import Code, SourceError
from twopass.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

CHUNK_BYTES = 1 << 20


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


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` on a thread of its own: slow sources would occupy all of asyncio's few threads."""
    executor = ThreadPoolExecutor(1, "twopass-fetch")
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, partial(work, *args, **kwargs))
    finally:
        executor.shutdown(wait=False)  # a cancelled await leaves the work running; the thread ends with it


def timeout_error(uri: str, settings: Settings) -> SourceError:
    return SourceError(
        Code.STORE_UNAVAILABLE,
        f"{locations.redact(uri)}: not downloaded within {settings.fetch_timeout_s:.0f} s; "
        "try again or raise FETCH_TIMEOUT_S",
    )
