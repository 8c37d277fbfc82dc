"""Counts of pages and elements in, ordered and coalesced reports out, none after the last.

Knows figures and pace. Knows nothing of who listens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import structlog

from twopass.errors import TwopassError

log = structlog.get_logger()


class Phase(StrEnum):
    FETCHING = "fetching"
    READING = "reading"
    ASSEMBLING = "assembling"
    DONE = "done"


@dataclass(frozen=True)
class Progress:
    """How far a job is. `percent` is pages finished in both passes of pages known, and never falls."""

    phase: Phase = Phase.FETCHING
    pages_done: int = 0
    pages_total: int = 0
    elements_done: int = 0
    elements_total: int = 0
    percent: float = 0.0
    pages_per_s: float = 0.0
    eta_s: float | None = None
    seq: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Listener = Callable[[Progress], None]


class Tracker:
    """One job's counts; every change is told to the listeners, in order, on the caller's thread."""

    def __init__(self, *listeners: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._listeners = listeners
        self._clock = clock
        self._started = clock()
        self.now = Progress()

    def listen(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def phase(self, phase: Phase) -> None:
        self._tell(phase=phase)

    def pages_found(self, count: int) -> None:
        self._tell(pages_total=self.now.pages_total + count, phase=Phase.READING)

    def pages_done(self, count: int) -> None:
        if count:
            self._tell(pages_done=self.now.pages_done + count)

    def elements_found(self, count: int) -> None:
        if count:
            self._tell(elements_total=self.now.elements_total + count)

    def elements_done(self, count: int) -> None:
        if count:
            self._tell(elements_done=self.now.elements_done + count)

    @contextmanager
    def elements(self, count: int) -> Iterator[None]:
        """Elements found now and done at the end; forgotten again when their page has to be tried once more."""
        self.elements_found(count)
        finished = False
        try:
            yield
            finished = True
        finally:
            self.elements_done(count) if finished else self.elements_found(-count)

    def _tell(self, **changes: Any) -> None:
        now = replace(self.now, **changes)
        elapsed = self._clock() - self._started
        pace = now.pages_done / elapsed if elapsed > 0 else 0.0
        left = now.pages_total - now.pages_done
        share = 100 * now.pages_done / now.pages_total if now.pages_total else 0.0
        self.now = replace(
            now,
            percent=max(self.now.percent, round(share, 1)),
            pages_per_s=round(pace, 3),
            eta_s=round(left / pace, 1) if pace else None,
            seq=now.seq + 1,
        )
        for listener in self._listeners:
            listener(self.now)


class Sender:
    """Sends the newest Progress, one at a time, at least `interval_s` apart except on a phase that was never sent.

    Lives on the event loop it is entered on; `offer` may be called from any thread. Leaving waits at
    most `drain_s` for the last one and then nothing is sent any more; on cancellation nothing at all.
    What cannot be sent is logged: no job fails for it.
    """

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], interval_s: float, drain_s: float) -> None:
        self._send = send
        self._interval_s = interval_s
        self._drain_s = drain_s
        self._newest: Progress | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._closing = True
            self._changed.set()
            await asyncio.wait((self._task,), timeout=self._drain_s)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def offer(self, progress: Progress) -> None:
        self._loop.call_soon_threadsafe(self._take, progress)

    def _take(self, progress: Progress) -> None:
        if self._newest is None or progress.seq > self._newest.seq:
            self._newest = progress
            self._changed.set()

    async def _run(self) -> None:
        sent = Progress()
        phases = {sent.phase}
        while not (self._closing and (self._newest is None or self._newest.seq == sent.seq)):
            await self._changed.wait()
            self._changed.clear()
            await self._pause(sent, phases)
            if self._newest is not None and self._newest.seq > sent.seq:
                sent = self._newest
                phases.add(sent.phase)
                try:
                    await self._send(sent.as_dict())
                except (OSError, TwopassError) as error:  # a TimeoutError is an OSError
                    log.warning("progress not sent", seq=sent.seq, error=type(error).__name__)

    async def _pause(self, sent: Progress, phases: Set[Phase]) -> None:
        """Wait out the interval unless a phase is new or the job is ending; of small documents each has all phases."""
        until = self._loop.time() + (self._interval_s if sent.seq else 0)
        while not self._closing and self._newest is not None and self._newest.phase in phases:
            left = until - self._loop.time()
            if left <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
            self._changed.clear()
