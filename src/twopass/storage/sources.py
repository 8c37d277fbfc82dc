"""Download a source into a file: s3, https and data URIs, paths of this machine, and the file sent with a job.

httpx is imported when something is first fetched by https.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from twopass import job, locations
from twopass.errors import Code, SourceError
from twopass.runtime import retry
from twopass.settings import Settings
from twopass.storage import download, error_mapping, ssrf_guard
from twopass.storage.download import CHUNK_BYTES, DownloadResult
from twopass.storage.s3_source import S3Downloader

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 5
HTTP_CONNECT_S = 10.0
HTTP_READ_S = 60.0
ALLOWED_ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_GONE = (404, 410)
_BUSY = (408, 425, 429)


class Sources:
    """Downloads the sources of one job, all those from S3 through one connection pool."""

    def __init__(self, settings: Settings, s3: job.S3 | None = None, upload: job.Upload | None = None) -> None:
        self._settings, self._s3, self._upload = settings, S3Downloader(settings, s3), upload

    async def fetch(self, uri: str, target: Path) -> DownloadResult:
        """Write a source of any scheme to the target file; raises SourceError and leaves no file then."""
        settings, limit_bytes = self._settings, self._settings.max_source_bytes
        if self._upload and uri == self._upload.uri:
            name, path = self._upload.name, self._upload.path
            return await download.run_in_thread(_copy, path, target, limit_bytes, name)
        scheme = locations.find_scheme(uri)
        if scheme is locations.S3:
            return await self._s3.download(uri, target, limit_bytes)
        if locations.is_web_address(uri):
            return await fetch_https(uri, target, settings, limit_bytes)
        if scheme is locations.DATA:
            return await download.run_in_thread(_write_data, uri, target, limit_bytes)
        if locations.is_uri(uri):
            message = f"{uri.partition(':')[0][:20]}: sources of this kind are not supported; use s3 or https"
            raise SourceError(Code.SOURCE_UNSUPPORTED, message)
        return await download.run_in_thread(_copy, Path(uri), target, limit_bytes, uri)

    def close(self) -> None:
        self._s3.close()


@asynccontextmanager
async def open_sources(
    settings: Settings, s3: job.S3 | None = None, upload: job.Upload | None = None
) -> AsyncIterator[Sources]:
    """Open the sources of a job. Without `s3`, the worker's own S3 access is used. Connects at the first fetch."""
    sources = Sources(settings, s3, upload)
    try:
        yield sources
    finally:
        sources.close()


def _copy(path: Path, target: Path, limit_bytes: int, label: str) -> DownloadResult:
    """Copy a file of this machine, so that the bytes that are hashed are those that are read."""
    if path.is_dir():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{path}: a folder, not a file; name one of its files")
    if not path.is_file():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{label}: no such file; check its path")
    with (
        error_mapping.map_errors(label, SourceError),
        path.open("rb") as file,
        download.TargetFile(target, limit_bytes, label) as copy,
    ):
        copy.check_size(path.stat().st_size)
        while chunk := file.read(CHUNK_BYTES):
            copy.write(chunk)
        return copy.finish()


def decode_data(uri: str, limit: int) -> tuple[bytes, str]:
    """Return bytes and MIME type of a data: URI. Anything malformed raises SourceError, so that no byte is lost."""
    head, comma, body = uri.partition(",")
    mime, _, parameters = head.partition(":")[2].partition(";")
    if not (locations.DATA.begins(uri) and comma):
        raise SourceError(Code.SOURCE_UNSUPPORTED, "data: not a data URI; write data:application/pdf;base64,…")
    if not body.isascii() or _BAD_ESCAPE.search(body):
        raise SourceError(Code.SOURCE_UNSUPPORTED, "data: the part after the comma is not percent-encoded")
    data = unquote_to_bytes(body)
    if parameters.lower().rpartition(";")[2].strip() == "base64":
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise SourceError(Code.SOURCE_UNSUPPORTED, "data: the part after the comma is not base64") from None
    if len(data) > limit:
        raise SourceError(Code.SOURCE_TOO_LARGE, f"data: over {limit:,} bytes; put the source on S3")
    return data, mime.strip().lower() or "text/plain"


def _write_data(uri: str, target: Path, limit_bytes: int) -> DownloadResult:
    data, mime = decode_data(uri, limit_bytes)
    with error_mapping.map_errors("data:", SourceError), download.TargetFile(target, limit_bytes, "data:") as file:
        file.write(data)
        return file.finish(None, mime)


# ---- https --------------------------------------------------------------------------------------


@contextmanager
def map_http_errors(label: str) -> Iterator[None]:
    """Raise httpx's errors as ours."""
    import httpx

    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
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


async def fetch_https(uri: str, target: Path, settings: Settings, limit_bytes: int) -> DownloadResult:
    """Write an https:// source to the target file; retried while the server is unavailable, within FETCH_TIMEOUT_S."""
    try:
        async with asyncio.timeout(settings.fetch_timeout_s):
            policy = replace(retry.HTTPS_SOURCE, is_retryable=_is_unavailable)
            return await policy.run_async(partial(_fetch_once, uri, target, settings, limit_bytes))
    except TimeoutError as error:
        raise download.timeout_error(uri, settings) from error


def _is_unavailable(error: BaseException) -> bool:
    return isinstance(error, SourceError) and error.code is Code.STORE_UNAVAILABLE


async def _fetch_once(uri: str, target: Path, settings: Settings, limit_bytes: int) -> DownloadResult:
    """Make one attempt. Redirects are followed here and not by httpx, so that each address is checked."""
    tls = await download.run_in_thread(tls_context)
    import httpx

    timeout = httpx.Timeout(HTTP_READ_S, connect=HTTP_CONNECT_S)
    label = locations.redact(uri)
    with error_mapping.map_errors(label, SourceError), map_http_errors(label):
        url = httpx.URL(uri)
        # Without trust_env: a proxy from the environment would choose the address instead of our check.
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=timeout) as client:
            for _ in range(MAX_REDIRECTS + 1):
                response = await _request(client, url, settings.allow_private_sources)
                async with aclosing(response):
                    if not response.has_redirect_location:
                        return await _save(response, target, limit_bytes, label)
                    url = url.join(response.headers["location"])
    raise SourceError(Code.SOURCE_DENIED, f"{label}: more than {MAX_REDIRECTS} redirects; the address may need a login")


async def _request(client: httpx.AsyncClient, url: httpx.URL, allow_private: bool) -> httpx.Response:
    """Send the request to a checked address; returns the response before its body is read."""
    import httpx

    if url.scheme != "https" and not (url.scheme == "http" and allow_private):
        raise SourceError(Code.SOURCE_DENIED, f"{url.scheme}://{url.host}: only https is allowed")
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    addresses = await download.run_in_thread(ssrf_guard.resolve, host, port, allow_private)
    headers = {"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity", "User-Agent": "twopass"}
    for ip in addresses:
        request = client.build_request(
            "GET", url.copy_with(host=ip), headers=headers, extensions={"sni_hostname": host}
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
    with download.TargetFile(target, limit_bytes, label) as file:
        length = response.headers.get("content-length", "")
        file.check_size(int(length) if length.isdecimal() else 0)
        async for chunk in response.aiter_bytes():
            file.write(chunk)
        return file.finish(response.headers.get("etag"), response.headers.get("content-type"))


def _check_encoding(encoding: str, label: str) -> None:
    """Refuse encodings that expand without a limit: one chunk of brotli, or of gzip in gzip, could fill the memory.

    Simple gzip expands at most a thousandfold.
    """
    if encoding.strip().lower() not in ALLOWED_ENCODINGS:
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
