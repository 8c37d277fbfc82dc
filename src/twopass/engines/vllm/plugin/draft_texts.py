"""The texts that the answers in a batch probably contain, on the GPU, where speculator.py searches them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState

from twopass.engines.vllm.plugin.drafts import MAX_TOKENS, unpack


class DraftTexts(LogitsProcessor):
    """Stores each request's text in its slot, and changes no logits.

    vLLM notifies logits processors of every request that enters or resumes, with its parameters and its slot.
    """

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        size, device = req_states.max_num_reqs, req_states.device
        self.tokens = torch.zeros((size, MAX_TOKENS), dtype=torch.int32, device=device)
        self.lengths = torch.zeros(size, dtype=torch.int32, device=device)
        self.is_present = np.zeros(size, dtype=bool)  # on the CPU: whether a slot's request has a text
        self.cursors = torch.zeros(size, dtype=torch.int32, device=device)  # where the answer is in the text

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        tokens = unpack(sampling_params)
        if tokens:
            async_tensor_h2d(torch.frombuffer(tokens, dtype=torch.int32), out=self.tokens[req_idx, : len(tokens)])
        self.lengths[req_idx].fill_(len(tokens))  # an assignment would wait for the GPU
        self.is_present[req_idx] = len(tokens) > 0
        self.cursors[req_idx].fill_(0)
        return False

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        return logits
