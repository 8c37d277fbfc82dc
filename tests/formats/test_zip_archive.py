"""document.zip: the same files, the same bytes."""

from __future__ import annotations

import io
import zipfile

from twopass.formats.zip_archive import Packing

FILES = {"document.md": b"# Springs\n" * 50, "images/a.png": b"\x89PNG", "관/章.json": b"{}"}


def packed() -> bytes:
    packing = Packing()
    for name, data in FILES.items():
        packing.add(name, data)
    return packing.packed()


def test_every_file_is_in_it_under_its_own_name() -> None:
    """Folders and all scripts; text is packed tighter, pictures are not packed twice."""
    with zipfile.ZipFile(io.BytesIO(packed())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
        assert archive.getinfo("document.md").compress_size < 100
        assert archive.getinfo("images/a.png").compress_type == zipfile.ZIP_STORED
        assert archive.testzip() is None


def test_no_clock_is_in_it() -> None:
    """Made at any time it has the same bytes."""
    with zipfile.ZipFile(io.BytesIO(packed())) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert packed() == packed()
