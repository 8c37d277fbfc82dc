"""Attention with decomposed relative positions as one kernel: a layer's query, key and value in, its heads out.

A query's bias for a key depends on how many rows and how many columns they are apart: two small tables times
the query, `rel`, hold all of it. So no bias is written to memory, windows are cut by addresses instead of
copies, and what a window has beyond the picture's edge is one row behind the last token, as the official
code pads with zeros before the projection: its key and value are the projection's bias.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
HEAD = 64  # of SAM's 12 heads
Tuning = tuple[int, int, int, int]  # queries a program, rows of keys a turn, warps, stages


@triton.jit
def _attended(
    qkv, rel, out, tokens, columns, high, wide, across,
    SIDE_H: tl.constexpr, SIDE_W: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr,
    QUERIES: tl.constexpr, ROWS: tl.constexpr, ROW: tl.constexpr, SCALE: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """One program for some queries of one window of one head. ROW: SIDE_W rounded up to a power of two."""
    picture = tl.program_id(2) // HEADS
    head = tl.program_id(2) % HEADS
    first = picture * high * wide
    window_y = tl.program_id(1) // across * SIDE_H
    window_x = tl.program_id(1) % across * SIDE_W
    width = 3 * HEADS * HEAD
    channel = tl.arange(0, HEAD)

    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    query_r = query // SIDE_W
    query_c = query % SIDE_W
    y = window_y + query_r
    x = window_x + query_c
    real = (query_r < SIDE_H) & (y < high) & (x < wide)
    token = tl.where(real, first + y * wide + x, 0)
    q = tl.load(qkv + token[:, None] * width + head * HEAD + channel[None, :])
    near = rel + (head * tokens + token) * columns

    key = tl.arange(0, ROWS * ROW)
    key_r = key // ROW
    key_c = key % ROW
    in_row = key_c < SIDE_W
    by_column = tl.load(
        near[:, None] + 2 * SIDE_H - 1 + query_c[:, None] - key_c[None, :] + SIDE_W - 1, mask=in_row[None, :], other=0.0
    ).to(tl.float32)

    most = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    answer = tl.zeros((QUERIES, HEAD), tl.float32)
    for row in range(0, SIDE_H, ROWS):
        r = row + key_r
        inside = in_row & (r < SIDE_H)
        here = inside & (window_y + r < high) & (window_x + key_c < wide)
        at = tl.where(here, first + (window_y + r) * wide + window_x + key_c, tokens)
        k = tl.load(qkv + at[:, None] * width + (HEADS + head) * HEAD + channel[None, :])
        v = tl.load(qkv + at[:, None] * width + (2 * HEADS + head) * HEAD + channel[None, :])
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
        if ROWS == 1:
            by_row = tl.load(near + query_r - row + SIDE_H - 1, mask=real, other=0.0).to(tl.float32)[:, None]
        else:
            by_row = tl.load(
                near[:, None] + query_r[:, None] - r[None, :] + SIDE_H - 1, mask=real[:, None] & inside[None, :],
                other=0.0,
            ).to(tl.float32)  # fmt: skip
        score = (score + by_column + by_row) * LOG2E
        if SIDE_W != ROW or SIDE_H % ROWS != 0:
            score = tl.where(inside[None, :], score, float("-inf"))
        now = tl.maximum(most, tl.max(score, 1))
        shrunk = tl.exp2(most - now)
        weight = tl.exp2(score - now[:, None])
        total = total * shrunk + tl.sum(weight, 1)
        answer = tl.dot(weight.to(v.dtype), v, answer * shrunk[:, None], input_precision="ieee")
        most = now
    answer = answer / total[:, None]
    to = out + token[:, None] * (HEADS * HEAD) + head * HEAD + channel[None, :]
    tl.store(to, answer.to(out.dtype.element_ty), mask=real[:, None])


def attended(
    qkv: torch.Tensor, rel: torch.Tensor, pictures: int, grid: tuple[int, int], side: tuple[int, int], tuning: Tuning
) -> torch.Tensor:
    """tokens × channels, from `qkv` (tokens + 1 × 3 · channels, the last row the bias) and `rel` (heads × tokens × …).

    `grid` is a picture's height and width in tokens, `side` a window's; equal where there are no windows.
    """
    queries, rows, warps, stages = tuning
    tokens, channels = qkv.shape[0] - 1, qkv.shape[1] // 3
    heads, (high, wide), (side_h, side_w) = channels // HEAD, grid, side
    across, down = triton.cdiv(wide, side_w), triton.cdiv(high, side_h)
    out = qkv.new_empty(tokens, channels)
    _attended[(triton.cdiv(side_h * side_w, queries), across * down, pictures * heads)](
        qkv, rel, out, tokens, rel.shape[-1], high, wide, across,
        SIDE_H=side_h, SIDE_W=side_w, HEADS=heads, HEAD=HEAD, QUERIES=queries, ROWS=rows,
        ROW=max(triton.next_power_of_2(side_w), 16), SCALE=HEAD**-0.5, LOG2E=LOG2E,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
