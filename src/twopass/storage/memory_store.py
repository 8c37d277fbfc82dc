"""A store in memory, for jobs that want their answer inline and name no output."""

from __future__ import annotations

import hashlib

from twopass.storage.store import CreateResult, Stored


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

    async def close(self) -> None:
        self._objects.clear()
