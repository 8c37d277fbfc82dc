"""CUDA graphs of steps that only decode, beside those of steps with prompts, for vLLM's Model Runner V2.

Where drafts are on, vLLM captures graphs of one kind, for any step. Their attention expects a query as long as the
step, which is slower for one to nine tokens of each answer: FlashAttention 3 has other tiles for up to 64. Here every
size has a graph whose queries are short, and a few have one for any step, too. A step takes the smallest that fits, so
that one without a single draft costs what it costs without speculative decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# Tokens between two graphs for any step: such a step has a prompt, so that it is large, and there are few of them.
ANY_STEP = 256


class Graph(NamedTuple):
    """A CUDA graph of a step with at most so many tokens and requests.

    `longest` is the most tokens that one request may have, all of an answer; None for a graph that takes prompts, too.
    """

    tokens: int
    requests: int
    longest: int | None


def plan(sizes: Sequence[int], requests: int, longest: int) -> list[Graph]:
    """The graphs of an engine with so many requests and at most `longest` tokens of each, the largest first."""
    decoding = [Graph(size, min(size, requests), longest) for size in sizes if size <= requests * longest]
    any_step = [Graph(size, min(size, requests), None) for size in _thin_out(sorted(sizes))]
    return sorted([*any_step, *decoding], key=lambda graph: graph.tokens, reverse=True)


def _thin_out(sizes: Sequence[int]) -> Iterator[int]:
    last = 0
    for size in sizes:
        if size >= last + ANY_STEP or size == sizes[-1]:
            yield size
            last = size


def list_candidates(graphs: Sequence[Graph]) -> dict[int, list[Graph]]:
    """For each number of tokens, the smallest graph of each kind that holds them; the one for decoding comes first."""
    candidates: dict[int, list[Graph]] = {}
    for takes_prompts in (False, True):
        least = 0
        for graph in sorted(graph for graph in graphs if (graph.longest is None) == takes_prompts):
            for tokens in range(least, graph.tokens + 1):
                candidates.setdefault(tokens, []).append(graph)
            least = graph.tokens + 1
    return candidates


def add_to(manager: Any) -> None:
    """Let vLLM's graph manager capture and choose these graphs; before it captures any.

    It is left as it is where its attention has no graphs of any step, as FlashAttention 2.
    """
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor

    if manager.cudagraph_mode != CUDAGraphMode.FULL or manager.lora_capture_cases != [0]:
        return
    sizes = manager.compilation_config.cudagraph_capture_sizes
    graphs = {
        graph: BatchExecutionDescriptor(
            CUDAGraphMode.FULL, num_tokens=graph.tokens, num_reqs=graph.requests, max_query_len=graph.longest
        )
        for graph in plan(sizes, manager.max_num_reqs, manager.decode_query_len)
    }
    manager._capture_descs = {CUDAGraphMode.FULL: list(graphs.values())}
    manager._candidates = {
        (tokens, 0): [graphs[graph] for graph in found] for tokens, found in list_candidates([*graphs]).items()
    }
