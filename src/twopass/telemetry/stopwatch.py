"""Stages entered and left in, wall and processor seconds per stage out.

Timing belongs to the pipeline; the steps know nothing of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TypeVar

from twopass.runtime.page_pool import cpu_meter
from twopass.telemetry.observer import NullObserver, Observer

T = TypeVar("T")


class Stopwatch:
    """One document's seconds by stage. Stages of many pages overlap, so wall seconds add up beyond the clock."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer or NullObserver()
        self._started = time.monotonic()
        self._wall: dict[str, float] = defaultdict(float)
        self._cpu: dict[str, float] = defaultdict(float)
        self._pages: list[float] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside to a stage; page workers' processor seconds come through cpu_meter."""

        def spent(seconds: float) -> None:
            self._cpu[name] += seconds

        token, began = cpu_meter.set(spent), time.monotonic()
        try:
            with self._observer.stage(name):
                yield
        finally:
            cpu_meter.reset(token)
            self._wall[name] += time.monotonic() - began

    @asynccontextmanager
    async def entered(self, name: str, context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """The context itself; only entering it counts as the stage."""
        async with AsyncExitStack() as stack:
            with self.stage(name):
                value = await stack.enter_async_context(context)
            yield value

    @contextmanager
    def page(self, number: int) -> Iterator[None]:
        """Count the page; one that the deadline cut off was not read and does not count."""
        began = time.monotonic()
        with self._observer.page(number):
            yield
        self._pages.append(time.monotonic() - began)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def pages_timed(self) -> int:
        """Pages that went through the passes now and were not found checkpointed."""
        return len(self._pages)

    @property
    def page_p95(self) -> float | None:
        """95th percentile of seconds a page was in flight; None before the first."""
        ordered = sorted(self._pages)
        return round(ordered[int(0.95 * (len(ordered) - 1))], 3) if ordered else None

    def stages(self) -> dict[str, dict[str, float]]:
        names = sorted(self._wall)
        return {name: {"wall_s": round(self._wall[name], 3), "cpu_s": round(self._cpu[name], 3)} for name in names}
