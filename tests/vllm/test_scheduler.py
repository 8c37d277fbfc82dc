"""When the scheduler leaves a sequence free to wait for others, and which steps send tokens."""

from __future__ import annotations

from itertools import accumulate, chain
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, RSWAManager
from vllm.v1.request import Request

from twopass.engines.vllm.plugin import drafts
from twopass.engines.vllm.plugin.decode_steps import SlotAllocator
from twopass.engines.vllm.plugin.scheduler import (
    MAX_WAIT_STEPS,
    MIN_GROUP,
    GroupScheduler,
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


def build_request(request_id: str = "r", max_tokens: int = 100, **more: Any) -> Request:
    """An answer that ends at its maximum only."""
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, **more)
    return Request(request_id, [1, 2, 3], params, pooling_params=None)


def build_scheduler(**values: Any) -> GroupScheduler:
    """A scheduler without an engine, with only what the tested method uses."""
    scheduler = GroupScheduler.__new__(GroupScheduler)
    vars(scheduler).update(values)
    return scheduler


def send(steps: list[list[int]], interval: int, request: Request) -> list[list[int]]:
    """The tokens that each step sends, until the answer ends."""
    config = SimpleNamespace(stream_interval=interval)
    scheduler, sent = build_scheduler(max_model_len=10_000, scheduler_config=config), []
    for tokens in steps:
        request.num_output_placeholders = len(tokens)  # as many as the step had drafts, and one
        now, stopped = scheduler._update_request_with_output(request, list(tokens))
        sent.append(now)
        if stopped:
            break
    return sent


STEPS = st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=9), min_size=1, max_size=60)


@given(steps=STEPS, interval=st.integers(1, 40), data=st.data())
def test_the_tokens_that_are_sent_are_the_answer(steps: list[list[int]], interval: int, data: st.DataObject) -> None:
    """Also where the answer ends in the middle of a step: the drafts after its end were accepted for nothing."""
    answer = list(chain.from_iterable(steps))
    length = data.draw(st.integers(1, len(answer)))

    sent = send(steps, interval, build_request(max_tokens=length))

    assert list(chain.from_iterable(sent)) == answer[:length]
    assert sent[0]
    assert len([message for message in sent if message]) <= 2 + length / interval


@given(steps=STEPS)
def test_log_probabilities_are_sent_at_once(steps: list[list[int]]) -> None:
    """vLLM sends those of a step with the tokens of that step."""
    request = build_request(max_tokens=10_000, logprobs=0)

    assert send(steps, 40, request) == steps


def test_a_request_without_a_text_has_no_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's scheduler gives the same number of them to every request."""
    draft = {drafts.DRAFT: drafts.pack([5, 6, 7])}
    requests = {"drafted": build_request("drafted", extra_args=draft), "plain": build_request("plain")}

    def give_drafts(scheduler: Any, output: Any) -> None:
        for request_id in output.num_scheduled_tokens:
            scheduler.requests[request_id].spec_token_ids = [-1] * 4

    monkeypatch.setattr(AsyncScheduler, "_update_after_schedule", give_drafts)
    build_scheduler(num_spec_tokens=4, requests=requests, running=list(requests))._update_after_schedule(
        SimpleNamespace(num_scheduled_tokens=dict.fromkeys(requests, 1))
    )

    assert {name: request.spec_token_ids for name, request in requests.items()} == {"drafted": [-1] * 4, "plain": []}


@pytest.mark.parametrize(("new", "lookahead", "allocates"), [(1, 0, False), (4, 0, False), (4, 1, True), (5, 0, True)])
def test_blocks_are_allocated_for_what_does_not_fit(new: int, lookahead: int, allocates: bool) -> None:
    """Slots that vLLM reserves for its drafter count, too."""
    calls: list[int] = []
    manager = SimpleNamespace(allocate_slots=lambda _, count, **more: calls.append(count), empty_kv_cache_blocks="none")
    allocator = SlotAllocator(manager, SimpleNamespace(req_to_blocks={"r": [object()]}, block_size=16))
    request = SimpleNamespace(request_id="r", num_computed_tokens=12)

    blocks = allocator(request, new, num_lookahead_tokens=lookahead)

    assert (calls == [new]) is allocates
    assert (blocks == "none") is not allocates


@pytest.mark.parametrize(("kind", "replaces"), [(FullAttentionManager, True), (RSWAManager, False)])
def test_a_cache_that_frees_blocks_keeps_vllms_allocation(kind: type, replaces: bool) -> None:
    """Blocks outside a window after the prompt are freed when others are allocated."""
    single = object.__new__(kind)
    single.__dict__ |= {"req_to_blocks": {}, "block_size": 16}
    manager = SimpleNamespace(
        allocate_slots=None, empty_kv_cache_blocks=None, enable_caching=False,
        coordinator=SimpleNamespace(single_type_managers=[single]),
    )  # fmt: skip

    assert (SlotAllocator.for_manager(manager) is not None) is replaces
