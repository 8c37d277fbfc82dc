"""SIGTERM and SIGINT, heard by us before whoever handles them already: RunPod's SDK and uvicorn set handlers of theirs.

Knows nothing of what is stopped.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], None]


def heard_first(stop_soon: Callable[[], None]) -> Callable[[], None]:
    """A function to be called, on the main thread, when the others' handlers stand; calling it again does nothing."""

    @cache
    def hear() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _first(stop_soon, signal.getsignal(number)))

    return hear


def _first(stop_soon: Callable[[], None], then: Any) -> Handler:
    def stop(number: int, frame: FrameType | None) -> None:
        try:
            stop_soon()
        finally:
            if callable(then):
                then(number, frame)

    return stop
