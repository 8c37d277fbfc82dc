"""When Python looks for what only refers to itself: seldom.

Counting references frees nearly everything at once, and looking takes a processor's time for every object that lives.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MORE = 20_000  # objects since the last look, and not 700: what ten pages in flight hold lives until they are read


@contextmanager
def seldom() -> Iterator[None]:
    """While a worker reads: a tenth of its own time went to looking through pages that are still being read."""
    _, middle, old = before = gc.get_threshold()
    gc.set_threshold(MORE, middle, old)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def unswept() -> Iterator[None]:
    """For imports: half a million objects, among which nobody looks for garbage, neither now nor ever after.

    Looking takes an eighth of the time that vLLM's imports take, and a part of every start of the core, which is
    forked from this process and looks again and again. What is garbage before goes first, or it would stay for good.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
