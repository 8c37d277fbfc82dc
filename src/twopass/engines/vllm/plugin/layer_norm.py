"""A residual addition and the layer normalisation after it, as one Triton kernel: PyTorch's two read the sum again."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

WARPS = 4


@triton.jit
def _add_and_normalise_kernel(
    x, delta, weight, bias, total, normed, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program handles one row. The sum is rounded as PyTorch does before it is normalised, in float32."""
    start = tl.program_id(0).to(tl.int64) * CHANNELS
    channel = tl.arange(0, BLOCK)
    in_row = channel < CHANNELS
    row = tl.load(x + start + channel, mask=in_row, other=0.0).to(tl.float32)
    row += tl.load(delta + start + channel, mask=in_row, other=0.0).to(tl.float32)
    rounded = row.to(total.dtype.element_ty)
    tl.store(total + start + channel, rounded, mask=in_row)

    row = rounded.to(tl.float32)
    centred = tl.where(in_row, row - tl.sum(row, 0) / CHANNELS, 0.0)
    variance = tl.sum(centred * centred, 0) / CHANNELS
    scale = tl.load(weight + channel, mask=in_row, other=0.0).to(tl.float32)
    shift = tl.load(bias + channel, mask=in_row, other=0.0).to(tl.float32)
    result = centred / tl.sqrt(variance + eps) * scale + shift
    tl.store(normed + start + channel, result.to(normed.dtype.element_ty), mask=in_row)


def add_and_normalise(x: torch.Tensor, delta: torch.Tensor | None, norm: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """`x + delta`, and its normalisation by an `nn.LayerNorm` over the last dimension; both inputs are contiguous.

    Without `delta`, `x` and its normalisation.
    """
    if delta is None:
        return x, norm(x)
    total, normed = torch.empty_like(x), torch.empty_like(x)
    channels = x.shape[-1]
    _add_and_normalise_kernel[(x.numel() // channels,)](
        x, delta, norm.weight, norm.bias, total, normed, norm.eps,
        CHANNELS=channels, BLOCK=triton.next_power_of_2(channels), num_warps=WARPS,
    )  # fmt: skip
    return total, normed
