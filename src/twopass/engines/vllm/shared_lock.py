"""A lock that many prompts share, and that one prompt can take exclusively."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedExclusiveLock:
    """A readers-writer lock for the tasks of one event loop; exclusive holders precede new shared ones."""

    def __init__(self) -> None:
        self._shared_holders = 0
        self._exclusive_turn = asyncio.Lock()
        self._open_to_shared, self._no_shared_holder = asyncio.Event(), asyncio.Event()
        self._open_to_shared.set()
        self._no_shared_holder.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with others; waits while a task holds it exclusively or waits to do so."""
        while not self._open_to_shared.is_set():
            await self._open_to_shared.wait()
        self._shared_holders += 1
        self._no_shared_holder.clear()
        try:
            yield
        finally:
            self._shared_holders -= 1
            if not self._shared_holders:
                self._no_shared_holder.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock alone: waits for the current holders, and makes all others wait."""
        async with self._exclusive_turn:
            self._open_to_shared.clear()
            try:
                await self._no_shared_holder.wait()
                yield
            finally:
                self._open_to_shared.set()
