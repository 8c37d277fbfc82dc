"""One step of the n-gram ban for a whole batch as one kernel: what ngram.py's tensors say, in one launch.

Some twenty small operations a step cost the engine's only thread half a millisecond, of nine that a step has.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _step(
    rows, indices, told, own, newest, runs, need, reach, allowed, logits,
    vocabulary, width, ALLOWED: tl.constexpr, BLOCK: tl.constexpr,
    NONE: tl.constexpr, OWN: tl.constexpr, NEW: tl.constexpr,
):  # fmt: skip
    """One program a request."""
    request = tl.program_id(0)
    row = tl.load(rows + request)
    token = tl.load(told + request)
    token = tl.where(token == OWN, tl.load(own + row), token)
    distance = tl.arange(0, BLOCK)
    inside = distance < width
    here = newest + row * width + distance
    old = tl.load(here, mask=inside, other=NONE)
    before = tl.load(here - 1, mask=inside & (distance > 0), other=NONE)
    run = tl.load(runs + row * width + distance, mask=inside, other=0)
    tl.debug_barrier()  # every thread has read before any writes: a token moves into its neighbour's place
    if token == NEW:
        tl.store(here, tl.full((BLOCK,), NONE, tl.int64), mask=inside)
        tl.store(runs + row * width + distance, tl.zeros((BLOCK,), tl.int32), mask=inside)
        run = tl.zeros((BLOCK,), tl.int32)
    elif token != NONE:
        run = tl.where(old == token, run + 1, 0)
        old = tl.where(distance == 0, token, before)
        tl.store(here, old, mask=inside)
        tl.store(runs + row * width + distance, run, mask=inside)
    banned = inside & (run >= tl.load(need + request)) & (distance < tl.load(reach + request)) & (old >= 0)
    for index in tl.static_range(ALLOWED):
        banned = banned & (old != tl.load(allowed + request * ALLOWED + index))
    tl.store(logits + tl.load(indices + request) * vocabulary + old, float("-inf"), mask=banned)


def step(
    rows: torch.Tensor, indices: torch.Tensor, told: torch.Tensor, own: torch.Tensor, newest: torch.Tensor,
    runs: torch.Tensor, need: torch.Tensor, reach: torch.Tensor, allowed: torch.Tensor, logits: torch.Tensor,
    none: int, ours: int, new: int,
) -> None:  # fmt: skip
    """In place: `newest`, `runs` and `logits`; shapes as in ngram.py."""
    width = newest.shape[1]
    if width:
        _step[(len(rows),)](
            rows, indices, told, own, newest, runs, need, reach, allowed, logits, logits.stride(0), width,
            ALLOWED=allowed.shape[1], BLOCK=triton.next_power_of_2(width), NONE=none, OWN=ours, NEW=new,
        )  # fmt: skip
