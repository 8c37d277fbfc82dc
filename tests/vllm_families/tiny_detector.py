"""Write a small PP-DocLayoutV3 with random weights, whose scores are on both sides of the threshold."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

QUERIES = 60
SMALL = {
    "arch": "S",
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 16, 16, 32],
    "stage_mid_channels": [8, 8, 8, 16],
    "stage_out_channels": [16, 16, 32, 64],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "hidden_sizes": [16, 16, 32, 64],
    "embedding_size": 8,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
    "return_idx": [0, 1, 2, 3],
}


def write_checkpoint(folder: Path) -> Path:
    torch.manual_seed(1)
    config = PPDocLayoutV3Config(
        backbone_config={"model_type": "hgnet_v2", **SMALL},
        encoder_in_channels=[16, 32, 64],
        num_labels=25,
        num_queries=QUERIES,
        d_model=32,
        encoder_hidden_dim=32,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        decoder_in_channels=[32, 32, 32],
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        decoder_layers=2,
        x4_feat_dim=16,
        mask_feature_channels=[16, 16],
    )
    detector = PPDocLayoutV3ForObjectDetection(config)
    with torch.no_grad():
        for weight in detector.parameters():
            weight.normal_(0, 0.2)
    detector.save_pretrained(folder)
    return folder
