"""document.zip holds every file, and the same files give the same bytes."""

from __future__ import annotations

import io
import zipfile

from twopass.formats.registry import ZipBuilder

FILES = {"document.md": b"# Springs\n" * 50, "images/a.png": b"\x89PNG", "관/章.json": b"{}"}


def build_archive() -> bytes:
    builder = ZipBuilder()
    for name, data in FILES.items():
        builder.add(name, data)
    return builder.finish()


def test_every_file_is_in_the_archive_under_its_own_name() -> None:
    """Names in any script and folders are kept; text is compressed, pictures are not compressed twice."""
    with zipfile.ZipFile(io.BytesIO(build_archive())) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == FILES
        assert archive.getinfo("document.md").compress_size < 100
        assert archive.getinfo("images/a.png").compress_type == zipfile.ZIP_STORED
        assert archive.testzip() is None


def test_the_archive_holds_no_clock() -> None:
    """Every file has the same fixed date, so the same files give the same bytes at any time."""
    with zipfile.ZipFile(io.BytesIO(build_archive())) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert build_archive() == build_archive()
