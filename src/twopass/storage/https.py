"""Download sources by https, and send webhooks. httpx is imported at the first request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from twopass import job, locations
from twopass.errors import Code, SourceError
from twopass.runtime import retry
from twopass.settings import Settings
from twopass.storage import error_mapping, sources, ssrf_guard
from twopass.storage.sources import DownloadResult, TargetFile

if TYPE_CHECKING:
    import httpx

_MAX_REDIRECTS = 5
_HTTP_CONNECT_S = 10.0
_HTTP_READ_S = 60.0
_HTTP_POST_S = 10.0  # of a webhook, until it is answered
_ALLOWED_ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")

_GONE = (404, 410)
_BUSY = (408, 425, 429)


class HttpsReader:
    """Downloads sources by https, and by http where private addresses are allowed."""

    def __init__(self, settings: Settings, s3: job.S3 | None = None) -> None:
        self._allow_private = settings.allow_private_sources

    async def download(self, uri: str, target: Path, limit_bytes: int) -> DownloadResult:
        """Write the source to the target file; repeated while the server is unavailable."""
        policy = replace(retry.HTTPS_SOURCE, is_retryable=is_unavailable)
        return await policy.run_async(partial(_fetch_once, uri, target, self._allow_private, limit_bytes))

    def close(self) -> None:
        """Each download has its own connection."""


@contextmanager
def map_http_errors(label: str) -> Iterator[None]:
    """Raise httpx's errors as ours."""
    import httpx

    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):
        raise SourceError(Code.SOURCE_UNSUPPORTED, f"{label}: not a valid web address") from None
    except (httpx.HTTPError, httpx.StreamError, httpx.CookieConflict) as error:
        raise SourceError(Code.STORE_UNAVAILABLE, f"{label}: the download failed ({_root_cause(error)})") from error


def _root_cause(error: BaseException) -> str:
    """The class name of the first error of the chain; a bad certificate would otherwise show as a ConnectError."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return type(error).__name__


@cache
def tls_context() -> ssl.SSLContext:
    """Read the trusted certificates, once. Call it on a thread: it takes too long for the event loop."""
    import httpx

    error_mapping.silence_loggers()
    return httpx.create_ssl_context()


def is_unavailable(error: BaseException) -> bool:
    """Whether another attempt may succeed: an address that is refused stays refused."""
    return isinstance(error, SourceError) and error.code is Code.STORE_UNAVAILABLE


def is_address(uri: str) -> bool:
    """Whether it names a host and can be requested."""
    import httpx

    try:
        return bool(httpx.URL(uri).host)
    except (httpx.InvalidURL, UnicodeError):
        return False


async def _fetch_once(uri: str, target: Path, allow_private: bool, limit_bytes: int) -> DownloadResult:
    """Make one attempt. Redirects are followed here and not by httpx, so that each address is checked."""
    tls = await sources.run_in_thread(tls_context)
    import httpx

    timeout = httpx.Timeout(_HTTP_READ_S, connect=_HTTP_CONNECT_S)
    label = locations.redact(uri)
    with error_mapping.map_errors(label, SourceError), map_http_errors(label):
        url = httpx.URL(uri)
        # Without trust_env: a proxy from the environment would choose the address instead of our check.
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=timeout) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                response = await _request(client, url, allow_private)
                async with aclosing(response):
                    if not response.has_redirect_location:
                        return await _save(response, target, limit_bytes, label)
                    url = url.join(response.headers["location"])
    raise SourceError(
        Code.SOURCE_DENIED, f"{label}: more than {_MAX_REDIRECTS} redirects; the address may need a login"
    )


async def post(uri: str, body: bytes, headers: Mapping[str, str], allow_private: bool) -> None:
    """Send a body, in one attempt and to a checked address; raises SourceError unless it is answered with 2xx."""
    tls = await sources.run_in_thread(tls_context)
    import httpx

    label = locations.redact(uri)
    with error_mapping.map_errors(label, SourceError), map_http_errors(label):
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=_HTTP_POST_S) as client:
            async with asyncio.timeout(_HTTP_POST_S):  # httpx has limits of single reads only
                response = await _request(client, httpx.URL(uri), allow_private, "POST", headers, body)
                await response.aclose()
    if not response.is_success:  # a redirect, too: it may lead anywhere
        message = f"{label}: answered with HTTP {response.status_code}, not with 200"
        raise SourceError(Code.STORE_UNAVAILABLE, message)


async def _request(
    client: httpx.AsyncClient,
    url: httpx.URL,
    allow_private: bool,
    method: str = "GET",
    more_headers: Mapping[str, str] = MappingProxyType({}),
    body: bytes | None = None,
) -> httpx.Response:
    """Send the request to a checked address; returns the response before its body is read."""
    import httpx

    if url.scheme != "https" and not (url.scheme == "http" and allow_private):
        raise SourceError(Code.SOURCE_DENIED, f"{url.scheme}://{url.host}: only https is allowed")
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = await sources.run_in_thread(ssrf_guard.resolve, host, port, allow_private)
    headers = {"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity", "User-Agent": "twopass"}
    headers |= more_headers
    for ip in addresses:
        request = client.build_request(
            method, url.copy_with(host=ip), headers=headers, content=body, extensions={"sni_hostname": host}
        )
        try:
            return await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if ip == addresses[-1]:
                raise
    raise SourceError(Code.STORE_UNAVAILABLE, f"{host}: the host has no address; check its name")


async def _save(response: httpx.Response, target: Path, limit_bytes: int, label: str) -> DownloadResult:
    _check_status(response.status_code, label)
    _check_encoding(response.headers.get("content-encoding", ""), label)
    with TargetFile(target, limit_bytes, label) as file:
        length = response.headers.get("content-length", "")
        file.check_size(int(length) if length.isdecimal() else 0)
        async for chunk in response.aiter_bytes():
            file.write(chunk)
        return file.finish(response.headers.get("etag"), response.headers.get("content-type"))


def _check_encoding(encoding: str, label: str) -> None:
    """Refuse encodings that expand without a limit: one chunk of brotli, or of gzip in gzip, could fill the memory.

    Simple gzip expands at most a thousandfold.
    """
    if encoding.strip().lower() not in _ALLOWED_ENCODINGS:
        message = f"{label}: sent with the encoding {encoding[:20]!r}, which was not requested; serve the file as it is"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)


def _check_status(status: int, label: str) -> None:
    if status == 200:
        return
    if status in _GONE:
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{label}: nothing is there (HTTP {status}); check the address")
    if status in _BUSY or not 400 <= status < 500:
        raise SourceError(Code.STORE_UNAVAILABLE, f"{label}: the server returned HTTP {status}; try again later")
    raise SourceError(Code.SOURCE_DENIED, f"{label}: refused (HTTP {status}); has the presigned URL expired?")
