"""When a free seat waits for others, when it is taken at once, and which steps tell of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.plugin.scheduler import LEAST_GROUP, PATIENCE, group, is_worth_waiting, untold


@pytest.mark.parametrize(("seats", "together"), [(100, 4), (256, 4), (384, 6), (512, 8), (1024, 8)])
def test_a_full_engine_takes_prompts_in_groups(seats: int, together: int) -> None:
    """The more seats there are, the more become free at once."""
    free = [few for few in range(1, 12) if not is_worth_waiting(seats, seats - few, waiting=50, waited=0)]

    assert free[0] == group(seats) == together


def test_nobody_waits_for_prompts_that_are_not_there() -> None:
    assert not is_worth_waiting(100, 99, waiting=LEAST_GROUP - 1, waited=0)


def test_an_engine_of_few_seats_fills_each() -> None:
    assert not any(is_worth_waiting(LEAST_GROUP, taken, waiting=50, waited=0) for taken in range(LEAST_GROUP))


def test_a_seat_does_not_stay_free_for_long() -> None:
    """Where others take hundreds of steps."""
    assert is_worth_waiting(100, 99, waiting=50, waited=PATIENCE - 1)
    assert not is_worth_waiting(100, 99, waiting=50, waited=PATIENCE)


@given(tokens=st.integers(1, 500), interval=st.integers(1, 100))
def test_every_token_is_told_of_once(tokens: int, interval: int) -> None:
    told = [untold(count, interval, ended=count == tokens) for count in range(1, tokens + 1)]

    assert sum(told) == tokens
    assert told[0] == 1  # the engine says something as soon as it can
    assert {count for count in told[1:-1] if count} <= {interval}
    assert told[-1] > 0
