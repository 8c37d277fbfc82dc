"""The cyclic garbage collector runs less often, and still frees reference cycles."""

from __future__ import annotations

import gc
import weakref

from tests.fakes.scripted import ScriptedEngine
from twopass.runtime import gc_tuning
from twopass.settings import Settings
from twopass.worker import open_worker


class Cycle:
    """An object that refers to itself: once unused, only the garbage collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_objects_created_by_imports_are_frozen() -> None:
    """The collector is off during imports and never scans their objects; garbage from before is collected first."""
    frozen_before, cycle = gc.get_freeze_count(), weakref.ref(Cycle())
    with gc_tuning.freeze_imports():
        kept = [[number] for number in range(10_000)]
        enabled_inside = gc.isenabled()
    frozen = gc.get_freeze_count() - frozen_before
    gc.unfreeze()

    assert cycle() is None
    assert not enabled_inside
    assert gc.isenabled()
    assert frozen > len(kept)


def test_an_open_worker_collects_less_often() -> None:
    """The threshold is raised while a worker is open and restored afterwards; reference cycles are still freed."""
    before, cycles = gc.get_threshold(), [weakref.ref(Cycle()) for _ in range(3)]
    engine = ScriptedEngine("layout", lambda prompt: "")
    with open_worker(Settings(page_workers=1, log_level="ERROR"), create_engine=lambda settings: engine):
        inside = gc.get_threshold()
        kept = [[number] for number in range(gc_tuning.YOUNG_THRESHOLD + 1)]

    assert inside[0] == gc_tuning.YOUNG_THRESHOLD > before[0]
    assert kept
    assert not [cycle for cycle in cycles if cycle()]
    assert gc.get_threshold() == before
