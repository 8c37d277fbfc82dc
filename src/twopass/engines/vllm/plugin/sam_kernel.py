"""Attention with decomposed relative positions as one Triton kernel, from a layer's projected queries, keys and values.

A query's bias for a key depends only on their distance in rows and in columns, so `rel`, the query times two small
tables, holds all of it: no bias is written to memory. Windows are cut by addresses instead of copies. Where a window
reaches beyond the image, the official code pads with zeros before the projection, so key and value there are the
projection's bias; it is stored as one extra row after the last token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634
HEAD = 64  # channels of each of SAM's 12 heads
Tuning = tuple[int, int, int, int]  # queries of a program, rows of keys of an iteration, warps, stages


@triton.jit
def _attend_kernel(
    qkv, rel, out, tokens, rel_columns, height, width, windows_across,
    SIDE_H: tl.constexpr, SIDE_W: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr,
    QUERIES: tl.constexpr, ROWS: tl.constexpr, ROW: tl.constexpr, SCALE: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """One program handles QUERIES queries of one window of one head. ROW: SIDE_W rounded up to a power of two."""
    view = tl.program_id(2) // HEADS
    head = tl.program_id(2) % HEADS
    first = view * height * width
    window_y = tl.program_id(1) // windows_across * SIDE_H
    window_x = tl.program_id(1) % windows_across * SIDE_W
    qkv_width = 3 * HEADS * HEAD
    channel = tl.arange(0, HEAD)

    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    query_r = query // SIDE_W
    query_c = query % SIDE_W
    y = window_y + query_r
    x = window_x + query_c
    is_query = (query_r < SIDE_H) & (y < height) & (x < width)
    token = tl.where(is_query, first + y * width + x, 0)
    q = tl.load(qkv + token[:, None] * qkv_width + head * HEAD + channel[None, :])
    rel_row = rel + (head * tokens + token) * rel_columns

    key = tl.arange(0, ROWS * ROW)
    key_r = key // ROW
    key_c = key % ROW
    in_row = key_c < SIDE_W
    by_column = tl.load(
        rel_row[:, None] + 2 * SIDE_H - 1 + query_c[:, None] - key_c[None, :] + SIDE_W - 1,
        mask=in_row[None, :], other=0.0,
    ).to(tl.float32)  # fmt: skip

    max_score = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    result = tl.zeros((QUERIES, HEAD), tl.float32)
    for row in range(0, SIDE_H, ROWS):
        r = row + key_r
        in_window = in_row & (r < SIDE_H)
        in_view = in_window & (window_y + r < height) & (window_x + key_c < width)
        key_token = tl.where(in_view, first + (window_y + r) * width + window_x + key_c, tokens)
        k = tl.load(qkv + key_token[:, None] * qkv_width + (HEADS + head) * HEAD + channel[None, :])
        v = tl.load(qkv + key_token[:, None] * qkv_width + (2 * HEADS + head) * HEAD + channel[None, :])
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * SCALE
        if ROWS == 1:
            by_row = tl.load(rel_row + query_r - row + SIDE_H - 1, mask=is_query, other=0.0).to(tl.float32)[:, None]
        else:
            by_row = tl.load(
                rel_row[:, None] + query_r[:, None] - r[None, :] + SIDE_H - 1,
                mask=is_query[:, None] & in_window[None, :], other=0.0,
            ).to(tl.float32)  # fmt: skip
        score = (score + by_column + by_row) * LOG2E
        if SIDE_W != ROW or SIDE_H % ROWS != 0:
            score = tl.where(in_window[None, :], score, float("-inf"))
        new_max = tl.maximum(max_score, tl.max(score, 1))
        rescale = tl.exp2(max_score - new_max)
        weight = tl.exp2(score - new_max[:, None])
        total = total * rescale + tl.sum(weight, 1)
        result = tl.dot(weight.to(v.dtype), v, result * rescale[:, None], input_precision="ieee")
        max_score = new_max
    result = result / total[:, None]
    target = out + token[:, None] * (HEADS * HEAD) + head * HEAD + channel[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=is_query[:, None])


def attend(
    qkv: torch.Tensor, rel: torch.Tensor, views: int, grid: tuple[int, int], side: tuple[int, int], tuning: Tuning
) -> torch.Tensor:
    """tokens × channels, from `qkv` (tokens + 1 × 3 · channels, the last row the bias) and `rel` (heads × tokens × …).

    `grid` is a view's height and width in tokens, `side` a window's; they are equal if there are no windows.
    """
    queries, rows, warps, stages = tuning
    tokens, channels = qkv.shape[0] - 1, qkv.shape[1] // 3
    heads, (height, width), (side_h, side_w) = channels // HEAD, grid, side
    windows_across, windows_down = triton.cdiv(width, side_w), triton.cdiv(height, side_h)
    out = qkv.new_empty(tokens, channels)
    _attend_kernel[(triton.cdiv(side_h * side_w, queries), windows_across * windows_down, views * heads)](
        qkv, rel, out, tokens, rel.shape[-1], height, width, windows_across,
        SIDE_H=side_h, SIDE_W=side_w, HEADS=heads, HEAD=HEAD, QUERIES=queries, ROWS=rows,
        ROW=max(triton.next_power_of_2(side_w), 16), SCALE=HEAD**-0.5, LOG2E=LOG2E,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
