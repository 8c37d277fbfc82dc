"""Decide when a busy engine core has been silent for too long: on a hung GPU it lives, but answers nothing.

A slow core is not a hung one. Its outputs come once for many steps, so the limit grows with the measured time of a step
and with the longest silence that ended by itself. On a GPU both are far below the limit that is set.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STEPS = 2  # times the steps between two outputs: how many may pass in silence
GAPS = 4  # times the longest silence so far
DECAY = 0.99  # of both measurements with each output: one slow step, such as a compilation, is forgotten in minutes


class SilenceMonitor:
    """Measures one core's outputs.

    `base_s` is the shortest limit, `first_s` the shortest before the first output, when nothing is measured yet.
    `interval` is the number of tokens between two outputs of an answer; a step yields one at least.
    """

    def __init__(
        self, base_s: float, first_s: float, interval: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.base_s = base_s
        self._first_s, self._interval, self._clock = first_s, interval, clock
        self._first_step_s: float | None = None  # encodes the image; stands for all steps until others are measured
        self._step_s: float | None = None
        self._longest_gap_s = 0.0
        self._last = clock()

    def begin(self) -> None:
        """An idle core got a prompt, or a hung one was killed: silence is counted from now on."""
        self._last = self._clock()

    def record(self, tokens: int, since: float | None) -> float:
        """Note an output with new tokens of one answer; returns its time, `since` of the answer's next output.

        `since` is None for an answer's first output, which may have waited for other prompts.
        """
        now = self._clock()
        self._longest_gap_s = max(now - self._last, DECAY * self._longest_gap_s)
        if self._first_step_s is None:
            self._first_step_s = now - self._last
        if since is not None and tokens:
            self._step_s = max((now - since) / tokens, DECAY * (self._step_s or 0.0))
        self._last = now
        return now

    @property
    def limit_s(self) -> float:
        """Seconds after which a silent core counts as hung."""
        if self._first_step_s is None:
            return max(self.base_s, self._first_s)
        step_s = self._first_step_s if self._step_s is None else self._step_s
        return max(self.base_s, GAPS * self._longest_gap_s, STEPS * self._interval * step_s)

    def is_too_long(self) -> bool:
        return self._clock() - self._last > self.limit_s
