"""Files in, one ZIP out: the same files give the same bytes, in whatever order of time they were written.

Knows names and bytes. Knows nothing of documents.
"""

from __future__ import annotations

import io
import zipfile

STORED = (".png", ".webp")  # compressed already
DAWN = (1980, 1, 1, 0, 0, 0)  # the oldest date that ZIP knows: no clock in the bytes
READABLE = 0o644 << 16


class Packing:
    """Files are added one at a time, in the order of their names, so that no two lie in memory beside the archive."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._zip = zipfile.ZipFile(self._buffer, "w")

    def add(self, name: str, data: bytes) -> None:
        entry = zipfile.ZipInfo(name, DAWN)
        entry.create_system = 3  # Unix, wherever it is written
        entry.external_attr = READABLE
        entry.compress_type = zipfile.ZIP_STORED if name.endswith(STORED) else zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)

    def packed(self) -> bytes:
        self._zip.close()
        return self._buffer.getvalue()
