"""A Triton kernel with everything that a variant can contain: types, a function, a constant and alignments."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def double(x):
    return x * 2


@triton.jit
def scale(source, target, count, stride, SIZE: tl.constexpr, KIND: tl.constexpr, FUNCTION: tl.constexpr):
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    values = tl.load(source + place, mask=place < count).to(KIND)
    tl.store(target + place * stride, FUNCTION(values), mask=place < count)
