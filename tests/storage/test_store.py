"""Promises of every store that keeps its objects: S3 over real HTTP and a folder on a real disk."""

from __future__ import annotations

import asyncio
import pkgutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes import s3
from twopass import storage
from twopass.errors import StoreError
from twopass.storage.folder_store import FolderStore
from twopass.storage.s3 import S3Store
from twopass.storage.store import CreateResult, Store

TEXT = "text/plain"


@pytest.fixture(params=["s3", "folder"])
async def output(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Both stores, which keep the same promises."""
    if request.param == "folder":
        store: Store = FolderStore(tmp_path / "out")
    else:
        request.getfixturevalue("bucket")
        store = S3Store("s3://bucket/out", s3.settings(request.getfixturevalue("endpoint")), None, s3.QUICK)
    yield store
    await store.close()


async def test_a_stored_object_is_read_back(output: Store) -> None:
    """An object is read back as it was written, and a second put replaces it."""
    await output.put("doc/document.md", b"one", "text/markdown")
    await output.put("doc/document.md", b"two", "text/markdown")

    stored = await output.get("doc/document.md")

    assert stored and stored.data == b"two"


async def test_a_missing_key_is_none(output: Store) -> None:
    """Getting a key that does not exist returns None and is no error."""
    assert await output.get("doc/pages/0001.json") is None


async def test_a_deleted_object_is_gone(output: Store) -> None:
    """Other objects stay, and deleting what does not exist is no error."""
    await asyncio.gather(output.put("a", b"", TEXT), output.put("b", b"", TEXT))

    await output.delete("a")
    await output.delete("a")

    assert await output.keys("") == {"b"}


async def test_only_one_of_many_concurrent_creates_wins(output: Store) -> None:
    """One page has one winner, however many workers finish it at once."""
    outcomes = await asyncio.gather(*(output.create("p/0001.json", b"%d" % n, TEXT) for n in range(8)))

    stored = await output.get("p/0001.json")
    assert stored and outcomes.count(CreateResult.WRITTEN) == 1
    assert stored.data == b"%d" % outcomes.index(CreateResult.WRITTEN)


async def test_a_create_of_equal_bytes_loses_to_an_existing_key(output: Store) -> None:
    """A create that was not retried and finds the key taken has lost, even if the stored bytes are equal."""
    assert [await output.create("key", b"same", TEXT) for _ in range(2)] == [CreateResult.WRITTEN, CreateResult.EXISTS]


async def test_replace_needs_the_current_version(output: Store) -> None:
    """A manifest is replaced only by a caller that has read the stored version."""
    await output.create("manifest.json", b"1", TEXT)
    stored = await output.get("manifest.json")
    assert stored

    outcomes = [await output.replace("manifest.json", data, TEXT, stored.etag) for data in (b"2", b"3")]

    assert outcomes == [True, False] and (await output.get("manifest.json")).data == b"2"  # type: ignore[union-attr]


async def test_replace_of_a_missing_key_is_refused(output: Store) -> None:
    """An object that was deleted in the meantime is not brought back."""
    assert await output.replace("gone", b"2", TEXT, '"0"') is False


async def test_keys_are_listed_by_prefix(output: Store) -> None:
    """A prefix lists the keys that begin with it and no others."""
    for key in ("a/pages/0001.json", "a/pages/0002.json", "a/document.md", "ab/pages/0001.json"):
        await output.put(key, b"", TEXT)

    assert await output.keys("a/pages/") == {"a/pages/0001.json", "a/pages/0002.json"}
    assert await output.keys("a") >= {"ab/pages/0001.json", "a/document.md"}
    assert await output.keys("none/at/all") == frozenset()


async def test_prepare_leaves_no_object(output: Store) -> None:
    """An output that was only checked holds no key of ours."""
    await output.prepare()

    assert await output.keys("") == frozenset()


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/x", "", "..", "a\0b"])
async def test_a_key_cannot_lead_out_of_the_output(output: Store, key: str) -> None:
    """No document id leads out of the folder or prefix that the job named."""
    for call in (output.put(key, b"", TEXT), output.create(key, b"", TEXT), output.get(key)):
        with pytest.raises(StoreError, match="OUTPUT_DENIED.*out of the output"):
            await call


def test_importing_storage_imports_no_client_library() -> None:
    """The SDK's process starts without boto3 and httpx."""
    names = [f"twopass.storage.{module.name}" for module in pkgutil.iter_modules(storage.__path__)]
    code = f"import sys, {', '.join(names)}; print({{'boto3', 'botocore', 'httpx', 'urllib3'}} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "twopass.storage.s3" in names
    assert process.stdout == "set()\n"
