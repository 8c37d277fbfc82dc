"""The engine without vLLM: several started at once, tokens as text, and the time that each request is charged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.waiting import wait_on_loop
from twopass.engines.group import EngineGroup
from twopass.engines.vllm.core import Core
from twopass.engines.vllm.engine import REPLACEMENT, IncrementalDetokenizer, TimeShare, VllmEngine, launch_engines
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

MAX_WAIT_S = 30
SHARES = [("0",), ("1",), ("2",)]


# ---- the start


class Machine:
    """Has one process for each GPU, and remembers their steps. Each loads until all are there, or one is ended."""

    def __init__(self, broken_load: str = "", broken_start: str = "") -> None:
        self.steps: list[str] = []
        self.broken_load, self._broken_start = broken_load, broken_start
        self.started = threading.Barrier(len(SHARES), timeout=MAX_WAIT_S)

    def create(self, settings: Settings, model: Path, gpu_ids: Sequence[str], is_first: bool) -> VllmEngine:
        (gpu,) = gpu_ids
        if gpu == self._broken_start:
            raise EngineError(Code.ENGINE_MEMORY, f"GPU {gpu} is full")
        return StartingEngine(self, gpu, is_first)

    def count_threads(self) -> int:
        return sum(thread.name.startswith("core") for thread in threading.enumerate())


class StartingEngine(VllmEngine):
    """An engine of which only the start is real."""

    precision, family, gpus, buffer_pools = "bfloat16", "deepseek_ocr", "", ()

    def __init__(self, machine: Machine, gpu: str, is_first: bool = True) -> None:
        self.is_first, self._time_share, self._until_open = is_first, TimeShare(), ExitStack()
        self._until_open.callback(lambda: machine.steps.append(f"read ahead until {gpu}"))
        arguments = {"max_num_seqs": 1, "enforce_eager": True}
        plan: Any = SimpleNamespace(arguments=arguments, variables={}, fallbacks=(), name="the engine")
        self.core = Core(plan, Settings(), lambda *_: ScriptedProcess(machine, gpu))


class ScriptedProcess:
    stage_ends: Mapping[str, float] = {}

    def __init__(self, machine: Machine, gpu: str) -> None:
        self._machine, self._gpu = machine, gpu
        self._ended = threading.Event()
        machine.steps.append(f"start {gpu}")

    def wait(self) -> None:
        self._machine.started.wait()
        if self._gpu == self._machine.broken_load:
            raise EngineError(Code.ENGINE_DEAD, f"GPU {self._gpu} is broken")
        if self._machine.broken_load:
            assert self._ended.wait(MAX_WAIT_S)
            raise EngineError(Code.ENGINE_DEAD, "the process has ended")
        self._machine.steps.append("load")

    def connect(self) -> Any:
        self._machine.steps.append("connect")
        return ScriptedClient()

    def stop(self) -> None:
        self._ended.set()
        self._machine.started.abort()
        self._machine.steps.append(f"end {self._gpu}")


class ScriptedClient:
    errored = False

    async def get_supported_tasks(self) -> None: ...

    def shutdown(self) -> None: ...


def launch(machine: Machine) -> EngineGroup:
    return EngineGroup(launch_engines(Settings(), Path("nowhere"), SHARES, machine.create))


def pool() -> PagePool:
    return PagePool(0, PixelBufferPool(0, 0))


async def test_all_engines_load_at_the_same_time() -> None:
    """All are started before one has loaded, each loads while the others do, and none is ready before it has."""
    machine = Machine()

    group = launch(machine)
    launched = [*machine.steps]
    were_ready = [status.is_ready for status in group.statuses]
    await group.open(pool())
    are_ready = [status.is_ready for status in group.statuses]
    await group.close()

    assert launched == ["start 0", "start 1", "start 2"]
    assert [machine.steps.count(step) for step in ("load", "connect")] == [3, 3]
    assert (were_ready, are_ready) == ([False] * 3, [True] * 3)
    assert not any(step.startswith("end") for step in machine.steps)


async def test_an_engine_that_cannot_load_ends_the_others() -> None:
    """The worker does not wait until they have loaded, and leaves no process and no thread."""
    machine = Machine(broken_load="1")
    group = launch(machine)

    with pytest.raises(EngineError, match="GPU 1 is broken"):
        await group.open(pool())
    steps = {*machine.steps}
    await group.close()

    assert {"end 0", "end 1", "end 2"} <= steps
    assert {"read ahead until 0", "read ahead until 1", "read ahead until 2"} <= steps
    assert "connect" not in steps
    await wait_on_loop(lambda: not machine.count_threads(), MAX_WAIT_S)


async def test_an_engine_that_is_not_opened_to_its_end_is_closed() -> None:
    """Ctrl-C in the start, or page workers that do not start: no process goes on loading, and no thread waits."""
    machine = Machine(broken_load="none")
    interrupted, unopened = StartingEngine(machine, "0"), StartingEngine(machine, "1")
    opening = asyncio.create_task(interrupted.open(pool()))
    await wait_on_loop(lambda: machine.count_threads() == 1, MAX_WAIT_S)

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await interrupted.close()
    await unopened.close()

    assert {"end 0", "end 1", "read ahead until 0", "read ahead until 1"} <= {*machine.steps}
    await wait_on_loop(lambda: not machine.count_threads(), MAX_WAIT_S)


def test_an_engine_that_cannot_be_started_ends_those_before_it() -> None:
    """Its error is the worker's error."""
    machine = Machine(broken_start="2")

    with pytest.raises(EngineError, match="GPU 2 is full"):
        launch(machine)

    ends = [step for step in machine.steps if step.startswith("end")]
    assert ends == ["end 1", "end 0"]


def test_only_the_first_engine_reads_ahead() -> None:
    """It does so for all, and fetches compiled code for all."""
    engines = launch_engines(Settings(), Path("nowhere"), SHARES, Machine().create)

    assert [engine.is_first for engine in engines if isinstance(engine, StartingEngine)] == [True, False, False]


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
