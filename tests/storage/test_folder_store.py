"""The folder store on a real disk: links, full disks and folders that cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from twopass.errors import StoreError
from twopass.settings import Settings
from twopass.storage.folder_store import FolderStore
from twopass.storage.outputs import open_output
from twopass.storage.store import CreateResult

TEXT = "text/plain"


async def test_a_symbolic_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A symbolic link below the output leads no artefact elsewhere."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "doc").symlink_to(tmp_path)
    output = FolderStore(tmp_path / "out")

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.put("doc/x", b"", TEXT)
    await output.close()


async def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    """Lost races and refused replacements leave no temporary file behind."""
    output = FolderStore(tmp_path)
    for _ in range(2):
        await output.create("key", b"", TEXT)
    await output.replace("key", b"", TEXT, "other")
    await output.close()

    assert os.listdir(tmp_path) == ["key"]


async def test_a_file_system_without_hard_links_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hard links are not supported the store still creates once, and says that its check is not atomic."""

    def no_link(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_link)
    output = FolderStore(tmp_path)

    outcomes = [await output.create("key", b"", TEXT) for _ in range(2)]

    assert outcomes == [CreateResult.WRITTEN, CreateResult.EXISTS] and output.conditional is False
    await output.close()


async def test_a_full_disk_is_reported_as_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not reported as a wrong credential or a broken network, and no partial file is left."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "replace", full)
    output = FolderStore(tmp_path)

    with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*no space is left"):
        await output.put("key", b"", TEXT)
    await output.close()
    assert not list(tmp_path.iterdir())


async def test_a_folder_that_cannot_be_created_is_denied(tmp_path: Path) -> None:
    """An output below a file is a coded error."""
    (tmp_path / "file").write_bytes(b"")
    output = FolderStore(tmp_path / "file")

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.put("key", b"", TEXT)
    await output.close()


async def test_a_folder_that_cannot_be_written_is_refused_before_reading(tmp_path: Path) -> None:
    """A job whose folder cannot be written ends before its first page."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        async with open_output(str(tmp_path / "file" / "out"), Settings(), None):
            pytest.fail("opened")
