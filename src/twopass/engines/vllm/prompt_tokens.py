"""Turn a prompt's text into the token ids of the official code: BOS, the text before the image, the image, the rest."""

from __future__ import annotations

from typing import Any

IMAGE = "<image>"


def tokenize(tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
    """Ids before the image, the image token, ids after it; a text without <image> gets the image in front."""
    before, marker, after = text.partition(IMAGE)
    if not marker:
        before, after = "", f"\n{text}"
    prefix = [tokenizer.bos_token_id, *tokenizer.encode(before, add_special_tokens=False)]
    return prefix, tokenizer.convert_tokens_to_ids(IMAGE), tokenizer.encode(after, add_special_tokens=False)
