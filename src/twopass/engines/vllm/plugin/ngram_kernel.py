"""One step of the n-gram ban for a whole batch as one Triton kernel; same result as `ngram_ban.step_with_torch`.

Some twenty small operations a step took half a millisecond of the engine's only thread; a step takes nine.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _step_kernel(
    rows, indices, new_tokens, argmax, newest, runs, min_run, max_distance, allowed, logits,
    vocabulary, width, ALLOWED: tl.constexpr, BLOCK: tl.constexpr,
    NO_TOKEN: tl.constexpr, LAST_ARGMAX: tl.constexpr, NEW_REQUEST: tl.constexpr,
):  # fmt: skip
    """One program for each request."""
    request = tl.program_id(0)
    row = tl.load(rows + request)
    token = tl.load(new_tokens + request)
    token = tl.where(token == LAST_ARGMAX, tl.load(argmax + row), token)
    distance = tl.arange(0, BLOCK)
    inside = distance < width
    target = newest + row * width + distance
    old = tl.load(target, mask=inside, other=NO_TOKEN)
    before = tl.load(target - 1, mask=inside & (distance > 0), other=NO_TOKEN)
    run = tl.load(runs + row * width + distance, mask=inside, other=0)
    tl.debug_barrier()  # all threads must read before any writes: each token moves into its neighbour's position
    if token == NEW_REQUEST:
        tl.store(target, tl.full((BLOCK,), NO_TOKEN, tl.int64), mask=inside)
        tl.store(runs + row * width + distance, tl.zeros((BLOCK,), tl.int32), mask=inside)
        run = tl.zeros((BLOCK,), tl.int32)
    elif token != NO_TOKEN:
        run = tl.where(old == token, run + 1, 0)
        old = tl.where(distance == 0, token, before)
        tl.store(target, old, mask=inside)
        tl.store(runs + row * width + distance, run, mask=inside)
    banned = inside & (run >= tl.load(min_run + request)) & (distance < tl.load(max_distance + request)) & (old >= 0)
    for index in tl.static_range(ALLOWED):
        banned = banned & (old != tl.load(allowed + request * ALLOWED + index))
    tl.store(logits + tl.load(indices + request) * vocabulary + old, float("-inf"), mask=banned)


def step(
    rows: torch.Tensor, indices: torch.Tensor, new_tokens: torch.Tensor, argmax: torch.Tensor, newest: torch.Tensor,
    runs: torch.Tensor, min_run: torch.Tensor, max_distance: torch.Tensor, allowed: torch.Tensor, logits: torch.Tensor,
    no_token: int, last_argmax: int, new_request: int,
) -> None:  # fmt: skip
    """Change `newest`, `runs` and `logits` in place; shapes as in ngram_ban.py."""
    width = newest.shape[1]
    if width:
        _step_kernel[(len(rows),)](
            rows, indices, new_tokens, argmax, newest, runs, min_run, max_distance, allowed, logits,
            logits.stride(0), width, ALLOWED=allowed.shape[1], BLOCK=triton.next_power_of_2(width),
            NO_TOKEN=no_token, LAST_ARGMAX=last_argmax, NEW_REQUEST=new_request,
        )  # fmt: skip
