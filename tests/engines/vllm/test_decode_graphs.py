"""A step takes the smallest CUDA graph that fits it, and one for decoding only where it has no prompt."""

from __future__ import annotations

import pytest

from twopass.engines.vllm.arguments import cuda_graph_config
from twopass.engines.vllm.plugin.decode_graphs import ANY_STEP, Graph, list_candidates, plan
from twopass.engines.vllm.plugin.drafts import choose_count


def plan_for(sequences: int, drafts: int) -> list[Graph]:
    return plan(cuda_graph_config(sequences, drafts)["cudagraph_capture_sizes"], sequences, 1 + drafts)


def choose(graphs: list[Graph], queries: list[int], has_prompt: bool = False) -> Graph | None:
    """As vLLM chooses: the first candidate with room for the requests, if there is no prompt or it takes prompts."""
    candidates = list_candidates(graphs).get(sum(queries), [])
    return next((graph for graph in candidates if len(queries) <= graph.requests and _takes(graph, has_prompt)), None)


def _takes(graph: Graph, has_prompt: bool) -> bool:
    return graph.longest is None or not has_prompt


@pytest.mark.parametrize(("sequences", "drafts"), [(1, 4), (5, 1), (33, 6), (64, 8), (65, 8), (100, 7), (512, 8)])
def test_every_step_that_only_decodes_has_a_graph_for_that(sequences: int, drafts: int) -> None:
    """Whichever requests have drafts."""
    graphs = plan_for(sequences, drafts)

    for drafted in range(0, sequences + 1, 1 + sequences // 9):
        for others in range(drafted == 0, sequences - drafted + 1, 1 + sequences // 9):
            graph = choose(graphs, [1 + choose_count(drafts, drafted + others)] * drafted + [1] * others)

            assert graph is not None
            assert graph.longest == 1 + drafts
            assert graph.tokens <= graph.requests * graph.longest


def test_scans_take_the_graphs_of_an_engine_without_drafts() -> None:
    """Steps of any number of answers are padded no further than they would be if drafts were off."""
    without = cuda_graph_config(512)["cudagraph_capture_sizes"]
    graphs = plan_for(512, 8)
    candidates = list_candidates(graphs)

    for count in range(1, 513):
        assert candidates[count][0].tokens <= next(size for size in without if size >= count)
    assert choose(graphs, [1] * 512) == Graph(512, 512, 9)
    assert choose(graphs, [5] * 512) == Graph(2560, 512, 9)
    assert choose(graphs, [5] * 256 + [1] * 256) == Graph(1600, 512, 9)
    assert choose(graphs, [9] * 64) == Graph(576, 512, 9)


def test_a_step_with_a_prompt_takes_a_graph_of_any_step() -> None:
    """At most ANY_STEP tokens and the distance of two sizes are padded; a larger step than the largest has none."""
    graphs = plan_for(512, 8)

    for tokens in (1, 938, 2000, 2560):
        graph = choose(graphs, [tokens], has_prompt=True)
        assert graph is not None
        assert graph.longest is None
        assert graph.tokens < tokens + ANY_STEP + 160
    assert choose(graphs, [2561], has_prompt=True) is None


def test_graphs_are_captured_from_the_largest_on_and_are_not_many() -> None:
    """The first gets the memory in which the others have room. Each costs a start about 0.08 s."""
    graphs = plan_for(512, 8)

    assert [graph.tokens for graph in graphs] == sorted((graph.tokens for graph in graphs), reverse=True)
    assert len(graphs) == len(set(graphs)) == 49
    assert graphs[0].tokens == 2560
