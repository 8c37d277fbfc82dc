"""Requests that come and go in, each one's share of the engine's time out.

A moment in which n requests are in the engine counts 1/n for each, so that all shares add up to the time in
which the engine was busy. Knows a clock and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class BusyClock:
    """`enter` gives a mark, `leave(mark)` the seconds since then that were this request's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.inside = 0
        self._share = 0.0  # of a request that has been inside from the beginning
        self._last = clock()

    def enter(self) -> float:
        self._advance()
        self.inside += 1
        return self._share

    def leave(self, mark: float) -> float:
        self._advance()
        self.inside -= 1
        return self._share - mark

    def _advance(self) -> None:
        now = self._clock()
        if self.inside:
            self._share += (now - self._last) / self.inside
        self._last = now
