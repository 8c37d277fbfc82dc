"""Interrupt a step of a page worker that takes too much processor time, and keep what the other steps have done.

It interrupts Python code only: a single call into a library that does not return ends with its page worker.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEAT_S = 0.1  # an exception that is raised inside a destructor is lost


class StepTimeout(Exception):
    """The step used up its processor time."""


@contextmanager
def limit_step(limit_s: float) -> Iterator[None]:
    """Raise StepTimeout inside, once this process has used `limit_s` of processor time. For the main thread only."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise StepTimeout

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s, REPEAT_S)
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
