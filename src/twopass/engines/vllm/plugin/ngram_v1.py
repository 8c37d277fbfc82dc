"""The n-gram ban for vLLM's Model Runner V1, which vLLM uses on CPUs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from twopass.engines.vllm.plugin.ngram_ban import NO_TOKEN, Ban, ban_repeats


class _Request(NamedTuple):
    ban: Ban
    output: list[int]  # vLLM's own list, which vLLM extends


class NoRepeatNGram(LogitsProcessor):
    """Bans exactly the tokens that `vllm.model_executor.models.deepseek_ocr.NGramPerReqLogitsProcessor` bans."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._requests: dict[int, _Request] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        Ban.from_params(sampling_params)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._requests, batch_update, _create_request)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if not self._requests:
            return logits
        requests = list(self._requests.values())
        bans = [request.ban for request in requests]
        width = max(ban.context for ban in bans) + max(ban.reach for ban in bans)
        most = max(len(ban.allowed) for ban in bans)

        def to_tensor(rows: Any) -> torch.Tensor:
            return torch.tensor(rows, device=logits.device)

        rows = to_tensor(list(self._requests))
        affected = logits[rows]
        ban_repeats(
            affected,
            to_tensor([_pad(request.output[: -width - 1 : -1], width) for request in requests]),
            to_tensor([ban.context for ban in bans]),
            to_tensor([ban.reach for ban in bans]),
            to_tensor([_pad(list(ban.allowed), most) for ban in bans]),
        )
        logits[rows] = affected
        return logits


def _create_request(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> _Request | None:
    ban = Ban.from_params(params)
    return _Request(ban, output) if ban else None


def _pad(tokens: list[int], width: int) -> list[int]:
    return [*tokens, *[NO_TOKEN] * (width - len(tokens))]
