"""Loopback S3 servers, fast enough to benchmark a worker against, each in a process of its own.

    python -m scripts.bench.s3_server                     a bucket in memory; prints its endpoint URL
    python -m scripts.bench.s3_server DOCUMENTS PAGES     a corpus that does not exist

The bucket knows what a worker needs: put (with If-None-Match), get, head, delete and list; no multipart uploads.
Signatures are not checked. The corpus is listed page by page, and its documents are made when they are fetched: PDFs
with empty pages and a mark that makes their bytes their own. aiohttp, boto3 and PyMuPDF are imported when they are
needed: a process whose start is measured imports nothing for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from scripts import ROOT

if TYPE_CHECKING:
    from aiohttp import web
from dataclasses import dataclass
from functools import cache, cached_property

MAX_OBJECT_BYTES = 1 << 30


def create_application(on_request: Callable[[str, str], None] = lambda operation, path: None) -> web.Application:
    """`on_request` is called with the operation (PUT, GET, HEAD, DELETE or LIST) and the path of each request."""
    from aiohttp import web

    objects: dict[str, bytes] = {}

    @web.middleware
    async def report(request: web.Request, handler: Any) -> web.StreamResponse:
        on_request("LIST" if "list-type" in request.query else request.method, request.path)
        response: web.StreamResponse = await handler(request)
        return response

    async def put(request: web.Request) -> web.Response:
        data = await request.read()
        if request.headers.get("If-None-Match") == "*" and request.path in objects:
            return _error(412, "PreconditionFailed")
        objects[request.path] = data
        return web.Response(headers={"ETag": _etag(data)})

    async def get(request: web.Request) -> web.Response:
        if "list-type" in request.query:
            return _list(request, objects)
        data = objects.get(request.path)
        if data is None:
            return _error(404, "NoSuchKey")
        return web.Response(body=data, headers={"ETag": _etag(data), "Last-Modified": "Sat, 21 Nov 2026 00:00:00 GMT"})

    async def delete(request: web.Request) -> web.Response:
        objects.pop(request.path, None)
        return web.Response(status=204)

    application = web.Application(client_max_size=MAX_OBJECT_BYTES, middlewares=[report])
    application.router.add_put("/{path:.*}", put)
    application.router.add_get("/{path:.*}", get)  # heads, too
    application.router.add_delete("/{path:.*}", delete)
    return application


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _error(status: int, code: str) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")


def _list(request: web.Request, objects: dict[str, bytes]) -> web.Response:
    from aiohttp import web

    bucket = request.path.rstrip("/")
    prefix = f"{bucket}/{request.query.get('prefix', '')}"
    rows = "".join(
        f"<Contents><Key>{escape(path[len(bucket) + 1 :])}</Key><Size>{len(data)}</Size></Contents>"
        for path, data in sorted(objects.items())
        if path.startswith(prefix)
    )
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
    return web.Response(text=text, content_type="application/xml")


async def start_here(application: web.Application) -> tuple[web.AppRunner, str]:
    """Start serving on this event loop; returns the runner, which stops it, and the URL."""
    from aiohttp import web

    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def serve_for_ever(application: web.Application) -> None:
    """Print the URL and serve until the process ends."""

    async def serve() -> None:
        _, url = await start_here(application)
        print(url, flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def start_process(*arguments: str) -> Iterator[str]:
    """Run this module in a process of its own; yields its URL."""
    command = [sys.executable, "-m", "scripts.bench.s3_server", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


BUCKET = "bench"
ACCESS_KEY, SECRET_KEY = "key", "secret"  # any will do
PUTS, PUT_BYTES, PUT_THREADS = 400, 30_000, 16


def start_server() -> AbstractContextManager[str]:
    """Yield the endpoint URL of a new server."""
    return start_process()


def connect(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, max_pool_connections=32)
    session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


def measure_puts_per_s(endpoint: str) -> float:
    """How many puts of 30 kB a second the server takes from this process, sixteen at a time."""
    client, data = connect(endpoint), os.urandom(PUT_BYTES)
    started = time.monotonic()
    with ThreadPoolExecutor(PUT_THREADS) as pool:
        list(pool.map(lambda n: client.put_object(Bucket=BUCKET, Key=f"c/{n}", Body=data), range(PUTS)))
    return PUTS / (time.monotonic() - started)


CORPUS_BUCKET, PREFIX = "corpus", "shelf/"
LISTED_AT_ONCE = 1000  # keys in one answer, S3's own limit
# Pages of ten documents in turn, whose mean is 50: many short ones, few long ones.
LENGTHS = (1, 2, 4, 8, 12, 20, 30, 48, 95, 280)
MEAN_LENGTH = sum(LENGTHS) / len(LENGTHS)


@dataclass(frozen=True)
class Corpus:
    """So many documents with about so many pages in total. Documents are named by their number."""

    documents: int
    pages: int

    def key(self, number: int) -> str:
        return f"{PREFIX}{number % 97:02d}/{number:08d}.pdf"

    def number(self, key: str) -> int:
        return int(key.rpartition("/")[2].removesuffix(".pdf"))

    def page_count(self, number: int) -> int:
        scale = self.pages / (self.documents * MEAN_LENGTH)
        return max(1, round(LENGTHS[number % len(LENGTHS)] * scale))

    @cached_property
    def total_pages(self) -> int:
        return sum(map(self.page_count, range(self.documents)))

    def etag(self, number: int) -> str:
        return hashlib.md5(f"{number}/{self.page_count(number)}".encode(), usedforsecurity=False).hexdigest()

    def sorted_numbers(self) -> Iterator[int]:
        """The documents in the order of their keys, as S3 lists them."""
        for shelf in range(97):
            yield from range(shelf, self.documents, 97)

    def build(self, number: int) -> bytes:
        return build_pdf(self.page_count(number)) + b"\n% " + str(number).encode() + b"\n"


@cache
def build_pdf(pages: int) -> bytes:
    import pymupdf

    with pymupdf.open() as document:
        for _ in range(pages):
            document.new_page()
        return bytes(document.tobytes())


def create_corpus_application(corpus: Corpus) -> web.Application:
    from aiohttp import web

    order = list(corpus.sorted_numbers())

    async def get(request: web.Request) -> web.Response:
        if "list-type" in request.query:
            start = int(request.query.get("continuation-token", "0"))
            return _list_corpus(corpus, order, start)
        number = corpus.number(request.path)
        return web.Response(body=corpus.build(number), headers={"ETag": f'"{corpus.etag(number)}"'})

    application = web.Application()
    application.router.add_get("/{path:.*}", get)
    return application


def _list_corpus(corpus: Corpus, order: list[int], start: int) -> web.Response:
    from aiohttp import web

    numbers = order[start : start + LISTED_AT_ONCE]
    rows = "".join(
        f"<Contents><Key>{corpus.key(number)}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
        f"<ETag>&quot;{corpus.etag(number)}&quot;</ETag><Size>{len(corpus.build(number))}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for number in numbers
    )
    end = start + len(numbers)
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(order) else ""
    truncated = "true" if more else "false"
    text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{rows}</ListBucketResult>"
    return web.Response(text=text, content_type="application/xml")


def start_corpus_server(corpus: Corpus) -> AbstractContextManager[str]:
    """Yield the endpoint URL of a new server, a process of its own."""
    return start_process(str(corpus.documents), str(corpus.pages))


if __name__ == "__main__":
    sizes = [int(argument) for argument in sys.argv[1:]]
    serve_for_ever(create_corpus_application(Corpus(*sizes)) if sizes else create_application())
