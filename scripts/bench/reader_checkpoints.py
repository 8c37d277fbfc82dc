"""Write checkpoint folders without weights: configuration, tokenizer and, for readers, image processor.

The configurations are those that the models were published with; tests make them smaller. The readers' tokenizers have
one token for each byte, the special tokens at their published ids, and unused words up to the published size. Models
that read pages have the shapes of DeepSeek-OCR, and are made from a folder of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

GLM_TOKENS = {
    "<|endoftext|>": 59246, "[gMASK]": 59248, "<sop>": 59250, "<|system|>": 59252, "<|user|>": 59253,
    "<|assistant|>": 59254, "<|begin_of_image|>": 59256, "<|end_of_image|>": 59257, "<|begin_of_video|>": 59258,
    "<|end_of_video|>": 59259, "<|image|>": 59280, "<|video|>": 59281,
}  # fmt: skip
PADDLE_TOKENS = {
    "<unk>": 0, "<s>": 1, "</s>": 2, "<|begin_of_sentence|>": 100273, "<|IMAGE_PLACEHOLDER|>": 100295,
    "<|video_pad|>": 100296, "<|IMAGE_START|>": 101305, "<|IMAGE_END|>": 101306,
}  # fmt: skip
GLM_CHAT = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message.role }}|>\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% else %}<|begin_of_image|><|image|><|end_of_image|>{% endif %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
PADDLE_CHAT = (
    "<|begin_of_sentence|>{% for message in messages %}User: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type != 'text' %}"
    "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{% endif %}{% endfor %}"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]

Fields = Mapping[str, Any]


def write_glm_ocr(folder: Path, text: Fields | None = None, vision: Fields | None = None) -> Path:
    """zai-org/GLM-OCR; `text` and `vision` are fields that differ from the published ones."""
    config = {
        "architectures": ["GlmOcrForConditionalGeneration"], "model_type": "glm_ocr", "dtype": "bfloat16",
        "image_start_token_id": 59256, "image_end_token_id": 59257, "image_token_id": 59280,
        "video_start_token_id": 59258, "video_end_token_id": 59259, "video_token_id": 59281,
        "text_config": {
            "model_type": "glm_ocr_text", "pad_token_id": 59246, "eos_token_id": [59246, 59253], "vocab_size": 59392,
            "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1536,
            "intermediate_size": 4608, "max_position_embeddings": 131072, "num_attention_heads": 16,
            "num_hidden_layers": 16, "num_nextn_predict_layers": 1, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
            "dtype": "bfloat16", "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": [16, 24, 24], "partial_rotary_factor": 1.0,
                "rope_theta": 10000,
            },
            **(text or {}),
        },
        "vision_config": {
            "model_type": "glm_ocr_vision", "hidden_size": 1024, "depth": 24, "num_heads": 16, "attention_bias": True,
            "intermediate_size": 4096, "hidden_act": "silu", "image_size": 336, "patch_size": 14,
            "out_hidden_size": 1536, "rms_norm_eps": 1e-5, "spatial_merge_size": 2, "temporal_patch_size": 2,
            **(vision or {}),
        },
    }  # fmt: skip
    limits = {"shortest_edge": 12_544, "longest_edge": 9_633_792}
    image = _image_processor("Glm46V", limits, CLIP_MEAN, CLIP_STD, temporal_patch_size=2)
    _write_files(folder, config, image, GLM_CHAT)
    video = {**image, "video_processor_type": "Glm46VVideoProcessor"}
    _write(folder / "video_preprocessor_config.json", {k: v for k, v in video.items() if k != "image_processor_type"})
    _write(folder / "generation_config.json", {"do_sample": False, "eos_token_id": [59246, 59253]})
    _write_tokenizer(folder, GLM_TOKENS, 59392, {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})
    return folder


def write_paddleocr_vl(folder: Path, text: Fields | None = None, vision: Fields | None = None) -> Path:
    """PaddlePaddle/PaddleOCR-VL-1.5, whose configuration has the language model's fields at the top."""
    config = {
        "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl",
        "torch_dtype": "bfloat16", "image_token_id": 100295, "video_token_id": 100296,
        "vision_start_token_id": 101305, "vision_end_token_id": 101306, "vocab_size": 103424, "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000, "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default"},
        "use_bias": False, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        **(text or {}),
        "vision_config": {
            "model_type": "paddleocr_vl", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
            "num_attention_heads": 16, "num_channels": 3, "image_size": 384, "patch_size": 14,
            "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "spatial_merge_size": 2,
            **(vision or {}),
        },
    }  # fmt: skip
    limits = {"shortest_edge": 112_896, "longest_edge": 1_003_520}
    half = [0.5, 0.5, 0.5]
    _write_files(
        folder, config, _image_processor("PaddleOCRVL", limits, half, half, temporal_patch_size=1), PADDLE_CHAT
    )
    _write(folder / "generation_config.json", {"eos_token_id": 2, "pad_token_id": 0})
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"}
    _write_tokenizer(folder, PADDLE_TOKENS, 103424, {**special, "image_token": "<|IMAGE_PLACEHOLDER|>"})
    return folder


WRITERS = {"glm_ocr": write_glm_ocr, "paddleocr_vl": write_paddleocr_vl}
# What differs in the configuration of DeepSeek-OCR.
_PAGE_CONFIGS: Mapping[str, Fields] = {
    "deepseek_ocr2": {"architectures": ["DeepseekOCR2ForCausalLM"], "projector_config": {"input_dim": 896}},
    "unlimited_ocr": {
        "architectures": ["UnlimitedOCRForCausalLM"],
        "model_type": "unlimited-ocr",
        "max_position_embeddings": 32768,
        "language_config": {"max_position_embeddings": 32768},
    },
}
_TINY_TEXT = {  # vLLM takes the width of GLM-OCR's merger, three times the hidden size, from `intermediate_size`
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 16384,
}  # fmt: skip
_MROPE = [4, 6, 6]  # of the 16 pairs of a head
TINY: Mapping[str, dict[str, Fields]] = {
    "glm_ocr": {
        "text": {
            **_TINY_TEXT,
            "num_nextn_predict_layers": 0,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": _MROPE, "partial_rotary_factor": 1.0, "rope_theta": 10000,
            },
        },
        "vision": {"hidden_size": 64, "depth": 2, "num_heads": 2, "intermediate_size": 128, "out_hidden_size": 128},
    },
    "paddleocr_vl": {
        "text": {**_TINY_TEXT, "rope_scaling": {"mrope_section": _MROPE, "rope_type": "default"}},
        "vision": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
    },
}  # fmt: skip


def write_checkpoint(folder: Path, model: str, deepseek_ocr: Path | None = None, is_tiny: bool = False) -> Path:
    """The folder of a model, written if it is not there; one that reads pages is made from DeepSeek-OCR's."""
    if (folder / "config.json").exists():
        return folder
    if model in WRITERS:
        return WRITERS[model](folder, **(TINY[model] if is_tiny else {}))
    assert deepseek_ocr, "--model-dir: the checkpoint of DeepSeek-OCR's shape"
    if model not in _PAGE_CONFIGS:
        return deepseek_ocr
    folder.mkdir(parents=True, exist_ok=True)
    for path in deepseek_ocr.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    _write(
        folder / "config.json", _change(json.loads((deepseek_ocr / "config.json").read_text()), _PAGE_CONFIGS[model])
    )
    return folder


def _change(fields: Fields, changes: Fields) -> dict[str, Any]:
    """The fields with these values; of a group of fields, the others stay."""
    groups = {name: _change(fields[name], new) for name, new in changes.items() if isinstance(new, Mapping)}
    return {**fields, **changes, **groups}


def _image_processor(name: str, size: Fields, mean: Any, std: Any, temporal_patch_size: int) -> dict[str, Any]:
    return {
        "image_processor_type": f"{name}ImageProcessor", "processor_class": f"{name}Processor", "size": dict(size),
        "image_mean": mean, "image_std": std, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "patch_size": 14, "temporal_patch_size": temporal_patch_size, "merge_size": 2,
    }  # fmt: skip


def _write_files(folder: Path, config: Fields, image_processor: Fields, chat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", config)
    _write(folder / "preprocessor_config.json", image_processor)
    (folder / "chat_template.jinja").write_text(chat)


def _write(path: Path, value: Fields) -> None:
    path.write_text(json.dumps(value, indent=1))


def _write_tokenizer(folder: Path, special: Mapping[str, int], size: int, fields: Fields) -> None:
    taken = set(special.values())
    free = (number for number in range(size) if number not in taken)
    known = {**special, **dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), free, strict=False))}
    known |= {f"w{number}": number for number in free}
    tokenizer = Tokenizer(BPE(vocab=known, merges=[], fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **fields}
    _write(folder / "tokenizer_config.json", settings)
