"""vLLM's worker, which also drafts from known text and reports how its start went: seconds, and failed CUDA graphs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from vllm.platforms import current_platform

from twopass.engines.vllm import kernels
from twopass.engines.vllm.plugin import attention_windows, compatibility, core_exit, decode_graphs, memory

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
        self._stage_ends = {"launch_s": time.monotonic()}

    def init_device(self) -> None:
        super().init_device()
        self._end_stage("device_s")

    def load_model(self, *arguments: Any, **more: Any) -> None:
        """Replaces vLLM's n-gram speculator, for which `speculative_config` has asked.

        CUDA graphs are captured twice, to measure their memory and then to stay; both have graphs for decoding and
        report a failure.
        """
        super().load_model(*arguments, **more)
        self._end_stage("weights_s")
        self._capture_model = self.model_runner.capture_model
        self.model_runner.capture_model = self._capture_graphs
        self._measures_peaks = self.use_v2_model_runner and compatibility.fits(compatibility.MEMORY)
        if self._measures_peaks:
            self._profile_run = self.model_runner.profile_run
            self.model_runner.profile_run = self._profile_peaks
        has_drafts = self.use_v2_model_runner and self.vllm_config.num_speculative_tokens > 0
        self._adds_graphs = has_drafts and compatibility.fits(compatibility.DECODE_GRAPHS)
        if has_drafts:
            self._replace_speculator()
        has_windows = self.use_v2_model_runner and self.model_config.rswa_window is not None
        if has_windows and compatibility.fits(compatibility.WINDOWS):
            attention_windows.complete_prompt_lengths(self.model_runner.model_state)

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
        available = int(super().determine_available_memory())
        self._end_stage("profile_s")
        return available

    def compile_or_warm_up_model(self) -> Any:
        """Compiles what is left, runs steps of several sizes, and captures the CUDA graphs, if the engine has any.

        vLLM then stores the measured size of the KV cache. Other workers use it if as much memory is free, to the byte:
        the amount is rounded down, so that other hosts of the same kind have as much.
        """
        if not current_platform.is_cpu():
            self.init_snapshot.free_memory -= self.init_snapshot.free_memory % FREE_MEMORY_STEP
        times = super().compile_or_warm_up_model()
        if self._measures_peaks:
            memory.limit_allocator(self.cache_config.gpu_memory_utilization, self.init_snapshot.free_memory)
        self._end_stage("graphs_s")
        return times

    def _profile_peaks(self, *arguments: Any, **more: Any) -> None:
        """vLLM's profile keeps large free blocks whole, so that a CUDA graph's memory would have one for each size."""
        self._profile_run(*arguments, **more)
        with self._scoped_allocator_max_split(max_split_size_mb=memory.NO_SPLIT_LIMIT):
            memory.try_peaks(self.model_runner)

    def stage_ends(self) -> dict[str, float]:
        """When each stage of the start ended. The clock is the same in all processes of a machine."""
        return self._stage_ends

    def _capture_graphs(self, *arguments: Any, **more: Any) -> Any:
        if self._adds_graphs:
            decode_graphs.add_to(self.model_runner.cudagraph_manager)
        self._end_stage("kernels_s")  # of the last capture: the first one only measures, in the stage of the profile
        with core_exit.report_no_graphs():
            return self._capture_model(*arguments, **more)

    def _end_stage(self, name: str) -> None:
        self._stage_ends[name] = time.monotonic()
