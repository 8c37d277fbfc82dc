"""A tiny DeepSeek-OCR that says something: real engine, real class, weights that tie each token to the next.

Every phrase is one token. Embeddings are large and random, all else is as small as dummy weights are, so the
last token alone decides; the output layer's row of a phrase is the embedding of the phrase before it. What a
prompt ends in is a phrase too, and decides what is answered. The picture changes nothing but the number of
tokens: that it is seen rightly is what test_hf.py shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

EOS = "<｜end▁of▁sentence｜>"


def block(label: str, box: tuple[int, int, int, int], content: str) -> str:
    return f"<|ref|>{label}<|/ref|><|det|>[{list(box)}]<|/det|>\n{content}\n\n"


TABLE = "<table><tr><td>Year</td><td>Bees</td></tr><tr><td>2025</td><td>41</td></tr></table>"
TITLE = block("title", (100, 60, 900, 100), "# The bees of the harbour")
PROSE = block("text", (100, 120, 900, 200), "Forty-one hives stood on the warehouse roof in spring.")
COUNTED = block("table", (100, 250, 900, 400), TABLE)
SHOWN = block("image", (100, 450, 900, 700), "")
CHART = "<table><tr><td>Month</td><td>Honey</td></tr><tr><td>May</td><td>12</td></tr></table>"
FREE = "The bees of the harbour, counted twice."
STUCK = block("text", (520, 100, 780, 108), "bee bee bee bee bee bee")

FOLLOWS: Mapping[str, str] = {
    "markdown.": TITLE, TITLE: PROSE, PROSE: COUNTED, COUNTED: SHOWN, SHOWN: EOS,  # a page
    "figure.": CHART, CHART: EOS,
    "OCR.": FREE, FREE: EOS,
    "image.": STUCK, STUCK: STUCK,  # a loop
}  # fmt: skip
PHRASES = tuple(dict.fromkeys(phrase for pair in FOLLOWS.items() for phrase in pair if phrase != EOS))


def talk(worker: Any, pairs: list[tuple[int, int]]) -> None:
    """Runs in vLLM's worker: `pairs` are ids of tokens and of those that follow them."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    language = worker.model_runner.model.language_model
    embeddings, head = language.model.embed_tokens.weight.data, language.lm_head
    embeddings.copy_(torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(1)))
    language.model.norm.weight.data.fill_(1)  # a dummy one is random in size and sign
    head.weight.data.zero_()
    for token, following in pairs:
        head.weight.data[following] += embeddings[token]
    dispatch_cpu_unquantized_gemm(head, remove_weight=False)  # a copy packed for this processor


def exhaust(worker: Any) -> None:
    """Runs in vLLM's worker: the next picture finds no memory left."""

    def embed(**pictures: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    worker.model_runner.model.embed_multimodal = embed
