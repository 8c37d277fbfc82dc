"""In CUDA graphs of whole steps, vLLM's attention gets the prompt lengths that its windows need; without a GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionMetadataBuilder
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.utils import AttentionGroup

from twopass.engines.vllm.plugin.attention_windows import complete_prompt_lengths

SEQUENCES, WINDOW, CPU = 8, 128, torch.device("cpu")


def build_attention() -> Any:
    """A builder of vLLM's attention with what only prompt lengths need."""
    builder: Any = object.__new__(TritonAttentionMetadataBuilder)
    builder.device, builder.rswa_window = CPU, WINDOW
    builder.persistent_rswa_prefix_lens = torch.full((SEQUENCES,), -1, dtype=torch.int32)
    builder.seq_threshold_3D = builder.num_par_softmax_segments = builder.softmax_segm_output = None
    builder.softmax_segm_max = builder.softmax_segm_expsum = None
    builder.max_seqs_64_segments = 0
    return builder


def build_state() -> Any:
    state: Any = object.__new__(DefaultModelState)
    state.model_config, state.supports_mm_inputs, state.encoder_cache = SimpleNamespace(max_model_len=8192), False, None
    return state


def make_batch(requests: int, prompt_lengths: list[int] | None = None) -> InputBatch:
    """A step with a token of each request; vLLM's own to capture a graph, unless the requests have prompts."""
    batch = InputBatch.make_dummy(requests, requests, InputBuffers(SEQUENCES, SEQUENCES, CPU))
    if prompt_lengths is None:
        return batch
    return replace(batch, num_reqs=len(prompt_lengths), prompt_lens=torch.tensor(prompt_lengths, dtype=torch.int32))


def prepare(state: Any, attention: Any, batch: InputBatch, mode: CUDAGraphMode, for_capture: bool = False) -> Any:
    """What the attention gets."""
    nothing: Any = None
    group = AttentionGroup(TritonAttentionBackend, ["layer"], nothing, 0, metadata_builders=[attention])
    tables, slots = (torch.zeros(SEQUENCES, 1, dtype=torch.int32),), torch.zeros(1, SEQUENCES, dtype=torch.int64)
    groups = SimpleNamespace(kv_cache_groups=[None])
    return state.prepare_attn(batch, mode, tables, slots, [[group]], groups, for_capture=for_capture)["layer"]


def test_a_captured_step_has_windows_and_reads_the_lengths_of_later_steps() -> None:
    """From the same memory, in which each later step puts its own."""
    state, attention = build_state(), build_attention()
    complete_prompt_lengths(state)

    captured = prepare(state, attention, make_batch(4), CUDAGraphMode.NONE, for_capture=True)
    assert captured.rswa_window == WINDOW
    prepare(state, attention, make_batch(4, [938, 20, 7]), CUDAGraphMode.FULL)

    assert captured.rswa_prefix_lens.tolist() == [938, 20, 7, 0]


@pytest.mark.parametrize("mode", [CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE])
def test_other_steps_have_the_lengths_of_their_requests(mode: CUDAGraphMode) -> None:
    """They are not padded."""
    state = build_state()
    complete_prompt_lengths(state)

    assert prepare(state, build_attention(), make_batch(4, [938, 20]), mode).rswa_prefix_lens.tolist() == [938, 20]


def test_vllm_alone_loses_the_windows_or_fails() -> None:
    """Why the plugin completes them. Where this fails, vLLM does it itself."""
    state = build_state()

    assert prepare(state, build_attention(), make_batch(4), CUDAGraphMode.NONE, for_capture=True).rswa_window is None
    with pytest.raises(RuntimeError, match="size"):
        prepare(state, build_attention(), make_batch(4, [938, 20, 7]), CUDAGraphMode.FULL)
