"""Print as JSON the relative difference between our CLIP and vLLM's own on the same weights, by side in patches.

It is a separate process for the same reason as compare_sam.py.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from transformers import CLIPVisionConfig
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.models.deepencoder import DeepCLIPVisionTransformer

from twopass.engines.vllm.plugin.clip import Clip

CHANNELS = 64
SIDES = (16, 10)  # of the position table, which is interpolated to another
VIEWS = 2


def main() -> None:
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{Path(folder) / 'group'}", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
        stock = _build_stock()
        with torch.inference_mode():
            print(json.dumps({side: _relative_difference(stock, side) for side in SIDES}))


def _build_stock() -> DeepCLIPVisionTransformer:
    config = CLIPVisionConfig(
        hidden_size=CHANNELS, intermediate_size=2 * CHANNELS, num_hidden_layers=2, num_attention_heads=2,
        image_size=224, patch_size=14, hidden_act="quick_gelu",
    )  # fmt: skip
    stock = DeepCLIPVisionTransformer(config)
    for weight in stock.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    stock.to("cpu", torch.float32)
    for module in stock.modules():
        if method := getattr(module, "quant_method", None):
            method.process_weights_after_loading(module)
    return stock


def _relative_difference(stock: DeepCLIPVisionTransformer, side: int) -> float:
    pixels, patches = torch.randn(VIEWS, 3, side * 64, side * 64), torch.randn(VIEWS, CHANNELS, side, side)
    ours, theirs = Clip(stock).forward_batched(pixels, patches), stock(pixels, patches)
    return float((ours - theirs).norm() / theirs.norm()) if ours.shape == theirs.shape else 1.0


if __name__ == "__main__":
    main()
