"""Measure wall and CPU seconds per stage. The pipeline does the timing; the steps do not know of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TypeVar

from twopass.runtime.page_pool import cpu_time_callback
from twopass.telemetry.observer import CompositeObserver, Observer

T = TypeVar("T")


def measure_stages(began: float, ends: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of each stage, from the end of the one before it, in the order in which they ended.

    Those of one name are added, so that all together are the time from `began` to the last end.
    """
    seconds: dict[str, float] = defaultdict(float)
    for name, end in sorted(ends, key=lambda stage: stage[1]):
        seconds[name] += max(end - began, 0.0)
        began = max(end, began)
    return dict(seconds)


class Stopwatch:
    """One document's seconds by stage. Pages overlap, so the sum of wall seconds may exceed the elapsed time.

    Elapsed time before the moment that `begin` returns, if it does, is not counted.
    """

    def __init__(self, observer: Observer | None = None, begin: Callable[[], float | None] = lambda: None) -> None:
        self._observer = observer or CompositeObserver()
        self._begin = begin
        self._started = time.monotonic()
        self._wall: dict[str, float] = defaultdict(float)
        self._cpu: dict[str, float] = defaultdict(float)
        self._pages: list[float] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside to a stage. The CPU seconds of page workers arrive through cpu_time_callback."""

        def add_cpu_time(seconds: float) -> None:
            self._cpu[name] += seconds

        token, started = cpu_time_callback.set(add_cpu_time), time.monotonic()
        try:
            with self._observer.stage(name):
                yield
        finally:
            cpu_time_callback.reset(token)
            self._wall[name] += time.monotonic() - started

    @asynccontextmanager
    async def time_entry(self, name: str, context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter a context and count only the entering as the stage."""
        async with AsyncExitStack() as stack:
            with self.stage(name):
                value = await stack.enter_async_context(context)
            yield value

    @contextmanager
    def page(self, number: int) -> Iterator[None]:
        """Time a page. A page that ends with an exception, as at a deadline, is not counted."""
        started = time.monotonic()
        with self._observer.page(number):
            yield
        self._pages.append(self._count_since(started))

    @property
    def seconds(self) -> float:
        return self._count_since(self._started)

    def _count_since(self, started: float) -> float:
        return time.monotonic() - max(started, self._begin() or started)

    @property
    def pages_timed(self) -> int:
        """Pages that were read now and not taken from a checkpoint."""
        return len(self._pages)

    @property
    def page_p95(self) -> float | None:
        """95th percentile of the seconds that a page was in flight; None before the first page."""
        ordered = sorted(self._pages)
        return round(ordered[int(0.95 * (len(ordered) - 1))], 3) if ordered else None

    def stages(self) -> dict[str, dict[str, float]]:
        names = sorted(self._wall)
        return {name: {"wall_s": round(self._wall[name], 3), "cpu_s": round(self._cpu[name], 3)} for name in names}
