"""Prompts in, completions out, through vLLM inside this process: one engine core for all jobs and both passes.

Everything of vLLM's life is here: start, requests, aborts, death and restart, shutdown. What runs inside
its core is in plugin/.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog

from twopass.engine_settings import Preset, preset
from twopass.engines import preflight
from twopass.engines.interface import Completion, Engine, Incident, Prompt, Sampling
from twopass.engines.vllm import render_tiles, startup, tiling
from twopass.engines.vllm.detokenize import GrowingText
from twopass.engines.vllm.plugin import NGRAM, SCHEDULER, WORKER
from twopass.engines.vllm.plugin.exit_report import LastWords
from twopass.engines.vllm.shared_lock import Solitude
from twopass.engines.vllm.tiling import Vision
from twopass.engines.vllm.time_share import BusyClock
from twopass.errors import Code, EngineError, TwopassError
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.runtime import gc_tuning
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

VISIONS = {"deepseek_ocr": tiling.DEEPSEEK_OCR, "deepseek_ocr2": tiling.DEEPSEEK_OCR_2}
IMAGE = "<image>"
CONTEXT = 8192  # the model's; a shorter one cuts long answers
WAITING = 1.5  # pictures prepared for each sequence: enough wait in the core for its priorities to count
DEATHS = 3  # that one prompt may see
FORGIVEN_S = 3600.0  # a death longer ago than that does not count
LESS_MEMORY = 0.95  # of its share, for a core that follows one that ran out of it: the rest is for activations
FINISHED = {"stop": "stop", "length": "length", "repetition": "loop"}

log = structlog.get_logger()


class VllmEngine(Engine):
    """AsyncLLM, started on the main thread and asked on the house's loop."""

    kind = "vllm"
    canary = True

    def __init__(self, settings: Settings, model: Path) -> None:
        """Start the core, which forks: no CUDA and no threads in this process yet. Takes 15 s to a minute."""
        if not find_spec("vllm"):
            raise EngineError(Code.ENGINE_DEAD, "engine vllm needs vllm, which is not installed: make gpu")
        self._vision = _vision(settings.model)
        self.family = settings.model
        self._page_pool: PagePool | None = None
        with startup.read_ahead(model):
            found = startup.set_up(settings.engine_cache)
            preflight.driver(settings, found)
            preflight.memory(settings, found)
            self._arguments = arguments(settings, model, _preset(settings, found.memory_gb))
            self._prepare(settings)
            self._core = self._started()

    def _prepare(self, settings: Settings) -> None:
        """What the core does not need, but for the slabs: it reads those."""
        self.sequences: int = self._arguments["max_num_seqs"]
        self._draws = settings.draw_views
        self.precision = _precision(self._arguments, self._draws)
        self.buffers: PixelBufferPool | None = PixelBufferPool(
            round(WAITING * self.sequences) + settings.page_worker_count, 1 << 62, fixed=self._vision.most_bytes
        )
        self._restarts = settings.engine_restarts
        self._start_s = settings.engine_start_s
        self._deaths: list[float] = []
        self._reviving: asyncio.Task[None] | None = None
        self._solitude = Solitude()
        self._busy = BusyClock()
        self.incidents: list[Incident] = []
        self._last_words = LastWords()
        self._logprobs = settings.logprobs
        self._silence_s = settings.engine_silence_s
        self._heard = time.monotonic()
        self._watching: asyncio.Task[None] | None = None
        self._last_words.listen()

    async def open(self, page_pool: PagePool) -> None:
        self._page_pool = page_pool
        first, *_ = await self._core.collective_rpc("took")
        self.started = {"imports_s": self._imported, **first}
        if self._watching:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watched())

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer; a prompt that vLLM refuses gets finish_reason error. Raises EngineError when the core is gone.

        Who is in a core that dies is asked again by the next, beside the others and at last alone, and gets
        finish_reason crash when that one dies too: one picture that kills cores must not take its neighbours with it.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        for death in range(DEATHS):
            try:
                async with self._solitude.alone() if death == DEATHS - 1 else self._solitude.among():
                    return await self._answered(prompt)
            except EngineDeadError:
                await self._revived()
        log.error("prompt given up", prompt=prompt.id, deaths=DEATHS)
        return Completion("", "crash")

    async def close(self) -> None:
        if self._watching:
            self._watching.cancel()
        if self._reviving:
            await asyncio.wait([self._reviving])
        self._last_words.forget()
        self._core.shutdown()  # on the loop: beside it, vLLM's output task would call the end a crash

    def _started(self) -> Any:
        before = time.monotonic()
        # Another core finds all imported, and pages in flight that must not be frozen with it.
        with nullcontext() if "vllm.v1.engine.async_llm" in sys.modules else gc_tuning.unswept():
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            from twopass.engines.vllm import plugin

        self._imported = time.monotonic() - before
        plugin.register()
        try:
            core = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._arguments))
        except Exception as error:  # whatever stops a model from loading; vLLM has logged where
            message = f"vLLM did not start: {type(error).__name__}: {error}; the log has more"
            raise EngineError(Code.ENGINE_DEAD, message) from error
        self._tokenizer = core.renderer.tokenizer
        self._ids = lru_cache(maxsize=256)(self._tokenized)
        return core

    async def _revived(self) -> None:
        """Come back when there is a core again. Nobody owns the restart: who waits for it may be cancelled."""
        if self._reviving is None or self._reviving.done():
            if not self._core.errored:
                return
            self._reviving = asyncio.create_task(self._restarted())
            self._reviving.add_done_callback(_heard_of)
        await asyncio.shield(self._reviving)

    async def _restarted(self) -> None:
        """Another core in place of the dead one; raises EngineError when it came to that too often."""
        self._deaths = [when for when in self._deaths if time.monotonic() - when < FORGIVEN_S]
        if len(self._deaths) >= self._restarts:
            self.is_gone = True
            raise EngineError(Code.ENGINE_DEAD, "the engine died too often; the worker has to be replaced")
        self._deaths.append(time.monotonic())
        incident = self._incident()
        self.incidents.append(incident)
        log.error(incident.message, code=incident.code, restarts_left=self._restarts - len(self._deaths))
        os.environ["VLLM_WORKER_MULTIPROCESSING_METHOD"] = "spawn"  # this process has threads by now
        try:
            async with asyncio.timeout(self._start_s):
                await asyncio.to_thread(self._core.shutdown)
                self._core = await asyncio.to_thread(self._started)
        except TimeoutError:  # of a GPU that is lost; its thread stays, the worker is replaced
            self.is_gone = True
            message = f"the engine did not start again within {self._start_s:.0f} s; the worker has to be replaced"
            raise EngineError(Code.ENGINE_DEAD, message) from None

    def _incident(self) -> Incident:
        """Why the core died, as far as it said; where memory was short, the next one takes less."""
        if not self._last_words.tell_of_memory():
            return Incident(Code.ENGINE_DEAD, "the engine died and was started again; what was in it was asked again")
        self.sequences = max(1, self.sequences // 2)
        share = round(self._arguments["gpu_memory_utilization"] * LESS_MEMORY, 3)
        self._arguments |= {"max_num_seqs": self.sequences, "gpu_memory_utilization": share}
        message = f"the engine ran out of memory and was started again; it reads {self.sequences} prompts at once now"
        return Incident(Code.ENGINE_MEMORY, message)

    async def _watched(self) -> None:
        """A core that is alive and says nothing, as where a GPU hangs, is ended: vLLM notices only death."""
        while True:
            await asyncio.sleep(self._silence_s / 4)
            if self._busy.inside and time.monotonic() - self._heard > self._silence_s:
                log.error("the engine says nothing", seconds=self._silence_s)
                self._heard = time.monotonic()
                for process in self._core.engine_core.resources.engine_manager.processes:
                    process.kill()

    async def _answered(self, prompt: Prompt) -> Completion:
        assert self._page_pool and self.buffers, "open comes first"
        mode = "gundam" if prompt.mode == "auto" else prompt.mode
        if mode not in self._vision.modes:
            return Completion("", "error")
        tiles = self._vision.tiles(prompt.image.width, prompt.image.height, mode, prompt.max_crops)
        async with self.buffers.lend(self._vision.nbytes(mode, tiles)) as buffer:
            await self._prepared(prompt, mode, tiles, buffer)
            return await self._asked(prompt, self._input(prompt.text, buffer, mode, tiles))

    async def _prepared(self, prompt: Prompt, mode: str, tiles: tiling.Tiles, buffer: PixelBuffer) -> None:
        """The picture's views in the slab. A page that cannot be drawn once more has been drawn: it is resized."""
        assert self._page_pool
        page, image = prompt.page, prompt.image
        if self._draws and page and page.is_scalable and self._vision.enlarges(image.width, image.height, tiles):
            try:
                return await self._page_pool.call(render_tiles.prepare, self._vision, page, image, mode, tiles, buffer)
            except TwopassError as error:
                log.warning("resized instead of drawn", prompt=prompt.id, code=error.code, reason=error.message)
        await self._page_pool.call(tiling.prepare, self._vision, image, mode, tiles, buffer)

    def _input(self, text: str, buffer: PixelBuffer, mode: str, tiles: tiling.Tiles) -> Any:
        from twopass.engines.vllm.plugin import inputs

        before, image, after = self._ids(text)
        picture = inputs.item(buffer, self._vision.modes[mode].base, self._vision.tile, tiles)
        return inputs.prompt(before, image, self._vision.tokens(mode, tiles), after, picture, uuid.uuid4().hex)

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

        if not self._busy.inside:
            self._heard = time.monotonic()
        mark = self._busy.enter()
        try:
            answer = await self._streamed(prompt, told)
        except (ValueError, EngineGenerateError) as error:
            log.warning("vLLM refused a prompt", prompt=prompt.id, reason=str(error))
            answer = Completion("", "error")
        finally:
            seconds = self._busy.leave(mark)
        return replace(answer, tokens_in=len(told["prompt_token_ids"]), seconds=seconds)

    async def _streamed(self, prompt: Prompt, told: Any) -> Completion:
        """Text, reason and tokens; leaving the stream early aborts the request."""
        text, reason, tokens, logprob = GrowingText(self._decoded), "abort", 0, None
        room = self._arguments["max_model_len"] - len(told["prompt_token_ids"])
        params = _params(prompt.sampling, room, self._logprobs)
        stream = self._core.generate(told, params, uuid.uuid4().hex, priority=prompt.priority)
        async with aclosing(stream):
            async for output in stream:
                self._heard = time.monotonic()
                answer = output.outputs[0]
                tokens, logprob = tokens + len(answer.token_ids), answer.cumulative_logprob
                ended = answer.finish_reason == "stop"  # by a token that is no part of the answer
                so_far = text.add(answer.token_ids[:-1] if ended else answer.token_ids)
                if output.finished:
                    reason = FINISHED.get(answer.finish_reason, "abort")
                elif prompt.watch and prompt.watch(so_far):
                    reason = "loop"
                    break
        mean = logprob / tokens if self._logprobs and logprob is not None and tokens else None
        return Completion(text.end(), reason, tokens_out=tokens, logprob=mean)

    def _decoded(self, tokens: Sequence[int]) -> str:
        """Special tokens are the grammar of grounded answers and stay."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def arguments(settings: Settings, model: Path, chosen: Preset) -> dict[str, Any]:
    """vLLM's engine arguments from the settings, the preset where these say nothing."""
    sequences = settings.max_num_seqs or settings.engine_sequences or chosen.sequences
    eager = chosen.eager if settings.enforce_eager is None else settings.enforce_eager
    return {
        "model": str(model),
        "dtype": settings.dtype or chosen.dtype,
        "quantization": settings.quantization or chosen.quantization,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "max_model_len": settings.max_model_len or chosen.context,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": settings.max_num_batched_tokens or chosen.batched_tokens,
        "gpu_memory_utilization": settings.gpu_memory_utilization or chosen.memory,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "enforce_eager": eager,
        **({} if eager else {"compilation_config": startup.graphs(sequences)}),
        "load_format": settings.load_format,
        "stream_interval": settings.stream_interval,
        "shutdown_timeout": settings.shutdown_timeout_s,
        "scheduling_policy": "priority",
        "scheduler_cls": SCHEDULER,
        "worker_cls": WORKER,
        "logits_processors": [NGRAM],
        "limit_mm_per_prompt": {"image": 1},
        "enable_prefix_caching": False,  # pages differ; the recipe has it off
        "mm_processor_cache_gb": 0,
        "skip_mm_profiling": True,  # the canary is the encoder's first picture
        "disable_log_stats": True,
        **({"block_size": settings.block_size} if settings.block_size else {}),
    }


def _params(sampling: Sampling, room: int, logprobs: bool) -> Any:
    """vLLM's sampling parameters; tokens come as they are, since vLLM turns them into text one at a time."""
    from vllm.sampling_params import RequestOutputKind

    from vllm import SamplingParams

    ban = {
        "ngram_size": sampling.ngram,
        "window_size": sampling.window,
        "whitelist_token_ids": list(sampling.allowed_tokens),
    }
    return SamplingParams(
        temperature=sampling.temperature,
        max_tokens=min(sampling.max_tokens or room, room),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,  # the only kind that keeps to the stream interval
        extra_args=ban if sampling.ngram else None,
        ignore_eos=sampling.ignore_eos,
        logprobs=0 if logprobs else None,  # the chosen token's own
    )


def _heard_of(restart: asyncio.Task[None]) -> None:
    """Its error is everybody's who waits; where nobody does any more, it is in the log."""
    if not restart.cancelled() and (error := restart.exception()):
        log.error("engine not started again", reason=str(error))


def _vision(model: str) -> Vision:
    if model not in VISIONS:
        raise EngineError(Code.ENGINE_DEAD, f"no model is called {model}; MODEL is one of {', '.join(VISIONS)}")
    return VISIONS[model]


def _preset(settings: Settings, memory_gb: float) -> Preset:
    try:
        return preset(settings.preset, memory_gb)
    except KeyError:
        raise EngineError(Code.ENGINE_DEAD, f"PRESET {settings.preset} is not known; leave it auto") from None


def _precision(told: dict[str, Any], draws: bool) -> str:
    """Whatever of the engine changes answers: arithmetic, room for them, a model at all, and what it is shown."""
    parts = [told["dtype"], told["quantization"]]
    parts += [f"{told['kv_cache_dtype']}-kv"] if told["kv_cache_dtype"] != "auto" else []
    parts += [f"{told['max_model_len']}-context"] if told["max_model_len"] != CONTEXT else []
    parts += ["random-weights"] if told["load_format"] == "dummy" else []
    parts += [] if draws else ["resized-views"]
    return "+".join(filter(None, parts))
