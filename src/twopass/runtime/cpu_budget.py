"""Limit the processor time of page worker calls that belong together, and inside a page worker that of one step.

Processor time does not grow on a busy host, so ordinary pages do not fail there. Elapsed time counts at a fraction,
so that a call that is blocked and uses no processor ends, too. A step that takes too long is interrupted, so that
what the other steps have done is kept; only Python code can be: a call into a library that does not return ends with
its page worker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

WALL_FACTOR = 5.0  # seconds of elapsed time that count as one second of processor time
_REPEAT_S = 0.1  # an exception that is raised inside a destructor is lost
RAISE_LIMIT = "raise WORKER_TIMEOUT_S"  # advice about budgets that this setting limits


class CpuBudget:
    """Processor seconds that may be used; what is used counts against the `outer` budget, too."""

    def __init__(self, limit_s: float, outer: CpuBudget | None = None, advice: str = "") -> None:
        """`advice` says what to do if this budget is too small."""
        self._limit_s = limit_s
        self._outer = outer
        self._advice = advice
        self._used_s = 0.0

    @property
    def remaining_s(self) -> float:
        own = self._limit_s - self._used_s
        return min(own, self._outer.remaining_s) if self._outer else own

    @property
    def is_spent(self) -> bool:
        return self.remaining_s <= 0

    @property
    def advice(self) -> str:
        """The advice of the budget that is spent, this one or one around it."""
        if self._used_s >= self._limit_s or not self._outer:
            return self._advice
        return self._outer.advice

    def spend(self, seconds: float) -> None:
        self._used_s += seconds
        if self._outer:
            self._outer.spend(seconds)


_budget: ContextVar[CpuBudget | None] = ContextVar("cpu_budget", default=None)


@contextmanager
def limit_cpu_time(limit_s: float, nested: bool = True, advice: str = "") -> Iterator[CpuBudget]:
    """Limit the calls inside to `limit_s`, and to what is left of the limit around them unless `nested` is False."""
    budget = CpuBudget(limit_s, _budget.get() if nested else None, advice)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


@contextmanager
def limit_share(share: float) -> Iterator[None]:
    """Limit the calls inside to a share of what is left, so that a fallback can follow; without a limit, do nothing."""
    outer = _budget.get()
    with limit_cpu_time(share * outer.remaining_s if outer else float("inf")):
        yield


class CallMeter:
    """Charge one call to a budget: while it runs at each update, and exactly when it ends.

    Most calls end before the first update, so that nothing is read from /proc for them.
    """

    def __init__(self, budget: CpuBudget, read_cpu_time: Callable[[], float]) -> None:
        self.budget = budget
        self._read_cpu_time = read_cpu_time
        self._started = time.monotonic()
        self._first_s: float | None = None  # processor time of the process at the first update
        self.charged_s = 0.0
        self.cpu_s = 0.0  # processor time of the call

    def update(self) -> None:
        """Charge what the call has used since the last update."""
        now_s = self._read_cpu_time()  # 0 if the process is gone
        if self._first_s is None:
            self._first_s = now_s
        self.cpu_s = max(now_s - self._first_s, self.cpu_s)
        self._charge(max(self.cpu_s, (time.monotonic() - self._started) / WALL_FACTOR))

    def finish(self, cpu_s: float) -> None:
        """Charge a call that has ended, with the processor time that it reports: at most what all cores have."""
        self.cpu_s = min(cpu_s, (time.monotonic() - self._started) * (os.cpu_count() or 1))
        self._charge(self.cpu_s)

    def _charge(self, used_s: float) -> None:
        if used_s > self.charged_s:
            self.budget.spend(used_s - self.charged_s)
            self.charged_s = used_s


class StepTimeout(Exception):
    """The step used up its processor time."""


@contextmanager
def limit_step(limit_s: float) -> Iterator[None]:
    """Raise StepTimeout inside, once this process has used `limit_s` of processor time. For the main thread only."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise StepTimeout

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s, _REPEAT_S)
    try:
        yield
    except SystemError as error:  # what Python makes of StepTimeout where callbacks of MuPDF were interrupted
        cause = error.__cause__
        while isinstance(cause, SystemError):  # one callback inside another
            cause = cause.__cause__
        if not isinstance(cause, StepTimeout):
            raise
        raise cause from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
