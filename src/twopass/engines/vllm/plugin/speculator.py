"""Speculative decoding from the text that an answer probably contains, for vLLM's Model Runner V2.

vLLM builds its own n-gram speculator, which searches prompt and answer; worker.py puts this one in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from twopass.engines.vllm.plugin.draft_kernel import Drafter
from twopass.engines.vllm.plugin.draft_texts import DraftTexts


class TextSpeculator(BaseSpeculator):
    supports_mm_inputs = False  # it needs no embeddings
    draft_logits = None  # each draft has probability 1

    def __init__(self, states: Any, texts: DraftTexts, count: int, vocabulary: Mapping[str, int]) -> None:
        """`states` are the runner's request states; `count` is the number of drafts of a step."""
        self._states = states
        numbers = find_numbers(vocabulary, states.vocab_size).to(states.device)
        self._drafter = Drafter(texts, numbers, states.max_num_reqs, states.max_model_len, count)

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        pass

    def capture(self) -> None:
        pass

    def propose(
        self, input_batch: Any, attn_metadata: Any, slot_mappings: Any, last_hidden_states: Any,
        aux_hidden_states: Any, num_sampled: torch.Tensor, *_: Any, dummy_run: bool = False, **__: Any,
    ) -> torch.Tensor:  # fmt: skip
        """Requests × count token ids, any ids in a dummy run, with which vLLM measures its memory."""
        if dummy_run:
            return self._drafter.drafts[: input_batch.num_reqs]
        states = self._states
        return self._drafter.find(
            input_batch.idx_mapping, num_sampled, states.all_token_ids.gpu, states.prompt_len.gpu, states.total_len.gpu
        )


def find_numbers(vocabulary: Mapping[str, int], size: int) -> torch.Tensor:
    """1 for each token that is digits only, of `size` tokens."""
    numbers = torch.zeros(size, dtype=torch.int32, device="cpu")
    numbers[[token for text, token in vocabulary.items() if text.isdecimal()]] = 1
    return numbers
