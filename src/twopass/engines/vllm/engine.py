"""Answer prompts with vLLM inside the worker: one engine core serves all jobs and both passes.

This file covers vLLM's whole life cycle: start, requests, aborts, crashes and restarts, shutdown. What runs inside
the core process is in plugin/.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Collection, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import structlog

from twopass.engines import preflight
from twopass.engines.gpus import GpuInfo
from twopass.engines.interface import Completion, EngineDied, GroupMember, Incident, Prompt, Sampling
from twopass.engines.vllm import images, startup
from twopass.engines.vllm.arguments import (
    build_arguments,
    choose_drafts,
    choose_preset,
    describe_precision,
)
from twopass.engines.vllm.core_process import CoreProcess
from twopass.engines.vllm.detokenize import IncrementalDetokenizer
from twopass.engines.vllm.plugin import STOCK_NGRAM_ENVIRONMENT, compatibility, drafts
from twopass.engines.vllm.plugin.core_exit import ExitReport
from twopass.engines.vllm.shared_lock import SharedExclusiveLock
from twopass.engines.vllm.silence import SilenceMonitor
from twopass.engines.vllm.time_share import TimeShare
from twopass.errors import Code, EngineError
from twopass.models import find_model, name_models
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.runtime import gc_tuning, retry
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

BUFFERS_PER_SEQUENCE = 1.5  # images prepared ahead, so that enough prompts wait in the core for priorities to matter
CRASH_WINDOW_S = 3600.0  # older crashes do not count towards ENGINE_RESTARTS
CORE_CHECK_S = 1.0  # between two looks whether a core that is asked something is still alive
MEMORY_REDUCTION = 0.95  # factor on its memory share after a core ran out of memory: leaves more for activations
FINISH_REASONS = {"stop": "stop", "length": "length", "repetition": "loop"}

log = structlog.get_logger()


class VllmEngine(GroupMember):
    """AsyncLLM, started on the main thread and used on the worker's event loop."""

    kind = "vllm"
    needs_canary = True

    def __init__(
        self, settings: Settings, model: Path, gpu_ids: Sequence[str] = (), waits: bool = True, **overrides: Any
    ) -> None:
        """Start the core by forking: before, this process must not use CUDA or threads. Takes 15 s to a minute.

        `gpu_ids` are the GPUs that the core sees, by default all. With `waits` false, the core is only started:
        `wait_for_core` and `connect` follow. `overrides` are arguments of vLLM's engine that no setting names.
        """
        preflight.check_engine(settings)
        self.images = images.choose(settings)
        self.family = settings.model
        self.has_ngram_ban = find_model(settings.model).has_ngram_ban
        self._page_pool: PagePool | None = None
        with startup.read_ahead(model) if waits else nullcontext():
            gpus = startup.prepare_environment(settings.engine_cache, gpu_ids)
            if settings.preset == "cpu":
                gpus = GpuInfo()  # vLLM for CPUs, on a machine that has a GPU
            changed = _find_changed_parts(self.has_ngram_ban, gpus.count > 0)
            self.fallbacks = tuple(f"own_{part}_of_vllm" for part in changed)
            if compatibility.BAN in changed:
                os.environ |= STOCK_NGRAM_ENVIRONMENT
            preflight.check_driver(settings, gpus)
            preflight.check_memory(settings, gpus)
            _check_attention(settings, gpus.memory_gb)
            preset = choose_preset(settings, gpus.memory_gb)
            drafts = choose_drafts(settings, gpus, changed)
            if settings.draft_tokens and not drafts:
                drafted = name_models(lambda model: model.is_drafted, "or", by_title=True)
                log.warning(f"DRAFT_TOKENS has no effect: drafts need a GPU and {drafted}")
            self.arguments = build_arguments(settings, model, preset, gpus.count > 0, drafts, changed) | overrides
            self._init_state(settings)
            self._init_gpus(gpu_ids, [gpu.id for gpu in gpus.visible[: settings.tensor_parallel_size]])
            usual_share = find_model(settings.model).find_preset(settings.preset, gpus.memory_gb).memory
            is_usual_share = self.arguments["gpu_memory_utilization"] == usual_share
            self._core_variables |= startup.choose_memory_plan(is_usual_share)
            if waits:
                self.core = self._start_core()
            else:
                self._starting = self._launch_core()

    def _init_state(self, settings: Settings) -> None:
        """Set up the pixel buffers, which the core reads, and everything else but the core."""
        self.sequences: int = self.arguments["max_num_seqs"]
        self.uses_drafts = "speculative_config" in self.arguments
        self.precision = describe_precision(self.arguments, self.images, settings.logprobs)
        self.buffers = PixelBufferPool(
            round(BUFFERS_PER_SEQUENCE * self.sequences) + settings.page_worker_count,
            1 << 62,
            fixed_size=self.images.max_nbytes,
        )
        self.buffer_pools = (self.buffers,)
        self._max_restarts = settings.engine_restarts
        self.start_s = settings.engine_start_s
        self._crash_times: list[float] = []
        self._restarts = 0
        self._restart_task: asyncio.Task[None] | None = None
        self._core_lock = SharedExclusiveLock()
        self._time_share = TimeShare()
        self.incidents: list[Incident] = []
        self._exit_report = ExitReport()
        self.logprobs = settings.logprobs
        self._silence_s, self._stream_interval = settings.engine_silence_s, settings.stream_interval
        self.silence = self._monitor_silence()
        self._watchdog: asyncio.Task[None] | None = None

    def _init_gpus(self, pinned: Sequence[str], usual: Sequence[str]) -> None:
        """Name the engine's GPUs, and set what only its cores get in their environment."""
        self.gpus = ",".join(pinned or usual)
        self._name = f"the engine on GPU {self.gpus}" if pinned else "the engine"
        variables = {"CUDA_VISIBLE_DEVICES": self.gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if pinned else {}
        self._core_variables = {**self._exit_report.variables, **variables}

    @property
    def statuses(self) -> Sequence[EngineStatus]:  # type: ignore[override]
        is_restarting = self._restart_task is not None and not self._restart_task.done()
        is_ready = not (self.is_gone or is_restarting or self.core.errored)
        return [EngineStatus(self.gpus, self.sequences, self._time_share.active, self._restarts, is_ready)]

    async def open(self, page_pool: PagePool) -> None:
        self._page_pool = page_pool
        first: dict[str, float] = {}
        if "worker_cls" in self.arguments:
            first, *_ = await self._ask_core(self.core.collective_rpc("startup_seconds"))
        await self._ask_core(self.core.get_supported_tasks())
        self.startup_seconds = {"imports_s": self._import_seconds, **first}
        if self._watchdog:
            self._watchdog.cancel()
        self._watchdog = asyncio.create_task(self._watch_core())

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer; a prompt that vLLM refuses gets finish_reason error. Raises EngineError when the core is gone.

        Prompts in a core that dies are sent again to the next one, at first together and at last one at a time. A
        prompt whose last core dies too gets finish_reason crash: an image that kills cores fails only its own prompt.
        """
        deaths = 0
        while deaths < retry.VLLM_PROMPT.attempts:
            try:
                return await self.attempt(prompt, is_alone=deaths + 1 == retry.VLLM_PROMPT.attempts)
            except EngineDied as death:
                deaths += death.had_prompt
                await self.wait_for_restart()
        log.error("prompt given up", prompt=prompt.id, deaths=deaths)
        return Completion("", "crash")

    async def attempt(self, prompt: Prompt, is_alone: bool = False) -> Completion:
        """Answer, without any other prompt in the core if `is_alone`; raises EngineDied."""
        from vllm.v1.engine.exceptions import EngineDeadError

        async with self._core_lock.exclusive() if is_alone else self._core_lock.shared():
            self._require_core()
            try:
                return await self._answer(prompt)
            except EngineDeadError as error:
                raise EngineDied(had_prompt=True) from error

    def _require_core(self) -> None:
        """Raise EngineDied if the core is already dead: the prompt that is about to be sent did not kill it."""
        if self.core.errored:
            raise EngineDied(had_prompt=False)

    async def close(self) -> None:
        if self._watchdog:
            self._watchdog.cancel()
        if self._restart_task:
            await asyncio.wait([self._restart_task])
        self._exit_report.clear()
        self.core.shutdown()  # on the event loop: elsewhere, vLLM's output task would report the end as a crash

    def wait_for_core(self) -> None:
        """Wait until the core that was started has loaded its model, in any thread; raises EngineError."""
        with _raise_start_errors():
            self._await_core()

    def _await_core(self) -> None:
        """Wait for the core; one that cannot capture its CUDA graphs is started once more, without them."""
        try:
            self._starting.wait()
        except Exception:
            if self.arguments["enforce_eager"] or not self._exit_report.pop_no_graphs():
                raise
            self._starting.stop()
            self._forgo_graphs()
            self._starting = self._launch_core()
            self._starting.wait()

    def connect(self) -> None:
        """Make the engine ready to `open`, on the main thread, after `wait_for_core`; raises EngineError."""
        with _raise_start_errors():
            self.core = self._connect(self._starting)

    def abandon(self) -> None:
        """End a core that is still starting."""
        self._starting.stop()

    def _start_core(self) -> Any:
        """Start a core and return its client when it has loaded its model; raises EngineError."""
        self._starting = self._launch_core()
        with ExitStack() as stack, _raise_start_errors():
            stack.callback(self.abandon)
            self._await_core()
            core = self._connect(self._starting)
            stack.pop_all()
        return core

    def _forgo_graphs(self) -> None:
        """Let the next cores run without CUDA graphs, which costs speed and saves memory."""
        self.arguments = {**self.arguments, "enforce_eager": True}
        self.arguments.pop("compilation_config", None)
        advice = "lower MAX_NUM_SEQS for graphs, or set ENFORCE_EAGER=true to start without them at once"
        message = f"{self._name} could not capture its CUDA graphs and was started without them; it is slower: {advice}"
        self.incidents.append(Incident(Code.ENGINE_DEAD, message))
        self.fallbacks = (*self.fallbacks, "no_cuda_graphs")
        log.warning(message, code=Code.ENGINE_DEAD)
        _spawn_next_cores()  # other engines may be waited for in threads

    def _launch_core(self) -> CoreProcess:
        before = time.monotonic()
        # A restart finds everything imported, and must not freeze the objects of pages in flight.
        with nullcontext() if "vllm.v1.engine.async_llm" in sys.modules else gc_tuning.freeze_imports():
            import vllm.v1.engine.async_llm  # noqa: F401  for CoreProcess

            from twopass.engines.vllm import plugin

        self._import_seconds = time.monotonic() - before
        plugin.activate()
        with _raise_start_errors():
            return CoreProcess(self.arguments, self._core_variables)

    def _connect(self, starting: CoreProcess) -> Any:
        core = starting.connect()
        self.tokenizer = core.renderer.tokenizer
        self._tokenize = lru_cache(maxsize=256)(partial(self.images.tokenize, self.tokenizer))
        return core

    async def wait_for_restart(self) -> None:
        """Return when there is a running core. The restart is a task of its own: those who wait may be cancelled."""
        if self._restart_task is None or self._restart_task.done():
            if not self.core.errored:
                return
            self._restart_task = asyncio.create_task(self.restart())
            self._restart_task.add_done_callback(_log_failed_restart)
        await asyncio.shield(self._restart_task)

    async def restart(self) -> None:
        """Replace the dead core by a new one; raises EngineError if that happened too often."""
        self._crash_times = [when for when in self._crash_times if time.monotonic() - when < CRASH_WINDOW_S]
        if len(self._crash_times) >= self._max_restarts:
            self.is_gone = True
            raise EngineError(Code.ENGINE_DEAD, f"{self._name} died too often; the worker has to be replaced")
        self._crash_times.append(time.monotonic())
        self._restarts += 1
        incident = self._diagnose_crash()
        self.incidents.append(incident)
        log.error(incident.message, code=incident.code, restarts_left=self._max_restarts - len(self._crash_times))
        _spawn_next_cores()
        try:
            async with asyncio.timeout(self.start_s):
                await asyncio.to_thread(self.core.shutdown)
                self.core = await asyncio.to_thread(self._start_core)
                self.silence = self._monitor_silence()
                await self._ask_core(self.core.get_supported_tasks())
        except TimeoutError:  # a lost GPU: the thread cannot be stopped, so the worker is replaced
            self.is_gone = True
            message = f"{self._name} did not start again within {self.start_s:.0f} s; the worker has to be replaced"
            raise EngineError(Code.ENGINE_DEAD, message) from None

    async def _ask_core(self, call: Awaitable[Any]) -> Any:
        """Await the answer to a call that is no prompt; raises EngineError if the core dies first.

        vLLM leaves such calls waiting then. The first prompt would make one, for the supported tasks, so it is made
        before.
        """
        asking = asyncio.ensure_future(call)
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=CORE_CHECK_S)
                if self.core.errored and not asking.done():
                    raise EngineError(Code.ENGINE_DEAD, f"{self._name} died while it started; the log has more")
            return asking.result()
        finally:
            asking.cancel()

    def _diagnose_crash(self) -> Incident:
        """Say why the core died, as far as it reported; if it ran out of memory, give the next one less to do."""
        if not self._exit_report.pop_out_of_memory():
            return Incident(Code.ENGINE_DEAD, f"{self._name} died and was started again; its prompts were sent again")
        before, self.sequences = self.sequences, max(1, self.sequences // 2)
        share = round(self.arguments["gpu_memory_utilization"] * MEMORY_REDUCTION, 3)
        drafts = self.arguments.get("speculative_config", {}).get("num_speculative_tokens", 0)
        tokens = self.arguments["max_num_batched_tokens"] - drafts * (before - self.sequences)
        self.arguments |= {
            "max_num_seqs": self.sequences,
            "gpu_memory_utilization": share,
            "max_num_batched_tokens": max(tokens, self.images.max_tokens),
        }
        if "compilation_config" in self.arguments:
            self.arguments["compilation_config"] = startup.cuda_graph_config(self.sequences, drafts)
        change = f"it now reads {self.sequences} prompts at once"
        message = f"{self._name} ran out of memory and was started again; {change}"
        return Incident(Code.ENGINE_MEMORY, message)

    def _monitor_silence(self) -> SilenceMonitor:
        return SilenceMonitor(self._silence_s, self.start_s, self._stream_interval)

    async def _watch_core(self) -> None:
        """Kill a core that is alive but produces nothing, for example on a hung GPU: vLLM detects only dead ones."""
        while True:
            await asyncio.sleep(self.silence.base_s / 4)
            try:
                self._kill_silent_core()
            except Exception:  # whatever fails here: without this task, a hung core would keep its prompts for ever
                log.exception("a silent core could not be killed; it is tried again")

    def _kill_silent_core(self) -> None:
        if self._time_share.active and self.silence.is_too_long():
            log.error(
                "engine produces no output, killing its core", gpus=self.gpus, seconds=round(self.silence.limit_s)
            )
            for process in self.core.engine_core.resources.engine_manager.processes:
                process.kill()
            self.silence.begin()

    async def _answer(self, prompt: Prompt) -> Completion:
        assert self._page_pool, "open the engine first"
        image = self.images.plan(prompt)
        if image is None:
            return Completion("", "error")
        async with self.buffers.lend(image.nbytes) as buffer:
            await image.write(buffer, self._page_pool)
            return await self._request(prompt, self._build_input(prompt.text, image, buffer))

    def _build_input(self, text: str, image: images.PlannedImage, buffer: PixelBuffer) -> Any:
        from twopass.engines.vllm.plugin import shared_images

        before, image_token, after = self._tokenize(text)
        return shared_images.build_prompt(
            before, image_token, image.tokens, after, image.build_item(buffer), uuid.uuid4().hex
        )

    async def _request(self, prompt: Prompt, engine_input: Any) -> Completion:
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineGenerateError

        self._require_core()  # it may have died while the image was written
        if not self._time_share.active:
            self.silence.begin()
        mark = self._time_share.enter()
        try:
            completion = await self._stream(prompt, engine_input)
        except (ValueError, VLLMClientError, EngineGenerateError) as error:
            log.warning("vLLM refused a prompt", prompt=prompt.id, reason=str(error))
            completion = Completion("", "error")
        finally:
            seconds = self._time_share.leave(mark)
        return replace(completion, tokens_in=len(engine_input["prompt_token_ids"]), seconds=seconds)

    async def _stream(self, prompt: Prompt, engine_input: Any) -> Completion:
        """Collect the answer; leaving the stream early aborts the request."""
        text, reason, tokens, logprob = IncrementalDetokenizer(self._decode), "abort", 0, None
        remaining = self.arguments["max_model_len"] - len(engine_input["prompt_token_ids"])
        params = _build_params(prompt.sampling, remaining, self.logprobs, self._pack_draft(prompt.draft))
        stream = self.core.generate(engine_input, params, uuid.uuid4().hex, priority=prompt.priority)
        last_output_at = None
        async with aclosing(stream):
            async for output in stream:
                answer = output.outputs[0]
                last_output_at = self.silence.record(len(answer.token_ids), last_output_at)
                tokens, logprob = tokens + len(answer.token_ids), answer.cumulative_logprob
                is_stopped = answer.finish_reason == "stop"  # the last token is the stop token, not part of the answer
                so_far = text.add(answer.token_ids[:-1] if is_stopped else answer.token_ids)
                if output.finished:
                    reason = FINISH_REASONS.get(answer.finish_reason, "abort")
                elif prompt.loop_check and prompt.loop_check(so_far):
                    reason = "loop"
                    break
        mean = logprob / tokens if self.logprobs and logprob is not None and tokens else None
        return Completion(text.finish(), reason, tokens_out=tokens, logprob=mean)

    def _pack_draft(self, text: str) -> bytes:
        if not (text and self.uses_drafts):
            return b""
        return drafts.pack(self.tokenizer.encode(text, add_special_tokens=False))

    def _decode(self, tokens: Sequence[int]) -> str:
        """Keep special tokens: they are the grammar of grounded answers."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _build_params(sampling: Sampling, max_tokens: int, logprobs: bool, draft: bytes = b"") -> Any:
    """vLLM's sampling parameters; without detokenization, because vLLM would decode one token at a time."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    extra: dict[str, Any] = {drafts.DRAFT: draft} if draft else {}
    if sampling.ngram:
        extra |= {
            "ngram_size": sampling.ngram,
            "window_size": sampling.window,
            "whitelist_token_ids": list(sampling.allowed_tokens),
        }
    return SamplingParams(
        temperature=sampling.temperature,
        repetition_penalty=sampling.repetition_penalty,
        max_tokens=min(sampling.max_tokens or max_tokens, max_tokens),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,  # the only kind that respects the stream interval
        extra_args=extra or None,
        ignore_eos=sampling.ignore_eos,
        logprobs=0 if logprobs else None,  # of the sampled token only
    )


def _spawn_next_cores() -> None:
    """Let vLLM start further cores in new interpreters: a process with threads must not fork."""
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"


def _find_changed_parts(has_ban: bool, has_gpu: bool) -> Collection[str]:
    """Return the parts of the plugin for which vLLM's own code is used: the installed vLLM is another one.

    The ban of V2 is one if the environment chooses vLLM's first model runner; a model without a ban needs none. Raises
    EngineError for a vLLM with which no engine is possible.
    """
    changed = dict(compatibility.find_changed_parts())
    if has_gpu and STOCK_NGRAM_ENVIRONMENT.items() <= os.environ.items():
        changed.setdefault(compatibility.BAN, "the environment has VLLM_USE_V2_MODEL_RUNNER=0")
    if not has_ban:
        changed.pop(compatibility.BAN, None)
    if reasons := [changed[part] for part in compatibility.REQUIRED if part in changed]:
        advice = "use the container image or `make gpu`, which install the vLLM that twopass was tested with"
        raise EngineError(Code.ENGINE_DEAD, f"{'; '.join(reasons)}: {advice}")
    for part, reason in changed.items():
        log.warning("vLLM's own code is used", part=part, instead=compatibility.INSTEAD[part], reason=reason)
    return changed


@contextmanager
def _raise_start_errors() -> Iterator[None]:
    """Translate the errors of a start: anything can stop a model from loading. vLLM has logged the details."""
    try:
        yield
    except Exception as error:
        message = f"vLLM did not start: {type(error).__name__}: {error}; the log has more"
        raise EngineError(Code.ENGINE_DEAD, message) from error


def _log_failed_restart(restart: asyncio.Task[None]) -> None:
    """Log the error, which otherwise only prompts that wait for the restart would get."""
    if not restart.cancelled() and (error := restart.exception()):
        log.error("engine not started again", reason=str(error))


def _check_attention(settings: Settings, memory_gb: float) -> None:
    """Raise EngineError where vLLM would answer nonsense: it frees cache that its attention on CPUs still reads."""
    if find_model(settings.model).has_windowed_attention and not memory_gb and settings.load_format != "dummy":
        message = f"{settings.model} needs a GPU: vLLM's attention for CPUs cannot limit what an answer sees of itself"
        raise EngineError(Code.ENGINE_DEAD, message)
