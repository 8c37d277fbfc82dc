"""vLLM's worker with two changes: it reports how long each stage of its start took, and decoding costs less CPU time.

With 256 prompts the core's only thread is busier than the GPU. At each step, stock vLLM searches every prompt for
images to insert, records where each one's last token is even if that has not changed, and marks the position of each
one's next token in three arrays. While all prompts are being answered, each of these is done here once for the batch.
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

from twopass.engines.vllm.plugin import exit_report

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker
else:
    from vllm.v1.worker.gpu_worker import Worker

PLACEHOLDER = -1  # vLLM's own mark of a token that is not on the host yet


class DecodingWorker(Worker):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._startup_seconds: dict[str, float] = {}

    def init_device(self) -> None:
        """Put DecodingRunner's methods in front of those of vLLM's first runner.

        The second, which vLLM chooses for small models without a ban, does this work on the GPU.
        """
        with self._measure_stage("device_s"):
            super().init_device()
        if self.use_v2_model_runner:
            return
        chosen = type(self.model_runner)
        self.model_runner.__class__ = type(chosen.__name__, (DecodingRunner, chosen), {})

    def load_model(self, *arguments: Any, **more: Any) -> None:
        with self._measure_stage("weights_s"):
            super().load_model(*arguments, **more)

    def determine_available_memory(self) -> int:
        """Runs a trial step, which compiles the model or loads it compiled; vLLM skips it if memory is known."""
        with self._measure_stage("profile_s"):
            return int(super().determine_available_memory())

    def compile_or_warm_up_model(self) -> Any:
        with self._measure_stage("graphs_s"), exit_report.report_no_graphs():
            return super().compile_or_warm_up_model()

    def startup_seconds(self) -> dict[str, float]:
        """Seconds of each stage of the start."""
        return self._startup_seconds

    @contextmanager
    def _measure_stage(self, name: str) -> Iterator[None]:
        before = time.monotonic()
        yield
        self._startup_seconds[name] = time.monotonic() - before


class DecodingRunner:
    """Mixed in before vLLM 0.26's `GPUModelRunner`; calls its methods in every case but plain decoding."""

    def _gather_mm_embeddings(self: Any, scheduler_output: Any, shift_computed_tokens: int = 0) -> Any:
        """If all prompts are prefilled there is no image to insert: return no embeddings and an empty mask."""
        batch = self.input_batch
        computed = batch.num_computed_tokens_cpu[: batch.num_reqs] + shift_computed_tokens
        if self.uses_mrope or (computed < batch.num_prompt_tokens[: batch.num_reqs]).any():
            return super()._gather_mm_embeddings(scheduler_output, shift_computed_tokens)  # type: ignore[misc]
        tokens = scheduler_output.total_num_scheduled_tokens
        return [], torch.zeros(tokens, dtype=torch.bool, device="cpu", pin_memory=PIN_MEMORY)

    def _prepare_input_ids(self: Any, scheduler_output: Any, num_reqs: int, total: int, ends: Any) -> None:
        """If every prompt contributes exactly one token, the step's tokens are the last step's, reordered."""
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
        """Reserve a position for each prompt's next token, whose value is known later: it stays on the device."""
        batch, tokens = self.input_batch, sampler_output.sampled_token_ids
        count = batch.num_reqs
        is_plain = self.use_async_scheduling and tuple(tokens.shape) == (count, 1) and not self.num_prompt_logprobs
        if not is_plain or envs.VLLM_COMPUTE_NANS_IN_LOGITS or self.discard_request_mask.np[:count].any():
            return super()._bookkeeping_sync(scheduler_output, sampler_output, *more)  # type: ignore[misc]
        request_ids, rows = batch.req_ids.copy(), batch.req_id_to_index.copy()
        if batch.prev_sampled_token_ids is None:
            batch.prev_sampled_token_ids = tokens
        batch.prev_req_id_to_index = rows.copy()
        positions = batch.num_tokens_no_spec[:count]
        assert (positions < self.max_model_len).all(), "an answer is longer than the model's context"
        all_rows = self.arange_np[:count]
        batch.token_ids_cpu[all_rows, positions] = PLACEHOLDER
        batch.is_token_ids[all_rows, positions] = True
        positions += 1
        for request_id in request_ids:
            self.requests[request_id].output_token_ids.append(PLACEHOLDER)
        return {}, None, [], {}, request_ids, rows, []
