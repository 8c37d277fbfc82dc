"""The Store protocol: an output prefix whose objects are written completely or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from twopass.errors import Code, StoreError
from twopass.runtime.retry import RetryPolicy
from twopass.storage import error_mapping

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 16  # concurrent calls of one store


class CreateResult(StrEnum):
    """The outcome of `Store.create`."""

    WRITTEN = "written"
    EXISTS = "exists"


@dataclass(frozen=True)
class Stored:
    """An object as it is stored. `Store.replace` takes the etag."""

    data: bytes
    etag: str


class Store(Protocol):
    """An output prefix. Keys are relative to it; any event loop may await the calls."""

    uri: str
    conditional: bool | None
    """Whether conditional writes are atomic. False: the store checks and then writes. None: not known yet."""
    is_persistent: bool
    """False: the objects are gone when the job ends."""

    async def prepare(self) -> None:
        """Check that the store can be written; raises StoreError."""

    async def get(self, key: str) -> Stored | None: ...

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        """Write the object, replacing any that exists."""

    async def create(self, key: str, data: bytes, content_type: str) -> CreateResult:
        """Write unless the key exists. A retry that finds what our own first attempt wrote counts as WRITTEN."""

    async def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        """Write over exactly this version; False when another one is stored."""

    async def keys(self, prefix: str) -> frozenset[str]:
        """All keys that begin with the prefix."""

    async def delete(self, key: str) -> None:
        """Delete the object; one that does not exist is no error."""

    async def close(self) -> None: ...


def uri_of(store: Store, key: str) -> str:
    return f"{store.uri.rstrip('/')}/{key}"


def check_key(key: str) -> str:
    """The key; raises StoreError for one that leads out of the store's prefix."""
    if not key or key.startswith("/") or "\0" in key or ".." in key.split("/"):
        raise StoreError(Code.OUTPUT_DENIED, f"{key[:100]!r} leads out of the output")
    return key


class _Threaded(Protocol):
    uri: str
    _threads: ThreadPoolExecutor
    _retries: RetryPolicy
    _closing: threading.Event


S = TypeVar("S", bound=_Threaded)


def run_on_threads(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a blocking method awaitable: it runs on its store's threads, and errors of other libraries become ours."""

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        def work() -> T:
            with error_mapping.map_errors(self.uri, StoreError):
                return method(self, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    return update_wrapper(call, method)


def retry_call(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Repeat the method while it fails with a transient error, within the store's retry policy."""

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._retries.run(lambda: method(self, *args, **kwargs), self._closing)

    return update_wrapper(call, method)
