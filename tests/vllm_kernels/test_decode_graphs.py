"""vLLM's graph manager captures and chooses the plugin's CUDA graphs; without a GPU it captures none here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor, CudaGraphManager
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers

from twopass.engines.vllm.arguments import cuda_graph_config
from twopass.engines.vllm.plugin import decode_graphs
from twopass.engines.vllm.plugin.drafts import count_in_step

SEQUENCES, DRAFTS = 512, 8  # a step of many answers verifies four of each


def build_manager(mode: CUDAGraphMode = CUDAGraphMode.FULL) -> Any:
    """A manager as vLLM's runner builds it, without what only capturing needs."""
    sizes = cuda_graph_config(SEQUENCES, DRAFTS)["cudagraph_capture_sizes"]
    manager: Any = object.__new__(CudaGraphManager)
    manager.compilation_config = SimpleNamespace(
        cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=sizes[-1]
    )  # fmt: skip
    manager.vllm_config = SimpleNamespace(
        speculative_config=None, cache_config=SimpleNamespace(use_kda_recoverssm=False)
    )  # fmt: skip
    manager.cudagraph_mode, manager.max_num_reqs, manager.decode_query_len = mode, SEQUENCES, 1 + DRAFTS
    manager.varlen_decode, manager.ubatch_runner, manager.lora_capture_cases = False, None, [0]
    manager._lora_dispatch_map, manager._max_lora_case = {}, 0
    manager._candidates, manager._capture_descs, manager._graphs_captured = {}, {}, True
    manager._init_candidates()
    return manager


@pytest.fixture
def manager() -> Any:
    manager = build_manager()
    decode_graphs.add_to(manager)
    return manager


def dispatch(manager: Any, queries: list[int], has_prompt: bool = False) -> BatchExecutionDescriptor:
    """As vLLM's runner asks: it names the longest query only if there is no prompt."""
    longest = None if has_prompt else max(queries)
    uniform = queries[0] if len(set(queries)) == 1 and not has_prompt else None
    return manager.dispatch(len(queries), sum(queries), uniform, 0, max_query_len=longest)


@pytest.mark.parametrize(
    ("queries", "tokens", "requests"),
    [([1] * 512, 512, 512), ([1] * 500, 512, 512), ([1], 1, 1), ([5] * 512, 2560, 512), ([9] * 3, 32, 32)]
    + [([5] * 256 + [1] * 256, 1600, 512), ([1, 2, 3, 4, 5], 16, 16)],
    ids=str,
)
def test_a_step_that_only_decodes_takes_a_graph_for_that(
    manager: Any, queries: list[int], tokens: int, requests: int
) -> None:
    """Of the size of its tokens, whether all, some or none of its requests have drafts."""
    assert dispatch(manager, queries) == BatchExecutionDescriptor(
        CUDAGraphMode.FULL, tokens, requests, max_query_len=1 + DRAFTS
    )


def test_a_step_with_a_prompt_takes_a_graph_for_any_step_or_none(manager: Any) -> None:
    """A prompt's query is longer than those of the others; so may its first tokens be that continue it."""
    for queries in ([938], [1] * 100 + [938], [3]):
        chosen = dispatch(manager, queries, has_prompt=True)

        assert (chosen.cg_mode, chosen.max_query_len) == (CUDAGraphMode.FULL, None)
    assert dispatch(manager, [5] * 400 + [938], has_prompt=True).cg_mode == CUDAGraphMode.NONE


def test_every_graph_that_is_chosen_is_captured(manager: Any) -> None:
    """The largest first, whose memory the others use; vLLM counts them to estimate their memory."""
    captured = manager._capture_descs[CUDAGraphMode.FULL]

    assert {graph for found in manager._candidates.values() for graph in found} == set(captured)
    assert captured[0].num_tokens == SEQUENCES + count_in_step(DRAFTS, SEQUENCES)
    assert list(manager._capture_descs) == [CUDAGraphMode.FULL]


def test_vllm_can_make_a_batch_for_each_graph(manager: Any) -> None:
    """It spreads a graph's tokens over its requests, none of which may have more than the graph promises."""
    buffers = InputBuffers(SEQUENCES, (1 + DRAFTS) * SEQUENCES, torch.device("cpu"))
    for graph in manager._capture_descs[CUDAGraphMode.FULL]:
        batch = InputBatch.make_dummy(
            graph.num_reqs, graph.num_tokens, buffers, max_query_len=graph.max_query_len or graph.num_tokens
        )

        assert batch.num_tokens == graph.num_tokens


@pytest.mark.parametrize("mode", [CUDAGraphMode.FULL_DECODE_ONLY, CUDAGraphMode.FULL_AND_PIECEWISE])
def test_other_attention_keeps_vllms_graphs(mode: CUDAGraphMode) -> None:
    """vLLM replaces the mode where its attention has no graphs of any step."""
    manager, stock = build_manager(mode), build_manager(mode)

    decode_graphs.add_to(manager)

    assert manager._capture_descs == stock._capture_descs
    assert manager._candidates == stock._candidates
