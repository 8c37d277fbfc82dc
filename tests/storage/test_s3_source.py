"""Downloads from S3 over real HTTP: moto, behind a proxy that injects faults."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import s3
from twopass.errors import Code, SourceError
from twopass.storage.s3 import S3Reader
from twopass.storage.sources import DownloadResult, Sources, open_sources

PDF = "application/pdf"


async def test_an_s3_source_is_downloaded_with_its_metadata(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """The target holds the object's bytes; the result has hash, etag and content type."""
    data = os.urandom(3_000_000)
    etag = bucket.put_object(Bucket="bucket", Key="in put/ä?.pdf", Body=data, ContentType=PDF)["ETag"].strip('"')

    result = await Sources(s3.settings(endpoint)).fetch("S3://bucket/in put/ä?.pdf", tmp_path / "t")

    assert result == DownloadResult(etag, len(data), hashlib.sha256(data).hexdigest(), PDF)
    assert (tmp_path / "t").read_bytes() == data


async def test_sources_of_one_job_share_one_connection(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """A client takes longer to make than a small document to fetch, so one client serves all sources of a job."""
    for name in "abc":
        bucket.put_object(Bucket="bucket", Key=name, Body=name.encode())
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        async with open_sources(s3.settings(url)) as of_a_job:
            for name in "abc":
                await of_a_job.fetch(f"s3://bucket/{name}", tmp_path / name)
        async with asyncio.timeout(10):  # closed with the job
            while proxy.open_connections:
                await asyncio.sleep(0.01)
        async with open_sources(s3.settings(url)) as of_another:
            await of_another.fetch("s3://bucket/a", tmp_path / "d")

    assert [(tmp_path / name).read_bytes() for name in "abcd"] == [b"a", b"b", b"c", b"a"]
    assert proxy.connections == 2


async def test_a_broken_download_is_continued(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """A connection that breaks in the middle costs a second request for the rest."""
    data = os.urandom(3_000_000)
    bucket.put_object(Bucket="bucket", Key="key", Body=data)
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("GET", cut=2_000_000),))
    with proxy.serve() as url:
        result = await S3Reader(s3.settings(url), None, s3.QUICK).download("s3://bucket/key", tmp_path / "t", 3_000_000)

    assert result.sha256 == hashlib.sha256(data).hexdigest()
    assert "bytes=" in proxy.requests[1].headers["Range"]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/missing", Code.SOURCE_NOT_FOUND),
        ("s3://no-such-bucket/x", Code.SOURCE_NOT_FOUND),
        ("s3:///x", Code.SOURCE_NOT_FOUND),
        ("s3://bucket/", Code.SOURCE_NOT_FOUND),
        ("s3://[bucket/x", Code.SOURCE_NOT_FOUND),
        ("s3://bucket/big", Code.SOURCE_TOO_LARGE),
    ],
)
async def test_a_source_that_cannot_be_downloaded_is_a_coded_error(
    endpoint: str, bucket: Any, tmp_path: Path, uri: str, expected: Code
) -> None:
    """A missing or too large object has its own code, and no file is left."""
    bucket.put_object(Bucket="bucket", Key="big", Body=b"x" * 1001)

    with pytest.raises(SourceError) as caught:
        await Sources(s3.settings(endpoint, max_source_bytes=1000)).fetch(uri, tmp_path / "t")

    assert caught.value.code is expected and not list(tmp_path.iterdir())


@pytest.mark.parametrize("uri", ["s3://bucket", "s3://bucket/"])
async def test_a_bucket_is_no_source(endpoint: str, bucket: Any, tmp_path: Path, uri: str) -> None:
    """A source without a key is refused with what is missing; as an output it is the bucket's root."""
    with pytest.raises(SourceError, match="SOURCE_NOT_FOUND: .* names a bucket and no object"):
        await Sources(s3.settings(endpoint)).fetch(uri, tmp_path / "t")


async def test_a_denied_source_names_the_missing_rights(endpoint: str, tmp_path: Path) -> None:
    """Status 403 on a source says which rights are needed."""
    with (
        s3.Proxy(endpoint, faults=(s3.Fault("GET", 403, "AccessDenied"),)).serve() as url,
        pytest.raises(SourceError, match="SOURCE_DENIED: s3://bucket/key: access denied.*s3:GetObject"),
    ):
        await S3Reader(s3.settings(url), None, s3.QUICK).download("s3://bucket/key", tmp_path / "t", 10)


async def test_a_slow_download_times_out(tmp_path: Path) -> None:
    """FETCH_TIMEOUT_S bounds a download from S3 as well."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = s3.settings(f"http://127.0.0.1:{silent.getsockname()[1]}", fetch_timeout_s=0.3)
        with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*FETCH_TIMEOUT_S"):
            await Sources(settings).fetch("s3://bucket/key", tmp_path / "t")


async def test_slow_downloads_do_not_block_other_threads(tmp_path: Path) -> None:
    """However many downloads hang, asyncio's own few threads stay free to assemble documents."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        settings = s3.settings(f"http://127.0.0.1:{silent.getsockname()[1]}")
        limits = s3.limits(attempts=1, connect_s=60.0, read_s=60.0)
        downloaders = [S3Reader(settings, None, limits) for _ in range(33)]
        hanging = [
            asyncio.create_task(downloader.download("s3://b/k", tmp_path / f"{number}", 10))
            for number, downloader in enumerate(downloaders)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(int)
        still_there = [not download.done() for download in hanging]

    assert all(still_there)
    for ended in await asyncio.gather(*hanging, return_exceptions=True):
        assert isinstance(ended, SourceError)
