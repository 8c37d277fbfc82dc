"""Divide the engine's busy time among the requests that were in it.

While n requests are in the engine, each is charged 1/n of the time, so that all shares add up to the time in which
the engine was busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class TimeShare:
    """`enter` returns a mark; `leave(mark)` returns the seconds since then that are charged to this request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.active = 0  # requests in the engine
        self._share = 0.0  # seconds charged to a request that has been in the engine from the beginning
        self._last = clock()

    def enter(self) -> float:
        self._advance()
        self.active += 1
        return self._share

    def leave(self, mark: float) -> float:
        self._advance()
        self.active -= 1
        return self._share - mark

    def _advance(self) -> None:
        now = self._clock()
        if self.active:
            self._share += (now - self._last) / self.active
        self._last = now
