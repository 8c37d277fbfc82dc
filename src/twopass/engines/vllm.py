"""Prompts in, completions out, through vLLM inside this process: one engine core for all jobs and both passes.

Everything of vLLM's life is here: start, requests, aborts, death and restart, shutdown. What runs inside
its core is in vllm_plugin/.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import aclosing
from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog

from twopass import views
from twopass.engine_settings import Preset, preset
from twopass.engines.busy import BusyClock
from twopass.engines.seam import Completion, Prompt, Sampling
from twopass.errors import Code, EngineError
from twopass.settings import Settings
from twopass.slabs import Slabs
from twopass.views import Vision
from twopass.vllm_plugin import NGRAM
from twopass.workers import Workers

VISIONS = {"deepseek_ocr": views.DEEPSEEK_OCR, "deepseek_ocr2": views.DEEPSEEK_OCR_2}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",  # more threads than cores: vLLM's own advice, and page workers want the cores
}
IMAGE = "<image>"
WAITING = 1.5  # pictures prepared for each sequence: enough wait in the core for its priorities to count
FINISHED = {"stop": "stop", "length": "length", "repetition": "loop"}

log = structlog.get_logger()


class VllmEngine:
    """AsyncLLM, started on the main thread and asked on the house's loop."""

    kind = "vllm"
    canary = True

    def __init__(self, settings: Settings, model: Path) -> None:
        """Start the core, which forks: no CUDA and no threads in this process yet. Takes 15 s to a minute."""
        self._vision = _vision(settings.model)
        self._arguments = arguments(settings, model, _preset(settings))
        self.family = settings.model
        self.sequences: int = self._arguments["max_num_seqs"]
        self.precision = _precision(self._arguments)
        self.slabs: Slabs | None = Slabs(
            round(WAITING * self.sequences) + settings.workers, 1 << 62, fixed=self._vision.most_bytes
        )
        self._restarts = settings.engine_restarts
        self._reviving = asyncio.Lock()
        self._busy = BusyClock()
        self._workers: Workers | None = None
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._core = self._started()

    async def open(self, workers: Workers) -> None:
        self._workers = workers

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer; a prompt that vLLM refuses gets finish_reason error. Raises EngineError when the core is gone."""
        from vllm.v1.engine.exceptions import EngineDeadError

        core = self._core
        try:
            return await self._answered(prompt)
        except EngineDeadError:
            await self._revived(core)
        try:
            return await self._answered(prompt)
        except EngineDeadError:
            message = "the engine died twice over this prompt and those beside it"
            raise EngineError(Code.ENGINE_DEAD, message) from None

    async def close(self) -> None:
        self._core.shutdown()  # on the loop: beside it, vLLM's output task would call the end a crash

    def _started(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from twopass import vllm_plugin

        vllm_plugin.register()
        try:
            core = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._arguments))
        except Exception as error:  # whatever stops a model from loading; vLLM has logged where
            message = f"vLLM did not start: {type(error).__name__}: {error}; the log has more"
            raise EngineError(Code.ENGINE_DEAD, message) from error
        self._tokenizer = core.renderer.tokenizer
        self._ids = lru_cache(maxsize=256)(self._tokenized)
        return core

    async def _revived(self, dead: Any) -> None:
        """Another core in place of a dead one; whoever comes second finds it there. Raises EngineError."""
        async with self._reviving:
            if self._core is not dead:
                return
            if self._restarts == 0:
                raise EngineError(Code.ENGINE_DEAD, "the engine died too often; the worker has to be replaced")
            self._restarts -= 1
            log.error("engine died, starting another", restarts_left=self._restarts)
            await asyncio.to_thread(dead.shutdown)
            os.environ["VLLM_WORKER_MULTIPROCESSING_METHOD"] = "spawn"  # this process has threads by now
            self._core = await asyncio.to_thread(self._started)

    async def _answered(self, prompt: Prompt) -> Completion:
        assert self._workers and self.slabs, "open comes first"
        mode = "gundam" if prompt.mode == "auto" else prompt.mode
        tiles = self._vision.tiles(prompt.image.width, prompt.image.height, mode, prompt.max_crops)
        async with self.slabs.lend(self._vision.nbytes(mode, tiles)) as slab:
            await self._workers.call(views.prepare, self._vision, prompt.image, mode, tiles, slab)
            seen = views.mapped(self._vision, slab, mode, tiles)
            return await self._asked(prompt, self._input(prompt, seen, tiles, self._vision.tokens(mode, tiles)))

    def _input(self, prompt: Prompt, seen: views.Views, tiles: views.Tiles, places: int) -> Any:
        from twopass.vllm_plugin import inputs

        before, image, after = self._ids(prompt.text)
        return inputs.prompt(before, image, places, after, inputs.item(seen, tiles), uuid.uuid4().hex)

    def _tokenized(self, text: str) -> tuple[list[int], int, list[int]]:
        """Ids before the picture, the picture's own, and those after it; a text without a place gets one."""
        before, found, after = text.partition(IMAGE)
        if not found:
            before, after = "", f"\n{text}"
        encode = self._tokenizer.encode
        begun = [self._tokenizer.bos_token_id, *encode(before, add_special_tokens=False)]
        return begun, self._tokenizer.convert_tokens_to_ids(IMAGE), encode(after, add_special_tokens=False)

    async def _asked(self, prompt: Prompt, told: Any) -> Completion:
        from vllm.v1.engine.exceptions import EngineGenerateError

        mark = self._busy.enter()
        try:
            text, reason, tokens = await self._streamed(prompt, told)
        except (ValueError, EngineGenerateError) as error:
            log.warning("vLLM refused a prompt", prompt=prompt.id, reason=str(error))
            text, reason, tokens = "", "error", 0
        finally:
            seconds = self._busy.leave(mark)
        return Completion(text, reason, len(told["prompt_token_ids"]), tokens, seconds)

    async def _streamed(self, prompt: Prompt, told: Any) -> tuple[str, str, int]:
        """Text, finish_reason and number of tokens; leaving the stream early aborts the request."""
        text, reason, tokens = "", "abort", 0
        room = self._arguments["max_model_len"] - len(told["prompt_token_ids"])
        stream = self._core.generate(told, _params(prompt.sampling, room), uuid.uuid4().hex, priority=prompt.priority)
        async with aclosing(stream):
            async for output in stream:
                answer = output.outputs[0]
                text, tokens = text + answer.text, tokens + len(answer.token_ids)
                if output.finished:
                    reason = FINISHED.get(answer.finish_reason, "abort")
                elif prompt.watch and prompt.watch(text):
                    return text, "loop", tokens
        return text, reason, tokens


def arguments(settings: Settings, model: Path, chosen: Preset) -> dict[str, Any]:
    """vLLM's engine arguments from the settings, the preset where these say nothing."""
    return {
        "model": str(model),
        "dtype": settings.dtype or chosen.dtype,
        "quantization": settings.quantization or chosen.quantization,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "max_model_len": settings.max_model_len or chosen.context,
        "max_num_seqs": settings.max_num_seqs or settings.engine_sequences or chosen.sequences,
        "max_num_batched_tokens": settings.max_num_batched_tokens or chosen.batched_tokens,
        "gpu_memory_utilization": settings.gpu_memory_utilization or chosen.memory,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "enforce_eager": chosen.eager if settings.enforce_eager is None else settings.enforce_eager,
        "load_format": settings.load_format,
        "stream_interval": settings.stream_interval,
        "shutdown_timeout": settings.shutdown_timeout_s,
        "scheduling_policy": "priority",
        "logits_processors": [NGRAM],
        "limit_mm_per_prompt": {"image": 1},
        "enable_prefix_caching": False,  # pages differ; the recipe has it off
        "mm_processor_cache_gb": 0,
        "skip_mm_profiling": True,  # the canary is the encoder's first picture
        "disable_log_stats": True,
        **({"block_size": settings.block_size} if settings.block_size else {}),
    }


def _params(sampling: Sampling, room: int) -> Any:
    """vLLM's sampling parameters; special tokens are the grammar of grounded answers and stay."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    ban = {
        "ngram_size": sampling.ngram,
        "window_size": sampling.window,
        "whitelist_token_ids": list(sampling.allowed_tokens),
    }
    return SamplingParams(
        temperature=sampling.temperature,
        max_tokens=min(sampling.max_tokens or room, room),
        skip_special_tokens=False,
        output_kind=RequestOutputKind.DELTA,  # the only kind that keeps to the stream interval
        extra_args=ban if sampling.ngram else None,
        ignore_eos=sampling.ignore_eos,
    )


def _vision(model: str) -> Vision:
    if model not in VISIONS:
        raise EngineError(Code.ENGINE_DEAD, f"no model is called {model}; MODEL is one of {', '.join(VISIONS)}")
    return VISIONS[model]


def _preset(settings: Settings) -> Preset:
    memory = _memory_gb() if settings.preset == "auto" else 0
    try:
        return preset(settings.preset, memory)
    except KeyError:
        raise EngineError(Code.ENGINE_DEAD, f"PRESET {settings.preset} is not known; leave it auto") from None


def _memory_gb() -> float:
    """Of the first GPU, told by NVML: asking CUDA would leave a context here that the forked core cannot use."""
    from vllm.utils.import_utils import import_pynvml

    nvml = import_pynvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return 0.0  # no GPU: vLLM on a CPU
    try:
        return float(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).total) / 1e9
    finally:
        nvml.nvmlShutdown()


def _precision(told: dict[str, Any]) -> str:
    """Whatever of the arithmetic changes answers."""
    cache = told["kv_cache_dtype"]
    return "+".join(filter(None, (told["dtype"], told["quantization"], None if cache == "auto" else f"{cache}-kv")))
