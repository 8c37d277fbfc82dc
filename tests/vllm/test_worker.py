"""Each method that our worker replaces leaves the same state as vLLM's own, from the same state before.

vLLM schedules ahead only on GPUs, and these methods are for that case, so an engine on a CPU would not call them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from twopass.engines.vllm.plugin.worker import DecodingRunner

MAX_REQUESTS, CONTEXT, PROMPT = 8, 64, 20


class StockRunner(GPUModelRunner):  # type: ignore[misc]
    """vLLM's own runner, which records the calls of these methods."""

    def _bookkeeping_sync(self: Any, *args: Any) -> Any:
        self.calls.append("bookkeeping")
        return super()._bookkeeping_sync(*args)

    def _prepare_input_ids(self: Any, *args: Any) -> Any:
        self.calls.append("input ids")
        return super()._prepare_input_ids(*args)

    def _gather_mm_embeddings(self: Any, *args: Any) -> Any:
        self.calls.append("images")
        return super()._gather_mm_embeddings(*args)


class OurRunner(DecodingRunner, StockRunner):
    """Combined as `DecodingWorker` does it."""


def create_runner(kind: type, requests: list[tuple[int, int, bool]], before: list[int]) -> Any:
    """Each request: its tokens, how many of them are computed, and whether this step's token is kept."""
    count = len(requests)
    names = [f"r{number}" for number in range(count)]
    runner: Any = object.__new__(kind)
    runner.calls = []
    runner.device, runner.arange_np, runner.max_model_len = torch.device("cpu"), np.arange(100), CONTEXT
    runner.uses_mrope = runner.uses_xdrope_dim = False
    runner.enable_prompt_embeds = runner.is_multimodal_pruning_enabled = False
    runner.use_async_scheduling, runner.num_prompt_logprobs = True, {}
    runner.prev_num_spec_tokens, runner._draft_token_ids = 0, None
    runner.prev_positions = SimpleNamespace(np=np.array([*before, *[-1] * MAX_REQUESTS]))
    runner.discard_request_mask = SimpleNamespace(np=np.array([not is_kept for *_, is_kept in requests]))
    runner.requests = {
        name: SimpleNamespace(output_token_ids=[7] * tokens, mm_features=[], num_computed_tokens=computed)
        for name, (tokens, computed, _) in zip(names, requests, strict=True)
    }
    cpu, gpu = torch.arange(100, 200, dtype=torch.int32), torch.zeros(100, dtype=torch.int32)
    runner.input_ids = SimpleNamespace(cpu=cpu, gpu=gpu, copy_to_gpu=lambda n: gpu[:n].copy_(cpu[:n]))
    runner.input_batch = SimpleNamespace(
        num_reqs=count, req_ids=names, req_id_to_index={name: row for row, name in enumerate(names)}, generators={},
        prev_sampled_token_ids=None, prev_req_id_to_index=None,
        token_ids_cpu=np.zeros((MAX_REQUESTS, CONTEXT), np.int32),
        is_token_ids=np.zeros((MAX_REQUESTS, CONTEXT), bool), num_prompt_tokens=np.full(MAX_REQUESTS, PROMPT),
        num_tokens_no_spec=np.array([tokens for tokens, *_ in requests] + [0] * MAX_REQUESTS),
        num_computed_tokens_cpu=np.array([computed for _, computed, _ in requests] + [0] * MAX_REQUESTS),
    )  # fmt: skip
    return runner


def create_both(*state: Any) -> tuple[Any, Any]:
    return create_runner(StockRunner, *state), create_runner(OurRunner, *state)


REQUESTS = st.lists(
    st.tuples(st.integers(0, CONTEXT - 1), st.integers(0, 40), st.booleans()), min_size=1, max_size=MAX_REQUESTS
)


@given(requests=REQUESTS, keeps_all=st.booleans())
def test_next_tokens_get_their_positions(requests: list[tuple[int, int, bool]], keeps_all: bool) -> None:
    """Also if the batch has prompts in chunked prefill, whose tokens are discarded."""
    requests = [(tokens, computed, keeps_all or is_kept) for tokens, computed, is_kept in requests]
    states = []
    for runner in create_both(requests, []):
        sampled = SimpleNamespace(
            sampled_token_ids=torch.arange(len(requests), dtype=torch.int32)[:, None], logprobs_tensors=None
        )
        answer = runner._bookkeeping_sync(SimpleNamespace(num_scheduled_tokens={}), sampled, None, torch.zeros(0), 0)
        batch = runner.input_batch
        states.append((
            answer, batch.token_ids_cpu.tolist(), batch.is_token_ids.tolist(), batch.num_tokens_no_spec.tolist(),
            batch.prev_req_id_to_index, batch.prev_sampled_token_ids.tolist(),
            [request.output_token_ids for request in runner.requests.values()],
        ))  # fmt: skip

    assert states[0] == states[1]
    assert runner.calls == ([] if all(is_kept for *_, is_kept in requests) else ["bookkeeping"])


@given(
    before=st.lists(st.integers(-1, MAX_REQUESTS - 1), min_size=1, max_size=MAX_REQUESTS, unique=True),
    more=st.integers(0, 3), is_first=st.booleans(), in_order=st.booleans(),
)  # fmt: skip
def test_a_step_starts_with_the_last_steps_tokens(before: list[int], more: int, is_first: bool, in_order: bool) -> None:
    """Between two steps requests enter, leave and change rows; one may be in prefill, with several tokens."""
    if in_order:
        before = list(range(len(before)))
    more = more if -1 in before else 0
    ends = np.cumsum([1 + more if position < 0 else 1 for position in before])
    given_ids = []
    for runner in create_both([(5, 25, True)] * len(before), before):
        runner.input_batch.prev_sampled_token_ids = (
            None if is_first else torch.arange(50, 50 + MAX_REQUESTS, dtype=torch.int32)[:, None]
        )
        runner._prepare_input_ids(SimpleNamespace(scheduled_spec_decode_tokens={}), len(before), int(ends[-1]), ends)
        given_ids.append(runner.input_ids.gpu[: int(ends[-1])].tolist())

    assert given_ids[0] == given_ids[1]
    assert runner.calls == (["input ids"] if is_first or -1 in before else [])


@given(requests=REQUESTS)
def test_images_of_prompts_in_prefill_are_inserted(requests: list[tuple[int, int, bool]]) -> None:
    """Stock vLLM searches for images only if a prompt is in prefill; otherwise ours returns an empty result."""
    scheduled = {f"r{number}": 1 for number in range(len(requests))}
    step = SimpleNamespace(total_num_scheduled_tokens=len(requests), num_scheduled_tokens=scheduled)
    results = []
    for runner in create_both(requests, []):
        for request in runner.requests.values():
            position = SimpleNamespace(
                offset=0, length=PROMPT, is_embed=None, get_embeds_indices_in_range=lambda a, b: (a, b)
            )
            request.mm_features = [SimpleNamespace(mm_position=position, identifier="image", modality="image")]
        runner.encoder_cache = {"image": torch.arange(float(PROMPT))[:, None]}
        embeddings, mask = runner._gather_mm_embeddings(step)
        results.append(([one.tolist() for one in embeddings], mask.tolist()))

    assert results[0] == results[1]
    assert runner.calls == (["images"] if any(computed < PROMPT for _, computed, _ in requests) else [])


def test_an_answer_cannot_exceed_the_context() -> None:
    """Both runners fail an assertion instead of writing out of bounds."""
    for runner in create_both([(CONTEXT, 40, True)], []):
        sampled = SimpleNamespace(sampled_token_ids=torch.zeros((1, 1), dtype=torch.int32), logprobs_tensors=None)
        with pytest.raises(AssertionError):
            runner._bookkeeping_sync(SimpleNamespace(num_scheduled_tokens={}), sampled, None, torch.zeros(0), 0)
