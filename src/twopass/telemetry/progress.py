"""Count a job's pages and elements, and send its progress in order, coalesced, and never after the end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
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
    """How far a job is.

    `percent` is the share of pages that finished both passes. Documents whose pages are not counted yet weigh as much
    as the mean of the others. It never falls, and is 100 only when the job is done. `pages_stored` are those of
    `pages_done` that were found in the output; pace and time left are those of the others.
    """

    phase: Phase = Phase.FETCHING
    pages_done: int = 0
    pages_stored: int = 0
    pages_total: int = 0
    elements_done: int = 0
    elements_total: int = 0
    parts_done: int = 0  # what is written after a document's last page: page images of the review page, and artefacts
    parts_total: int = 0
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
        self._started = clock()  # to read; stored pages that are loaded before delay it
        self._uncounted = 0  # documents whose pages are not counted yet
        self._counted = 0
        self._pages_left = 0  # counted pages that are still to be read
        self._assembling: tuple[float, int] | None = None  # when the phase began, and how many parts were done then
        self.now = Progress()

    def add_listener(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def expect_documents(self, count: int) -> None:
        """Announce documents, each of which is then tracked by `track_document`."""
        self._uncounted += count

    @contextmanager
    def track_document(self) -> Iterator[PageProgress]:
        """Track one of the expected documents; what it leaves uncounted or unread is no longer expected."""
        pages = PageProgress(self)
        try:
            yield pages
        except TwopassError:  # it is over for this document; other exceptions end the job
            pages.close()
            raise
        pages.close()

    def begin_reading(self) -> None:
        """Pages are read from now on: what was done before, as the engine started, is not counted for their pace."""
        self._started = self._clock()

    def count_document(self, pages: int) -> None:
        """The pages of one more document are counted."""
        self._uncounted, self._counted = self._uncounted - 1, self._counted + 1
        self._pages_left += pages
        self._update(pages_total=self.now.pages_total + pages)

    def finish_pages(self, count: int, stored: bool = False) -> None:
        """These pages are done: they were read now, or found in the output."""
        self._pages_left -= count
        if stored and self.now.pages_done == self.now.pages_stored:
            self._started = self._clock()
        pages_stored = self.now.pages_stored + (count if stored else 0)
        self._update(pages_done=self.now.pages_done + count, pages_stored=pages_stored)

    def drop(self, documents: int = 0, pages: int = 0) -> None:
        """Expect these documents and pages no longer: they will not be read."""
        self._uncounted -= documents
        self._pages_left -= pages
        if documents or pages:
            self._update()

    def finish(self) -> None:
        """The job is done."""
        self._update(phase=Phase.DONE)

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

    @contextmanager
    def track_parts(self, count: int) -> Iterator[Callable[[], None]]:
        """Add parts that are written now; yields what is called for each that is. The others are lost at the end."""
        done = 0

        def finish_part() -> None:
            nonlocal done
            done += 1
            self._update(parts_done=self.now.parts_done + 1)

        self._update(parts_total=self.now.parts_total + count)
        try:
            yield finish_part
        finally:
            if done != count:
                self._update(parts_total=self.now.parts_total + done - count)

    def _update(self, **changes: Any) -> None:
        now = replace(self.now, **changes)
        now = replace(now, phase=self._find_phase(now), seq=now.seq + 1)
        elapsed = self._clock() - self._started
        pace = (now.pages_done - now.pages_stored) / elapsed if elapsed > 0 else 0.0
        expected = now.pages_total + self._uncounted * max(now.pages_total / max(self._counted, 1), 1)
        self.now = replace(
            now,
            percent=max(self.now.percent, _to_percent(now, expected)),
            pages_per_s=round(pace, 3),
            eta_s=self._time_parts(now) if now.phase is Phase.ASSEMBLING else _to_eta(expected - now.pages_done, pace),
        )
        for listener in self._listeners:
            listener(self.now)

    def _time_parts(self, now: Progress) -> float | None:
        """Remaining seconds of the last phase, at the pace of its own parts."""
        self._assembling = self._assembling or (self._clock(), now.parts_done)
        started, done_before = self._assembling
        elapsed = self._clock() - started
        pace = (now.parts_done - done_before) / elapsed if elapsed > 0 else 0.0
        return _to_eta(now.parts_total - now.parts_done, pace)

    def _find_phase(self, now: Progress) -> Phase:
        if now.phase is Phase.DONE or not now.pages_total:
            return now.phase
        return Phase.READING if self._uncounted or self._pages_left else Phase.ASSEMBLING


def _to_eta(left: float, pace: float) -> float | None:
    return round(left / pace, 1) if pace else None


def _to_percent(now: Progress, expected: float) -> float:
    """In tenths, rounded down, so that 100 means that everything is done."""
    share = math.floor(1000 * now.pages_done / expected) / 10 if expected else 0.0
    return share if now.phase is Phase.DONE else min(share, 99.9)


class PageProgress:
    """The pages of one document, as a part of its job's progress."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._is_counted = False
        self._left = 0

    def count(self, pages: int) -> None:
        self._is_counted, self._left = True, pages
        self._tracker.count_document(pages)

    def finish(self, pages: int = 1, stored: bool = False) -> None:
        """These pages have finished both passes, now or, if they are stored, in an earlier job."""
        self._left -= pages
        self._tracker.finish_pages(pages, stored)

    def skip(self) -> None:
        """A page remains unread."""
        self._left -= 1
        self._tracker.drop(pages=1)

    def close(self) -> None:
        self._tracker.drop(documents=0 if self._is_counted else 1, pages=self._left)


class Sender:
    """Sends the newest Progress, one at a time and at least `interval_s` apart.

    The first one and each new phase are sent at once, unless each costs money (`spares_phases`): then a short job sends
    only its last one.

    It runs on the event loop where it is entered; `offer` may be called from any thread. At the end it waits at most
    `drain_s` for the last one to be sent, and does not send it if the job is cancelled. Progress that cannot be sent
    is logged and does not fail the job.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        interval_s: float,
        drain_s: float,
        spares_phases: bool = False,
    ) -> None:
        self._send = send
        self._spares_phases = spares_phases
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
        while not (self._closing and (self._newest is None or self._newest.seq == sent.seq)):
            await self._changed.wait()
            self._changed.clear()
            await self._pause(sent)
            if self._newest is not None and self._newest.seq > sent.seq:
                sent = self._newest
                try:
                    await self._send(sent.as_dict())
                except (OSError, TwopassError) as error:  # a TimeoutError is an OSError
                    log.warning("progress not sent", seq=sent.seq, error=type(error).__name__)

    async def _pause(self, sent: Progress) -> None:
        """Wait for the rest of the interval, unless the phase is new or the job ends."""
        until = self._loop.time() + (self._interval_s if sent.seq or self._spares_phases else 0)
        while not self._closing and self._newest is not None:
            if self._newest.phase is not sent.phase and not self._spares_phases:
                return
            remaining = until - self._loop.time()
            if remaining <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):  # wait_for may swallow a cancellation in Python 3.11
                    await self._changed.wait()
            self._changed.clear()
