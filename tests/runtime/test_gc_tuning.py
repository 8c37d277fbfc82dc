"""Looked for seldom, and found."""

from __future__ import annotations

import gc
import weakref

from twopass.runtime import gc_tuning
from twopass.settings import Settings
from twopass.worker import open_worker


class Circle:
    """Garbage as soon as nobody else holds it, which only a look finds."""

    def __init__(self) -> None:
        self.itself = self


def test_nobody_looks_for_garbage_among_what_imports_leave() -> None:
    """What was garbage before does not stay for good."""
    before, circle = gc.get_freeze_count(), weakref.ref(Circle())
    with gc_tuning.unswept():
        kept = [[number] for number in range(10_000)]
        within = gc.isenabled()
    frozen = gc.get_freeze_count() - before
    gc.unfreeze()

    assert circle() is None
    assert not within
    assert gc.isenabled()
    assert frozen > len(kept)


def test_a_worker_looks_seldom_and_leaves_no_trace() -> None:
    """While a house is open; what only refers to itself goes all the same."""
    before, circles = gc.get_threshold(), [weakref.ref(Circle()) for _ in range(3)]
    with open_worker(Settings(page_workers=1, log_level="ERROR")):
        within = gc.get_threshold()
        kept = [[number] for number in range(gc_tuning.MORE + 1)]

    assert within[0] == gc_tuning.MORE > before[0]
    assert kept
    assert not [circle for circle in circles if circle()]
    assert gc.get_threshold() == before
