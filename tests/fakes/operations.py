"""Count what a call does, so that a test compares inputs without a clock: lines of our code, and what C code reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SEARCHES = {
    "find",
    "rfind",
    "index",
    "rindex",
    "count",
    "replace",
    "split",
    "splitlines",
    "strip",
    "lower",
    "casefold",
}


def count_operations(call: Callable[[], object]) -> int:
    """Count the lines of twopass that the call runs, and the characters or items that methods of its values search.

    It is called once before, so that caches are filled.
    """
    call()
    counted = [0]
    with _observed(counted):
        call()
    return counted[0]


@contextmanager
def _observed(counted: list[int]) -> Iterator[None]:
    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if "twopass" not in frame.f_code.co_filename:
            return None
        counted[0] += event == "line"
        return trace

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in _SEARCHES and isinstance(argument.__self__, (str, bytes, list)):
            counted[0] += len(argument.__self__)

    before = sys.gettrace(), sys.getprofile()
    sys.setprofile(profile)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
