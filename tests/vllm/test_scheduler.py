"""When the scheduler leaves a sequence free to wait for others, and which steps send tokens."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.plugin.scheduler import (
    MAX_WAIT_STEPS,
    MIN_GROUP,
    count_sent,
    group_size,
    should_wait,
)


@pytest.mark.parametrize(("capacity", "size"), [(100, 4), (256, 4), (384, 6), (512, 8), (1024, 8)])
def test_a_full_engine_admits_prompts_in_groups(capacity: int, size: int) -> None:
    """The larger the engine, the more prompts it admits together."""
    free = [few for few in range(1, 12) if not should_wait(capacity, capacity - few, waiting=50, waited_steps=0)]

    assert free[0] == group_size(capacity) == size


def test_does_not_wait_for_prompts_that_are_not_queued() -> None:
    """If fewer prompts than a group are waiting, they are admitted at once."""
    assert not should_wait(100, 99, waiting=MIN_GROUP - 1, waited_steps=0)


def test_a_small_engine_admits_prompts_at_once() -> None:
    """An engine no larger than a group never waits."""
    assert not any(should_wait(MIN_GROUP, running, waiting=50, waited_steps=0) for running in range(MIN_GROUP))


def test_a_sequence_does_not_stay_free_for_long() -> None:
    """The wait is limited, because the other answers may take hundreds of steps."""
    assert should_wait(100, 99, waiting=50, waited_steps=MAX_WAIT_STEPS - 1)
    assert not should_wait(100, 99, waiting=50, waited_steps=MAX_WAIT_STEPS)


@given(steps=st.lists(st.integers(1, 9), min_size=1, max_size=200), interval=st.integers(1, 100))
def test_every_token_is_sent_once(steps: list[int], interval: int) -> None:
    """The first is sent at once, then whole intervals, whether a step yields one token or several."""
    totals = list(accumulate(steps))
    sent = [count_sent(total, interval) for total in totals]

    assert count_sent(0, interval) == 0
    assert sent[0] >= 1  # shows that the answer has begun
    assert sent == sorted(sent)
    assert all(total - interval < count <= total for total, count in zip(totals, sent, strict=True))
    assert {(count - 1) % interval for count in sent} == {0}
