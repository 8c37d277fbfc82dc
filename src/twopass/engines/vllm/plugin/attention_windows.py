"""Prompt lengths for attention that sees the prompt and an answer's last tokens only, in CUDA graphs of whole steps.

vLLM captures a step without prompt lengths, so that its attention would have no windows, and pads such a step to more
requests than it has lengths for. Here each step has one for every request; those that only fill it up have length 0.
"""

from __future__ import annotations

from typing import Any

import torch


def complete_prompt_lengths(model_state: Any) -> None:
    """Let vLLM's DefaultModelState give the attention int32 prompt lengths, one for each request after padding."""
    prepare = model_state.prepare_attn

    def prepare_attn(batch: Any, *arguments: Any, **more: Any) -> Any:
        lengths = torch.zeros(batch.num_reqs_after_padding, dtype=torch.int32, device=batch.seq_lens.device)
        if batch.prompt_lens is not None:
            lengths[: batch.num_reqs] = batch.prompt_lens[: batch.num_reqs]
        batch.prompt_lens = lengths
        return prepare(batch, *arguments, **more)

    model_state.prepare_attn = prepare_attn
