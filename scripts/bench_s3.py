#!/usr/bin/env python3
"""Objects in, objects out: as much of S3 as a worker asks for, in memory, fast enough to measure a worker against.

    python scripts/bench_s3.py        prints its endpoint URL

No signature is checked. Puts with If-None-Match, gets, heads, deletes and listings; nothing in parts.
"""

from __future__ import annotations

import asyncio
import hashlib
from html import escape

from aiohttp import web

LARGEST = 1 << 30


def application() -> web.Application:
    objects: dict[str, bytes] = {}

    async def put(request: web.Request) -> web.Response:
        data = await request.read()
        if request.headers.get("If-None-Match") == "*" and request.path in objects:
            return _error(412, "PreconditionFailed")
        objects[request.path] = data
        return web.Response(headers={"ETag": _tag(data)})

    async def get(request: web.Request) -> web.Response:
        if "list-type" in request.query:
            return _listed(request, objects)
        data = objects.get(request.path)
        if data is None:
            return _error(404, "NoSuchKey")
        return web.Response(body=data, headers={"ETag": _tag(data), "Last-Modified": "Sat, 21 Nov 2026 00:00:00 GMT"})

    async def delete(request: web.Request) -> web.Response:
        objects.pop(request.path, None)
        return web.Response(status=204)

    made = web.Application(client_max_size=LARGEST)
    made.router.add_put("/{path:.*}", put)
    made.router.add_get("/{path:.*}", get)  # heads too
    made.router.add_delete("/{path:.*}", delete)
    return made


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _error(status: int, code: str) -> web.Response:
    return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")


def _listed(request: web.Request, objects: dict[str, bytes]) -> web.Response:
    bucket = request.path.rstrip("/")
    prefix = f"{bucket}/{request.query.get('prefix', '')}"
    rows = "".join(
        f"<Contents><Key>{escape(path[len(bucket) + 1 :])}</Key><Size>{len(data)}</Size></Contents>"
        for path, data in sorted(objects.items())
        if path.startswith(prefix)
    )
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
    return web.Response(text=text, content_type="application/xml")


def main() -> None:
    async def serve() -> None:
        runner = web.AppRunner(application(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
