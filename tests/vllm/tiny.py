"""Write tiny checkpoint folders of DeepSeek-OCR and Unlimited-OCR without weights: only configuration and tokenizer.

The vision encoder's size is not in them (see short_encoders); the language model has two small layers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

VOCABULARY = 129_280
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
FIRST_ADDED = 128_815
FIRST_PHRASE = 2_000
ADDED = (
    "<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<td>", "</td>", "<tr>", "</tr>",
)  # fmt: skip
HIDDEN = 256
# What vLLM chooses for Unlimited-OCR runs on GPUs only.
CPU_ENCODER_ATTENTION = "TORCH_SDPA"
# The worker runs inside the core, as on one GPU. On CPUs vLLM starts a process for it, unless told by the whole name.
SINGLE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


def write_checkpoint(folder: Path, architecture: str = "DeepseekOCRForCausalLM", phrases: Sequence[str] = ()) -> Path:
    """Write a folder that vLLM loads with load_format dummy; every phrase is one token, from FIRST_PHRASE on."""
    folder.mkdir(parents=True, exist_ok=True)
    _build_tokenizer(phrases).save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", _tokenizer_config())
    _write(folder / "config.json", _config(architecture))
    _write(folder / "processor_config.json", _processor_config())
    return folder


def _write(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1))


def _build_tokenizer(phrases: Sequence[str]) -> Tokenizer:
    """One token for each byte, special tokens at DeepSeek-OCR's ids, and unused words up to its vocabulary size."""
    known = {BOS: 0, EOS: 1, PAD: 2}
    known |= {letter: 3 + index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    known |= {token: FIRST_ADDED + index for index, token in enumerate(ADDED)}
    known |= {phrase: FIRST_PHRASE + index for index, phrase in enumerate(phrases)}
    taken = set(known.values())
    known |= {f"w{index}": index for index in range(VOCABULARY) if index not in taken}
    tokenizer = Tokenizer(BPE(vocab=known, merges=[], fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (BOS, EOS, PAD)])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in (*ADDED, *phrases)])
    return tokenizer


def _tokenizer_config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": 8192,
        "clean_up_tokenization_spaces": False,
    }


def _config(architecture: str) -> dict[str, object]:
    language = {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "torch_dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": 1, "vocab_size": VOCABULARY, "max_position_embeddings": 8192,
        "hidden_size": HIDDEN, "intermediate_size": 512, "moe_intermediate_size": 128, "num_hidden_layers": 2,
        "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2,
        "n_group": 1, "topk_group": 1, "topk_method": "greedy", "num_attention_heads": 2, "num_key_value_heads": 2,
        "use_mla": False, "kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0,
        "v_head_dim": 0, "lm_head": True, "rm_head": False,
    }  # fmt: skip
    return {
        "architectures": [architecture],
        "model_type": "unlimited-ocr" if architecture.startswith("Unlimited") else "deepseek_vl_v2",
        "torch_dtype": "bfloat16",
        "candidate_resolutions": [[1024, 1024]],
        "global_view_pos": "head",
        "tile_tag": "2D",
        "language_config": language,
        "projector_config": {
            "input_dim": 2048, "model_type": "mlp_projector", "n_embed": HIDDEN, "projector_type": "linear",
        },
        "vision_config": {
            "image_size": 1024, "mlp_ratio": 3.7362, "model_name": "deeplip_b_l", "model_type": "vision", "width": 1024,
        },
    }  # fmt: skip


def _processor_config() -> dict[str, object]:
    return {
        "processor_class": "DeepseekVLV2Processor", "image_token": "<image>", "pad_token": PAD,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "normalize": True, "patch_size": 16,
        "downsample_ratio": 4, "ignore_id": -100, "mask_prompt": False, "sft_format": "deepseek",
        "add_special_token": False, "candidate_resolutions": [[1024, 1024]],
    }  # fmt: skip
