"""The n-gram ban for vLLM's Model Runner V2, which vLLM uses on GPUs.

The runner keeps every request's tokens on the GPU, and the drafts of a step are its input. So the ban never waits for
a token, and a row after a draft is treated as if the draft had been accepted.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState

from twopass.engines.vllm.plugin.ngram_ban import NO_TOKEN, Ban

MAX_ALLOWED = 8  # tokens of a request that may repeat


class NoRepeatNGram(LogitsProcessor):
    """Bans exactly the tokens that `vllm.model_executor.models.deepseek_ocr.NGramPerReqLogitsProcessor` bans."""

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        self._states = req_states
        self._bans = torch.zeros((req_states.max_num_reqs, 2 + MAX_ALLOWED), dtype=torch.int32, device="cpu")
        self._on_device = self._bans.to(req_states.device)
        self._has_changed = False

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        ban = Ban.from_params(sampling_params)
        if ban and len(ban.allowed) > MAX_ALLOWED:
            raise ValueError(f"whitelist_token_ids has to be at most {MAX_ALLOWED} tokens")

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        ban = Ban.from_params(sampling_params)
        values = [ban.context, ban.reach, *ban.allowed] if ban else [0, 0]
        self._bans[req_idx] = torch.tensor([*values, *[NO_TOKEN] * (2 + MAX_ALLOWED - len(values))])
        self._has_changed = True
        return ban is not None

    def apply_staged_writes(self) -> None:
        if self._has_changed:
            self._on_device = async_tensor_h2d(self._bans, device=self._states.device)
            self._has_changed = False

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        max_reach = int(self._bans[ctx.idx_mapping_np, 1].max())
        if max_reach:
            from twopass.engines.vllm.plugin import ngram_kernel  # here, because the front end has no use for Triton

            states = self._states
            ngram_kernel.ban(
                logits, ctx.expanded_idx_mapping, ctx.expanded_local_pos, ctx.input_ids, states.all_token_ids.gpu,
                states.prompt_len.gpu, states.total_len.gpu, self._on_device, max_reach,
            )  # fmt: skip
        return logits
