"""Stores over real HTTP: moto as S3, a proxy before it that misbehaves to order; folders on a real disk."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.fakes import s3 as fake
from twopass import __version__, job
from twopass.errors import Code, SourceError, StoreError, TwopassError
from twopass.settings import Settings
from twopass.storage import error_mapping, store
from twopass.storage import s3_store as s3
from twopass.storage.s3_store import Patience, S3Sources, S3Store
from twopass.storage.store import FolderStore, Put

QUICK = Patience(attempts=2, connect_s=0.5, read_s=2.0, budget_s=0)
PDF = "application/pdf"
TEXT = "text/plain"


def settings_for(endpoint: str | None, **more: Any) -> Settings:
    return Settings(
        bucket_endpoint_url=endpoint, bucket_access_key_id=fake.KEY, bucket_secret_access_key=fake.SECRET, **more
    )


def s3_store(endpoint: str, **more: Any) -> S3Store:
    return S3Store("s3://bucket/out", settings_for(endpoint, **more), None, QUICK)


@pytest.fixture
async def s3_output(endpoint: str, bucket: Any) -> AsyncIterator[S3Store]:
    output = s3_store(endpoint)
    yield output
    await output.close()


@pytest.fixture(params=["s3", "folder"])
async def output(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[store.Store]:
    """Both stores, which keep the same promises."""
    if request.param == "folder":
        opened: store.Store = FolderStore(tmp_path / "out")
    else:
        request.getfixturevalue("bucket")
        opened = s3_store(request.getfixturevalue("endpoint"))
    yield opened
    await opened.close()


# ---- both stores --------------------------------------------------------------------------------


async def test_what_is_put_is_got_back(output: store.Store) -> None:
    """An artefact is read back as it was written, and a second put replaces it."""
    await output.put("doc/document.md", b"one", "text/markdown")
    await output.put("doc/document.md", b"two", "text/markdown")

    stored = await output.get("doc/document.md")

    assert stored and stored.data == b"two"


async def test_a_missing_key_is_none(output: store.Store) -> None:
    """A checkpoint that does not exist is no error."""
    assert await output.get("doc/pages/0001.json") is None


async def test_only_one_of_many_creates(output: store.Store) -> None:
    """One page has one winner, however many workers finish it."""
    ends = await asyncio.gather(*(output.create("p/0001.json", b"%d" % n, TEXT) for n in range(8)))

    stored = await output.get("p/0001.json")
    assert stored and ends.count(Put.WRITTEN) == 1 and stored.data == b"%d" % ends.index(Put.WRITTEN)


async def test_equal_bytes_of_another_are_not_ours(output: store.Store) -> None:
    """A create that was not retried and found the key taken lost, whatever lies there."""
    assert [await output.create("key", b"same", TEXT) for _ in range(2)] == [Put.WRITTEN, Put.EXISTS]


async def test_replace_takes_the_version_it_saw(output: store.Store) -> None:
    """A manifest is replaced only by who has read the one that is there."""
    await output.create("manifest.json", b"1", TEXT)
    stored = await output.get("manifest.json")
    assert stored

    ends = [await output.replace("manifest.json", data, TEXT, stored.etag) for data in (b"2", b"3")]

    assert ends == [True, False] and (await output.get("manifest.json")).data == b"2"  # type: ignore[union-attr]


async def test_replace_of_nothing_is_refused(output: store.Store) -> None:
    """What was deleted in between is not brought back."""
    assert await output.replace("gone", b"2", TEXT, '"0"') is False


async def test_keys_are_those_that_begin_so(output: store.Store) -> None:
    """The checkpoints of a document are found by their prefix, and nothing else is."""
    for key in ("a/pages/0001.json", "a/pages/0002.json", "a/document.md", "ab/pages/0001.json"):
        await output.put(key, b"", TEXT)

    assert await output.keys("a/pages/") == {"a/pages/0001.json", "a/pages/0002.json"}
    assert await output.keys("a") >= {"ab/pages/0001.json", "a/document.md"}
    assert await output.keys("none/at/all") == frozenset()


async def test_preparing_leaves_nothing(output: store.Store) -> None:
    """An output that was only looked at has no key of ours."""
    await output.prepare()

    assert await output.keys("") == frozenset()


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/x", "", "..", "a\0b"])
async def test_keys_stay_below_the_output(output: store.Store, key: str) -> None:
    """No document id leads out of the folder or prefix that the job named."""
    for call in (output.put(key, b"", TEXT), output.create(key, b"", TEXT), output.get(key)):
        with pytest.raises(StoreError, match="OUTPUT_DENIED.*out of the output"):
            await call


def test_a_store_outlives_an_event_loop(endpoint: str, bucket: Any) -> None:
    """Calls from one event loop and then another work: nothing in a store belongs to a loop."""
    output = s3_store(endpoint)

    ends = [asyncio.run(output.create("key", b"", TEXT)) for _ in range(2)]
    asyncio.run(output.close())

    assert ends == [Put.WRITTEN, Put.EXISTS]


def test_importing_is_free() -> None:
    """The SDK's process starts without boto3 and httpx."""
    homes = "twopass.storage.store, twopass.storage.s3_store, twopass.storage.error_mapping, twopass.storage.sources"
    code = f"import sys, {homes}; print({{'boto3', 'botocore', 'httpx', 'urllib3'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "set()\n"


# ---- folder -------------------------------------------------------------------------------------


async def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A symbolic link below the output leads no artefact elsewhere."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "doc").symlink_to(tmp_path)
    output = FolderStore(tmp_path / "out")

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.put("doc/x", b"", TEXT)
    await output.close()


async def test_a_folder_is_left_without_temporary_files(tmp_path: Path) -> None:
    """Lost races and refused replacements leave nothing behind."""
    output = FolderStore(tmp_path)
    for _ in range(2):
        await output.create("key", b"", TEXT)
    await output.replace("key", b"", TEXT, "other")
    await output.close()

    assert os.listdir(tmp_path) == ["key"]


async def test_a_file_system_without_links_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hard links are not supported the store still creates once, and says that it only looked."""

    def no_link(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", no_link)
    output = FolderStore(tmp_path)

    ends = [await output.create("key", b"", TEXT) for _ in range(2)]

    assert ends == [Put.WRITTEN, Put.EXISTS] and output.conditional is False
    await output.close()


async def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space is no wrong credential and no broken network, and nothing half-written is left."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "replace", full)
    output = FolderStore(tmp_path)

    with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*no space is left"):
        await output.put("key", b"", TEXT)
    await output.close()
    assert not list(tmp_path.iterdir())


async def test_a_folder_that_cannot_be_made_is_denied(tmp_path: Path) -> None:
    """An output below a file is a coded error."""
    (tmp_path / "file").write_bytes(b"")
    output = FolderStore(tmp_path / "file")

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.put("key", b"", TEXT)
    await output.close()


async def test_a_folder_that_cannot_be_made_is_found_before_reading(tmp_path: Path) -> None:
    """A job whose folder cannot be written ends before its first page."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        async with store.opened_output(str(tmp_path / "file" / "out"), Settings(), None):
            pytest.fail("opened")


# ---- S3 -----------------------------------------------------------------------------------------


async def test_the_probe_finds_conditions_and_leaves_nothing(s3_output: S3Store, bucket: Any) -> None:
    """A store that honours If-None-Match is known by one probe, which is deleted."""
    assert s3_output.conditional is None

    await asyncio.gather(s3_output.create("a", b"a", TEXT), s3_output.create("b", b"b", TEXT))

    assert s3_output.conditional is True and fake.objects(bucket) == {"out/a": b"a", "out/b": b"b"}


async def test_a_denied_bucket_is_found_before_reading(endpoint: str, bucket: Any) -> None:
    """A job whose keys may not write ends before its first page."""
    with (
        fake.Proxy(endpoint, faults=(fake.Fault("PUT", 403, "AccessDenied"),)).running() as url,
        pytest.raises(StoreError, match="OUTPUT_DENIED.*AccessDenied"),
    ):
        async with store.opened_output("s3://bucket/out", settings_for(url), None):
            pytest.fail("opened")


async def test_a_prepared_store_probes_no_more(endpoint: str, bucket: Any) -> None:
    """One probe a store: what `prepare` found is what `create` needs to know."""
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        output = s3_store(url)
        await output.prepare()
        await output.create("key", b"", TEXT)
        await output.close()

    probes = [seen.method for seen in proxy.seen if seen.path.endswith(".twopass-probe")]
    assert probes == ["PUT", "PUT", "DELETE"]


async def test_who_runs_the_store_sees_who_asks(endpoint: str, bucket: Any) -> None:
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        output = s3_store(url)
        await output.put("key", b"", TEXT)
        await output.close()

    names = [seen.headers["User-Agent"] for seen in proxy.seen]
    assert names and all(name.startswith(f"twopass/{__version__}") for name in names)


async def test_another_workers_probe_is_left_alone(s3_output: S3Store, bucket: Any) -> None:
    """Two workers probing at once do not mislead each other."""
    bucket.put_object(Bucket="bucket", Key="out/.twopass-probe", Body=b"")

    await s3_output.create("a", b"a", TEXT)

    assert s3_output.conditional is True and "out/.twopass-probe" in fake.objects(bucket)


async def test_a_retried_probe_is_no_proof(endpoint: str, bucket: Any) -> None:
    """A probe whose first answer was lost is not taken for a put that should have been refused."""
    first = fake.Fault("PUT", 0, path=".twopass-probe")
    second = fake.Fault("PUT", 500, path=".twopass-probe", landed=True)
    with fake.Proxy(endpoint, faults=(first, second)).running() as url:
        output = s3_store(url)
        await output.create("key", b"", TEXT)
        await output.close()

    assert output.conditional is True


async def test_a_checkpoint_is_read_over_a_broken_connection(endpoint: str, bucket: Any) -> None:
    """A stored object that breaks off is read on and not taken for whole."""
    bucket.put_object(Bucket="bucket", Key="out/key", Body=b"0123456789")
    with fake.Proxy(endpoint, faults=(fake.Fault("GET", cut=4),)).running() as url:
        output = s3_store(url)
        stored = await output.get("key")
        await output.close()

    assert stored and stored.data == b"0123456789"


async def test_a_store_that_ignores_the_header_is_found(endpoint: str, bucket: Any) -> None:
    """Where If-None-Match does nothing, create looks first and the store says so."""
    with fake.Proxy(endpoint, drops=("If-None-Match", "If-Match")).running() as url:
        output = s3_store(url)
        ends = [await output.create("key", data, TEXT) for data in (b"1", b"2")]
        await output.close()

    assert ends == [Put.WRITTEN, Put.EXISTS] and output.conditional is False
    assert fake.objects(bucket) == {"out/key": b"1"}


async def test_replace_looks_first_where_conditions_are_ignored(endpoint: str, bucket: Any) -> None:
    """Without If-Match the version is still compared."""
    with fake.Proxy(endpoint, drops=("If-None-Match", "If-Match")).running() as url:
        output = s3_store(url)
        await output.put("key", b"1", TEXT)
        stored = await output.get("key")
        assert stored
        ends = [await output.replace("key", data, TEXT, stored.etag) for data in (b"2", b"3")]
        await output.close()

    assert ends == [True, False]


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (400, "NotImplemented"), (400, "InvalidArgument")]
)
async def test_a_store_that_refuses_the_header_is_used_without(
    endpoint: str, bucket: Any, status: int, code: str
) -> None:
    """A vendor who answers that the header is not implemented still gets artefacts."""
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("PUT", status, code, path=".twopass-probe"),))
    with proxy.running() as url:
        output = s3_store(url)
        end = await output.create("key", b"1", TEXT)
        await output.close()

    assert end is Put.WRITTEN and output.conditional is False


async def test_ones_own_retried_create_is_recognised(endpoint: str, bucket: Any) -> None:
    """A put that landed while its answer was lost is ours, though its repetition is refused."""
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("PUT", 500, path="/key", landed=True),))
    with proxy.running() as url:
        output = s3_store(url)
        end = await output.create("key", b"nonce-1", TEXT)
        await output.close()

    assert end is Put.WRITTEN and sum(seen.path.endswith("/key") and seen.method == "PUT" for seen in proxy.seen) == 2


async def test_a_retried_create_that_lost_is_told(endpoint: str, bucket: Any) -> None:
    """After a lost first try another's checkpoint is not taken for ours."""
    bucket.put_object(Bucket="bucket", Key="out/key", Body=b"nonce-2")
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("PUT", 500, path="/key"),))
    with proxy.running() as url:
        output = s3_store(url)
        end = await output.create("key", b"nonce-1", TEXT)
        await output.close()

    assert end is Put.EXISTS


async def test_ones_own_retried_replace_is_recognised(endpoint: str, bucket: Any) -> None:
    """The manifest that landed while its answer was lost counts as replaced."""
    bucket.put_object(Bucket="bucket", Key="out/key", Body=b"old")
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("PUT", 503, "SlowDown", path="/key", landed=True),))
    with proxy.running() as url:
        output = s3_store(url)
        stored = await output.get("key")
        assert stored
        replaced = await output.replace("key", b"new", TEXT, stored.etag)
        await output.close()

    assert replaced


async def test_a_conflict_is_tried_again(endpoint: str, bucket: Any) -> None:
    """409 says that another put was under way, not that it won."""
    fault = fake.Fault("PUT", 409, "ConditionalRequestConflict", path="/key")
    with fake.Proxy(endpoint, faults=(fault, fault)).running() as url:
        output = s3_store(url)
        end = await output.create("key", b"1", TEXT)
        await output.close()

    assert end is Put.WRITTEN


async def test_a_large_artefact_goes_up_in_parts(endpoint: str, bucket: Any) -> None:
    """20 MB arrive whole, in parts of 8 MiB, with their content type."""
    data = os.urandom(1000) * 20_000
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        output = s3_store(url)
        await output.put("big.pdf", data, PDF)
        await output.close()

    stored = bucket.get_object(Bucket="bucket", Key="out/big.pdf")
    assert stored["Body"].read() == data and stored["ContentType"] == PDF
    assert sum("partNumber" in seen.path for seen in proxy.seen) == 3


async def test_content_types_are_kept(s3_output: S3Store, bucket: Any) -> None:
    """A browser shows what it gets from the bucket."""
    await s3_output.put("a.html", b"", "text/html; charset=utf-8")
    await s3_output.create("b.json", b"", "application/json")

    kinds = [bucket.head_object(Bucket="bucket", Key=f"out/{key}")["ContentType"] for key in ("a.html", "b.json")]
    assert kinds == ["text/html; charset=utf-8", "application/json"]


async def test_many_keys_are_listed_whole(s3_output: S3Store, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of more than one page of S3's answer is complete."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    await asyncio.gather(*(s3_output.put(f"p/{number:04d}", b"", TEXT) for number in range(25)))

    assert len(await s3_output.keys("p/")) == 25 and len(fake.objects(bucket)) == 10


@pytest.mark.parametrize(
    ("uri", "shown", "key"),
    [
        ("s3://b", "s3://b/", "s3://b/k"),
        ("s3://b/x/y", "s3://b/x/y/", "s3://b/x/y/k"),
        ("s3://b/x/", "s3://b/x/", "s3://b/x/k"),
    ],
)
async def test_an_output_is_named_like_a_folder(uri: str, shown: str, key: str) -> None:
    """However the prefix is written, artefacts lie below it."""
    output = S3Store(uri, settings_for(None), None)

    assert (output.uri, store.uri_of(output, "k")) == (shown, key)
    await output.close()


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
async def test_a_refusing_store_is_a_coded_error(endpoint: str, status: int, code: str, expected: Code) -> None:
    """What S3 says against a put becomes one of our codes, and the message names S3's."""
    with fake.Proxy(endpoint, faults=(fake.Fault("PUT", status, code),)).running() as url:
        output = s3_store(url)
        with pytest.raises(StoreError, match=code) as caught:
            await output.put("key", b"", TEXT)
        await output.close()

    assert caught.value.code is expected


async def test_a_missing_bucket_is_said_to_be_missing(endpoint: str) -> None:
    """Who mistyped the bucket reads that it does not exist."""
    output = S3Store("s3://no-such-bucket/x", settings_for(endpoint), None, QUICK)

    with pytest.raises(StoreError, match="OUTPUT_DENIED: s3://no-such-bucket/x/: the bucket does not exist"):
        await output.create("key", b"", TEXT)
    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.get("key")
    await output.close()


async def test_a_404_is_not_taken_for_a_lost_race(endpoint: str) -> None:
    """A create that was not found a place for is an error and not EXISTS."""
    with fake.Proxy(endpoint, faults=(fake.Fault("PUT", 404, "NotFound"),)).running() as url:
        output = s3_store(url)
        with pytest.raises(StoreError, match="OUTPUT_DENIED"):
            await output.create("key", b"", TEXT)
        await output.close()


async def test_an_overloaded_store_is_unavailable_after_retries(endpoint: str) -> None:
    """503 is tried again before it is an error."""
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("PUT", 503, "SlowDown"),) * 2)
    with proxy.running() as url:
        output = s3_store(url)
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*SlowDown"):
            await output.put("key", b"", TEXT)
        await output.close()

    assert len(proxy.seen) == 2


async def test_missing_credentials_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker without any keys tells so and does not look broken."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    output = S3Store("s3://bucket/out", Settings(bucket_endpoint_url="http://127.0.0.1:9"), None, QUICK)

    with pytest.raises(StoreError, match="OUTPUT_DENIED.*NoCredentialsError"):
        await output.put("key", b"", TEXT)
    await output.close()


@contextmanager
def closed_port() -> Iterator[str]:
    """An endpoint at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_a_small_put_asks_no_leave(endpoint: str, bucket: Any) -> None:
    """botocore waits for "100 Continue" before it sends any body: a way there and back for every page.

    A large one asks: of a store that refuses and closes while it is sent, nothing but a broken connection is seen.
    """
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        output = s3_store(url)
        await output.create("new", b"data", TEXT)
        await output.put("any", bytes(s3.SMALL), TEXT)
        await output.put("large", bytes(s3.SMALL + 1), TEXT)
        await output.close()

    assert {seen.method for seen in proxy.seen} == {"PUT", "DELETE"}  # of the probe
    assert [seen.path for seen in proxy.seen if "Expect" in seen.headers] == ["/bucket/out/large"]


async def test_an_unreachable_endpoint_is_told_soon(tmp_path: Path) -> None:
    """A closed port is STORE_UNAVAILABLE for outputs and sources, and no secret is in the message."""
    with closed_port() as url:
        output = s3_store(url)
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE: s3://bucket/out/.*EndpointConnection") as caught:
            await output.create("key", b"", TEXT)
        with pytest.raises(SourceError, match="STORE_UNAVAILABLE: s3://bucket/key"):
            await S3Sources(settings_for(url), None, QUICK).download("s3://bucket/key", tmp_path / "t", 10)
        await output.close()

    assert fake.KEY not in str(caught.value) and "127.0.0.1" not in str(caught.value)


# ---- whose keys go where ------------------------------------------------------------------------


def job_s3(endpoint: str | None, **more: Any) -> job.S3:
    return job.S3(access_key_id="job-key", secret_access_key="job-secret", endpoint_url=endpoint, **more)


async def test_a_jobs_endpoint_sees_only_the_jobs_keys(endpoint: str, bucket: Any) -> None:
    """The worker's own keys are never sent to an address that a job named."""
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        worker = settings_for("https://worker.example", allow_private_sources=True)
        output = S3Store("s3://bucket/out", worker, job_s3(url), QUICK)
        await output.create("key", b"", TEXT)
        await output.close()

    credentials = {seen.headers["Authorization"].partition("Credential=")[2].partition("/")[0] for seen in proxy.seen}
    assert credentials == {"job-key"}


async def test_a_jobs_keys_go_to_aws_and_not_to_the_workers_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without an endpoint means AWS, whatever the worker's settings and environment name."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://worker.example")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-workers")

    client = s3._client(settings_for("https://worker.example"), job_s3(None, region="eu-west-1"), QUICK)

    assert client.meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"
    assert client._request_signer._credentials.token is None
    client.close()


@pytest.mark.parametrize(("key", "secret"), [("", ""), ("job-key", ""), ("", "job-secret")])
async def test_a_job_without_keys_borrows_none_of_the_workers(
    endpoint: str, bucket: Any, monkeypatch: pytest.MonkeyPatch, key: str, secret: str
) -> None:
    """Empty credentials of a job are sent as they are, and never the worker's AWS chain in their place."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-workers-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-workers-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-workers-token")
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        empty = job.S3.model_construct(
            access_key_id=SecretStr(key), secret_access_key=SecretStr(secret), endpoint_url=url
        )
        output = S3Store("s3://bucket/out", settings_for(None, allow_private_sources=True), empty, QUICK)
        await output.put("key", b"", TEXT)
        await output.close()

    assert proxy.seen and not any("the-workers" in str(seen.headers) for seen in proxy.seen)


@pytest.mark.parametrize(
    "url",
    [
        "http://8.8.8.8",
        "https://127.0.0.1:9000",
        "https://169.254.169.254",
        "https://[::1]",
        "https://[::1",
        "https://user:pass@8.8.8.8",
        "ftp://8.8.8.8",
        "nonsense",
        "https://8.8.8.8:99999999",
    ],
)
async def test_a_jobs_endpoint_is_checked_like_a_source(url: str) -> None:
    """A job's endpoint must be https on the public network."""
    output = S3Store("s3://bucket/out", settings_for(None), job_s3(url), QUICK)

    with pytest.raises(StoreError, match="OUTPUT_DENIED"):
        await output.put("key", b"", TEXT)
    await output.close()


@pytest.mark.parametrize(
    ("given_url", "region", "expected"),
    [
        ("https://docs.s3.eu-central-1.amazonaws.com", None, (None, "eu-central-1")),
        ("https://s3.amazonaws.com", None, (None, None)),
        ("https://s3-us-west-2.amazonaws.com/", None, (None, "us-west-2")),
        ("https://s3.host", None, ("https://s3.host", "us-east-1")),
        ("https://s3.host", "nyc3", ("https://s3.host", "nyc3")),
        (
            "https://s3.eu-west-1.amazonaws.com.evil.example",
            None,
            ("https://s3.eu-west-1.amazonaws.com.evil.example", "us-east-1"),
        ),
    ],
)
def test_aws_endpoints_are_read_as_regions(
    given_url: str, region: str | None, expected: tuple[str | None, ...]
) -> None:
    """BUCKET_ENDPOINT_URL as other RunPod workers want it, with the bucket in it, works here too."""
    assert s3._place(given_url, region) == expected


# ---- errors of other libraries ------------------------------------------------------------------


def exceptions_of(module: Any) -> list[type[Exception]]:
    found = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, Exception)]
    return [kind for kind in found if not issubclass(kind, Warning)]


@pytest.mark.parametrize("raises", [SourceError, StoreError])
def test_every_botocore_exception_is_mapped(raises: type[TwopassError]) -> None:
    """No exception of botocore or boto3 reaches a caller."""
    import boto3.exceptions
    import botocore.exceptions

    kinds = exceptions_of(botocore.exceptions) + exceptions_of(boto3.exceptions)

    assert len(kinds) > 80
    for kind in kinds:
        with pytest.raises(raises, match="s3://b/k"), error_mapping.translated("s3://b/k", raises):  # type: ignore[arg-type]
            raise kind.__new__(kind)


# ---- patience ---------------------------------------------------------------------------------------

PATIENT = Patience(attempts=1, connect_s=0.5, read_s=2.0, budget_s=20)


def patient_store(url: str, patience: Patience = PATIENT) -> S3Store:
    return S3Store("s3://bucket/out", settings_for(url), None, patience)


@pytest.mark.parametrize(
    "fault",
    [
        fake.Fault("PUT", 500, path="/key"),
        fake.Fault("PUT", 503, "SlowDown", path="/key"),
        fake.Fault("PUT", 429, "TooManyRequests", path="/key"),
        fake.Fault("PUT", 403, "RequestTimeTooSkewed", path="/key"),
        fake.Fault("PUT", 400, "RequestTimeout", path="/key"),
        fake.Fault("PUT", 500, path="/key", dropped=True),
    ],
    ids=["error", "slow-down", "too-many", "clock", "timeout", "dropped"],
)
async def test_a_store_that_recovers_is_waited_for(endpoint: str, bucket: Any, fault: fake.Fault) -> None:
    """Four failures in a row are waited out; with a restored clock or dead sockets too, as after a snapshot."""
    proxy = fake.Proxy(endpoint, faults=(fault,) * 4)
    with proxy.running() as url:
        output = patient_store(url)
        end = await output.create("key", b"nonce", TEXT)
        stored = await output.get("key")
        await output.close()

    assert end is Put.WRITTEN and stored is not None and stored.data == b"nonce"
    assert not proxy.faults


async def test_a_create_that_landed_before_its_tries_is_ours(endpoint: str, bucket: Any) -> None:
    """Its answer was lost, and two more tries failed before one was told that the key exists."""
    lost = fake.Fault("PUT", 500, path="/key", landed=True)
    proxy = fake.Proxy(endpoint, faults=(lost, *(fake.Fault("PUT", 503, "SlowDown", path="/key"),) * 2))
    with proxy.running() as url:
        output = patient_store(url)
        end = await output.create("key", b"nonce", TEXT)
        await output.close()

    assert end is Put.WRITTEN


async def test_an_upload_in_parts_is_tried_again(endpoint: str, bucket: Any) -> None:
    """A part that is refused for a while costs the whole upload another try, and no bytes."""
    data = os.urandom(1000) * 20_000
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("PUT", 503, "SlowDown", path="partNumber=2"),) * 2)
    with proxy.running() as url:
        output = patient_store(url)
        await output.put("large", data, "application/zip")
        await output.close()

    assert bucket.get_object(Bucket="bucket", Key="out/large")["Body"].read() == data
    assert not bucket.list_multipart_uploads(Bucket="bucket").get("Uploads")


async def test_patience_ends_and_says_what_to_do(endpoint: str, bucket: Any) -> None:
    """What was stored before stays; the error is coded."""
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        output = patient_store(url, Patience(attempts=1, connect_s=0.5, read_s=2.0, budget_s=0.5))
        await output.put("before", b"1", TEXT)
        proxy.judge = lambda seen: fake.Fault("", 503, "SlowDown")
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*SlowDown"):
            await output.put("key", b"", TEXT)
        proxy.judge = lambda seen: None
        stored = await output.get("before")
        await output.close()

    assert stored is not None and stored.data == b"1"


async def test_a_clock_that_is_wrong_for_good_is_told(endpoint: str, bucket: Any) -> None:
    """S3 takes no signature that is a quarter of an hour off; nobody looks for wrong keys then."""
    proxy = fake.Proxy(endpoint)
    proxy.judge = lambda seen: fake.Fault("", 403, "RequestTimeTooSkewed")
    with proxy.running() as url:
        output = patient_store(url, QUICK)
        with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*this machine's clock is wrong"):
            await output.put("key", b"", TEXT)
        await output.close()


async def test_a_bucket_that_vanishes_is_told_at_once(endpoint: str, bucket: Any) -> None:
    """No patience with what will not come back."""
    proxy = fake.Proxy(endpoint)
    proxy.judge = lambda seen: fake.Fault("", 404, "NoSuchBucket")
    with proxy.running() as url:
        output = patient_store(url)
        with pytest.raises(StoreError, match="OUTPUT_DENIED.*does not exist"):
            await output.put("key", b"", TEXT)
        await output.close()

    assert len(proxy.seen) == 1


async def test_a_store_that_is_closed_tries_no_more(endpoint: str, bucket: Any) -> None:
    """A job that was stopped leaves no thread that waits for a store to recover."""
    proxy = fake.Proxy(endpoint)
    proxy.judge = lambda seen: fake.Fault("", 503, "SlowDown")
    with proxy.running() as url:
        output = patient_store(url, Patience(attempts=1, connect_s=0.5, read_s=2.0, budget_s=600))
        putting = asyncio.create_task(output.put("key", b"", TEXT))
        async with asyncio.timeout(30):
            while not proxy.seen:
                await asyncio.sleep(0.01)
        putting.cancel()
        async with asyncio.timeout(30):
            await output.close()
        tries = len(proxy.seen)
        await asyncio.sleep(0.5)

    assert len(proxy.seen) == tries
