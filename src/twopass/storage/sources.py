"""A URI in, its bytes in a file out: s3, https, data and paths of this machine.

httpx is imported here only, and only when something is first fetched. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from twopass import job
from twopass.errors import Code, SourceError
from twopass.settings import Settings
from twopass.storage import download, error_mapping, ssrf_guard
from twopass.storage.download import CHUNK, Downloaded
from twopass.storage.s3_store import S3Sources

if TYPE_CHECKING:
    import httpx

FETCH_PAUSES_S = (0.3, 1.0)  # between the tries of an https source
REDIRECTS = 5
HTTP_CONNECT_S = 10.0
HTTP_READ_S = 60.0
UNPACKED = ("", "identity", "gzip", "x-gzip", "deflate")

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_GONE = (404, 410)
_BUSY = (408, 425, 429)


class Sources:
    """Where the sources of one job lie; an S3 that is connected to for one serves the next."""

    def __init__(self, settings: Settings, s3: job.S3 | None = None) -> None:
        self._settings, self._s3 = settings, S3Sources(settings, s3)

    async def fetch(self, uri: str, target: Path) -> Downloaded:
        """Bring a source of any scheme into the target file; raises SourceError and leaves no file."""
        settings, limit_bytes = self._settings, self._settings.max_source_bytes
        scheme = uri.partition(":")[0].lower()
        if scheme == "s3":
            return await self._s3.download(uri, target, limit_bytes)
        if scheme in ("https", "http"):
            return await fetch_https(uri, target, settings, limit_bytes)
        if scheme == "data":
            return await download.on_thread(_write_data, uri, target, limit_bytes)
        if "://" in uri:
            message = f"{scheme[:20]}: no source can be fetched this way; use s3 or https"
            raise SourceError(Code.SOURCE_UNSUPPORTED, message)
        return await download.on_thread(_copy, Path(uri), target, limit_bytes)

    def close(self) -> None:
        self._s3.close()


@asynccontextmanager
async def opened_sources(settings: Settings, s3: job.S3 | None = None) -> AsyncIterator[Sources]:
    """While the context lasts; of the worker itself without `s3`. Connects to nothing before its first fetch."""
    sources = Sources(settings, s3)
    try:
        yield sources
    finally:
        sources.close()


def _copy(path: Path, target: Path, limit_bytes: int) -> Downloaded:
    """A file of this machine; copied, so that what is hashed is what is read."""
    if not path.is_file():
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{path}: there is no such file")
    with (
        error_mapping.translated(str(path), SourceError),
        path.open("rb") as file,
        download.Target(target, limit_bytes, str(path)) as out,
    ):
        out.expect(path.stat().st_size)
        while chunk := file.read(CHUNK):
            out.write(chunk)
        return out.finished()


def decode_data(uri: str, limit: int) -> tuple[bytes, str]:
    """Bytes and MIME type of a data: URI; strict, so that nothing is lost in silence."""
    head, comma, body = uri.partition(",")
    scheme, _, media = head.partition(":")
    kind, _, parameters = media.partition(";")
    if scheme.lower() != "data" or not comma:
        raise SourceError(Code.SOURCE_UNSUPPORTED, "data: a URI of this kind reads data:application/pdf;base64,…")
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
    return data, kind.strip().lower() or "text/plain"


def _write_data(uri: str, target: Path, limit_bytes: int) -> Downloaded:
    data, mime = decode_data(uri, limit_bytes)
    with error_mapping.translated("data:", SourceError), download.Target(target, limit_bytes, "data:") as file:
        file.write(data)
        return file.finished(None, mime)


# ---- https --------------------------------------------------------------------------------------


@contextmanager
def translated_http(label: str) -> Iterator[None]:
    """httpx's errors become ours."""
    import httpx

    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise SourceError(Code.SOURCE_UNSUPPORTED, f"{label}: this is no address that can be fetched") from None
    except (httpx.HTTPError, httpx.StreamError, httpx.CookieConflict) as error:
        raise SourceError(
            Code.STORE_UNAVAILABLE, f"{label}: the server does not answer as it should ({_innermost(error)})"
        ) from error


def _innermost(error: BaseException) -> str:
    """What the trouble began with: a bad certificate is not only a ConnectError."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return type(error).__name__


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than the loop may be held."""
    import httpx

    error_mapping.quiet()
    return httpx.create_ssl_context()


async def fetch_https(uri: str, target: Path, settings: Settings, limit_bytes: int) -> Downloaded:
    """An https:// source into the target file; tried three times in all, within FETCH_TIMEOUT_S."""
    try:
        async with asyncio.timeout(settings.fetch_timeout_s):
            for pause in FETCH_PAUSES_S:
                try:
                    return await _fetch(uri, target, settings, limit_bytes)
                except SourceError as error:
                    if error.code is not Code.STORE_UNAVAILABLE:
                        raise
                await asyncio.sleep(pause)
            return await _fetch(uri, target, settings, limit_bytes)
    except TimeoutError as error:
        raise download.late(uri, settings) from error


async def _fetch(uri: str, target: Path, settings: Settings, limit_bytes: int) -> Downloaded:
    """One try, redirects followed by hand: each is checked like the first address."""
    tls = await download.on_thread(_tls)
    import httpx

    timeout = httpx.Timeout(HTTP_READ_S, connect=HTTP_CONNECT_S)
    label = download.label(uri)
    with error_mapping.translated(label, SourceError), translated_http(label):
        url = httpx.URL(uri)
        # trust_env: a proxy of the environment would choose the address for us.
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=timeout) as client:
            for _ in range(REDIRECTS + 1):
                response = await _answer(client, url, settings.allow_private_sources)
                async with aclosing(response):
                    if not response.has_redirect_location:
                        return await _save(response, target, limit_bytes, label)
                    url = url.join(response.headers["location"])
    raise SourceError(Code.SOURCE_DENIED, f"{label}: more than {REDIRECTS} redirects; it may want a login")


async def _answer(client: httpx.AsyncClient, url: httpx.URL, allow_private: bool) -> httpx.Response:
    """The answer's head, from an address that was checked and no other."""
    import httpx

    if url.scheme != "https" and not (url.scheme == "http" and allow_private):
        raise SourceError(Code.SOURCE_DENIED, f"{url.scheme}://{url.host}: only https is fetched")
    host = url.raw_host.decode("ascii")
    port = url.port or (443 if url.scheme == "https" else 80)
    found = await download.on_thread(ssrf_guard.resolve, host, port, allow_private)
    headers = {"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity", "User-Agent": "twopass"}
    for ip in found:
        request = client.build_request(
            "GET", url.copy_with(host=ip), headers=headers, extensions={"sni_hostname": host}
        )
        try:
            return await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if ip == found[-1]:
                raise
    raise SourceError(Code.STORE_UNAVAILABLE, f"{host}: this host has no address")


async def _save(response: httpx.Response, target: Path, limit_bytes: int, label: str) -> Downloaded:
    _check_status(response.status_code, label)
    _check_packing(response.headers.get("content-encoding", ""), label)
    with download.Target(target, limit_bytes, label) as file:
        length = response.headers.get("content-length", "")
        file.expect(int(length) if length.isdecimal() else 0)
        async for chunk in response.aiter_bytes():
            file.write(chunk)
        return file.finished(response.headers.get("etag"), response.headers.get("content-type"))


def _check_packing(packing: str, label: str) -> None:
    """gzip makes at most a thousand bytes of one; brotli, and gzip of gzip, would fill the memory with one chunk."""
    if packing.strip().lower() not in UNPACKED:
        message = f"{label}: sent as {packing[:20]!r}, which nobody asked for; serve the file as it is"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)


def _check_status(status: int, label: str) -> None:
    if status == 200:
        return
    if status in _GONE:
        raise SourceError(Code.SOURCE_NOT_FOUND, f"{label}: nothing is there (HTTP {status}); check the address")
    if status in _BUSY or not 400 <= status < 500:
        raise SourceError(Code.STORE_UNAVAILABLE, f"{label}: the server answered HTTP {status}; try again later")
    raise SourceError(Code.SOURCE_DENIED, f"{label}: refused (HTTP {status}); has the presigned URL expired?")
