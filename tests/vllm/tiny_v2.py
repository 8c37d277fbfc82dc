"""DeepSeek-OCR-2 with random weights, written once in the hub's layout for Transformers and for vLLM.

Transformers' native class knows the hub's names: reading, it renames them (`conversion_mapping`, deepseek_ocr2),
and writing, it renames them back. So `save_pretrained` of the native class writes what vLLM reads:

| native                                        | hub and vLLM                                      |
|-----------------------------------------------|---------------------------------------------------|
| model.vision_tower.sam_encoder.layers.N.…     | model.sam_model.blocks.N.…                        |
| model.vision_tower.sam_encoder.neck, .proj    | model.sam_model.neck.0–3, net_2, net_3            |
| model.vision_tower.vision_encoder.layers.N.…  | model.qwen2_model.model.model.layers.N.…          |
| model.vision_tower.query_768_resolution       | model.qwen2_model.query_768                       |
| model.multi_modal_projector                   | model.projector.layers                            |
| model.view_separator                          | model.view_seperator                              |
| model.language_model.…                        | model.…                                           |
| mlp.experts.gate_up_proj (one tensor)         | mlp.experts.N.gate_proj, mlp.experts.N.up_proj    |

The vision part has its full size, which vLLM has written into its code: 450 million weights. The language
model has two small layers.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from transformers import DeepseekOcr2ForConditionalGeneration

from tests.vllm import tiny
from twopass.engines.hf import models

SEED = 7
FEATURES = 896  # what the vision encoder hands on


def checkpoint(folder: Path) -> Path:
    """A folder as the hub has it: configuration, tokenizer and weights."""
    tiny.checkpoint(folder, "DeepseekOCR2ForCausalLM")
    config = json.loads((folder / "config.json").read_text())
    config["projector_config"]["input_dim"] = FEATURES
    (folder / "config.json").write_text(json.dumps(config))
    return _with_weights(folder)


def _with_weights(folder: Path) -> Path:
    model = DeepseekOcr2ForConditionalGeneration(models.native_config(folder))
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_drawn(name, weight))
    config = (folder / "config.json").read_bytes()
    model.save_pretrained(folder)  # hub names; its config.json is Transformers' own
    (folder / "config.json").write_bytes(config)
    return folder


def _drawn(name: str, weight: Any) -> Any:
    """Weights of a size that keeps every part of the model talking: Transformers' own start leaves SAM at nothing."""
    noise = torch.randn_like(weight)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * noise
    if weight.dim() < 2:
        return 0.1 * noise
    if "embed" in name or "query" in name or "pos" in name:
        return 0.5 * noise
    return noise / math.sqrt(weight[0].numel() if "experts" not in name else weight.shape[-1])
