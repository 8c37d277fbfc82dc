"""Print as JSON the relative difference between our SAM and vLLM's own on the same weights, by side in patches.

It is a separate process because without a GPU the kernel is interpreted, and Triton reads TRITON_INTERPRET=1 when it is
imported.
"""

from __future__ import annotations

import json
from functools import partial

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.models.deepencoder import ImageEncoderViT

from twopass.engines.vllm.plugin.sam import Sam

PATCH = 16
TRAINED_SIDE = 20  # patches a side that the model's position tables are made for
SIDES = (TRAINED_SIDE, 16, 14)  # tables as they are and interpolated; windows that fit and that overlap the edge


def main() -> None:
    torch.manual_seed(1)
    with set_current_vllm_config(VllmConfig()):
        stock = ImageEncoderViT(
            img_size=TRAINED_SIDE * PATCH, embed_dim=128, depth=2, num_heads=2, use_rel_pos=True, window_size=14,
            global_attn_indexes=(1,), norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
        )  # fmt: skip
    for weight in stock.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    stock.to("cuda" if torch.cuda.is_available() else "cpu", torch.float32)
    with torch.inference_mode():
        print(json.dumps({side: _relative_difference(stock, side) for side in SIDES}))


def _relative_difference(stock: ImageEncoderViT, side: int) -> float:
    pixels = torch.randn(2, 3, side * PATCH, side * PATCH).to(stock.pos_embed.device)
    ours, theirs = Sam(stock).forward_batched(pixels), stock(pixels)
    return float((ours - theirs).norm() / theirs.norm()) if ours.shape == theirs.shape else 1.0


if __name__ == "__main__":
    main()
