"""Count a job's pages and elements, and send its progress in order, coalesced, and never after the end."""

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
    """How far a job is. `percent` is the share of known pages that finished both passes, and never falls."""

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
    """One job's counts. Listeners are called for every change, in order, on the caller's thread."""

    def __init__(self, *listeners: Listener, clock: Callable[[], float] = time.monotonic) -> None:
        self._listeners = listeners
        self._clock = clock
        self._started = clock()
        self.now = Progress()

    def add_listener(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def enter_phase(self, phase: Phase) -> None:
        self._update(phase=phase)

    def add_pages(self, count: int) -> None:
        self._update(pages_total=self.now.pages_total + count, phase=Phase.READING)

    def finish_pages(self, count: int) -> None:
        if count:
            self._update(pages_done=self.now.pages_done + count)

    def add_elements(self, count: int) -> None:
        if count:
            self._update(elements_total=self.now.elements_total + count)

    def finish_elements(self, count: int) -> None:
        if count:
            self._update(elements_done=self.now.elements_done + count)

    @contextmanager
    def track_elements(self, count: int) -> Iterator[None]:
        """Add elements and finish them at the end. If the block fails they are removed, because the page is retried."""
        self.add_elements(count)
        finished = False
        try:
            yield
            finished = True
        finally:
            self.finish_elements(count) if finished else self.add_elements(-count)

    def _update(self, **changes: Any) -> None:
        now = replace(self.now, **changes)
        elapsed = self._clock() - self._started
        pace = now.pages_done / elapsed if elapsed > 0 else 0.0
        remaining = now.pages_total - now.pages_done
        share = 100 * now.pages_done / now.pages_total if now.pages_total else 0.0
        self.now = replace(
            now,
            percent=max(self.now.percent, round(share, 1)),
            pages_per_s=round(pace, 3),
            eta_s=round(remaining / pace, 1) if pace else None,
            seq=now.seq + 1,
        )
        for listener in self._listeners:
            listener(self.now)


class Sender:
    """Sends the newest Progress, one at a time and at least `interval_s` apart; a new phase is sent at once.

    It runs on the event loop where it is entered; `offer` may be called from any thread. At the end it waits at most
    `drain_s` for the last one to be sent, and does not send it if the job is cancelled. Progress that cannot be sent
    is logged and does not fail the job.
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
        """Wait for the rest of the interval, unless the phase is new or the job ends.

        Each phase skips the wait once: a job of many small documents would change its phase all the time.
        """
        until = self._loop.time() + (self._interval_s if sent.seq else 0)
        while not self._closing and self._newest is not None and self._newest.phase in phases:
            remaining = until - self._loop.time()
            if remaining <= 0:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), remaining)
            self._changed.clear()
