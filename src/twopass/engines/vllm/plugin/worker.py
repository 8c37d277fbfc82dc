"""vLLM's worker, which also drafts from known text and reports how its start went: seconds, and failed CUDA graphs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm.platforms import current_platform

from twopass.engines.vllm import kernels
from twopass.engines.vllm.plugin import core_exit

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker
else:
    from vllm.v1.worker.gpu_worker import Worker

# A quarter of a gigabyte: less than what presets leave of the smallest card, so that the cache fits without it, too.
FREE_MEMORY_STEP = 1 << 28


class DraftingWorker(Worker):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        if record := os.environ.get(kernels.RECORD_VARIABLE):
            kernels.record(Path(record))
        super().__init__(*arguments, **more)
        self._startup_seconds: dict[str, float] = {}

    def init_device(self) -> None:
        with self._measure_stage("device_s"):
            super().init_device()

    def load_model(self, *arguments: Any, **more: Any) -> None:
        """Replaces vLLM's n-gram speculator, for which `speculative_config` has asked.

        CUDA graphs are captured twice, to measure their memory and then to stay; both report a failure.
        """
        with self._measure_stage("weights_s"):
            super().load_model(*arguments, **more)
        self.model_runner.capture_model = core_exit.report_no_graphs()(self.model_runner.capture_model)
        if self.use_v2_model_runner and self.vllm_config.num_speculative_tokens:
            self._replace_speculator()

    def _replace_speculator(self) -> None:
        from vllm.tokenizers import cached_tokenizer_from_config

        from twopass.engines.vllm.plugin.draft_texts import DraftTexts
        from twopass.engines.vllm.plugin.speculator import TextSpeculator

        runner = self.model_runner
        texts = next((one for one in runner.sampler.logits_processors if isinstance(one, DraftTexts)), None)
        if texts is None:
            raise ValueError("speculative decoding needs twopass's DraftTexts among the logits processors")
        vocabulary = cached_tokenizer_from_config(self.model_config).get_vocab()
        runner.speculator = TextSpeculator(runner.req_states, texts, runner.num_speculative_steps, vocabulary)

    def determine_available_memory(self) -> int:
        """Runs a trial step, which compiles the model or loads it compiled; vLLM skips it if memory is known."""
        with self._measure_stage("profile_s"):
            return int(super().determine_available_memory())

    def compile_or_warm_up_model(self) -> Any:
        """Captures the CUDA graphs, if the engine has any.

        vLLM then stores the measured size of the KV cache. Other workers use it if as much memory is free, to the byte:
        the amount is rounded down, so that other hosts of the same kind have as much.
        """
        with self._measure_stage("graphs_s"):
            if not current_platform.is_cpu():
                self.init_snapshot.free_memory -= self.init_snapshot.free_memory % FREE_MEMORY_STEP
            return super().compile_or_warm_up_model()

    def startup_seconds(self) -> dict[str, float]:
        """Seconds of each stage of the start."""
        return self._startup_seconds

    @contextmanager
    def _measure_stage(self, name: str) -> Iterator[None]:
        before = time.monotonic()
        yield
        self._startup_seconds[name] = time.monotonic() - before
