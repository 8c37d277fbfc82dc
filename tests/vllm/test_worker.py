"""What our worker does in place of vLLM's own, method by method: the same state before, the same state after.

vLLM schedules ahead on GPUs only, and these methods are about that, so no engine on a processor would ask them.
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

from twopass.engines.vllm.plugin.worker import _Decoding

ROOM, CONTEXT, PROMPT = 8, 64, 20


class Theirs(GPUModelRunner):  # type: ignore[misc]
    """vLLM's own, and which of its methods were asked."""

    def _bookkeeping_sync(self: Any, *told: Any) -> Any:
        self.asked.append("bookkeeping")
        return super()._bookkeeping_sync(*told)

    def _prepare_input_ids(self: Any, *told: Any) -> Any:
        self.asked.append("input ids")
        return super()._prepare_input_ids(*told)

    def _gather_mm_embeddings(self: Any, *told: Any) -> Any:
        self.asked.append("pictures")
        return super()._gather_mm_embeddings(*told)


class Ours(_Decoding, Theirs):
    """As `DecodingWorker` puts them together."""


def runner(kind: type, told: list[tuple[int, int, bool]], before: list[int]) -> Any:
    """Of each prompt: its tokens, how many of them are computed, and whether this step's token counts."""
    count = len(told)
    names = [f"r{number}" for number in range(count)]
    made: Any = object.__new__(kind)
    made.asked = []
    made.device, made.arange_np, made.max_model_len = torch.device("cpu"), np.arange(100), CONTEXT
    made.uses_mrope = made.uses_xdrope_dim = made.enable_prompt_embeds = made.is_multimodal_pruning_enabled = False
    made.use_async_scheduling, made.num_prompt_logprobs = True, {}
    made.prev_num_spec_tokens, made._draft_token_ids = 0, None
    made.prev_positions = SimpleNamespace(np=np.array([*before, *[-1] * ROOM]))
    made.discard_request_mask = SimpleNamespace(np=np.array([not counts for *_, counts in told]))
    made.requests = {
        name: SimpleNamespace(output_token_ids=[7] * tokens, mm_features=[], num_computed_tokens=computed)
        for name, (tokens, computed, _) in zip(names, told, strict=True)
    }
    cpu, gpu = torch.arange(100, 200, dtype=torch.int32), torch.zeros(100, dtype=torch.int32)
    made.input_ids = SimpleNamespace(cpu=cpu, gpu=gpu, copy_to_gpu=lambda n: gpu[:n].copy_(cpu[:n]))
    made.input_batch = SimpleNamespace(
        num_reqs=count, req_ids=names, req_id_to_index={name: row for row, name in enumerate(names)}, generators={},
        prev_sampled_token_ids=None, prev_req_id_to_index=None, token_ids_cpu=np.zeros((ROOM, CONTEXT), np.int32),
        is_token_ids=np.zeros((ROOM, CONTEXT), bool), num_prompt_tokens=np.full(ROOM, PROMPT),
        num_tokens_no_spec=np.array([tokens for tokens, *_ in told] + [0] * ROOM),
        num_computed_tokens_cpu=np.array([computed for _, computed, _ in told] + [0] * ROOM),
    )  # fmt: skip
    return made


def both(*state: Any) -> tuple[Any, Any]:
    return runner(Theirs, *state), runner(Ours, *state)


TOLD = st.lists(st.tuples(st.integers(0, CONTEXT - 1), st.integers(0, 40), st.booleans()), min_size=1, max_size=ROOM)


@given(told=TOLD, all_count=st.booleans())
def test_the_next_tokens_have_their_places(told: list[tuple[int, int, bool]], all_count: bool) -> None:
    """Also those of prompts that are read in parts, whose tokens do not count yet."""
    told = [(tokens, computed, all_count or counts) for tokens, computed, counts in told]
    ends = []
    for made in both(told, []):
        sampled = SimpleNamespace(
            sampled_token_ids=torch.arange(len(told), dtype=torch.int32)[:, None], logprobs_tensors=None
        )
        answer = made._bookkeeping_sync(SimpleNamespace(num_scheduled_tokens={}), sampled, None, torch.zeros(0), 0)
        batch = made.input_batch
        ends.append((
            answer, batch.token_ids_cpu.tolist(), batch.is_token_ids.tolist(), batch.num_tokens_no_spec.tolist(),
            batch.prev_req_id_to_index, batch.prev_sampled_token_ids.tolist(),
            [request.output_token_ids for request in made.requests.values()],
        ))  # fmt: skip

    assert ends[0] == ends[1]
    assert made.asked == ([] if all(counts for *_, counts in told) else ["bookkeeping"])


@given(
    before=st.lists(st.integers(-1, ROOM - 1), min_size=1, max_size=ROOM, unique=True),
    more=st.integers(0, 3), is_first=st.booleans(), in_order=st.booleans(),
)  # fmt: skip
def test_a_step_begins_with_the_tokens_of_the_last(
    before: list[int], more: int, is_first: bool, in_order: bool
) -> None:
    """Prompts come, go and change places between two steps; one of them may be read, several tokens at once."""
    if in_order:
        before = list(range(len(before)))
    more = more if -1 in before else 0
    ends = np.cumsum([1 + more if position < 0 else 1 for position in before])
    given_ids = []
    for made in both([(5, 25, True)] * len(before), before):
        made.input_batch.prev_sampled_token_ids = (
            None if is_first else torch.arange(50, 50 + ROOM, dtype=torch.int32)[:, None]
        )
        made._prepare_input_ids(SimpleNamespace(scheduled_spec_decode_tokens={}), len(before), int(ends[-1]), ends)
        given_ids.append(made.input_ids.gpu[: int(ends[-1])].tolist())

    assert given_ids[0] == given_ids[1]
    assert made.asked == (["input ids"] if is_first or -1 in before else [])


@given(told=TOLD)
def test_a_picture_under_way_is_looked_for(told: list[tuple[int, int, bool]]) -> None:
    scheduled = {f"r{number}": 1 for number in range(len(told))}
    step = SimpleNamespace(total_num_scheduled_tokens=len(told), num_scheduled_tokens=scheduled)
    found = []
    for made in both(told, []):
        for request in made.requests.values():
            place = SimpleNamespace(
                offset=0, length=PROMPT, is_embed=None, get_embeds_indices_in_range=lambda a, b: (a, b)
            )
            request.mm_features = [SimpleNamespace(mm_position=place, identifier="seen", modality="image")]
        made.encoder_cache = {"seen": torch.arange(float(PROMPT))[:, None]}
        embeddings, mask = made._gather_mm_embeddings(step)
        found.append(([one.tolist() for one in embeddings], mask.tolist()))

    assert found[0] == found[1]
    assert made.asked == (["pictures"] if any(computed < PROMPT for _, computed, _ in told) else [])


def test_an_answer_does_not_grow_out_of_its_context() -> None:
    for made in both([(CONTEXT, 40, True)], []):
        sampled = SimpleNamespace(sampled_token_ids=torch.zeros((1, 1), dtype=torch.int32), logprobs_tensors=None)
        with pytest.raises(AssertionError):
            made._bookkeeping_sync(SimpleNamespace(num_scheduled_tokens={}), sampled, None, torch.zeros(0), 0)
