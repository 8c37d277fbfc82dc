"""The S3 store over real HTTP: moto, behind a proxy that injects faults."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes import s3
from twopass.errors import StoreError
from twopass.job import S3
from twopass.storage.outputs import open_output
from twopass.storage.s3 import SMALL_BODY_BYTES, S3Limits, S3Store
from twopass.storage.store import CreateResult, uri_of
from twopass.version import VERSION

PDF = "application/pdf"
TEXT = "text/plain"


def open_store(endpoint: str, limits: S3Limits = s3.QUICK) -> S3Store:
    return S3Store("s3://bucket/out", s3.settings(endpoint), None, limits)


@pytest.fixture
async def s3_output(endpoint: str, bucket: Any) -> AsyncIterator[S3Store]:
    output = open_store(endpoint)
    yield output
    await output.close()


def test_a_store_works_on_several_event_loops(endpoint: str, bucket: Any) -> None:
    """A store can be used from one event loop and then from another: nothing in it belongs to a loop."""
    output = open_store(endpoint)

    outcomes = [asyncio.run(output.create("key", b"", TEXT)) for _ in range(2)]
    asyncio.run(output.close())

    assert outcomes == [CreateResult.WRITTEN, CreateResult.EXISTS]


async def test_the_probe_detects_conditional_writes_and_leaves_nothing(s3_output: S3Store, bucket: Any) -> None:
    """One probe, which is deleted, detects a store that honours If-None-Match."""
    assert s3_output.conditional is None

    await asyncio.gather(s3_output.create("a", b"a", TEXT), s3_output.create("b", b"b", TEXT))

    assert s3_output.conditional is True and s3.read_objects(bucket) == {"out/a": b"a", "out/b": b"b"}


async def test_a_denied_bucket_is_refused_before_reading(endpoint: str, bucket: Any) -> None:
    """A job whose keys may not write ends before its first page."""
    with (
        s3.Proxy(endpoint, faults=(s3.Fault("PUT", 403, "AccessDenied"),)).serve() as url,
        pytest.raises(StoreError, match="OUTPUT_DENIED.*AccessDenied"),
    ):
        async with open_output("s3://bucket/out", s3.settings(url), None):
            pytest.fail("opened")


async def test_a_prepared_store_does_not_probe_again(endpoint: str, bucket: Any) -> None:
    """`create` uses what the probe of `prepare` has found."""
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        output = open_store(url)
        await output.prepare()
        await output.create("key", b"", TEXT)
        await output.close()

    probes = [request.method for request in proxy.requests if request.path.endswith(".twopass-probe")]
    assert probes == ["PUT", "PUT", "DELETE"]


async def test_requests_carry_our_user_agent(endpoint: str, bucket: Any) -> None:
    """The operator of a store sees twopass and its version as the user agent."""
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        output = open_store(url)
        await output.put("key", b"", TEXT)
        await output.close()

    names = [request.headers["User-Agent"] for request in proxy.requests]
    assert names and all(name.startswith(f"twopass/{VERSION}") for name in names)


async def test_a_worker_probes_an_output_once(endpoint: str, bucket: Any) -> None:
    """Later jobs with the same output send no probe; a job with keys of its own is checked each time."""
    proxy, checked = s3.Proxy(endpoint), dict[str, bool]()
    keys = S3(access_key_id=s3.KEY, secret_access_key=s3.SECRET, endpoint_url=endpoint)
    with proxy.serve() as url:
        for _ in range(2):
            async with open_output("s3://bucket/out/", s3.settings(url), None, checked) as output:
                assert output.conditional is True

    async with open_output("s3://bucket/keys/", s3.settings(None, allow_private_sources=True), keys, checked):
        pass

    assert [request.method for request in proxy.requests] == ["PUT", "PUT", "DELETE"]
    assert checked == {"s3://bucket/out/": True}


async def test_another_workers_probe_is_left_alone(s3_output: S3Store, bucket: Any) -> None:
    """Two workers that probe at the same time do not mislead each other, and each deletes only its own probe."""
    bucket.put_object(Bucket="bucket", Key="out/.twopass-probe", Body=b"")

    await s3_output.create("a", b"a", TEXT)

    assert s3_output.conditional is True and "out/.twopass-probe" in s3.read_objects(bucket)


async def test_a_retried_probe_is_not_misread(endpoint: str, bucket: Any) -> None:
    """A probe whose first response was lost is not taken for a PUT that should have been refused."""
    first = s3.Fault("PUT", 0, path=".twopass-probe")
    second = s3.Fault("PUT", 500, path=".twopass-probe", performed=True)
    with s3.Proxy(endpoint, faults=(first, second)).serve() as url:
        output = open_store(url)
        await output.create("key", b"", TEXT)
        await output.close()

    assert output.conditional is True


async def test_a_checkpoint_is_read_over_a_broken_connection(endpoint: str, bucket: Any) -> None:
    """An object whose connection breaks is read to its end, and a part is never taken for the complete object."""
    bucket.put_object(Bucket="bucket", Key="out/key", Body=b"0123456789")
    with s3.Proxy(endpoint, faults=(s3.Fault("GET", cut=4),)).serve() as url:
        output = open_store(url)
        stored = await output.get("key")
        await output.close()

    assert stored and stored.data == b"0123456789"


async def test_a_store_that_ignores_the_header_is_detected(endpoint: str, bucket: Any) -> None:
    """Where If-None-Match has no effect, create checks first and the store says that this is not atomic."""
    with s3.Proxy(endpoint, dropped_headers=("If-None-Match", "If-Match")).serve() as url:
        output = open_store(url)
        outcomes = [await output.create("key", data, TEXT) for data in (b"1", b"2")]
        await output.close()

    assert outcomes == [CreateResult.WRITTEN, CreateResult.EXISTS] and output.conditional is False
    assert s3.read_objects(bucket) == {"out/key": b"1"}


async def test_replace_compares_versions_where_conditions_are_ignored(endpoint: str, bucket: Any) -> None:
    """Without If-Match the version is still compared before it is replaced."""
    with s3.Proxy(endpoint, dropped_headers=("If-None-Match", "If-Match")).serve() as url:
        output = open_store(url)
        await output.put("key", b"1", TEXT)
        stored = await output.get("key")
        assert stored
        outcomes = [await output.replace("key", data, TEXT, stored.etag) for data in (b"2", b"3")]
        await output.close()

    assert outcomes == [True, False]


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (400, "NotImplemented"), (400, "InvalidArgument")]
)
async def test_a_store_that_refuses_the_header_is_used_without_it(
    endpoint: str, bucket: Any, status: int, code: str
) -> None:
    """A vendor that answers that the header is not implemented still gets artefacts."""
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", status, code, path=".twopass-probe"),))
    with proxy.serve() as url:
        output = open_store(url)
        outcome = await output.create("key", b"1", TEXT)
        await output.close()

    assert outcome is CreateResult.WRITTEN and output.conditional is False


async def test_our_own_retried_create_is_recognised(endpoint: str, bucket: Any) -> None:
    """A PUT that was stored while its response was lost is ours, though its repetition is refused."""
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", 500, path="/key", performed=True),))
    with proxy.serve() as url:
        output = open_store(url)
        outcome = await output.create("key", b"nonce-1", TEXT)
        await output.close()

    puts = [request for request in proxy.requests if request.method == "PUT" and request.path.endswith("/key")]
    assert outcome is CreateResult.WRITTEN and len(puts) == 2


async def test_a_retried_create_that_lost_reports_exists(endpoint: str, bucket: Any) -> None:
    """After a failed first attempt another worker's checkpoint is not taken for ours."""
    bucket.put_object(Bucket="bucket", Key="out/key", Body=b"nonce-2")
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", 500, path="/key"),))
    with proxy.serve() as url:
        output = open_store(url)
        outcome = await output.create("key", b"nonce-1", TEXT)
        await output.close()

    assert outcome is CreateResult.EXISTS


async def test_our_own_retried_replace_is_recognised(endpoint: str, bucket: Any) -> None:
    """A manifest that was stored while its response was lost counts as replaced."""
    bucket.put_object(Bucket="bucket", Key="out/key", Body=b"old")
    proxy = s3.Proxy(endpoint, faults=(s3.Fault("PUT", 503, "SlowDown", path="/key", performed=True),))
    with proxy.serve() as url:
        output = open_store(url)
        stored = await output.get("key")
        assert stored
        replaced = await output.replace("key", b"new", TEXT, stored.etag)
        await output.close()

    assert replaced


async def test_a_conflict_is_retried(endpoint: str, bucket: Any) -> None:
    """Status 409 says that another PUT was under way, not that it won."""
    fault = s3.Fault("PUT", 409, "ConditionalRequestConflict", path="/key")
    with s3.Proxy(endpoint, faults=(fault, fault)).serve() as url:
        output = open_store(url)
        outcome = await output.create("key", b"1", TEXT)
        await output.close()

    assert outcome is CreateResult.WRITTEN


async def test_a_large_artefact_is_uploaded_in_parts(endpoint: str, bucket: Any) -> None:
    """An object of 20 MB arrives complete, in parts of 8 MiB, with its content type."""
    data = os.urandom(1000) * 20_000
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        output = open_store(url)
        await output.put("big.pdf", data, PDF)
        await output.close()

    stored = bucket.get_object(Bucket="bucket", Key="out/big.pdf")
    assert stored["Body"].read() == data and stored["ContentType"] == PDF
    assert sum("partNumber" in request.path for request in proxy.requests) == 3


async def test_content_types_are_kept(s3_output: S3Store, bucket: Any) -> None:
    """A browser can show an artefact straight from the bucket, because its content type is stored."""
    await s3_output.put("a.html", b"", "text/html; charset=utf-8")
    await s3_output.create("b.json", b"", "application/json")

    kinds = [bucket.head_object(Bucket="bucket", Key=f"out/{key}")["ContentType"] for key in ("a.html", "b.json")]
    assert kinds == ["text/html; charset=utf-8", "application/json"]


async def test_a_listing_of_several_pages_is_complete(
    s3_output: S3Store, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys beyond the first page of S3's listing are returned too."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    await asyncio.gather(*(s3_output.put(f"p/{number:04d}", b"", TEXT) for number in range(25)))

    assert len(await s3_output.keys("p/")) == 25 and len(s3.read_objects(bucket)) == 10


@pytest.mark.parametrize(
    ("uri", "shown", "key"),
    [
        ("s3://b", "s3://b/", "s3://b/k"),
        ("s3://b/x/y", "s3://b/x/y/", "s3://b/x/y/k"),
        ("s3://b/x/", "s3://b/x/", "s3://b/x/k"),
    ],
)
async def test_an_output_prefix_ends_in_one_slash(uri: str, shown: str, key: str) -> None:
    """However the prefix is written, artefacts are stored below it."""
    output = S3Store(uri, s3.settings(None), None)

    assert (output.uri, uri_of(output, "k")) == (shown, key)
    await output.close()


async def test_only_a_large_put_waits_for_100_continue(endpoint: str, bucket: Any) -> None:
    """botocore waits for "100 Continue" before it sends any body, which costs a round trip for every page.

    A large PUT still waits: a store that refuses it and closes the connection would only look broken otherwise.
    """
    proxy = s3.Proxy(endpoint)
    with proxy.serve() as url:
        output = open_store(url)
        await output.create("new", b"data", TEXT)
        await output.put("any", bytes(SMALL_BODY_BYTES), TEXT)
        await output.put("large", bytes(SMALL_BODY_BYTES + 1), TEXT)
        await output.close()

    assert {request.method for request in proxy.requests} == {"PUT", "DELETE"}  # of the probe
    assert [request.path for request in proxy.requests if "Expect" in request.headers] == ["/bucket/out/large"]
