"""Open the store behind an output URI: a bucket, a folder, or memory without a URI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from twopass import job
from twopass.settings import Settings
from twopass.storage.folder_store import FolderStore
from twopass.storage.memory_store import MemoryStore
from twopass.storage.s3_store import S3Store
from twopass.storage.store import Store


def create_store(uri: str | None, settings: Settings, s3: job.S3 | None) -> Store:
    """Return the store of this output. It connects at its first call; the caller closes it."""
    if uri is None:
        return MemoryStore()
    return S3Store(uri, settings, s3) if uri.startswith("s3://") else FolderStore(Path(uri))


@asynccontextmanager
async def open_output(uri: str | None, settings: Settings, s3: job.S3 | None) -> AsyncIterator[Store]:
    """Open the output and close it at the end; raises StoreError first when it cannot be written."""
    store = create_store(uri, settings, s3)
    try:
        await store.prepare()
        yield store
    finally:
        await store.close()
