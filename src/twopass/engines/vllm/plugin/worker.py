"""vLLM's worker with two changes: it tells how long each stage of its start took, and what it does for every prompt
at every step is done once where all are being answered.

With 256 prompts the core's only thread is busier than the GPU: at each step it looked for pictures under way in
every prompt, wrote down where each one's last token lies, also when these are where they were, and marked the place of
each one's next token in three arrays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm import envs
from vllm.platforms import current_platform
from vllm.utils.torch_utils import PIN_MEMORY

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker
else:
    from vllm.v1.worker.gpu_worker import Worker

UNKNOWN = -1  # vLLM's own mark of a token that is not on the host yet


class DecodingWorker(Worker):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._took: dict[str, float] = {}

    def init_device(self) -> None:
        """vLLM's own runner, whichever it chose, with three methods before its own."""
        with self._stage("device_s"):
            super().init_device()
        chosen = type(self.model_runner)
        self.model_runner.__class__ = type(chosen.__name__, (_Decoding, chosen), {})

    def load_model(self, *arguments: Any, **more: Any) -> None:
        with self._stage("weights_s"):
            super().load_model(*arguments, **more)

    def determine_available_memory(self) -> int:
        """A step is tried, which compiles it or loads it compiled; left out where memory is known."""
        with self._stage("profile_s"):
            return int(super().determine_available_memory())

    def compile_or_warm_up_model(self) -> Any:
        with self._stage("graphs_s"):
            return super().compile_or_warm_up_model()

    def took(self) -> dict[str, float]:
        """Seconds of each stage of the start."""
        return self._took

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        before = time.monotonic()
        yield
        self._took[name] = time.monotonic() - before


class _Decoding:
    """Comes before vLLM 0.26's `GPUModelRunner` and asks it wherever anything is out of the ordinary."""

    def _gather_mm_embeddings(self: Any, scheduler_output: Any, shift_computed_tokens: int = 0) -> Any:
        """No picture is under way where all prompts have been read: no embeddings, and a mask of nothing."""
        batch = self.input_batch
        computed = batch.num_computed_tokens_cpu[: batch.num_reqs] + shift_computed_tokens
        if self.uses_mrope or (computed < batch.num_prompt_tokens[: batch.num_reqs]).any():
            return super()._gather_mm_embeddings(scheduler_output, shift_computed_tokens)  # type: ignore[misc]
        tokens = scheduler_output.total_num_scheduled_tokens
        return [], torch.zeros(tokens, dtype=torch.bool, device="cpu", pin_memory=PIN_MEMORY)

    def _prepare_input_ids(self: Any, scheduler_output: Any, num_reqs: int, total: int, ends: Any) -> None:
        """Where every prompt gives one token and nothing else, the step's tokens are the last step's, reordered."""
        last, before = self.input_batch.prev_sampled_token_ids, self.prev_positions.np[:num_reqs]
        if last is None or total != num_reqs or self.enable_prompt_embeds or (before < 0).any():
            super()._prepare_input_ids(scheduler_output, num_reqs, total, ends)  # type: ignore[misc]
            return
        tokens = last[:, 0]
        if (before != self.arange_np[:num_reqs]).any():
            rows = torch.tensor(before.tolist(), pin_memory=PIN_MEMORY)
            tokens = tokens[rows.to(self.device, non_blocking=True)]
        self.input_ids.gpu[:num_reqs].copy_(tokens[:num_reqs], non_blocking=True)

    def _bookkeeping_sync(self: Any, scheduler_output: Any, sampler_output: Any, *more: Any) -> Any:
        """A place for each prompt's next token, which is known later: the tokens stay on the device."""
        batch, tokens = self.input_batch, sampler_output.sampled_token_ids
        count = batch.num_reqs
        is_plain = self.use_async_scheduling and tuple(tokens.shape) == (count, 1) and not self.num_prompt_logprobs
        if not is_plain or envs.VLLM_COMPUTE_NANS_IN_LOGITS or self.discard_request_mask.np[:count].any():
            return super()._bookkeeping_sync(scheduler_output, sampler_output, *more)  # type: ignore[misc]
        names, rows = batch.req_ids.copy(), batch.req_id_to_index.copy()
        if batch.prev_sampled_token_ids is None:
            batch.prev_sampled_token_ids = tokens
        batch.prev_req_id_to_index = rows.copy()
        places = batch.num_tokens_no_spec[:count]
        assert (places < self.max_model_len).all(), "an answer grew out of the model's context"
        everyone = self.arange_np[:count]
        batch.token_ids_cpu[everyone, places] = UNKNOWN
        batch.is_token_ids[everyone, places] = True
        places += 1
        for name in names:
            self.requests[name].output_token_ids.append(UNKNOWN)
        return {}, None, [], {}, names, rows, []
