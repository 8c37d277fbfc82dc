"""The S3 store when S3 fails: which errors are retried, and which code and message the others become."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import s3
from tests.fakes.ports import reserve_port
from twopass.errors import Code, SourceError, StoreError
from twopass.settings import Settings
from twopass.storage.s3 import S3Limits, S3Reader, S3Store
from twopass.storage.store import CreateResult

TEXT = "text/plain"
PATIENT = s3.limits(attempts=1, budget_s=20)


def open_store(endpoint: str, limits: S3Limits = s3.QUICK) -> S3Store:
    return S3Store("s3://bucket/out", s3.settings(endpoint), None, limits)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", Code.OUTPUT_DENIED),
        (403, "InvalidAccessKeyId", Code.OUTPUT_DENIED),
        (403, "SignatureDoesNotMatch", Code.OUTPUT_DENIED),
        (400, "ExpiredToken", Code.OUTPUT_DENIED),
        (404, "NoSuchBucket", Code.OUTPUT_DENIED),
        (418, "Teapot", Code.STORE_UNAVAILABLE),
    ],
)
async def test_a_refused_put_is_a_coded_error(endpoint: str, status: int, code: str, expected: Code) -> None:
    """S3's refusal of a PUT becomes one of our codes, and the message names S3's own code."""
    with s3.Proxy(endpoint, faults=(s3.Fault("PUT", status, code),)).serve() as url:
        output = open_store(url)
        with pytest.raises(StoreError, match=code) as caught:
            await output.put("key", b"", TEXT)
        await output.close()

    assert caught.value.code is expected


async def test_a_missing_bucket_is_reported_as_missing(endpoint: str) -> None:
    """A user who mistyped the bucket reads that it does not exist."""
    output = S3Store("s3://no-such-bucket/x", s3.settings(endpoint), None, s3.QUICK)

    with pytest.raises(StoreError, match="OUTPUT_DENIED: s3://no-such-bucket/x/: the bucket does not exist"):
        await output.create("key", b"", TEXT)
    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.get("key")
    await output.close()


async def test_a_404_is_not_taken_for_a_lost_race(endpoint: str) -> None:
    """A create that is answered with 404 is an error and not EXISTS."""
    with s3.Proxy(endpoint, faults=(s3.Fault("PUT", 404, "NotFound"),)).serve() as url:
        output = open_store(url)
        with pytest.raises(StoreError, match="OUTPUT_DENIED"):
            await output.create("key", b"", TEXT)
        await output.close()


async def test_an_overloaded_store_is_unavailable_after_retries(endpoint: str) -> None:
    """Status 503 is retried before it is an error."""
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", 503, "SlowDown"),) * 2)
    with proxy.serve() as url:
        output = open_store(url)
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*SlowDown"):
            await output.put("key", b"", TEXT)
        await output.close()

    assert len(proxy.requests) == 2


async def test_missing_credentials_are_reported_as_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker without any credentials says so instead of looking broken."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    output = S3Store("s3://bucket/out", Settings(bucket_endpoint_url="http://127.0.0.1:9"), None, s3.QUICK)

    with pytest.raises(StoreError, match="OUTPUT_DENIED.*NoCredentialsError"):
        await output.put("key", b"", TEXT)
    await output.close()


async def test_an_unreachable_endpoint_is_reported(tmp_path: Path) -> None:
    """A closed port is STORE_UNAVAILABLE for outputs and sources, and no secret is in the message."""
    url = f"http://127.0.0.1:{reserve_port()}"
    output = open_store(url)
    with pytest.raises(StoreError, match="STORE_UNAVAILABLE: s3://bucket/out/.*EndpointConnection") as caught:
        await output.create("key", b"", TEXT)
    with pytest.raises(SourceError, match="STORE_UNAVAILABLE: s3://bucket/key"):
        await S3Reader(s3.settings(url), None, s3.QUICK).download("s3://bucket/key", tmp_path / "t", 10)
    await output.close()

    assert s3.KEY not in str(caught.value) and "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        s3.Fault("PUT", 500, path="/key"),
        s3.Fault("PUT", 503, "SlowDown", path="/key"),
        s3.Fault("PUT", 429, "TooManyRequests", path="/key"),
        s3.Fault("PUT", 403, "RequestTimeTooSkewed", path="/key"),
        s3.Fault("PUT", 400, "RequestTimeout", path="/key"),
        s3.Fault("PUT", 500, path="/key", dropped=True),
    ],
    ids=["error", "slow-down", "too-many", "clock", "timeout", "dropped"],
)
async def test_transient_faults_are_retried(endpoint: str, bucket: Any, fault: s3.Fault) -> None:
    """Four failures in a row are survived, also those of a restored snapshot: a wrong clock and dead sockets."""
    proxy = s3.Proxy(endpoint, faults=(fault,) * 4)
    with proxy.serve() as url:
        output = open_store(url, PATIENT)
        outcome = await output.create("key", b"nonce", TEXT)
        stored = await output.get("key")
        await output.close()

    assert outcome is CreateResult.WRITTEN and stored is not None and stored.data == b"nonce"
    assert not proxy.faults


async def test_a_create_that_was_stored_before_its_retries_is_ours(endpoint: str, bucket: Any) -> None:
    """The response to a stored PUT was lost and two retries failed before a third one found that the key exists."""
    lost = s3.Fault("PUT", 500, path="/key", performed=True)
    proxy = s3.Proxy(endpoint, faults=(lost, *(s3.Fault("PUT", 503, "SlowDown", path="/key"),) * 2))
    with proxy.serve() as url:
        output = open_store(url, PATIENT)
        outcome = await output.create("key", b"nonce", TEXT)
        await output.close()

    assert outcome is CreateResult.WRITTEN


async def test_an_upload_in_parts_is_retried(endpoint: str, bucket: Any) -> None:
    """A part that is refused for a while costs another attempt of the upload, and no bytes."""
    data = os.urandom(1000) * 20_000
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", 503, "SlowDown", path="partNumber=2"),) * 2)
    with proxy.serve() as url:
        output = open_store(url, PATIENT)
        await output.put("large", data, "application/zip")
        await output.close()

    assert bucket.get_object(Bucket="bucket", Key="out/large")["Body"].read() == data
    assert not bucket.list_multipart_uploads(Bucket="bucket").get("Uploads")


async def test_retries_end_with_the_budget(endpoint: str, bucket: Any) -> None:
    """A store that stays down is a coded error once the budget is spent; earlier objects are kept."""
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        output = open_store(url, s3.limits(attempts=1, budget_s=0.5))
        await output.put("before", b"1", TEXT)
        proxy.choose_fault = lambda request: s3.Fault("", 503, "SlowDown")
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*SlowDown"):
            await output.put("key", b"", TEXT)
        proxy.choose_fault = lambda request: None
        stored = await output.get("before")
        await output.close()

    assert stored is not None and stored.data == b"1"


async def test_a_clock_that_stays_wrong_is_reported(endpoint: str, bucket: Any) -> None:
    """S3 rejects signatures that are 15 minutes off; the message names the clock and not the credentials."""
    proxy = s3.Proxy(endpoint)
    proxy.choose_fault = lambda request: s3.Fault("", 403, "RequestTimeTooSkewed")
    with proxy.serve() as url:
        output = open_store(url)
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*this machine's clock is wrong"):
            await output.put("key", b"", TEXT)
        await output.close()


async def test_a_missing_bucket_is_not_retried(endpoint: str, bucket: Any) -> None:
    """An error that will not pass is reported after one request."""
    proxy = s3.Proxy(endpoint)
    proxy.choose_fault = lambda request: s3.Fault("", 404, "NoSuchBucket")
    with proxy.serve() as url:
        output = open_store(url, PATIENT)
        with pytest.raises(StoreError, match="OUTPUT_DENIED.*does not exist"):
            await output.put("key", b"", TEXT)
        await output.close()

    assert len(proxy.requests) == 1


async def test_a_closed_store_does_not_retry(endpoint: str, bucket: Any) -> None:
    """A job that was stopped leaves no thread that waits for a store to recover."""
    proxy = s3.Proxy(endpoint)
    proxy.choose_fault = lambda request: s3.Fault("", 503, "SlowDown")
    with proxy.serve() as url:
        output = open_store(url, s3.limits(attempts=1, budget_s=600))
        putting = asyncio.create_task(output.put("key", b"", TEXT))
        async with asyncio.timeout(30):
            while not proxy.requests:
                await asyncio.sleep(0.01)
        putting.cancel()
        async with asyncio.timeout(30):
            await output.close()
        attempts = len(proxy.requests)
        await asyncio.sleep(0.5)

    assert len(proxy.requests) == attempts
