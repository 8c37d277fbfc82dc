"""The reference: vLLM's own processor for DeepSeek-OCR, which is the official preprocessing code with little changed.

It has one mode: a global view of 1,024 pixels, and tiles (gundam).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twopass.models import find_model
from twopass.pages.pillow_image import to_image
from twopass.pages.shared_pixels import Pixels

MODE = "gundam"  # both views of the model, and the official preset


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer as the engine does."""
    from vllm.tokenizers import get_tokenizer

    return get_tokenizer(str(folder))


def load_plain_tokenizer(folder: Path) -> Any:
    """Load tokenizer.json itself, in which no class of Transformers can replace a part."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def process(model: str, tokenizer: Any, text: str, image: Pixels) -> dict[str, Any]:
    """The official input of a prompt with one image, as tensors.

    `input_ids` (1 × tokens), `pixel_values` (1 × 3 × 1024 × 1024), `images_crop` (tiles × 3 × side × side), both
    normalised, and `images_spatial_crop` (1 × 2: columns and rows of tiles).
    """
    from vllm.transformers_utils.processors.deepseek_ocr import DeepseekOCRProcessor

    spec = find_model(model).vision
    processor = DeepseekOCRProcessor(
        tokenizer,
        image_size=spec.tile_size,
        base_size=spec.modes[MODE].base_size,
        strategy="v1" if spec.newlines else "v2",  # how the processor counts image tokens
        max_crops=spec.official_crops,
    )
    return dict(processor(prompt=text, images=[to_image(image.array()).convert("RGB")]))
