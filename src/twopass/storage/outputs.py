"""Open the store behind an output URI: a bucket, a folder, or memory without a URI."""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from twopass import job, locations
from twopass.errors import Code, StoreError
from twopass.runtime import retry
from twopass.settings import Settings
from twopass.storage.folder_store import FolderStore
from twopass.storage.store import CreateResult, Store, Stored

_MAX_CHECKED = 1000  # outputs of which a worker remembers that they can be written


class MemoryStore:
    """A dict of objects, discarded at the end of the job."""

    uri = "memory:"
    conditional: bool | None = None
    is_persistent = False

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def prepare(self) -> None:
        """Memory can always be written."""

    async def get(self, key: str) -> Stored | None:
        data = self._objects.get(key)
        return None if data is None else Stored(data, hashlib.sha256(data).hexdigest())

    async def put(self, key: str, data: bytes, content_type: str) -> None:
        self._objects[key] = data

    async def create(self, key: str, data: bytes, content_type: str) -> CreateResult:
        return CreateResult.WRITTEN if self._objects.setdefault(key, data) is data else CreateResult.EXISTS

    async def replace(self, key: str, data: bytes, content_type: str, etag: str) -> bool:
        stored = await self.get(key)
        if stored is None or stored.etag != etag:
            return False
        self._objects[key] = data
        return True

    async def keys(self, prefix: str) -> frozenset[str]:
        return frozenset(key for key in self._objects if key.startswith(prefix))

    async def delete(self, key: str) -> None:
        self._objects.pop(key, None)

    async def close(self) -> None:
        self._objects.clear()


def create_store(uri: str | None, settings: Settings, s3: job.S3 | None) -> Store:
    """The store of this output. It connects at its first call; the caller closes it. Raises StoreError."""
    if uri is None:
        return MemoryStore()
    if (scheme := locations.find_scheme(uri)) and scheme.store:
        store: Store = pkgutil.resolve_name(scheme.store)(uri, settings, s3)
        return store
    if locations.is_uri(uri):
        kind = uri.partition(":")[0][:20]
        message = f"{kind}: places of this kind cannot be written to; name a folder or s3://bucket/prefix"
        raise StoreError(Code.OUTPUT_DENIED, message)
    return FolderStore(Path(uri), replace(retry.STORE_CALL, budget_s=settings.store_patience_s))


@asynccontextmanager
async def open_output(
    uri: str | None, settings: Settings, s3: job.S3 | None, checked: MutableMapping[str, bool] | None = None
) -> AsyncIterator[Store]:
    """Open the output and close it at the end; raises StoreError first when it cannot be written.

    `checked` remembers addresses in buckets that were opened with the worker's own credentials, and whether conditional
    writes are atomic there: to find that out takes three requests.
    """
    store = create_store(uri, settings, s3)
    known = {} if checked is None or s3 or not (uri and locations.is_uri(uri)) else checked
    try:
        if store.uri in known:
            store.conditional = known[store.uri]
        await store.prepare()
        if store.conditional is not None:
            if len(known) >= _MAX_CHECKED:
                known.clear()
            known[store.uri] = store.conditional
        yield store
    finally:
        await store.close()
