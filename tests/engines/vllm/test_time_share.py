"""Shares of the engine's time: each moment is charged once, divided among the requests in the engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.time_share import TimeShare


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
