"""Write small GLM-OCR and PaddleOCR-VL with random weights, for both Transformers and vLLM."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import transformers

from scripts.bench import families

SEED = 7


def write_checkpoint(folder: Path, name: str) -> Path:
    """Write a folder as on the hub: configuration, tokenizer, image processor and weights."""
    families.WRITERS[name](folder, **families.TINY[name])
    torch.manual_seed(SEED)
    model = transformers.AutoModelForImageTextToText.from_config(transformers.AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_draw_weight(name, weight))
    config = (folder / "config.json").read_bytes()
    model.save_pretrained(folder)  # the hub's names of weights, but Transformers' own config.json
    (folder / "config.json").write_bytes(config)
    return folder


def _draw_weight(name: str, weight: Any) -> Any:
    """Draw weights large enough that every part affects the answer; embeddings are small, or the last token repeats."""
    noise = torch.randn_like(weight)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * noise
    if weight.dim() < 2:
        return 0.1 * noise
    return noise * (0.05 if "embed_tokens" in name else 0.5 if "position" in name else 1 / math.sqrt(weight[0].numel()))
