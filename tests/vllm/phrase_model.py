"""Weights that make a tiny DeepSeek-OCR answer with scripted phrases, in the real engine and model class.

Every phrase is one token. Embeddings are large and random and all other weights as small as dummy weights are, so
only the last token determines the next; the output layer's row of a phrase is the embedding of the phrase before it.
A prompt ends in a phrase too, which selects the answer. The image changes only the number of tokens; test_hf.py tests
that the model sees it correctly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

EOS = "<｜end▁of▁sentence｜>"


def grounded_block(label: str, box: tuple[int, int, int, int], content: str) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>[{list(box)}]<|/det|>\n{content}\n\n"


TABLE = "<table><tr><td>Year</td><td>Bees</td></tr><tr><td>2025</td><td>41</td></tr></table>"
TITLE = grounded_block("title", (100, 60, 900, 100), "# The bees of the harbour")
PROSE = grounded_block("text", (100, 120, 900, 200), "Forty-one hives stood on the warehouse roof in spring.")
TABLE_BLOCK = grounded_block("table", (100, 250, 900, 400), TABLE)
IMAGE_BLOCK = grounded_block("image", (100, 450, 900, 700), "")
CHART = "<table><tr><td>Month</td><td>Honey</td></tr><tr><td>May</td><td>12</td></tr></table>"
FREE_TEXT = "The bees of the harbour, counted twice."
LOOP = grounded_block("text", (520, 100, 780, 108), "bee bee bee bee bee bee")

NEXT_PHRASE: Mapping[str, str] = {
    "markdown.": TITLE, TITLE: PROSE, PROSE: TABLE_BLOCK, TABLE_BLOCK: IMAGE_BLOCK, IMAGE_BLOCK: EOS,  # a page
    "figure.": CHART, CHART: EOS,
    "OCR.": FREE_TEXT, FREE_TEXT: EOS,
    "image.": LOOP, LOOP: LOOP,  # without end
}  # fmt: skip
PHRASES = tuple(dict.fromkeys(phrase for pair in NEXT_PHRASE.items() for phrase in pair if phrase != EOS))


def set_weights(worker: Any, pairs: list[tuple[int, int]]) -> None:
    """Set the weights in vLLM's worker; `pairs` are token ids, each with the id of the token that follows it."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    language = worker.model_runner.model.language_model
    embeddings, head = language.model.embed_tokens.weight.data, language.lm_head
    embeddings.copy_(torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(1)))
    language.model.norm.weight.data.fill_(1)  # dummy weights are random in size and sign
    head.weight.data.zero_()
    for token, next_token in pairs:
        head.weight.data[next_token] += embeddings[token]
    dispatch_cpu_unquantized_gemm(head, remove_weight=False)  # repack the weights for this CPU


def run_out_of_memory(worker: Any) -> None:
    """Make the encoder in vLLM's worker run out of memory at the next image."""

    def embed(**images: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    worker.model_runner.model.embed_multimodal = embed
