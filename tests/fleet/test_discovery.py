"""Which documents the given places hold."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests.fakes import s3
from twopass.fleet.discovery import (
    DocumentPreparer,
    DocumentRef,
    PageCounter,
    Skipped,
    describe_skipped,
    find_documents,
    sum_up_skipped,
)
from twopass.fleet.ledger import Ledger
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.storage.sources import DownloadResult


def test_a_list_has_one_place_per_line(tmp_path: Path) -> None:
    """Comments and blank lines are skipped, duplicates are read once, and the results folder is left out."""
    (tmp_path / "in").mkdir()
    for name in ("in/a.pdf", "in/b.TIF", "in/c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "in" / "out").mkdir()
    (tmp_path / "in" / "out" / "crop.png").touch()
    (tmp_path / "list.txt").write_text(f"# mine\n\n{tmp_path}/in\n{tmp_path}/in/a.pdf\nhttps://h/x.pdf\n")

    documents, skipped = asyncio.run(find_documents([f"@{tmp_path}/list.txt"], Settings(), [f"{tmp_path}/in/out"]))

    assert documents == [
        DocumentRef(f"{tmp_path}/in/a.pdf"),
        DocumentRef(f"{tmp_path}/in/b.TIF"),
        DocumentRef("https://h/x.pdf"),
    ]
    assert skipped == [
        Skipped(
            f"{tmp_path}/in/c.txt",
            ".txt is no type that is read; pass it by name if it is a PDF or a picture all the same",
        )
    ]


def test_what_is_in_a_folder_and_not_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    """Nothing in a folder vanishes: other types, links that lead nowhere or to folders, and files without a type."""
    other = tmp_path / "other"
    folder = tmp_path / "in"
    for path in (folder, other, folder / "pages.pdf"):
        path.mkdir()
    for name in ("a.pdf", "mail.EML", "contract"):
        (folder / name).touch()
    (folder / "more").symlink_to(other)
    (folder / "gone.pdf").symlink_to(tmp_path / "nowhere.pdf")
    (folder / "ring.pdf").symlink_to(folder / "ring.pdf")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    os.mkfifo(folder / "pipe.pdf")

    found = asyncio.run(find_documents([str(folder)], Settings(), (str(tmp_path / "out"), str(tmp_path / "ring"))))

    reasons = {Path(file.name).name: file.reason.partition(";")[0] for file in found.skipped}
    assert [document.location for document in found.documents] == [str(folder / "a.pdf")]
    assert reasons == {
        "contract": "its name has no suffix",
        "gone.pdf": "a link to a file that does not exist",
        "mail.EML": ".eml is no type that is read",
        "more": "a link to a folder",
        "pipe.pdf": "not a regular file",
        "ring.pdf": "a link to a file that does not exist",
    }


def test_a_list_in_a_list_is_not_read_and_said_so(tmp_path: Path) -> None:
    """Lists do not nest, and the line of one does not vanish."""
    (tmp_path / "list.txt").write_text("https://h/x.pdf\n@more.txt\n")

    found = asyncio.run(find_documents([f"@{tmp_path}/list.txt"], Settings(), ()))

    assert [file.name for file in found.skipped] == ["@more.txt"]


def test_of_many_skipped_files_a_line_names_a_few(tmp_path: Path) -> None:
    """A person reads how many they are, and the first of them; a summary has all."""
    skipped = [Skipped(f"{n}.txt", "no PDF") for n in range(30)]

    assert describe_skipped(skipped).startswith("not read: 30 files: 0.txt (no PDF), 1.txt (no PDF), ")
    assert describe_skipped(skipped).endswith("9.txt (no PDF), and 20 more")
    assert sum_up_skipped(skipped)["count"] == len(sum_up_skipped(skipped)["files"]) == 30


@dataclass
class CountingSources:
    """Downloads a PDF of three pages; `fetched` lists the addresses."""

    fetched: list[str] = field(default_factory=list)

    async def fetch(self, uri: str, target: Path) -> DownloadResult:
        self.fetched.append(uri)
        with pymupdf.open() as document:
            for _ in range(3):
                document.new_page()
            target.write_bytes(document.tobytes())
        return DownloadResult(None, target.stat().st_size, "ab" * 32, None)


def counter(page_pool: PagePool, sources: CountingSources) -> PageCounter:
    return PageCounter(page_pool, sources, Settings())  # type: ignore[arg-type]


async def test_a_document_is_fetched_again_only_if_it_has_changed(tmp_path: Path, page_pool: PagePool) -> None:
    """A repeated command knows the pages of every version that a listing names; an address alone says nothing."""
    places = [("a", "v1"), ("a", "v1"), ("a", "v2"), ("b", None), ("b", None)]
    sources = CountingSources()

    prepared = []
    for name, version in places:  # each as a command of its own
        preparer = DocumentPreparer(counter(page_pool, sources), ledger=Ledger(tmp_path / "state.jsonl"))
        prepared.append(await preparer.prepare(DocumentRef(f"s3://bucket/{name}.pdf", version)))

    assert [uri[-5:] for uri in sources.fetched] == ["a.pdf", "a.pdf", "b.pdf", "b.pdf"]
    assert {(document.sha256, document.pages) for document in prepared} == {("ab" * 32, 3)}


async def test_a_local_file_is_hashed_again_only_if_it_has_changed(tmp_path: Path, page_pool: PagePool) -> None:
    """What is remembered without pages is not enough when they are counted."""
    path, ledger = tmp_path / "a.pdf", Ledger(tmp_path / "state.jsonl")
    with pymupdf.open() as document:
        document.new_page()
        path.write_bytes(document.tobytes())
    uncounted = await DocumentPreparer(shares_files=True, ledger=ledger).prepare(DocumentRef(str(path)))
    preparer = DocumentPreparer(counter(page_pool, CountingSources()), shares_files=True, ledger=ledger)
    counted = await preparer.prepare(DocumentRef(str(path)))
    path.write_bytes(path.read_bytes() + b"% changed")
    changed = await preparer.prepare(DocumentRef(str(path)))

    assert (uncounted.pages, counted.pages, changed.pages) == (None, 1, 1)
    assert uncounted.sha256 == counted.sha256 != changed.sha256


async def test_a_listing_says_the_version_of_every_document(
    bucket: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing is paged: more documents than fit into one answer are found, each once, with its etag."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    for number in range(25):
        bucket.put_object(Bucket="bucket", Key=f"in/{number:04d}.pdf", Body=b"%d" % number)
    bucket.put_object(Bucket="bucket", Key="in/notes.txt", Body=b"")

    documents, skipped = await find_documents(["s3://bucket/in/", "s3://bucket/in/0007.pdf"], s3.settings(endpoint), ())

    assert [document.location for document in documents] == [f"s3://bucket/in/{n:04d}.pdf" for n in range(25)]
    assert [file.name for file in skipped] == ["s3://bucket/in/notes.txt"]
    assert documents[7].version == f'"{hashlib.md5(b"7", usedforsecurity=False).hexdigest()}"'
