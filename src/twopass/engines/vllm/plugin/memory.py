"""The GPU memory that vLLM's profile of it leaves out: images and rows of drafts are tried, freed memory is limited."""

from __future__ import annotations

from typing import Any

import torch

# Of the GPU's memory: what the allocator may have beyond the engine's share, for memory that was freed in pieces of the
# wrong size. The presets' shares and this leave 5 % of the card free.
FREED_SHARE = 0.05
NO_SPLIT_LIMIT = 1 << 20  # megabytes; the allocator may split any block
CONTEXT = 600 << 20  # bytes of a CUDA context, which this process has before it measures what is free


def try_peaks(runner: Any) -> None:
    """Take as much memory as the largest batch of images and the most rows of logits, within vLLM's profile.

    The profile has prompts without images and a row for each request, where drafts need a row each.
    """
    with torch.inference_mode():
        if try_encoder := getattr(runner.get_model(), "try_encoder", None):
            try_encoder()
        if runner.num_speculative_steps:
            _try_sampler(runner)


def _try_sampler(runner: Any) -> None:
    """Logits of all requests with all drafts, and the copy that the sampler makes of a chunk of them.

    Steps of many answers verify fewer drafts, but the one with which vLLM warms up does not.
    """
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler import get_max_chunk_logits

    rows = min(runner.max_num_reqs * (1 + runner.num_speculative_steps), runner.max_num_tokens)
    size = runner.model_config.get_hidden_size()
    logits = runner.get_model().compute_logits(torch.zeros((rows, size), dtype=runner.dtype, device=runner.device))
    if logits is not None:  # with tensor parallelism, one GPU has them
        torch.empty_like(logits[: get_max_chunk_logits(logits.shape[1])], dtype=torch.float32)


def limit_allocator(share: float, free_before: int) -> None:
    """Let PyTorch return freed memory to CUDA before this process has more than `share` and FREED_SHARE of the GPU.

    `free_before` is what was free when the process began to use it; what PyTorch does not manage counts as well.
    """
    free, total = torch.cuda.mem_get_info()
    unmanaged = free_before - free - torch.cuda.memory_reserved() + min(total - free_before, CONTEXT)
    limit = find_limit(share, total, unmanaged)
    if limit * total > torch.cuda.memory_reserved():  # else another process took memory meanwhile, and counts as ours
        torch.cuda.set_per_process_memory_fraction(limit)


def find_limit(share: float, total: int, unmanaged: int) -> float:
    """The share of the GPU for PyTorch's allocator."""
    return min(share + FREED_SHARE, 1.0) - max(unmanaged, 0) / total
