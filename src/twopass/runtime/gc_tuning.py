"""Run Python's cyclic garbage collector less often while pages are in flight.

Reference counting frees nearly everything at once; each collection costs processor time for every live object.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_THRESHOLD = 20_000  # new objects per collection instead of 700: ten pages in flight keep that many alive


@contextmanager
def collect_less_often() -> Iterator[None]:
    """Collect young objects less often. By default a tenth of the worker's time went into scanning pages in flight."""
    _, middle, old = before = gc.get_threshold()
    gc.set_threshold(YOUNG_THRESHOLD, middle, old)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def freeze_imports() -> Iterator[None]:
    """Import modules inside this context; their half a million objects are never scanned.

    Scanning takes an eighth of the time of vLLM's imports, and more in the engine core, which is forked from this
    process. Garbage from before is collected first, because frozen garbage would stay forever.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
