"""The plugin's scheduler and vLLM's get the same requests, and do the same in each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from tests.vllm import tiny
from twopass.engines.vllm.arguments import build_speculative_config
from twopass.engines.vllm.plugin import drafts
from twopass.engines.vllm.plugin.scheduler import GroupScheduler

SEQUENCES, BLOCKS, BLOCK_SIZE, CONTEXT = 5, 24, 4, 48
DRAFTS, INTERVAL = 4, 6
EOS, STOP, VOCABULARY = 1, 2, 40  # every twentieth token ends an answer
ITEM = MultiModalKwargsItem({})


class CountingScheduler(GroupScheduler):
    """Counts what the plugin does itself."""

    steps = silent = 0

    def _schedule_decoding(self, planned: Any) -> Any:
        self.steps += 1
        return super()._schedule_decoding(planned)

    def _append_silently(self, step: Any, answer: Any) -> dict[str, int]:
        others = super()._append_silently(step, answer)
        self.silent += len(step.num_scheduled_tokens) - len(others)
        return others


class Configuration:
    def __init__(self, config: VllmConfig) -> None:
        self.config, self.grammars = config, StructuredOutputManager(config)

    def build(self, blocks: int, is_stock: bool, **values: Any) -> CountingScheduler:
        """With `is_stock`, vLLM's own code schedules each step, allocates blocks and gives requests their tokens."""
        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
        caches = KVCacheConfig(blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
        scheduler = CountingScheduler(self.config, caches, self.grammars, block_size=BLOCK_SIZE)
        assert scheduler._is_plain
        vars(scheduler).update(values)
        if is_stock:
            scheduler._is_plain = False
            del scheduler.kv_cache_manager.allocate_slots
        return scheduler


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Configuration:
    arguments = EngineArgs(
        model=str(tiny.write_checkpoint(tmp_path_factory.mktemp("tiny"))), load_format="dummy", enforce_eager=True,
        max_num_seqs=SEQUENCES, max_num_batched_tokens=512, max_model_len=CONTEXT, stream_interval=INTERVAL,
        enable_prefix_caching=False, disable_log_stats=True, scheduling_policy="priority", skip_mm_profiling=True,
        mm_processor_cache_gb=0, limit_mm_per_prompt={"image": 1, "video": 0},
        speculative_config=build_speculative_config(DRAFTS),
    )  # fmt: skip
    config = arguments.create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS
    return Configuration(config)


@dataclass(frozen=True)
class Wish:
    """A request, before each scheduler gets its own copy."""

    text: int  # tokens of the prompt beside those of an image
    image: int
    max_tokens: int
    priority: int
    has_draft: bool
    ends: bool  # also with a token, not only at its maximum
    logprobs: int | None

    def build(self, name: str, arrival: float) -> Request:
        draft = {drafts.DRAFT: drafts.pack([5, 6, 7])} if self.has_draft else None
        params = SamplingParams(
            max_tokens=self.max_tokens, ignore_eos=not self.ends, stop_token_ids=[STOP] if self.ends else None,
            logprobs=self.logprobs, extra_args=draft,
        )  # fmt: skip
        if self.ends:
            params.update_from_generation_config({}, EOS)
        features = [MultiModalFeatureSpec(ITEM, "image", name, PlaceholderRange(offset=0, length=self.image))]
        return Request(
            name, list(range(self.text + self.image)), params, None, arrival_time=arrival, priority=self.priority,
            mm_features=features if self.image else None,
        )  # fmt: skip


class Engine:
    """A scheduler whose model answers at random, but always the same about a request in a step."""

    def __init__(self, scheduler: CountingScheduler, seed: int, depth: int) -> None:
        self.scheduler, self.seed, self.depth, self.steps = scheduler, seed, depth, 0
        self.unfinished: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()

    def step(self) -> tuple[Any, ...]:
        """Schedule a step, and end the oldest if as many as `depth` have not ended; what both gave."""
        self.steps += 1
        output = self.scheduler.schedule()
        scheduled = replace(output)
        if output.total_num_scheduled_tokens:
            self.unfinished.append((output, self.answer(output)))
        is_full = len(self.unfinished) >= self.depth or not output.total_num_scheduled_tokens
        sent = self.end() if self.unfinished and is_full else {}
        return scheduled, sent

    def end(self) -> Any:
        """Clients get messages, which have a time, and ids of requests that ended."""
        output, answer = self.unfinished.popleft()
        sent = self.scheduler.update_from_output(output, answer)
        if self.depth == 1:
            self.scheduler.update_draft_token_ids(self.draft(answer.req_ids))
        return {client: (one.outputs, one.finished_requests) for client, one in sent.items()}

    def answer(self, output: SchedulerOutput) -> ModelRunnerOutput:
        names = list(output.num_scheduled_tokens)
        tokens = [self.sample(name, len(output.scheduled_spec_decode_tokens.get(name, ()))) for name in names]
        return ModelRunnerOutput(names, {name: index for index, name in enumerate(names)}, tokens)

    def sample(self, name: str, num_drafts: int) -> list[int]:
        if self.scheduler.requests[name].is_prefill_chunk:
            return []
        random = Random(f"{self.seed} {self.steps} {name}")
        return [random.randrange(VOCABULARY) for _ in range(1 + random.randint(0, num_drafts))]

    def draft(self, names: Iterable[str]) -> DraftTokenIds:
        """What a drafter proposes that vLLM waits for: any number of tokens."""
        known = [name for name in names if name in self.scheduler.requests]
        can_draft = [self.scheduler.can_draft(self.scheduler.requests[name]) for name in known]
        counts = [Random(f"{self.seed} {self.steps} {name}").randint(0, DRAFTS) for name in known]
        wanted = self.scheduler.num_spec_tokens > 0
        texts = [[7] * (count * can * wanted) for count, can in zip(counts, can_draft, strict=True)]
        return DraftTokenIds(known, texts)


def describe(value: Any) -> Any:
    """A value of a scheduler's state that can be compared; objects of other classes are left out."""
    if isinstance(value, Request):
        return value.request_id
    if isinstance(value, dict):
        return {describe(key): describe(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return {describe(one) for one in value}
    if isinstance(value, list | tuple | deque):
        return [describe(one) for one in value]
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__


def describe_state(scheduler: CountingScheduler) -> dict[str, Any]:
    pool, (manager,) = (
        scheduler.kv_cache_manager.block_pool,
        scheduler.kv_cache_manager.coordinator.single_type_managers,
    )
    own = {"steps", "silent", "_is_plain", "_slots", "num_executed_steps"}
    return {
        "scheduler": describe({name: value for name, value in vars(scheduler).items() if name not in own}),
        "requests": {name: describe(vars(request)) for name, request in scheduler.requests.items()},
        "tokens": {name: list(one.all_token_ids) for name, one in scheduler.requests.items()},
        "waiting": [request.request_id for request in scheduler.waiting],
        "encoder": describe(vars(scheduler.encoder_cache_manager)),
        "blocks": {name: [one.block_id for one in blocks] for name, blocks in manager.req_to_blocks.items()},
        "free": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        "new": list(manager.new_block_ids),
    }


WISHES = st.builds(
    Wish,
    text=st.integers(1, 20), image=st.sampled_from([0, 0, 5]), max_tokens=st.integers(1, 40),
    priority=st.integers(0, 2), has_draft=st.booleans(), ends=st.booleans(), logprobs=st.sampled_from([None, None, 0]),
)  # fmt: skip
# What happens between two steps: a request arrives, one is given up, or nothing.
EVENTS = st.lists(st.one_of(WISHES, WISHES, st.integers(0, 30), st.none()), min_size=20, max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=EVENTS, seed=st.integers(0, 99), blocks=st.integers(8, BLOCKS), depth=st.sampled_from([1, 2, 2]),
    is_v2=st.booleans(), has_drafts=st.booleans(), step_tokens=st.sampled_from([12, 20, 512]),
    few=st.sampled_from([2, drafts.FEW_ANSWERS]),
)  # fmt: skip
def test_each_step_is_the_one_that_vllm_schedules(
    configuration: Configuration, events: list[Wish | int | None], seed: int, blocks: int, depth: int, is_v2: bool,
    has_drafts: bool, step_tokens: int, few: int,
) -> None:  # fmt: skip
    """Outputs, messages and all state are equal: with drafts, images, preemption, requests that end or are given up,
    one step at a time or two, many answers or few, and for both of vLLM's model runners."""
    values = {"use_v2_model_runner": is_v2, "max_num_scheduled_tokens": step_tokens}
    values |= {} if has_drafts else {"num_spec_tokens": 0, "_spec_token_placeholders": []}
    ours, stock = (Engine(configuration.build(blocks, is_stock, **values), seed, depth) for is_stock in (False, True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafts, "FEW_ANSWERS", few)
        for number, event in enumerate([*events, *[None] * 60]):
            for engine in (ours, stock):
                if isinstance(event, Wish):
                    engine.scheduler.add_request(event.build(f"r{number}", arrival=number))
                elif event is not None:
                    engine.scheduler.finish_requests(f"r{event}", RequestStatus.FINISHED_ABORTED)
            assert ours.step() == stock.step()
            assert describe_state(ours.scheduler) == describe_state(stock.scheduler)
    assert stock.scheduler.steps == stock.scheduler.silent == 0


def test_requests_that_only_decode_take_one_pass(configuration: Configuration) -> None:
    """After the first step, which prefills them, and until the first ends; most tokens are not sent."""
    engine = Engine(configuration.build(BLOCKS, is_stock=False, use_v2_model_runner=True), seed=0, depth=2)
    for number in range(2):
        wish = Wish(3, image=0, max_tokens=20, priority=0, has_draft=number == 0, ends=False, logprobs=None)
        engine.scheduler.add_request(wish.build(f"r{number}", arrival=number))

    steps = [engine.step() for _ in range(6)]

    assert engine.scheduler.steps == 5
    assert engine.scheduler.silent > 0
    assert [len(output.num_scheduled_tokens) for output, _ in steps] == [2] * 6


def test_vllm_divides_a_step_that_is_too_small_for_all(configuration: Configuration) -> None:
    """Four requests with four drafts each do not fit into twelve tokens."""
    ours, stock = (
        Engine(configuration.build(BLOCKS, is_stock, max_num_scheduled_tokens=12), seed=0, depth=2)
        for is_stock in (False, True)
    )
    for engine, number in product((ours, stock), range(4)):
        wish = Wish(2, image=0, max_tokens=30, priority=0, has_draft=True, ends=False, logprobs=None)
        engine.scheduler.add_request(wish.build(f"r{number}", arrival=number))

    assert [ours.step() for _ in range(6)] == [stock.step() for _ in range(6)]


def test_many_answers_have_half_of_the_drafts(configuration: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the step after the one in which there are too many, and not for longer; whoever schedules it."""
    monkeypatch.setattr(drafts, "FEW_ANSWERS", 2)
    for is_stock in (False, True):
        engine = Engine(configuration.build(BLOCKS, is_stock, use_v2_model_runner=True), seed=0, depth=1)
        monkeypatch.setattr(engine, "draft", lambda names: DraftTokenIds([], []))  # as where vLLM does not wait for it
        counts = []
        for number in range(9):
            if number < 3:
                wish = Wish(2, image=0, max_tokens=30, priority=0, has_draft=True, ends=False, logprobs=None)
                engine.scheduler.add_request(wish.build(f"r{number}", arrival=number))
            if number == 5:
                engine.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
            output, _ = engine.step()
            counts.append(sorted(output.num_scheduled_tokens.values()))

        assert counts == [[2], [2, 5], [2, 5, 5], [3, 3, 3], [3, 3, 3], [3, 3], [5, 5], [5, 5], [5, 5]]
