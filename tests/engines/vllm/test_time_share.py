"""Shares of the engine's time: every moment is given out once, among those who are inside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.time_share import BusyClock


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=60))
def test_shares_add_up_to_the_busy_time(events: list[tuple[bool, int]]) -> None:
    time, busy, total = Time(), 0.0, 0.0
    clock = BusyClock(time)
    marks: list[float] = []
    for enters, seconds in [*events, *[(False, 1)] * 60]:
        if enters:
            marks.append(clock.enter())
        elif marks:
            total += clock.leave(marks.pop(0))
        busy += seconds if marks else 0
        time.now += seconds

    assert abs(total - busy) < 1e-6 * max(busy, 1)


def test_two_at_once_pay_half_each() -> None:
    time = Time()
    clock = BusyClock(time)
    first = clock.enter()
    time.now = 4.0
    second = clock.enter()
    time.now = 10.0

    assert clock.leave(first) == 4.0 + 3.0
    assert clock.leave(second) == 3.0
