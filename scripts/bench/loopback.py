"""Serve an application on a free port of this machine, in this process or in one of its own.

aiohttp is imported by what serves: a machine that only starts other benchmarks may lack it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scripts import ROOT

if TYPE_CHECKING:
    from aiohttp import web


async def start(application: web.Application) -> tuple[web.AppRunner, str]:
    """Start serving on this event loop; returns the runner, which stops it, and the URL."""
    from aiohttp import web

    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def serve_for_ever(application: web.Application) -> None:
    """Print the URL and serve until the process ends."""

    async def serve() -> None:
        _, url = await start(application)
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
