"""Views of one size in, SAM's features of all of them out: vLLM's own layers and weights, computed together.

The stock layers write every head's bias to memory and cut windows by copying. On a GPU the attention is
one kernel (sam_kernel.py) over what the projection made, positional tables are stretched once for each size
and nothing waits for the GPU; elsewhere the stock layers run.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from vllm.model_executor.models.deepencoder import get_rel_pos

TUNINGS = {64: (64, 1, 4, 3), 14: (128, 2, 4, 3)}  # by the window's side: the fastest of 16 on an H200
TUNING = (128, 1, 4, 3)
ALIGNED = 8  # columns of a table: what the matrix units take


class Sam:
    """One model's SAM; no module, so that weights keep their names."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock
        self._positions: dict[int, torch.Tensor] = {}
        self._tables: dict[tuple[int, int], torch.Tensor] = {}

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """pictures × 3 × side × side to pictures × channels × side / 64 × side / 64."""
        return self.together(pixels) if pixels.is_cuda else self._stock(pixels)

    def together(self, pixels: torch.Tensor) -> torch.Tensor:
        stock = self._stock
        x = stock.patch_embed(pixels)
        pictures, high, wide, channels = x.shape
        x = (x + self._position(high)).reshape(-1, channels)
        for index, block in enumerate(stock.blocks):
            x = x + self._attention(index, block, block.norm1(x), pictures, (high, wide))
            x = x + block.mlp(block.norm2(x))
        x = stock.neck(x.view(pictures, high, wide, channels).permute(0, 3, 1, 2))
        return stock.net_3(stock.net_2(x))

    def _attention(self, index: int, block: Any, x: torch.Tensor, pictures: int, grid: tuple[int, int]) -> torch.Tensor:
        from twopass.engines.vllm.plugin import sam_kernel  # needs a GPU's compiler

        side = (block.window_size, block.window_size) if block.window_size else grid
        layer = block.attn
        qkv = x.new_empty(len(x) + 1, layer.qkv.out_features)
        torch.addmm(layer.qkv.bias, x, layer.qkv.weight.t(), out=qkv[:-1])
        qkv[-1] = layer.qkv.bias
        rel = distances(qkv, self._table(index, layer, side[0]), layer.num_heads)
        tuning = TUNINGS.get(side[0], TUNING)
        return layer.proj(sam_kernel.attended(qkv, rel, pictures, grid, side, tuning))

    def _position(self, side: int) -> torch.Tensor:
        if side not in self._positions:
            self._positions[side] = self._stock.get_abs_pos(self._stock.pos_embed, side)
        return self._positions[side]

    def _table(self, index: int, layer: Any, side: int) -> torch.Tensor:
        if (index, side) not in self._tables:
            self._tables[index, side] = table(layer, side)
        return self._tables[index, side]


def table(layer: Any, side: int) -> torch.Tensor:
    """Channels × distances: rows apart from 1 - side to side - 1, columns likewise, zeros up to a multiple of 8."""
    parts = [_stretched(part, side) for part in (layer.rel_pos_h, layer.rel_pos_w)]
    both = torch.cat(parts)
    return F.pad(both, (0, 0, 0, -len(both) % ALIGNED)).t().contiguous()


def _stretched(rel_pos: torch.Tensor, side: int) -> torch.Tensor:
    """Distances × channels, as the stock code stretches them; it hands them out by pairs of places."""
    by_place = get_rel_pos(side, side, rel_pos)
    return torch.cat((by_place[0].flip(0), by_place[1:, 0]))


def distances(qkv: torch.Tensor, table: torch.Tensor, heads: int) -> torch.Tensor:
    """Heads × tokens × distances: every query times the table."""
    channels = table.shape[0]
    queries = qkv[:-1, : heads * channels].view(-1, heads, channels).transpose(0, 1)
    return torch.bmm(queries, table.expand(heads, *table.shape))
