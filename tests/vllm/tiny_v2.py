"""Write DeepSeek-OCR-2 with random weights in the hub's layout, for both Transformers and vLLM.

Transformers' native class converts the hub's weight names when it loads (`conversion_mapping`, deepseek_ocr2), and
converts them back when it saves. So `save_pretrained` of the native class writes what vLLM reads:

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

The vision encoder has two layers of each kind (short_encoders), and the language model two small ones.
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
REPETITION = 0.04  # of a token's embedding is in its own row of the head, so that answers soon repeat tokens
FEATURES = 896  # channels of the vision encoder's output


def write_checkpoint(folder: Path) -> Path:
    """Write a folder as on the hub: configuration, tokenizer and weights."""
    tiny.write_checkpoint(folder, "DeepseekOCR2ForCausalLM")
    config = json.loads((folder / "config.json").read_text())
    config["projector_config"]["input_dim"] = FEATURES
    (folder / "config.json").write_text(json.dumps(config))
    _write_weights(folder)
    return folder


def _write_weights(folder: Path) -> None:
    model = DeepseekOcr2ForConditionalGeneration(models.build_config(folder))
    torch.manual_seed(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_draw_weight(name, weight))
        model.get_output_embeddings().weight.add_(model.get_input_embeddings().weight, alpha=REPETITION)
    config = (folder / "config.json").read_bytes()
    model.save_pretrained(folder)  # hub names, but Transformers' own config.json
    (folder / "config.json").write_bytes(config)


def _draw_weight(name: str, weight: Any) -> Any:
    """Draw weights large enough that every part affects the output; Transformers' initialisation leaves SAM at zero."""
    noise = torch.randn_like(weight)
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.1 * noise
    if weight.dim() < 2:
        return 0.1 * noise
    if "embed" in name or "query" in name or "pos" in name:
        return 0.5 * noise
    return noise / math.sqrt(weight[0].numel() if "experts" not in name else weight.shape[-1])
