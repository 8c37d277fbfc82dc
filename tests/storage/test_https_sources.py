"""Sources over https: a web server of our own, redirects, certificates and private addresses."""

from __future__ import annotations

import gzip
import hashlib
import inspect
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import s3, tls
from twopass import job
from twopass.errors import Code, SourceError
from twopass.settings import Settings
from twopass.storage import error_mapping, https, ssrf_guard
from twopass.storage.s3 import S3Reader
from twopass.storage.sources import DownloadResult, Sources

PDF = "application/pdf"
PRIVATE_ALLOWED = Settings(allow_private_sources=True, fetch_timeout_s=20)


async def fetch_https(uri: str, target: Path, settings: Settings, limit_bytes: int) -> DownloadResult:
    return await Sources(settings.model_copy(update={"max_source_bytes": limit_bytes})).fetch(uri, target)


class Site:
    """A web server that answers each path with (status, headers, body). The body "slow" never ends."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.hosts: list[str] = []
        self.port = 0

    @contextmanager
    def serve(self, tls: ssl.SSLContext | None = None) -> Iterator[Site]:
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
                except OSError:  # the client closed the connection
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
    with Site().serve() as serving:
        yield serving


async def test_an_https_source_is_downloaded_with_its_metadata(site: Site, tmp_path: Path) -> None:
    """A web address yields bytes, hash, etag and content type."""
    site.pages["/x"] = (200, {"ETag": 'W/"7"', "Content-Type": "Application/PDF; x=y"}, b"%PDF")

    result = await Sources(PRIVATE_ALLOWED).fetch(site.url(scheme="HTTP"), tmp_path / "t")

    assert result == DownloadResult("7", 4, hashlib.sha256(b"%PDF").hexdigest(), PDF)
    assert (tmp_path / "t").read_bytes() == b"%PDF" and site.hosts == [f"127.0.0.1:{site.port}"]


async def test_redirects_are_followed_five_times(site: Site, tmp_path: Path) -> None:
    """Five redirects lead to the document, relative ones too."""
    site.pages |= {f"/{n}": (302, {"Location": f"{n + 1}"}, b"") for n in range(5)}
    site.pages["/5"] = (200, {}, b"here")

    result = await fetch_https(site.url("/0"), tmp_path / "t", PRIVATE_ALLOWED, 100)

    assert result.bytes == 4


async def test_a_redirect_loop_is_an_error(site: Site, tmp_path: Path) -> None:
    """An address that redirects to itself is a coded error."""
    site.pages["/x"] = (302, {"Location": "/x"}, b"")

    with pytest.raises(SourceError, match="SOURCE_DENIED.*5 redirects"):
        await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 100)


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/x", "file:///etc/passwd"])
async def test_a_redirect_to_another_scheme_is_refused(site: Site, tmp_path: Path, location: str) -> None:
    """A redirect may lead to web addresses only."""
    site.pages["/x"] = (302, {"Location": location}, b"")

    with pytest.raises(SourceError) as caught:
        await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 100)

    assert caught.value.code is Code.SOURCE_DENIED


@pytest.mark.parametrize("headers", [{"Content-Length": "1001"}, {}])
async def test_a_source_that_is_too_large_is_refused(site: Site, tmp_path: Path, headers: dict[str, str]) -> None:
    """Bytes above the limit are not kept, whether the size was announced or not."""
    site.pages["/x"] = (200, headers, b"x" * 1001)

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 1000)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("status", "expected", "attempts"),
    [
        (404, Code.SOURCE_NOT_FOUND, 1),
        (410, Code.SOURCE_NOT_FOUND, 1),
        (401, Code.SOURCE_DENIED, 1),
        (403, Code.SOURCE_DENIED, 1),
        (500, Code.STORE_UNAVAILABLE, 3),
    ],
)
async def test_each_http_status_has_its_code(
    site: Site, tmp_path: Path, status: int, expected: Code, attempts: int
) -> None:
    """Each refusal has its code, the query is in no message, and only the server's own errors are retried."""
    site.pages["/x"] = (status, {}, b"")

    with pytest.raises(SourceError) as caught:
        await fetch_https(site.url("/x?X-Amz-Signature=secret"), tmp_path / "t", PRIVATE_ALLOWED, 1000)

    assert caught.value.code is expected and len(site.hosts) == attempts and "secret" not in str(caught.value)


async def test_a_truncated_response_is_an_error(site: Site, tmp_path: Path) -> None:
    """Fewer bytes than announced are an error and leave no file."""
    site.pages["/x"] = (200, {"Content-Length": "10"}, b"short")

    with pytest.raises(SourceError, match="STORE_UNAVAILABLE"):
        await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 1000)

    assert not list(tmp_path.iterdir())


async def test_an_endless_response_times_out(site: Site, tmp_path: Path) -> None:
    """FETCH_TIMEOUT_S bounds the whole download, not the time between two bytes."""
    site.pages["/x"] = (200, {}, b"slow")
    settings = Settings(allow_private_sources=True, fetch_timeout_s=0.3)

    with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*FETCH_TIMEOUT_S"):
        await fetch_https(site.url(), tmp_path / "t", settings, 1 << 30)

    assert not list(tmp_path.iterdir())


async def test_no_signature_reaches_a_log(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The query of a presigned URL is not logged by the libraries either, at any log level."""
    caplog.set_level(logging.DEBUG)
    for name in error_mapping.NOISY_LOGGERS:  # as in a fresh process
        logging.getLogger(name).setLevel(logging.NOTSET)
    error_mapping.silence_loggers.cache_clear()
    https.tls_context.cache_clear()
    site.pages["/x"] = (200, {}, b"")

    await fetch_https(site.url("/x?X-Amz-Signature=secret"), tmp_path / "t", PRIVATE_ALLOWED, 1000)

    assert "secret" not in caplog.text


async def test_a_proxy_of_the_environment_is_not_used(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy from the environment is ignored, because it would choose another address than the checked one."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    site.pages["/x"] = (200, {}, b"%PDF")

    assert (await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 1000)).bytes == 4


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
    """An address of the worker's own network is not fetched, however it is written, nor is plain http."""
    with pytest.raises(SourceError, match="SOURCE_DENIED"):
        await Sources(Settings(max_source_bytes=1000)).fetch(uri, tmp_path / "t")


@pytest.mark.parametrize("host", ["0177.0.0.1", "127.0.0.1.", "127.0.0.1%00", "１２７.0.0.1", "127。0。0。1"])
async def test_ambiguous_host_names_reach_nothing(site: Site, tmp_path: Path, host: str) -> None:
    """A host that one library takes for an address and another for a name is a coded error without a request."""
    with pytest.raises(SourceError):
        await fetch_https(site.url("/x", "https", host), tmp_path / "t", Settings(), 1000)

    assert not site.hosts


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.create_certificate("localhost", tmp_path_factory.mktemp("tls") / "both.pem")


@pytest.fixture
def tls_site(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site at https://localhost with a trusted certificate."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    https.tls_context.cache_clear()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    with Site().serve(server) as serving:
        yield serving
    https.tls_context.cache_clear()


async def test_the_certificate_is_checked_against_the_name(tls_site: Site, tmp_path: Path) -> None:
    """The connection goes to the checked address; the certificate must be for the name in the URI."""
    tls_site.pages["/x"] = (200, {}, b"%PDF")

    result = await fetch_https(tls_site.url("/x", "https", "localhost"), tmp_path / "t", PRIVATE_ALLOWED, 1000)
    with pytest.raises(SourceError, match="STORE_UNAVAILABLE.*SSLCertVerificationError"):
        await fetch_https(tls_site.url("/x", "https", "127.0.0.1"), tmp_path / "t", PRIVATE_ALLOWED, 1000)

    assert result.bytes == 4 and tls_site.hosts == [f"localhost:{tls_site.port}"]


@pytest.mark.parametrize("target", ["https://169.254.169.254/latest", "https://127.0.0.2/x", "http://localhost/x"])
async def test_a_redirect_to_a_private_address_is_denied(
    tls_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """A public address cannot send the worker to a private one, nor from https to http."""
    monkeypatch.setattr(ssrf_guard, "is_public", lambda address: address in ("127.0.0.1", "::1"))
    tls_site.pages["/x"] = (302, {"Location": target}, b"")

    with pytest.raises(SourceError, match="SOURCE_DENIED"):
        await fetch_https(tls_site.url("/x", "https", "localhost"), tmp_path / "t", Settings(), 1000)

    assert len(tls_site.hosts) == 1


@contextmanager
def changing_address(monkeypatch: pytest.MonkeyPatch, port: int, public_lookups: int) -> Iterator[list[str]]:
    """Make `changing.example` resolve to 127.0.0.1 for so many lookups, and to 127.0.0.2 afterwards.

    The first address counts as public, the second does not. Yields a list that is filled at the end, with one entry
    for each connection to the second.
    """
    real, lookups, reached = socket.getaddrinfo, [], []

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in ("changing.example", b"changing.example"):
            return real(host, *args, **kwargs)
        lookups.append(host)
        return real("127.0.0.1" if len(lookups) <= public_lookups else "127.0.0.2", *args, **kwargs)

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
def changing_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tls.create_certificate("changing.example", tmp_path_factory.mktemp("tls") / "both.pem")


@pytest.fixture
def changing_site(changing_certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site at https://changing.example, whose certificate httpx and botocore trust."""
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(changing_certificate))
    https.tls_context.cache_clear()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(changing_certificate)
    with Site().serve(server) as serving:
        yield serving
    https.tls_context.cache_clear()


async def test_a_name_that_changes_after_its_check_is_harmless(
    changing_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to the checked address; a name that changed is refused at its next check."""
    changing_site.pages["/x"] = (200, {}, b"%PDF")
    url = changing_site.url("/x", "https", "changing.example")

    with changing_address(monkeypatch, changing_site.port, public_lookups=1) as reached:
        result = await fetch_https(url, tmp_path / "t", Settings(), 1000)
        with pytest.raises(SourceError, match="SOURCE_DENIED"):
            await fetch_https(url, tmp_path / "t", Settings(), 1000)

    assert result.bytes == 4 and not reached


def job_access(site: Site) -> job.S3:
    endpoint = site.url("", "https", "changing.example")
    return job.S3.model_validate({"access_key_id": "a", "secret_access_key": "b", "endpoint_url": endpoint})


async def test_a_jobs_endpoint_is_contacted_under_its_name(
    changing_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate and Host header use the name, the socket uses the checked address, and no proxy is used."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    changing_site.pages["/bucket/key"] = (200, {"ETag": '"7"', "Content-Length": "4"}, b"%PDF")

    with changing_address(monkeypatch, changing_site.port, public_lookups=100):
        result = await S3Reader(Settings(), job_access(changing_site), s3.QUICK).download(
            "s3://bucket/key", tmp_path / "t", 99
        )

    assert result.bytes == 4 and changing_site.hosts == [f"changing.example:{changing_site.port}"]


async def test_a_jobs_endpoint_that_changes_after_its_check_is_refused(
    changing_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved again as it is connected to, and a private address does not even get a connection."""
    with (
        changing_address(monkeypatch, changing_site.port, public_lookups=1) as reached,
        pytest.raises(SourceError, match="SOURCE_DENIED"),
    ):
        await S3Reader(Settings(), job_access(changing_site), s3.QUICK).download(
            "s3://bucket/key", tmp_path / "t", 1000
        )

    assert not reached and not changing_site.hosts


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd", "deflate,gzip"])
async def test_an_encoding_without_a_size_limit_is_refused(site: Site, tmp_path: Path, encoding: str) -> None:
    """A few kilobytes may expand to gigabytes in one step, so only a single layer of gzip or deflate is accepted."""
    packed = gzip.compress(gzip.compress(bytes(10 << 20)))
    site.pages["/x"] = (200, {"Content-Encoding": encoding}, packed)

    with pytest.raises(SourceError, match="SOURCE_UNSUPPORTED.*serve the file as it is"):
        await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 1 << 30)


async def test_the_limit_counts_decompressed_bytes(site: Site, tmp_path: Path) -> None:
    """The limit applies to what is written to the file, whatever was sent."""
    site.pages["/x"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(10 << 20)))

    with pytest.raises(SourceError, match="SOURCE_TOO_LARGE"):
        await fetch_https(site.url(), tmp_path / "t", PRIVATE_ALLOWED, 1 << 20)

    assert not list(tmp_path.iterdir())


def test_every_httpx_exception_is_mapped() -> None:
    """No exception of httpx reaches a caller."""
    import httpx

    kinds = [kind for _, kind in inspect.getmembers(httpx, inspect.isclass) if issubclass(kind, Exception)]

    assert len(kinds) > 20
    for kind in kinds:
        with pytest.raises(SourceError, match="https://h/p"), https.map_http_errors("https://h/p"):
            raise kind.__new__(kind)
