"""The engine without vLLM: several started at once, tokens as text, and the time that each request is charged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.engine import REPLACEMENT, IncrementalDetokenizer, TimeShare, start_engines
from twopass.errors import Code, EngineError
from twopass.settings import Settings

MAX_WAIT_S = 30
SHARES = [("0",), ("1",), ("2",)]


# ---- the start


class Machine:
    """Creates scripted engines and remembers their steps. Each loads until all have been started or it is abandoned."""

    def __init__(self, broken_load: str = "", broken_start: str = "") -> None:
        self.steps: list[str] = []
        self._broken_load, self._broken_start = broken_load, broken_start
        self._started = threading.Barrier(len(SHARES), timeout=MAX_WAIT_S)

    def create(self, settings: Settings, model: Path, gpu_ids: Sequence[str]) -> Any:
        (gpu,) = gpu_ids
        if gpu == self._broken_start:
            raise EngineError(Code.ENGINE_MEMORY, f"GPU {gpu} is full")
        self.steps.append(f"start {gpu}")
        return SimpleNamespace(core=ScriptedStart(self, gpu))

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

    def wait(self) -> None:
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


# ---- tokens to text


def decode_bytes(tokens: Sequence[int]) -> str:
    """The decoder of a tokenizer that has a token for every byte."""
    return bytes(tokens).decode(errors="replace")


def decode_incrementally(chunks: Sequence[Sequence[int]]) -> tuple[list[str], str]:
    detokenizer = IncrementalDetokenizer(decode_bytes)
    return [detokenizer.add(chunk) for chunk in chunks], detokenizer.finish()


def test_a_character_waits_for_all_of_its_bytes() -> None:
    """The text so far never ends in an incomplete character."""
    bee = "벌".encode()

    assert decode_incrementally([b"a", bee[:1], bee[1:2], bee[2:], b"b"]) == (["a", "a", "a", "a벌", "a벌b"], "a벌b")


def test_a_character_that_was_cut_off_is_left_out() -> None:
    """The last character of an answer is dropped if its bytes are incomplete; invalid bytes inside are kept."""
    text = f"a{REPLACEMENT}b"

    assert decode_incrementally([b"a\xff", b"b", "벌".encode()[:2]]) == (["", text, text], text)


@given(st.text(), st.lists(st.integers(0, 200)))
def test_chunks_make_no_difference_to_text(text: str, cuts: list[int]) -> None:
    """However the tokens are split, the final text is the same, and each step is a prefix of it."""
    tokens = text.encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(tokens)), len(tokens)]

    steps, end = decode_incrementally([tokens[a:b] for a, b in zip(edges, edges[1:], strict=False)])

    assert end == text.rstrip(REPLACEMENT)
    assert all(text.startswith(step) for step in steps)


@given(st.lists(st.binary(max_size=4)))
def test_arbitrary_bytes_are_decoded_completely(chunks: list[bytes]) -> None:
    """Nothing is lost, even if the bytes are not valid text."""
    assert decode_incrementally(chunks)[1] == decode_bytes(b"".join(chunks)).rstrip(REPLACEMENT)


# ---- shares of the engine's time


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=60))
def test_shares_add_up_to_the_busy_time(events: list[tuple[bool, int]]) -> None:
    """However requests come and go, what they are charged is the time in which there was at least one."""
    clock, busy, total = FakeClock(), 0.0, 0.0
    share = TimeShare(clock)
    marks: list[float] = []
    for enters, seconds in [*events, *[(False, 1)] * 60]:
        if enters:
            marks.append(share.enter())
        elif marks:
            total += share.leave(marks.pop(0))
        busy += seconds if marks else 0
        clock.now += seconds

    assert abs(total - busy) < 1e-6 * max(busy, 1)


def test_two_at_once_are_charged_half_each() -> None:
    """Time alone in the engine is charged in full, time with another request half."""
    clock = FakeClock()
    share = TimeShare(clock)
    first = share.enter()
    clock.now = 4.0
    second = share.enter()
    clock.now = 10.0

    assert share.leave(first) == 4.0 + 3.0
    assert share.leave(second) == 3.0
