"""The folder store on a real disk: links, full disks and folders that cannot be written."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twopass.errors import StoreError
from twopass.runtime.retry import RetryPolicy
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


async def test_links_in_a_ring_are_refused(tmp_path: Path) -> None:
    """An output below links that lead back to themselves is refused with a code."""
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    output = FolderStore(tmp_path / "ring" / "out")

    with pytest.raises(StoreError, match="OUTPUT_DENIED.* lead back to themselves"):
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


async def test_a_disk_that_is_full_for_a_moment_costs_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with S3, the output of a job repeats a call for STORE_PATIENCE_S seconds; what is stored is complete."""
    fail(monkeypatch, errno.ENOSPC)
    async with open_output(str(tmp_path), Settings(store_patience_s=30), None) as output:
        await output.put("put", b"data", TEXT)
        fail(monkeypatch, errno.EIO)
        await output.create("create", b"data", TEXT)

    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"data"}


@pytest.mark.parametrize(("number", "attempts"), [(errno.ENOSPC, 3), (errno.ESTALE, 3), (errno.EACCES, 1)])
async def test_only_errors_that_pass_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, attempts: int
) -> None:
    """A full disk and a volume whose server is away are tried again, a missing permission is not."""
    calls = fail(monkeypatch, *[number] * 9)
    output = FolderStore(tmp_path, RetryPolicy(attempts=3))

    with pytest.raises(StoreError):
        await output.put("key", b"", TEXT)
    await output.close()

    assert len(calls) == attempts


async def test_a_store_that_is_closed_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause between two attempts ends when the store is closed, and the call fails."""
    calls = fail(monkeypatch, *[errno.ENOSPC] * 9)
    output = FolderStore(tmp_path, RetryPolicy(delays=(3600.0,)))
    writing = asyncio.create_task(output.put("key", b"", TEXT))
    while not calls:
        await asyncio.sleep(0)
    await output.close()

    with pytest.raises(StoreError, match="STORE_UNAVAILABLE"):
        await writing


def fail(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """Let the first calls that put a file in its place fail with these errors; returns the list of calls."""
    calls = list[int]()

    def script(real: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def place(source: Path, target: Path) -> None:
            calls.append(len(calls))
            if len(calls) <= len(numbers):
                raise OSError(numbers[len(calls) - 1], "scripted")
            real(source, target)

        return place

    for name in ("replace", "link"):
        monkeypatch.setattr(os, name, script(getattr(os, name)))
    return calls


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
