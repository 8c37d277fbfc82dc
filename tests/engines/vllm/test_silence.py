"""A core that is slow is not killed; one that answers nothing for much longer than before is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.silence import SilenceMonitor

BASE_S, FIRST_S, INTERVAL = 120.0, 300.0, 128


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def monitor(clock: Clock) -> SilenceMonitor:
    return SilenceMonitor(BASE_S, FIRST_S, INTERVAL, clock)


def answer(silence: SilenceMonitor, clock: Clock, step_s: float, outputs: int = 4) -> None:
    """One prompt in an idle core, every step of which takes so long; its first output is one token."""
    silence.begin()
    since = None
    for tokens in [1] + [INTERVAL] * outputs:
        clock.now += tokens * step_s
        assert not silence.is_too_long()
        since = silence.record(tokens, since)


@pytest.mark.parametrize("step_s", [0.02, 0.5, 0.9, 2.0, 30.0])
def test_a_core_is_not_killed_between_two_outputs(step_s: float) -> None:
    """On a slow CPU 128 steps take longer than ENGINE_SILENCE_S; the first step shows how slow it is."""
    clock = Clock()
    silence = monitor(clock)

    answer(silence, clock, step_s, outputs=1)  # asserts that it is never too long


def test_a_fast_core_is_killed_after_the_limit_that_is_set() -> None:
    """With steps of a GPU the limit is ENGINE_SILENCE_S."""
    clock = Clock()
    silence = monitor(clock)
    answer(silence, clock, step_s=0.02)

    clock.now += BASE_S - 1
    before = silence.is_too_long()
    clock.now += 2

    assert (before, silence.is_too_long()) == (False, True)


def test_a_slow_core_that_hangs_is_killed_in_the_end() -> None:
    """After four times the time that its outputs took before."""
    clock = Clock()
    silence = monitor(clock)
    answer(silence, clock, step_s=2.0)
    assert silence.limit_s == 4 * INTERVAL * 2.0

    clock.now += silence.limit_s - 1
    before = silence.is_too_long()
    clock.now += 2

    assert (before, silence.is_too_long()) == (False, True)


def test_the_first_output_may_take_as_long_as_a_start() -> None:
    """Nothing is measured yet, and a new core compiles kernels."""
    clock = Clock()
    silence = monitor(clock)
    silence.begin()

    clock.now += FIRST_S - 1
    before = silence.is_too_long()
    clock.now += 2

    assert (before, silence.is_too_long()) == (False, True)


def test_an_idle_core_is_not_silent() -> None:
    """Time without prompts does not count."""
    clock = Clock()
    silence = monitor(clock)
    answer(silence, clock, step_s=0.02)
    clock.now += 10_000

    silence.begin()

    assert not silence.is_too_long()


def test_one_slow_step_is_forgotten() -> None:
    """A compilation of a minute does not raise the limit for good."""
    clock = Clock()
    silence = monitor(clock)
    silence.begin()
    clock.now += 60
    since = silence.record(1, None)
    slow = silence.limit_s

    for _ in range(200):
        clock.now += 1
        since = silence.record(INTERVAL, since)

    assert slow > 240
    assert silence.limit_s == BASE_S


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 500), st.booleans())))
def test_the_limit_is_never_below_the_one_that_is_set(outputs: list[tuple[float, int, bool]]) -> None:
    """Whatever is measured, and it is finite."""
    clock = Clock()
    silence = monitor(clock)
    since = None

    for seconds, tokens, is_first in outputs:
        clock.now += seconds
        since = silence.record(tokens, None if is_first else since)

    assert BASE_S <= silence.limit_s < float("inf")
