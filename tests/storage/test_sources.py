"""Sources over real HTTP: moto as S3, a web server of our own, data: URIs and files."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import inspect
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import s3 as fake
from tests.fakes import tls
from twopass import job
from twopass.errors import Code, SourceError
from twopass.settings import Settings
from twopass.storage import error_mapping, sources, ssrf_guard
from twopass.storage.download import Downloaded
from twopass.storage.s3_store import Patience, S3Sources
from twopass.storage.sources import Sources, opened_sources

QUICK = Patience(attempts=2, connect_s=0.5, read_s=2.0, budget_s=0)
PDF = "application/pdf"


def settings_for(endpoint: str | None, **more: Any) -> Settings:
    return Settings(
        bucket_endpoint_url=endpoint, bucket_access_key_id=fake.KEY, bucket_secret_access_key=fake.SECRET, **more
    )


# ---- S3 sources ---------------------------------------------------------------------------------


async def test_a_source_arrives_with_its_facts(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """The target holds the object's bytes; hash, etag and content type are told."""
    data = os.urandom(3_000_000)
    etag = bucket.put_object(Bucket="bucket", Key="in put/ä?.pdf", Body=data, ContentType=PDF)["ETag"].strip('"')

    got = await Sources(settings_for(endpoint)).fetch("s3://bucket/in put/ä?.pdf", tmp_path / "t")

    assert got == Downloaded(etag, len(data), hashlib.sha256(data).hexdigest(), PDF)
    assert (tmp_path / "t").read_bytes() == data


async def test_sources_of_one_job_come_through_one_connection(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """A client takes longer to make than a small document to fetch; what was connected to for one serves the next."""
    for name in "abc":
        bucket.put_object(Bucket="bucket", Key=name, Body=name.encode())
    proxy = fake.Proxy(endpoint)
    with proxy.running() as url:
        async with opened_sources(settings_for(url)) as of_a_job:
            for name in "abc":
                await of_a_job.fetch(f"s3://bucket/{name}", tmp_path / name)
        async with asyncio.timeout(10):  # closed with the job
            while proxy.open_now:
                await asyncio.sleep(0.01)
        async with opened_sources(settings_for(url)) as of_another:
            await of_another.fetch("s3://bucket/a", tmp_path / "d")

    assert [(tmp_path / name).read_bytes() for name in "abcd"] == [b"a", b"b", b"c", b"a"]
    assert proxy.connections == 2


async def test_a_broken_download_is_read_on(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """A connection that breaks in the middle costs a second request for the rest."""
    data = os.urandom(3_000_000)
    bucket.put_object(Bucket="bucket", Key="key", Body=data)
    proxy = fake.Proxy(endpoint, faults=(fake.Fault("GET", cut=2_000_000),))
    with proxy.running() as url:
        got = await S3Sources(settings_for(url), None, QUICK).download("s3://bucket/key", tmp_path / "t", 3_000_000)

    assert got.sha256 == hashlib.sha256(data).hexdigest()
    assert "bytes=" in proxy.seen[1].headers["Range"]


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
async def test_a_source_that_cannot_be_had_is_coded(
    endpoint: str, bucket: Any, tmp_path: Path, uri: str, expected: Code
) -> None:
    """What is missing or too large is said so, and no file is left."""
    bucket.put_object(Bucket="bucket", Key="big", Body=b"x" * 1001)

    with pytest.raises(SourceError) as caught:
        await Sources(settings_for(endpoint, max_source_bytes=1000)).fetch(uri, tmp_path / "t")

    assert caught.value.code is expected and not list(tmp_path.iterdir())


async def test_a_denied_source_is_coded(endpoint: str, tmp_path: Path) -> None:
    """403 on a source tells which rights are needed."""
    with (
        fake.Proxy(endpoint, faults=(fake.Fault("GET", 403, "AccessDenied"),)).running() as url,
        pytest.raises(SourceError, match="SOURCE_DENIED: s3://bucket/key: access denied.*s3:GetObject"),
    ):
        await S3Sources(settings_for(url), None, QUICK).download("s3://bucket/key", tmp_path / "t", 10)


async def test_a_slow_source_is_given_up(tmp_path: Path) -> None:
    """FETCH_TIMEOUT_S bounds a download from S3 as well."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = settings_for(f"http://127.0.0.1:{silent.getsockname()[1]}", fetch_timeout_s=0.3)
        with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*FETCH_TIMEOUT_S"):
            await S3Sources(settings, None, Patience(1, 0.5, 1.0, 0)).download("s3://bucket/key", tmp_path / "t", 10)


async def test_slow_sources_hold_no_thread_that_others_need(tmp_path: Path) -> None:
    """However many downloads hang, asyncio's own few threads are free to assemble documents."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        settings = settings_for(f"http://127.0.0.1:{silent.getsockname()[1]}")
        hanging = [
            asyncio.create_task(
                S3Sources(settings, None, Patience(1, 60.0, 60.0, 0)).download("s3://b/k", tmp_path / f"{n}", 10)
            )
            for n in range(33)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(int)
        still_there = [not download.done() for download in hanging]

    assert all(still_there)
    for ended in await asyncio.gather(*hanging, return_exceptions=True):
        assert isinstance(ended, SourceError)


# ---- https --------------------------------------------------------------------------------------


class Site:
    """A web server: path -> (status, headers, body); the body "slow" never ends."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.hosts: list[str] = []
        self.port = 0

    @contextmanager
    def running(self, tls: ssl.SSLContext | None = None) -> Iterator[Site]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.hosts.append(self.headers["Host"])
                status, headers, body = site.pages.get(self.path.partition("?")[0], (404, {}, b""))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                while body == b"slow":
                    self.wfile.write(b"slow")
                    time.sleep(0.02)
                self.wfile.write(body)

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the caller hung up
                    self.close_connection = True

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None: ...

        server = Server(("127.0.0.1", 0), Handler)
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def url(self, path: str = "/x", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as running:
        yield running


OPEN = Settings(allow_private_sources=True, fetch_timeout_s=20)


async def test_an_https_source_arrives_with_its_facts(site: Site, tmp_path: Path) -> None:
    """Bytes, hash, etag and content type of a web address."""
    site.pages["/x"] = (200, {"ETag": 'W/"7"', "Content-Type": "Application/PDF; x=y"}, b"%PDF")

    got = await Sources(OPEN).fetch(site.url(), tmp_path / "t")

    assert got == Downloaded("7", 4, hashlib.sha256(b"%PDF").hexdigest(), PDF)
    assert (tmp_path / "t").read_bytes() == b"%PDF" and site.hosts == [f"127.0.0.1:{site.port}"]


async def test_redirects_are_followed_five_times(site: Site, tmp_path: Path) -> None:
    """Five hops lead to the document, relative ones too."""
    site.pages |= {f"/{n}": (302, {"Location": f"{n + 1}"}, b"") for n in range(5)}
    site.pages["/5"] = (200, {}, b"here")

    got = await sources.fetch_https(site.url("/0"), tmp_path / "t", OPEN, 100)

    assert got.bytes == 4


async def test_a_redirect_loop_ends(site: Site, tmp_path: Path) -> None:
    """An address that leads to itself is a coded error."""
    site.pages["/x"] = (302, {"Location": "/x"}, b"")

    with pytest.raises(SourceError, match="SOURCE_DENIED.*5 redirects"):
        await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 100)


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/x", "file:///etc/passwd"])
async def test_a_redirect_elsewhere_is_refused(site: Site, tmp_path: Path, location: str) -> None:
    """A redirect leads to web addresses and nowhere else."""
    site.pages["/x"] = (302, {"Location": location}, b"")

    with pytest.raises(SourceError) as caught:
        await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 100)

    assert caught.value.code is Code.SOURCE_DENIED


@pytest.mark.parametrize("headers", [{"Content-Length": "1001"}, {}])
async def test_a_source_that_is_too_large_is_refused(site: Site, tmp_path: Path, headers: dict[str, str]) -> None:
    """Announced or not, bytes above the limit are not kept."""
    site.pages["/x"] = (200, headers, b"x" * 1001)

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 1000)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("status", "expected", "tries"),
    [
        (404, Code.SOURCE_NOT_FOUND, 1),
        (410, Code.SOURCE_NOT_FOUND, 1),
        (401, Code.SOURCE_DENIED, 1),
        (403, Code.SOURCE_DENIED, 1),
        (500, Code.STORE_UNAVAILABLE, 3),
    ],
)
async def test_a_status_is_a_code(site: Site, tmp_path: Path, status: int, expected: Code, tries: int) -> None:
    """Each refusal has its code, the query is in no message, and only the server's own errors are tried again."""
    site.pages["/x"] = (status, {}, b"")

    with pytest.raises(SourceError) as caught:
        await sources.fetch_https(site.url("/x?X-Amz-Signature=secret"), tmp_path / "t", OPEN, 1000)

    assert caught.value.code is expected and len(site.hosts) == tries and "secret" not in str(caught.value)


async def test_a_truncated_answer_is_not_a_document(site: Site, tmp_path: Path) -> None:
    """Fewer bytes than announced are an error and leave no file."""
    site.pages["/x"] = (200, {"Content-Length": "10"}, b"short")

    with pytest.raises(SourceError, match="STORE_UNAVAILABLE"):
        await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 1000)

    assert not list(tmp_path.iterdir())


async def test_an_answer_that_never_ends_is_given_up(site: Site, tmp_path: Path) -> None:
    """FETCH_TIMEOUT_S is the whole time, not the time between two bytes."""
    site.pages["/x"] = (200, {}, b"slow")
    settings = Settings(allow_private_sources=True, fetch_timeout_s=0.3)

    with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*FETCH_TIMEOUT_S"):
        await sources.fetch_https(site.url(), tmp_path / "t", settings, 1 << 30)

    assert not list(tmp_path.iterdir())


async def test_no_signature_reaches_a_log(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A presigned query is not logged by the libraries either, on any level."""
    caplog.set_level(logging.DEBUG)
    for name in error_mapping.LOUD:  # as in a fresh process
        logging.getLogger(name).setLevel(logging.NOTSET)
    error_mapping.quiet.cache_clear()
    sources._tls.cache_clear()
    site.pages["/x"] = (200, {}, b"")

    await sources.fetch_https(site.url("/x?X-Amz-Signature=secret"), tmp_path / "t", OPEN, 1000)

    assert "secret" not in caplog.text


async def test_a_proxy_of_the_environment_is_not_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would choose the address that we have checked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    site.pages["/x"] = (200, {}, b"%PDF")

    assert (await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 1000)).bytes == 4


@pytest.mark.parametrize(
    "uri",
    [
        "https://127.0.0.1/x",
        "https://localhost/x",
        "https://169.254.169.254/latest/meta-data",
        "https://2130706433/x",
        "https://0x7f000001/x",
        "https://127.1/x",
        "https://0/x",
        "https://[::]/x",
        "https://[fe80::1]/x",
        "https://[64:ff9b::a9fe:a9fe]/x",
        "https://[2002:7f00:1::]/x",
        "https://224.0.0.1/x",
        "https://100.64.0.1/x",
        "https://8.8.8.8@127.0.0.1/x",
        "https://[::ffff:10.0.0.1]/x",
        "http://8.8.8.8/x",
    ],
)
async def test_private_addresses_are_denied(uri: str, tmp_path: Path) -> None:
    """However it is written, an address of the worker's own network is not fetched, nor is plain http."""
    with pytest.raises(SourceError, match="SOURCE_DENIED"):
        await Sources(Settings(max_source_bytes=1000)).fetch(uri, tmp_path / "t")


@pytest.mark.parametrize("host", ["0177.0.0.1", "127.0.0.1.", "127.0.0.1%00", "１２７.0.0.1", "127。0。0。1"])
async def test_other_spellings_reach_nothing(site: Site, tmp_path: Path, host: str) -> None:
    """What one library takes for an address and another for a name is a coded error, and no request."""
    with pytest.raises(SourceError):
        await sources.fetch_https(site.url("/x", "https", host), tmp_path / "t", Settings(), 1000)

    assert not site.hosts


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.certificate_of("localhost", tmp_path_factory.mktemp("tls") / "both.pem")


@pytest.fixture
def tls_site(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site under https://localhost, whose certificate is trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    sources._tls.cache_clear()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    with Site().running(server) as running:
        yield running
    sources._tls.cache_clear()


async def test_the_certificate_is_checked_against_the_name(tls_site: Site, tmp_path: Path) -> None:
    """The connection goes to the checked address, the certificate must be for the name in the URI."""
    tls_site.pages["/x"] = (200, {}, b"%PDF")

    got = await sources.fetch_https(tls_site.url("/x", "https", "localhost"), tmp_path / "t", OPEN, 1000)
    with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*SSLCertVerificationError"):
        await sources.fetch_https(tls_site.url("/x", "https", "127.0.0.1"), tmp_path / "t", OPEN, 1000)

    assert got.bytes == 4 and tls_site.hosts == [f"localhost:{tls_site.port}"]


@pytest.mark.parametrize("target", ["https://169.254.169.254/latest", "https://127.0.0.2/x", "http://localhost/x"])
async def test_a_redirect_to_a_private_address_is_denied(
    tls_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """A public address cannot send the worker to a private one, nor from https to http."""
    monkeypatch.setattr(ssrf_guard, "is_public", lambda address: address in ("127.0.0.1", "::1"))
    tls_site.pages["/x"] = (302, {"Location": target}, b"")

    with pytest.raises(SourceError, match="SOURCE_DENIED"):
        await sources.fetch_https(tls_site.url("/x", "https", "localhost"), tmp_path / "t", Settings(), 1000)

    assert len(tls_site.hosts) == 1


@contextmanager
def moving(monkeypatch: pytest.MonkeyPatch, port: int, stays: int) -> Iterator[list[str]]:
    """A host `moving.example`: 127.0.0.1, which counts as public, for so many lookups; then 127.0.0.2, which does not.

    Whoever connects there is told. The names of the lookups are told too.
    """
    real, lookups, reached = socket.getaddrinfo, [], []

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in ("moving.example", b"moving.example"):
            return real(host, *args, **kwargs)
        lookups.append(host)
        return real("127.0.0.1" if len(lookups) <= stays else "127.0.0.2", *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(ssrf_guard, "is_public", lambda address: address == "127.0.0.1")
    with socket.create_server(("127.0.0.2", port)) as private:
        private.setblocking(False)
        yield reached
        with suppress(BlockingIOError):
            while True:
                private.accept()[0].close()
                reached.append("127.0.0.2")


@pytest.fixture(scope="module")
def moving_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.certificate_of("moving.example", tmp_path_factory.mktemp("tls") / "both.pem")


@pytest.fixture
def moving_site(moving_certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site under https://moving.example, trusted by httpx and by botocore."""
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(moving_certificate))
    sources._tls.cache_clear()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(moving_certificate)
    with Site().running(server) as running:
        yield running
    sources._tls.cache_clear()


async def test_a_name_that_moves_between_check_and_connect_gains_nothing(
    moving_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to the address that was checked; a name that moved is refused at its next check."""
    moving_site.pages["/x"] = (200, {}, b"%PDF")
    url = moving_site.url("/x", "https", "moving.example")

    with moving(monkeypatch, moving_site.port, stays=1) as reached:
        got = await sources.fetch_https(url, tmp_path / "t", Settings(), 1000)
        with pytest.raises(SourceError, match="SOURCE_DENIED"):
            await sources.fetch_https(url, tmp_path / "t", Settings(), 1000)

    assert got.bytes == 4 and not reached


def jobs_own(site: Site) -> job.S3:
    endpoint = site.url("", "https", "moving.example")
    return job.S3.model_validate({"access_key_id": "a", "secret_access_key": "b", "endpoint_url": endpoint})


async def test_a_jobs_endpoint_is_talked_to_under_its_name(
    moving_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate and Host are the name's, the socket is the checked address's, and no proxy comes between."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    moving_site.pages["/bucket/key"] = (200, {"ETag": '"7"', "Content-Length": "4"}, b"%PDF")

    with moving(monkeypatch, moving_site.port, stays=100):
        got = await S3Sources(Settings(), jobs_own(moving_site), QUICK).download("s3://bucket/key", tmp_path / "t", 99)

    assert got.bytes == 4 and moving_site.hosts == [f"moving.example:{moving_site.port}"]


async def test_a_jobs_endpoint_that_moves_after_its_check_gains_nothing(
    moving_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is looked up as it is connected to, and a private address gets not even a connection."""
    with (
        moving(monkeypatch, moving_site.port, stays=1) as reached,
        pytest.raises(SourceError, match="SOURCE_DENIED"),
    ):
        await S3Sources(Settings(), jobs_own(moving_site), QUICK).download("s3://bucket/key", tmp_path / "t", 1000)

    assert not reached and not moving_site.hosts


@pytest.mark.parametrize("packing", ["br", "gzip, gzip", "zstd", "deflate,gzip"])
async def test_an_answer_packed_without_bounds_is_refused(site: Site, tmp_path: Path, packing: str) -> None:
    """A few kilobytes may unpack to gigabytes in one step; nothing but one layer of gzip is unpacked."""
    packed = gzip.compress(gzip.compress(bytes(10 << 20)))
    site.pages["/x"] = (200, {"Content-Encoding": packing}, packed)

    with pytest.raises(SourceError, match="SOURCE_UNSUPPORTED.*serve the file as it is"):
        await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 1 << 30)


async def test_unpacked_bytes_count(site: Site, tmp_path: Path) -> None:
    """The limit is on what lands in the file, whatever was sent."""
    site.pages["/x"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(10 << 20)))

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        await sources.fetch_https(site.url(), tmp_path / "t", OPEN, 1 << 20)

    assert not list(tmp_path.iterdir())


def test_every_httpx_exception_is_mapped() -> None:
    """No exception of httpx reaches a caller."""
    import httpx

    kinds = [kind for _, kind in inspect.getmembers(httpx, inspect.isclass) if issubclass(kind, Exception)]

    assert len(kinds) > 20
    for kind in kinds:
        with pytest.raises(SourceError, match="https://h/p"), sources.translated_http("https://h/p"):
            raise kind.__new__(kind)


# ---- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1"),
        *("::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::127.0.0.1", "ff0e::1", "fec0::1", "2001:db8::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::", "64:ff9b:1::a9fe:a9fe", "2001:0:7f00:1::", "::ffff:0:127.0.0.1"),
        *("169.254.170.2", "100.100.100.200", "192.0.0.192", "198.18.0.1", "fd00:ec2::254", "0.1.2.3"),
        *("2130706433", "0177.0.0.1", "", "host.example", "127.0.0.1\n"),
    ],
)
def test_what_is_not_public_is_told(address: str) -> None:
    """Private, loopback, link-local, shared, multicast and embedded addresses are not public, nor is nonsense."""
    assert not ssrf_guard.is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_public(address: str) -> None:
    """The guard lets the internet through, also where IPv4 is reached by way of IPv6."""
    assert ssrf_guard.is_public(address)


@given(st.ip_addresses(v=4))
def test_embedding_changes_no_verdict(address: Any) -> None:
    """An IPv4 address is judged alike however it is wrapped in IPv6."""
    number = int(address)
    wrapped = (f"::ffff:{address}", f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}")

    assert {ssrf_guard.is_public(each) for each in wrapped} == {ssrf_guard.is_public(str(address))}


@given(st.one_of(st.ip_addresses().map(str), st.integers(0, 2**32 - 1).map(str)))
def test_no_spelling_of_a_private_address_resolves(host: str) -> None:
    """Whatever resolve returns is public, decimal spellings included."""
    try:
        found = ssrf_guard.resolve(host, 443, allow_private=False)
    except SourceError as error:
        assert error.code in (Code.SOURCE_DENIED, Code.STORE_UNAVAILABLE)
    else:
        assert all(ssrf_guard.is_public(address) for address in found)


def test_one_private_address_refuses_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that answers with a public and a private address is not talked to at all."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    with pytest.raises(SourceError, match="SOURCE_DENIED"):
        ssrf_guard.resolve("rebind.example", 443, allow_private=False)
    assert ssrf_guard.resolve("rebind.example", 443, allow_private=True) == ("8.8.8.8", "10.0.0.1")


@pytest.mark.parametrize("host", ["a\0b", "a" * 70 + ".example", "ä" * 300, "no-such-host.invalid", ".."])
def test_a_name_that_cannot_be_resolved_is_coded(host: str) -> None:
    """Bad host names end in an error of ours."""
    with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*cannot be resolved"):
        ssrf_guard.resolve(host, 443, allow_private=False)


# ---- data: and local paths ----------------------------------------------------------------------


@given(st.binary(), st.sampled_from([PDF, "image/png", "text/plain;charset=utf-8", ""]), st.booleans())
def test_any_bytes_survive_a_data_uri(data: bytes, mime: str, as_base64: bool) -> None:
    """Inline sources arrive byte for byte in both encodings."""
    body = base64.b64encode(data).decode() if as_base64 else quote_from_bytes(data)
    uri = f"data:{mime}{';base64' if as_base64 else ''},{body}"

    assert sources.decode_data(uri, len(data)) == (data, mime.partition(";")[0] or "text/plain")


@given(st.text(), st.sampled_from(["data:", "data:;base64,", "data:a/b,", "data:a/b;base64,%"]))
def test_any_text_is_data_or_a_named_error(text: str, start: str) -> None:
    """No inline text raises anything but an error of ours."""
    try:
        data, mime = sources.decode_data(start + text, 1 << 20)
    except SourceError as error:
        assert error.code is Code.SOURCE_UNSUPPORTED
    else:
        assert isinstance(data, bytes) and mime


async def test_inline_data_has_a_limit(tmp_path: Path) -> None:
    """An inline source above the limit is refused like any other."""
    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        await Sources(Settings(max_source_bytes=4)).fetch("data:,12345", tmp_path / "t")


async def test_inline_data_becomes_a_file(tmp_path: Path) -> None:
    """data: leaves its bytes in the target like every scheme."""
    got = await Sources(Settings(max_source_bytes=3)).fetch("data:image/png;base64,AAEC", tmp_path / "t")

    assert (got.content_type, (tmp_path / "t").read_bytes()) == ("image/png", b"\0\1\2")


async def test_a_local_file_is_copied(tmp_path: Path) -> None:
    """A path leaves its bytes in the target and stays where it is."""
    (tmp_path / "in.pdf").write_bytes(b"%PDF")

    got = await Sources(Settings(max_source_bytes=4)).fetch(str(tmp_path / "in.pdf"), tmp_path / "t")

    assert got == Downloaded(None, 4, hashlib.sha256(b"%PDF").hexdigest(), None)
    assert (tmp_path / "t").read_bytes() == (tmp_path / "in.pdf").read_bytes()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing.pdf", Code.SOURCE_NOT_FOUND),
        (".", Code.SOURCE_NOT_FOUND),
        ("big.pdf", Code.SOURCE_TOO_LARGE),
    ],
)
async def test_a_local_source_that_cannot_be_had_is_coded(tmp_path: Path, name: str, expected: Code) -> None:
    """A missing file, a folder and a large file are told apart."""
    (tmp_path / "big.pdf").write_bytes(b"x" * 5)

    with pytest.raises(SourceError) as caught:
        await Sources(Settings(max_source_bytes=4)).fetch(str(tmp_path / name), tmp_path / "t")

    assert caught.value.code is expected and not (tmp_path / "t").exists()


async def test_an_unknown_scheme_is_named(tmp_path: Path) -> None:
    """ftp:// is no local path and no source."""
    with pytest.raises(SourceError, match="SOURCE_UNSUPPORTED: ftp"):
        await Sources(Settings(max_source_bytes=4)).fetch("ftp://host/x", tmp_path / "t")
