"""Temporary folders: deleted with their document, or at the next start if their worker was killed."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.page_pool import CrashingPagePool
from twopass.errors import Code, SourceError, WorkerDied
from twopass.job import EntryPoint, Job
from twopass.runtime import scratch
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch
from twopass.storage.sources import Sources, TargetFile

LOCAL_SOURCES = Sources(Settings())  # opens only local files, so it needs no closing
HOLD_FOLDER = """
import sys
from twopass.runtime import scratch
with scratch.open_folder() as folder:
    (folder / "source").write_bytes(b"CONFIDENTIAL")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which temporary folders are created, empty for each test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path


def list_folders(tmp: Path) -> list[Path]:
    """All files and folders whose names start with our prefix."""
    return list(tmp.glob("twopass-*"))


def start_holder() -> tuple[subprocess.Popen[bytes], Path]:
    """Start a process that uses a temporary folder until its stdin is closed; returns the process and the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD_FOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return process, Path(process.stdout.readline().decode().strip())


def test_a_folder_is_deleted_with_its_user(tmp: Path) -> None:
    """A folder is deleted with its contents when its context ends, also by an error."""
    with pytest.raises(KeyError), scratch.open_folder() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "source").write_bytes(b"x")
        raise KeyError

    assert not list_folders(tmp)


def test_many_folders_take_one_descriptor(tmp: Path) -> None:
    """All folders of a process share one lock, because a job has hundreds open; all are deleted with the last one."""
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        paths = [stack.enter_context(scratch.open_folder()) for _ in range(50)]

        assert len(os.listdir("/proc/self/fd")) <= before + 1
        assert len(set(paths)) == 50 and len(list_folders(tmp)) == 1
    assert not list_folders(tmp)


def test_a_process_without_free_descriptors_reports_that_and_leaves_no_folder(tmp: Path) -> None:
    """If no file descriptor is free, the error is EMFILE and not that the folder has disappeared."""
    tempfile.gettempdir()  # its first call writes a file, for which it needs a descriptor
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_descriptor = os.open("/dev/null", os.O_RDONLY)
    os.close(next_descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_descriptor, hard))
    try:
        with pytest.raises(OSError) as caught, scratch.open_folder():
            raise AssertionError
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert caught.value.errno == errno.EMFILE
    assert not list_folders(tmp)


def test_only_folders_of_killed_workers_are_removed(tmp: Path) -> None:
    """Folders of running workers and other files with similar names are kept."""
    killed, orphan = start_holder()
    alive, kept = start_holder()
    (tmp / "twopass-notes.txt").write_text("not ours")
    (tmp / "twopass-models").mkdir()
    with killed, alive, scratch.open_folder() as own:
        killed.kill()
        killed.wait()
        was_left = orphan.exists()

        removed = scratch.remove_orphans()

        remaining = set(list_folders(tmp))
        assert alive.stdin
        alive.stdin.close()
        assert was_left and removed == 1
        assert remaining == {kept.parent, own.parent, tmp / "twopass-notes.txt", tmp / "twopass-models"}


def test_a_folder_removed_before_it_is_locked_is_created_again(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts may remove a new folder as an orphan before its owner has locked it."""
    mkdtemp, removed = tempfile.mkdtemp, []

    def create_and_remove(**arguments: Any) -> str:
        path = mkdtemp(**arguments)
        if not removed:
            removed.append(scratch.remove_orphans())
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", create_and_remove)

    with scratch.open_folder() as folder:
        assert removed == [1]
        assert list_folders(tmp) == [folder.parent]


async def test_a_source_that_crashes_its_page_worker_leaves_no_folder(
    tmp: Path, page_pool: PagePool, sample: Path
) -> None:
    """The fetched file is deleted if its document ends with an error."""
    job = Job.parse({"input": {"source": str(sample)}}, Settings(), EntryPoint.LOCAL)

    with pytest.raises(WorkerDied):
        async with fetch.document(str(sample), job, Settings(), CrashingPagePool(page_pool, inspect=2), LOCAL_SOURCES):
            pass

    assert not list_folders(tmp)


async def test_a_cancelled_document_leaves_no_folder(tmp: Path, page_pool: PagePool, sample: Path) -> None:
    """The fetched file is deleted if its document is cancelled."""
    job = Job.parse({"input": {"source": str(sample)}}, Settings(), EntryPoint.LOCAL)
    opened = asyncio.Event()

    async def read() -> None:
        async with fetch.document(str(sample), job, Settings(), page_pool, LOCAL_SOURCES):
            opened.set()
            await asyncio.sleep(60)

    reading = asyncio.create_task(read())
    await opened.wait()
    before = list_folders(tmp)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert len(before) == 1 and not list_folders(tmp)


async def test_a_missing_temporary_folder_fails_only_the_document(
    tmp: Path, page_pool: PagePool, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no temporary folder can be created, the document fails with a SourceError, which does not end the job."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp / "nowhere"))
    job = Job.parse({"input": {"source": str(sample)}}, Settings(), EntryPoint.LOCAL)

    with pytest.raises(SourceError, match="the worker's disk"):
        async with fetch.document(str(sample), job, Settings(), page_pool, LOCAL_SOURCES):
            pass


def test_a_full_disk_is_reported_as_the_workers(tmp: Path) -> None:
    """The error says that the worker's own disk is full, and not the store of the source."""
    target = tmp / "source"
    target.symlink_to("/dev/full")

    with pytest.raises(SourceError) as caught, TargetFile(target, 1 << 30, "s3://bucket/key") as file:
        for _ in range(3):
            file.write(os.urandom(1 << 20))
        file.finished()

    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert caught.value.message.startswith("s3://bucket/key: no room for it on the worker's disk")
    assert not target.is_symlink()
