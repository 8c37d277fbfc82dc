"""A loopback S3 server in memory, fast enough to benchmark a worker against.

    python -m scripts.bench.s3_server        prints its endpoint URL

It knows what a worker needs: put (with If-None-Match), get, head, delete and list; no multipart uploads. Signatures
are not checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from html import escape
from typing import Any

from aiohttp import web

from scripts.bench import local_s3

MAX_OBJECT_BYTES = 1 << 30


def create_application(on_request: Callable[[str, str], None] = lambda operation, path: None) -> web.Application:
    """`on_request` is called with the operation (PUT, GET, HEAD, DELETE or LIST) and the path of each request."""
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
    return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")


def _list(request: web.Request, objects: dict[str, bytes]) -> web.Response:
    bucket = request.path.rstrip("/")
    prefix = f"{bucket}/{request.query.get('prefix', '')}"
    rows = "".join(
        f"<Contents><Key>{escape(path[len(bucket) + 1 :])}</Key><Size>{len(data)}</Size></Contents>"
        for path, data in sorted(objects.items())
        if path.startswith(prefix)
    )
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
    return web.Response(text=text, content_type="application/xml")


if __name__ == "__main__":
    local_s3.serve_for_ever(create_application())
