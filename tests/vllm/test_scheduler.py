"""When the scheduler leaves a sequence free to wait for others, and which steps send tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.plugin.scheduler import (
    MAX_WAIT_STEPS,
    MIN_GROUP,
    count_tokens_to_send,
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


@given(tokens=st.integers(1, 500), interval=st.integers(1, 100))
def test_every_token_is_sent_once(tokens: int, interval: int) -> None:
    """The first is sent at once, then a full interval at a time, and the rest at the end."""
    sent = [count_tokens_to_send(count, interval, is_finished=count == tokens) for count in range(1, tokens + 1)]

    assert sum(sent) == tokens
    assert sent[0] == 1  # shows that the answer has begun
    assert {count for count in sent[1:-1] if count} <= {interval}
    assert sent[-1] > 0
