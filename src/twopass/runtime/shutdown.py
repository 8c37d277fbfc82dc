"""End work in time: at a job's deadline, or within a grace period after SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from types import FrameType
from typing import Any

from twopass.errors import Code, OutOfTime

_SignalHandler = Callable[[int, FrameType | None], None]

_REASONS = {Code.DEADLINE: "the job's deadline passed", Code.SHUTDOWN: "the worker is shutting down"}
SEND_AGAIN = "send the same job again"  # how the advice begins; `twopass serve` replaces it by its own
RESEND_HINT = f"{SEND_AGAIN} to continue"  # true only of pages that are stored where it finds them


class Shutdown:
    """The worker's shutdown, which begins once: no new work starts, running work has a grace period.

    Use it on one event loop only. Deadlines are times on that loop's clock; None means no deadline.
    """

    def __init__(self) -> None:
        self._end: float | None = None
        self._running: set[asyncio.Timeout] = set()

    @property
    def has_begun(self) -> bool:
        """Whether no new work starts; it can be asked on any thread."""
        return self._end is not None

    def begin(self, grace_s: float) -> None:
        """Start no new work from now on, and cancel running work after `grace_s` seconds."""
        if self._end is not None:
            return
        self._end = asyncio.get_running_loop().time() + grace_s
        for timeout in self._running:
            if not timeout.expired():
                timeout.reschedule(self._earlier(timeout.when()))

    @asynccontextmanager
    async def start_work(self, deadline: float | None, advice: str = "") -> AsyncIterator[None]:
        """Start work now; raises OutOfTime, with the advice, if it may not start or is cancelled."""
        if self._end is not None:
            raise _out_of_time(Code.SHUTDOWN, advice)
        if deadline is not None and deadline <= asyncio.get_running_loop().time():
            raise _out_of_time(Code.DEADLINE, advice)  # before it starts threads, which a cancellation does not stop
        async with self.finish_work(deadline, advice):
            yield

    @asynccontextmanager
    async def finish_work(self, deadline: float | None = None, advice: str = "") -> AsyncIterator[None]:
        """Complete work that was started before, also during shutdown; raises OutOfTime if it is cancelled."""
        try:
            async with asyncio.timeout_at(self._earlier(deadline)) as timeout:
                self._running.add(timeout)
                try:
                    yield
                finally:
                    self._running.discard(timeout)
        except TimeoutError:
            if not timeout.expired():
                raise
            by_deadline = deadline is not None and (self._end is None or deadline < self._end)
            raise _out_of_time(Code.DEADLINE if by_deadline else Code.SHUTDOWN, advice) from None

    def _earlier(self, when: float | None) -> float | None:
        return min((moment for moment in (when, self._end) if moment is not None), default=None)


def _out_of_time(code: Code, advice: str) -> OutOfTime:
    return OutOfTime(code, f"{_REASONS[code]}; {advice}" if advice else _REASONS[code])


def chain_signal_handlers(stop_soon: Callable[[], None]) -> Callable[[], None]:
    """Run `stop_soon` on SIGTERM and SIGINT before the handlers of RunPod's SDK and uvicorn.

    Returns the function that installs it. Call it on the main thread after the others are installed; further calls do
    nothing.
    """

    @cache
    def install() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _chain(stop_soon, signal.getsignal(number)))

    return install


def _chain(stop_soon: Callable[[], None], previous: Any) -> _SignalHandler:
    def handle(number: int, frame: FrameType | None) -> None:
        try:
            stop_soon()
        finally:
            if callable(previous):
                previous(number, frame)

    return handle
