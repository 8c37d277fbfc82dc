"""When work has to end: at its job's deadline, or a while after the worker was told to stop.

Knows clocks. Knows nothing of what is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from twopass.errors import Code, OutOfTime

_WHY = {Code.DEADLINE: "the job's deadline came first", Code.SHUTDOWN: "the worker was told to stop"}
AGAIN = "send the same job again to go on"


class Shutdown:
    """The worker's end, announced once: nothing begins after it, what is under way has a while to finish.

    Lives on one event loop; deadlines are on its clock, None being no deadline.
    """

    def __init__(self) -> None:
        self._until: float | None = None
        self._under_way: set[asyncio.Timeout] = set()

    def announce(self, grace_s: float) -> None:
        """From now on nothing begins, and in `grace_s` seconds what is left is cut off."""
        if self._until is not None:
            return
        self._until = asyncio.get_running_loop().time() + grace_s
        for timeout in self._under_way:
            if not timeout.expired():
                timeout.reschedule(self._sooner(timeout.when()))

    @asynccontextmanager
    async def before(self, deadline: float | None) -> AsyncIterator[None]:
        """Work that begins now, if it still may; raises OutOfTime when it may not or is cut off."""
        if self._until is not None:
            raise _out_of_time(Code.SHUTDOWN)
        if deadline is not None and deadline <= asyncio.get_running_loop().time():
            raise _out_of_time(Code.DEADLINE)  # or it would start threads that nobody waits for
        async with self.finishing(deadline):
            yield

    @asynccontextmanager
    async def finishing(self, deadline: float | None = None) -> AsyncIterator[None]:
        """What follows from work that was done; raises OutOfTime when it is cut off."""
        try:
            async with asyncio.timeout_at(self._sooner(deadline)) as timeout:
                self._under_way.add(timeout)
                try:
                    yield
                finally:
                    self._under_way.discard(timeout)
        except TimeoutError:
            if not timeout.expired():
                raise
            by_deadline = deadline is not None and (self._until is None or deadline < self._until)
            raise _out_of_time(Code.DEADLINE if by_deadline else Code.SHUTDOWN) from None

    def _sooner(self, when: float | None) -> float | None:
        return min((moment for moment in (when, self._until) if moment is not None), default=None)


def _out_of_time(code: Code) -> OutOfTime:
    return OutOfTime(code, f"{_WHY[code]}; {AGAIN}")
