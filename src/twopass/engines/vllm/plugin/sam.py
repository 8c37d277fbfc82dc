"""SAM's features for a batch of views of one size, with vLLM's own layers and weights.

The stock layers write every head's position bias to memory and cut windows by copying. On a GPU, attention here is
one kernel (sam_kernel.py) over the output of the projection, position tables are interpolated once for each size,
and nothing waits for the GPU. Without a GPU the stock layers run.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from vllm.model_executor.models.deepencoder import get_rel_pos

TUNINGS = {64: (64, 1, 4, 3), 14: (128, 2, 4, 3)}  # by the window's side: the fastest of 16 on an H200
DEFAULT_TUNING = (128, 1, 4, 3)
ALIGNMENT = 8  # the matrix units need a multiple of this many columns in a table


class Sam:
    """Wraps one model's SAM; not an nn.Module, so that the weights keep their names."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock
        self._absolute_positions: dict[int, torch.Tensor] = {}
        self._tables: dict[tuple[int, int], torch.Tensor] = {}

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """views × 3 × side × side to views × channels × side / 64 × side / 64."""
        return self.forward_batched(pixels) if pixels.is_cuda else self._stock(pixels)

    def forward_batched(self, pixels: torch.Tensor) -> torch.Tensor:
        from twopass.engines.vllm.plugin import layer_norm  # here, because Triton is needed only on a GPU

        stock = self._stock
        x = stock.patch_embed(pixels)
        views, height, width, channels = x.shape
        # One view's channels may be strided: an image's convolution puts them first.
        x, delta = (x + self._absolute_position(height)).reshape(-1, channels).contiguous(), None
        for index, block in enumerate(stock.blocks):
            x, normed = layer_norm.add_and_normalise(x, delta, block.norm1)
            delta = self._attend(index, block, normed, views, (height, width))
            x, normed = layer_norm.add_and_normalise(x, delta, block.norm2)
            delta = compute_mlp(block.mlp, normed)
        x = (x + delta).view(views, height, width, channels).permute(0, 3, 1, 2)
        first, first_norm, second, second_norm = stock.neck
        x = normalise_channels(first_norm, first(x))
        x = normalise_channels(second_norm, second(x))
        return stock.net_3(stock.net_2(x))

    def _attend(self, index: int, block: Any, x: torch.Tensor, views: int, grid: tuple[int, int]) -> torch.Tensor:
        from twopass.engines.vllm.plugin import sam_kernel  # here, because Triton is needed only on a GPU

        side = (block.window_size, block.window_size) if block.window_size else grid
        layer = block.attn
        qkv = x.new_empty(len(x) + 1, layer.qkv.out_features)
        torch.addmm(layer.qkv.bias, x, layer.qkv.weight.t(), out=qkv[:-1])
        qkv[-1] = layer.qkv.bias
        rel = compute_position_scores(qkv, self._position_table(index, layer, side[0]), layer.num_heads)
        tuning = TUNINGS.get(side[0], DEFAULT_TUNING)
        return layer.proj(sam_kernel.attend(qkv, rel, views, grid, side, tuning))

    def _absolute_position(self, side: int) -> torch.Tensor:
        if side not in self._absolute_positions:
            self._absolute_positions[side] = self._stock.get_abs_pos(self._stock.pos_embed, side)
        return self._absolute_positions[side]

    def _position_table(self, index: int, layer: Any, side: int) -> torch.Tensor:
        if (index, side) not in self._tables:
            self._tables[index, side] = build_position_table(layer, side)
        return self._tables[index, side]


def compute_mlp(mlp: Any, x: torch.Tensor) -> torch.Tensor:
    """The block's two layers. On a GPU, the matrix product of the first ends with GELU, as its tanh approximation.

    It differs from the exact one by less than 0.0005, and saves writing and reading the largest tensor of a block.
    """
    return mlp.lin2(torch._addmm_activation(mlp.lin1.bias, x, mlp.lin1.weight.t(), use_gelu=True))


def normalise_channels(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """The stock normalisation over the channels of views × channels × rows × columns, as one kernel instead of nine."""
    rows = F.layer_norm(x.permute(0, 2, 3, 1), norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return rows.permute(0, 3, 1, 2)


def build_position_table(layer: Any, side: int) -> torch.Tensor:
    """Channels × distances: row distances from 1 - side to side - 1, then column distances, zero-padded to 8."""
    parts = [_interpolate(part, side) for part in (layer.rel_pos_h, layer.rel_pos_w)]
    both = torch.cat(parts)
    return F.pad(both, (0, 0, 0, -len(both) % ALIGNMENT)).t().contiguous()


def _interpolate(rel_pos: torch.Tensor, side: int) -> torch.Tensor:
    """Distances × channels, interpolated by the stock code, which returns them for each pair of positions."""
    by_pair = get_rel_pos(side, side, rel_pos)
    return torch.cat((by_pair[0].flip(0), by_pair[1:, 0]))


def compute_position_scores(qkv: torch.Tensor, table: torch.Tensor, heads: int) -> torch.Tensor:
    """Heads × tokens × distances: every query times the table."""
    channels = table.shape[0]
    queries = qkv[:-1, : heads * channels].view(-1, heads, channels).transpose(0, 1)
    return torch.bmm(queries, table.expand(heads, *table.shape))
