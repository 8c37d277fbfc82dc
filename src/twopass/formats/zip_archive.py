"""Build a ZIP archive whose bytes depend only on the names, the bytes and the order of its files."""

from __future__ import annotations

import io
import zipfile

COMPRESSED_SUFFIXES = (".png", ".webp")  # stored as they are: they are compressed already
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date ZIP allows, given to every file instead of the current time
FILE_MODE = 0o644 << 16


class ZipBuilder:
    """Files are added one at a time, so that memory holds only the archive and one file."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._zip = zipfile.ZipFile(self._buffer, "w")

    def add(self, name: str, data: bytes) -> None:
        entry = zipfile.ZipInfo(name, ZIP_EPOCH)
        entry.create_system = 3  # Unix, on every platform
        entry.external_attr = FILE_MODE
        entry.compress_type = zipfile.ZIP_STORED if name.endswith(COMPRESSED_SUFFIXES) else zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)

    def finish(self) -> bytes:
        self._zip.close()
        return self._buffer.getvalue()
