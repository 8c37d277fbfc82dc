"""Several processes of one `twopass read` command share the documents and their pages through the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import s3, shelf
from twopass.cli import batch
from twopass.cli.batch import InputFile

READ = [sys.executable, "-m", "twopass.cli", "read"]
PAGES = (24, *[2] * 11)  # of the twelve documents


@pytest.fixture
def full_bucket(bucket: Any) -> Any:
    """A client of a bucket that keeps every version of an object, with twelve documents below in/."""
    shelf.fill(bucket, PAGES)
    return bucket


@contextmanager
def start(folder: Path, endpoint: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command with the bucket's credentials and one page worker; it ends with the context."""
    folder.mkdir()
    settings = {"PAGE_WORKERS": "1", "LOG_FORMAT": "json", **s3.worker_keys(endpoint)}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **settings}
    with (
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            [*READ, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def wait_for_pages(client: Any, prefix: str, count: int) -> None:
    until = time.monotonic() + 120
    while len(shelf.list_stored_pages(client, prefix)) < count:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_bucket_that_was_read_starts_no_engine(full_bucket: Any, endpoint: str, tmp_path: Path) -> None:
    """The second run finds every document by its bytes and its manifest, and writes no page."""
    command = ["s3://bucket/in/", "--output", "s3://bucket/out/"]
    with start(tmp_path / "first", endpoint, *command) as first:
        first.communicate(timeout=240)
    stored = shelf.list_stored_pages(full_bucket, "out/")
    with start(tmp_path / "again", endpoint, *command) as again:
        summary = json.loads(again.communicate(timeout=240)[0])

    assert (summary["success"], again.returncode) == (12, 0)
    assert "worker ready" in (tmp_path / "first" / "stderr").read_text()
    assert "worker ready" not in (tmp_path / "again" / "stderr").read_text()
    assert shelf.list_stored_pages(full_bucket, "out/") == stored


def test_processes_share_documents_and_a_killed_one_costs_only_its_pages_in_flight(
    full_bucket: Any, endpoint: str, tmp_path: Path
) -> None:
    """Each page is stored once, and the results are those of a single process, though one of three was killed."""
    command = ["s3://bucket/in/", "--output", "s3://bucket/shared"]
    with (
        start(tmp_path / "a", endpoint, *command) as killed,
        start(tmp_path / "b", endpoint, *command) as second,
        start(tmp_path / "c", endpoint, *command) as third,
    ):
        wait_for_pages(full_bucket, "shared/", 3)
        killed.kill()
        summaries = [json.loads(process.communicate(timeout=240)[0]) for process in (second, third)]
    with start(tmp_path / "alone", endpoint, "s3://bucket/in/", "--output", "s3://bucket/alone/") as alone:
        summaries.append(json.loads(alone.communicate(timeout=240)[0]))

    stored = shelf.list_stored_pages(full_bucket, "shared/")
    assert [summary["success"] for summary in summaries] == [12, 12, 12]
    assert len(stored) == len(set(stored)) == sum(PAGES)
    assert shelf.read_results(full_bucket, "shared/") == shelf.read_results(full_bucket, "alone/")
    remaining = json.loads(full_bucket.get_object(Bucket="bucket", Key="shared/batch_summary.json")["Body"].read())
    assert (remaining["total_files"], remaining["success"]) == (12, 12)


def test_documents_in_the_output_prefix_are_not_read(bucket: Any, endpoint: str, tmp_path: Path) -> None:
    """Crops below the output are no documents, even if the output is inside the prefix that is read."""
    bucket.put_object(Bucket="bucket", Key="in/out/report-0123456789ab/images/p0001-e001.png", Body=b"a crop")

    with start(tmp_path / "a", endpoint, "s3://bucket/in/", "--output", "s3://bucket/in/out") as process:
        process.communicate(timeout=120)

    assert process.returncode == 2
    assert "nothing to read below s3://bucket/in/" in (tmp_path / "a" / "stderr").read_text()


def test_an_output_that_cannot_be_written_is_reported_before_the_engine_starts(
    bucket: Any, endpoint: str, tmp_path: Path
) -> None:
    """A bucket that does not exist is a wrong argument, with its code and what to check."""
    bucket.put_object(Bucket="bucket", Key="in/a.pdf", Body=shelf.build_pdf("Report", 1))

    with start(tmp_path / "a", endpoint, "s3://bucket/in/", "--output", "s3://another/out") as process:
        process.communicate(timeout=120)

    assert process.returncode == 2
    assert "OUTPUT_DENIED: s3://another/out" in (tmp_path / "a" / "stderr").read_text()


def test_two_processes_read_in_different_orders() -> None:
    """Each process reads every file once, in an order of its own, so that they begin with different documents."""
    files = [InputFile(f"s3://bucket/in/{number}.pdf", "s3://bucket/in/") for number in range(40)]

    one, other = batch.shuffle(files), batch.shuffle(files)

    assert set(one) == set(other) == set(files)
    assert one != other
