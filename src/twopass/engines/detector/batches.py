"""Collect single requests into batches: what waits when the last batch ends is the next one."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

RunBatch = Callable[[Sequence[T]], Awaitable[Sequence[R]]]


@dataclass(eq=False)
class _Request(Generic[T, R]):
    item: T
    result: asyncio.Future[R] = field(default_factory=asyncio.Future)
    is_running: bool = False


class Batcher(Generic[T, R]):
    """Runs one batch at a time, of at most `limit` items, on one event loop. A request alone does not wait.

    A batch that fails halves the limit, because the GPU's memory may be too small for that many.
    """

    def __init__(self, run: RunBatch[T, R], limit: int) -> None:
        self._run = run
        self._limit = limit
        self._waiting: deque[_Request[T, R]] = deque()
        self._serving: asyncio.Task[None] | None = None

    async def ask(self, item: T) -> R:
        """The result for one item. If the batch of several fails, each item runs alone, so that one fails alone.

        A cancelled request that is running waits for its batch to end: the batch reads memory that its caller lends.
        """
        request: _Request[T, R] = _Request(item)
        self._waiting.append(request)
        if self._serving is None:
            # In a context of its own: the time of a batch is not that of the page that happened to start it.
            self._serving = asyncio.create_task(self._serve(), context=contextvars.Context())
        try:
            return await asyncio.shield(request.result)
        except asyncio.CancelledError:
            while request.is_running:
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([request.result])
            if not request.result.cancel():
                request.result.exception()  # else asyncio logs that it was never retrieved
            raise

    async def _serve(self) -> None:
        try:
            while batch := self._take():
                if not await self._try(batch) and len(batch) > 1:
                    self._limit = max(len(batch) // 2, 1)
                    for request in batch:
                        await self._try([request])
        finally:
            self._serving = None

    def _take(self) -> list[_Request[T, R]]:
        batch: list[_Request[T, R]] = []
        while self._waiting and len(batch) < self._limit:
            request = self._waiting.popleft()
            if not request.result.cancelled():
                request.is_running = True
                batch.append(request)
        return batch

    async def _try(self, batch: Sequence[_Request[T, R]]) -> bool:
        """Run a batch. Returns False if it failed; of one item, that is the item's result."""
        try:
            results = await self._run([request.item for request in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].is_running = False
                batch[0].result.set_exception(error)
            return False
        except BaseException:  # the loop ends
            for request in batch:
                request.is_running = False
                request.result.cancel()
            raise
        for request, result in zip(batch, results, strict=True):
            request.is_running = False
            request.result.set_result(result)
        return True
