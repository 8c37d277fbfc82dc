"""Prompts that share an engine, and now and then one that must have it alone.

Knows who is inside. Knows nothing of prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Solitude:
    """Lives on one event loop."""

    def __init__(self) -> None:
        self._inside = 0
        self._turn = asyncio.Lock()
        self._open, self._empty = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._empty.set()

    @asynccontextmanager
    async def among(self) -> AsyncIterator[None]:
        """Beside others; not while somebody is alone, or waits to be."""
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """With nobody else: waits for those inside, and all others for this one."""
        async with self._turn:
            self._open.clear()
            try:
                await self._empty.wait()
                yield
            finally:
                self._open.set()
