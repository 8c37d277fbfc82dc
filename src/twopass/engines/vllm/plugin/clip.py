"""CLIP's features for a batch of views, with vLLM's own layers and weights.

On a GPU, each residual addition and the normalisation after it are one kernel (layer_norm.py).
"""

from __future__ import annotations

from typing import Any

import torch


class Clip:
    """Wraps one model's CLIP; not an nn.Module, so that the weights keep their names."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __call__(self, pixels: torch.Tensor, patches: torch.Tensor) -> torch.Tensor:
        """Views × 1 + cells × channels, from SAM's features: views × channels × rows × columns."""
        return self.forward_batched(pixels, patches) if pixels.is_cuda else self._stock(pixels, patches)

    def forward_batched(self, pixels: torch.Tensor, patches: torch.Tensor) -> torch.Tensor:
        from twopass.engines.vllm.plugin import layer_norm  # here, because Triton is needed only on a GPU

        x = self._stock.pre_layrnorm(self._stock.embeddings(pixels, patches))
        delta, layers = None, self._stock.transformer.layers
        for layer in layers:
            x, normed = layer_norm.add_and_normalise(x, delta, layer.layer_norm1)
            delta = layer.self_attn(normed)[0]
            x, normed = layer_norm.add_and_normalise(x, delta, layer.layer_norm2)
            delta = layer.mlp(normed)
        return x + delta
