"""Temporary folders: gone with their document, and swept where their worker was killed."""

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

from tests.fakes.workers import DyingWorkers
from twopass.errors import Code, SourceError, WorkerDied
from twopass.job import Door, Job
from twopass.runtime import scratch
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import fetch
from twopass.storage.download import Target
from twopass.storage.sources import Sources

NEAR = Sources(Settings())  # files of this machine: nothing to close
HOLDS = """
import sys
from twopass.runtime import scratch
with scratch.folder() as folder:
    (folder / "source").write_bytes(b"CONFIDENTIAL")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path


def folders(tmp: Path) -> list[Path]:
    """Whatever is called as ours are."""
    return list(tmp.glob("twopass-*"))


def holder() -> tuple[subprocess.Popen[bytes], Path]:
    """A process at work in a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return process, Path(process.stdout.readline().decode().strip())


def test_a_folder_is_gone_with_its_user(tmp: Path) -> None:
    """With all that lies in it, however its user ends."""
    with pytest.raises(KeyError), scratch.folder() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "source").write_bytes(b"x")
        raise KeyError

    assert not folders(tmp)


def test_many_folders_take_one_descriptor(tmp: Path) -> None:
    """A job has hundreds of documents open; all is gone with the last of them."""
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        made = [stack.enter_context(scratch.folder()) for _ in range(50)]

        assert len(os.listdir("/proc/self/fd")) <= before + 1
        assert len(set(made)) == 50 and len(folders(tmp)) == 1
    assert not folders(tmp)


def test_a_process_without_descriptors_says_so_and_leaves_nothing(tmp: Path) -> None:
    """And not that folders vanish."""
    tempfile.gettempdir()  # which tries to write, the first time
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError) as refused, scratch.folder():
            raise AssertionError
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert refused.value.errno == errno.EMFILE
    assert not folders(tmp)


def test_what_a_killed_worker_left_is_swept_and_nothing_else(tmp: Path) -> None:
    """A living worker on the same disk keeps its folder, whatever its number, and so does everybody else."""
    killed, orphan = holder()
    alive, kept = holder()
    (tmp / "twopass-notes.txt").write_text("no folder of ours")
    (tmp / "twopass-models").mkdir()
    with killed, alive, scratch.folder() as own:
        killed.kill()
        killed.wait()
        left = orphan.exists()

        swept = scratch.sweep()

        found = set(folders(tmp))
        assert alive.stdin
        alive.stdin.close()
        assert left and swept == 1
        assert found == {kept.parent, own.parent, tmp / "twopass-notes.txt", tmp / "twopass-models"}


def test_a_folder_swept_as_it_is_made_is_made_again(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts may find a folder before its owner has locked it."""
    make, swept = tempfile.mkdtemp, []

    def made(**where: Any) -> str:
        path = make(**where)
        if not swept:
            swept.append(scratch.sweep())
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", made)

    with scratch.folder() as folder:
        assert swept == [1]
        assert folders(tmp) == [folder.parent]


async def test_a_source_that_kills_its_page_worker_leaves_no_folder(
    tmp: Path, page_pool: PagePool, sample: Path
) -> None:
    """The file goes with the document, which ended with a code."""
    job = Job.parse({"input": {"source": str(sample)}}, Settings(), Door.LOCAL)

    with pytest.raises(WorkerDied):
        async with fetch.document(str(sample), job, Settings(), DyingWorkers(page_pool, inspect=2), NEAR):
            pass

    assert not folders(tmp)


async def test_a_cancelled_document_leaves_no_folder(tmp: Path, page_pool: PagePool, sample: Path) -> None:
    """Nor does one that nobody waits for any more."""
    job = Job.parse({"input": {"source": str(sample)}}, Settings(), Door.LOCAL)
    opened = asyncio.Event()

    async def read() -> None:
        async with fetch.document(str(sample), job, Settings(), page_pool, NEAR):
            opened.set()
            await asyncio.sleep(60)

    reading = asyncio.create_task(read())
    await opened.wait()
    before = folders(tmp)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert len(before) == 1 and not folders(tmp)


async def test_no_place_for_a_folder_is_coded(
    tmp: Path, page_pool: PagePool, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document ends with a code and the job goes on."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp / "nowhere"))
    job = Job.parse({"input": {"source": str(sample)}}, Settings(), Door.LOCAL)

    with pytest.raises(SourceError, match="the worker's disk"):
        async with fetch.document(str(sample), job, Settings(), page_pool, NEAR):
            pass


def test_a_full_disk_is_coded_and_says_whose(tmp: Path) -> None:
    """It is the worker's disk that is full, and not the place that the source lies in."""
    target = tmp / "source"
    target.symlink_to("/dev/full")

    with pytest.raises(SourceError) as caught, Target(target, 1 << 30, "s3://bucket/key") as file:
        for _ in range(3):
            file.write(os.urandom(1 << 20))
        file.finished()

    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert caught.value.message.startswith("s3://bucket/key: no room for it on the worker's disk")
    assert not target.is_symlink()
