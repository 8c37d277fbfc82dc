#!/usr/bin/env python3
"""Settings of vLLM's fused-MoE kernel for DeepSeek-OCR's experts on this machine's GPU, as the JSON file vLLM reads.

    python scripts/tune_moe.py FOLDER

Writes `E=64,N=896,device_name=….json`; `src/twopass/vllm_plugin/moe/` is where the engine looks. Experts are
chosen evenly, as a trained router does.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import torch

EXPERTS, HIDDEN, INNER, CHOSEN = 64, 1280, 896, 6
FEW, MANY = (1, 8, 16, 32, 64, 128, 192, 256, 384, 512), (1024, 2048, 4096, 8192)
ROUNDS, REPEATS = 5, 10

Setting = dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    from vllm.model_executor.layers.fused_moe.fused_moe import get_config_file_name

    torch.manual_seed(1)
    experts = Experts()
    found = {}
    for tokens in (*FEW, *MANY):
        times = {json.dumps(one): experts.ms(tokens, one) for one in settings(tokens)}
        best = min(times, key=times.__getitem__)
        found[tokens] = json.loads(best)
        print(json.dumps({"tokens": tokens, "default_ms": round(experts.ms(tokens, None), 4),
                          "best_ms": round(times[best], 4), **found[tokens]}), flush=True)  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / get_config_file_name(EXPERTS, INNER, None)).write_text(json.dumps(found, indent=1) + "\n")


def settings(tokens: int) -> list[Setting]:
    """What is worth trying: small tiles for few tokens an expert, large ones for many."""
    if tokens <= FEW[-1]:
        tried = product((16, 32, 64), (64, 128), (64, 128), (1,), (4,), (3, 4))
    else:
        tried = product((64, 128), (128, 256), (64,), (1, 16), (4, 8), (3, 4))
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return [dict(zip(names, one, strict=True)) for one in tried]


class Experts:
    """One layer's experts with random weights."""

    def __init__(self) -> None:
        def noise(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device="cuda", dtype=torch.bfloat16) / 30

        self._up, self._down = noise(EXPERTS, 2 * INNER, HIDDEN), noise(EXPERTS, HIDDEN, INNER)

    def ms(self, tokens: int, setting: Setting | None) -> float:
        """Of a layer, launches left out; infinite where the setting does not fit the chip."""
        from vllm.model_executor.layers.fused_moe import fused_experts, override_config

        x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
        chosen = torch.rand(tokens, EXPERTS, device="cuda").topk(CHOSEN).indices.int()
        weights = torch.full((tokens, CHOSEN), 1 / CHOSEN, device="cuda")

        def work() -> Any:
            return fused_experts(x, self._up, self._down, weights, chosen)

        try:
            if setting is None:
                return _graph_ms(work)
            with override_config(setting):
                return _graph_ms(work)
        except Exception as error:  # Triton names many: too much shared memory, too many registers
            print(setting, type(error).__name__)
            return float("inf")


def _graph_ms(work: Any) -> float:
    """Median time of one call in a CUDA graph of several."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / REPEATS)
    return statistics.median(times)


if __name__ == "__main__":
    main()
