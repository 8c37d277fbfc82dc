"""How models that read one region at a time see a crop: its size, its patches, and the chat that carries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twopass.pages.resize_rule import ResizeRule

PROMPT = "{prompt}"


@dataclass(frozen=True)
class CropInput:
    """One model. `chat` is its chat template's text for one image and a prompt, with one `image_token` for the image.

    The model cuts a crop into squares of `patch` pixels, and `merge` by `merge` patches become one token. With
    `is_merged_order`, the patches of one token follow each other; otherwise patches are in rows.
    """

    chat: str
    image_token: str
    resize: ResizeRule
    is_merged_order: bool
    patch: int = 14
    merge: int = 2

    def format_prompt(self, text: str) -> str:
        return self.chat.replace(PROMPT, text)


CROP_INPUTS: Mapping[str, CropInput] = MappingProxyType(
    {
        # chat_template.jinja of zai-org/GLM-OCR for one image and one text, with a generation prompt; without
        # `enable_thinking` nothing follows it. Its ids: 59248 59250 59253 10 59256 59280… 59257 …text… 59254 10.
        # The image processor compares its limits, 12,544 and 9,633,792, with the pixels of two frames: a picture is
        # one frame shown twice.
        "glm_ocr": CropInput(
            chat="[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>{prompt}<|assistant|>\n",
            image_token="<|image|>",
            resize=ResizeRule(multiple=28, least=6_272, most=4_816_896),
            is_merged_order=True,
        ),
        # chat_template.jinja of PaddlePaddle/PaddleOCR-VL and PaddleOCR-VL-1.5; sizes as in PaddleX's pipeline.
        "paddleocr_vl": CropInput(
            chat="<|begin_of_sentence|>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{prompt}\nAssistant:\n",
            image_token="<|IMAGE_PLACEHOLDER|>",
            resize=ResizeRule(multiple=28, least=112_896, most=1_003_520),
            is_merged_order=False,
        ),
    }
)
