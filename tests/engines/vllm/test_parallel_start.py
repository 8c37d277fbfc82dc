"""Several engines started at the same time: the order of the steps, and what is left of a start that fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from twopass.engines.vllm.parallel_start import start_engines
from twopass.errors import Code, EngineError
from twopass.settings import Settings

MAX_WAIT_S = 30
SHARES = [("0",), ("1",), ("2",)]


class Machine:
    """Creates scripted engines and remembers their steps. Each loads until all have been started or it is abandoned."""

    def __init__(self, broken_load: str = "", broken_start: str = "") -> None:
        self.steps: list[str] = []
        self._broken_load, self._broken_start = broken_load, broken_start
        self._started = threading.Barrier(len(SHARES), timeout=MAX_WAIT_S)

    def create(self, settings: Settings, model: Path, gpu_ids: Sequence[str], waits: bool) -> Any:
        (gpu,) = gpu_ids
        if gpu == self._broken_start:
            raise EngineError(Code.ENGINE_MEMORY, f"GPU {gpu} is full")
        self.steps.append(f"start {gpu}")
        return ScriptedStart(self, gpu)

    def load(self, gpu: str, abandoned: threading.Event) -> None:
        self._started.wait()
        if gpu == self._broken_load:
            raise EngineError(Code.ENGINE_DEAD, f"GPU {gpu} is broken")
        if self._broken_load:
            assert abandoned.wait(MAX_WAIT_S)
            raise EngineError(Code.ENGINE_DEAD, "the process has ended")
        self.steps.append("load")


class ScriptedStart:
    def __init__(self, machine: Machine, gpu: str) -> None:
        self._machine, self._gpu = machine, gpu
        self._abandoned = threading.Event()

    def wait_for_core(self) -> None:
        self._machine.load(self._gpu, self._abandoned)

    def connect(self) -> None:
        self._machine.steps.append(f"connect {self._gpu}")

    def abandon(self) -> None:
        self._abandoned.set()
        self._machine.steps.append(f"abandon {self._gpu}")


def test_all_engines_load_at_the_same_time(tmp_path: Path) -> None:
    """All are started before one has loaded, and each loads while the others do."""
    machine = Machine()

    engines = start_engines(Settings(), tmp_path, SHARES, machine.create)

    assert len(engines) == 3
    assert machine.steps == [
        *("start 0", "start 1", "start 2"),
        *("load", "load", "load"),
        *("connect 0", "connect 1", "connect 2"),
    ]


def test_an_engine_that_cannot_load_ends_the_others(tmp_path: Path) -> None:
    """The worker does not wait until they have loaded, and leaves none of them running."""
    machine = Machine(broken_load="1")

    with pytest.raises(EngineError):
        start_engines(Settings(), tmp_path, SHARES, machine.create)

    assert {"abandon 0", "abandon 1", "abandon 2"} <= {*machine.steps}
    assert not any(step.startswith("connect") for step in machine.steps)


def test_an_engine_that_cannot_be_started_ends_those_before_it(tmp_path: Path) -> None:
    """Its error is the worker's error."""
    machine = Machine(broken_start="2")

    with pytest.raises(EngineError, match="GPU 2 is full"):
        start_engines(Settings(), tmp_path, SHARES, machine.create)

    assert machine.steps == ["start 0", "start 1", "abandon 1", "abandon 0"]
