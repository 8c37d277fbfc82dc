"""Serve on a free port of this machine, start the loopback S3 server in a process of its own, and connect to it.

aiohttp and boto3 are imported when they are needed: a process whose start is measured imports nothing for them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from scripts import ROOT

if TYPE_CHECKING:
    from aiohttp import web


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
def start_process(module: str, *arguments: str) -> Iterator[str]:
    """Run a module that calls `serve_for_ever` in a process of its own; yields its URL."""
    command = [sys.executable, "-m", module, *arguments]
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
    return start_process("scripts.bench.s3_server")


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
