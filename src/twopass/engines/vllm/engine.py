"""Answer prompts with vLLM inside the worker: one engine core serves all jobs and both passes.

This file has what happens to a prompt: its image in shared memory, its request, the streamed answer, and the engine
time that it is charged. The core's life is in core.py.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import structlog

from twopass.engines.interface import Completion, EngineDied, GroupMember, Incident, Prompt, Sampling
from twopass.engines.vllm import images, startup
from twopass.engines.vllm.arguments import describe_precision, forgo_compilation
from twopass.engines.vllm.core import Core, StartCore
from twopass.engines.vllm.core_process import CoreProcess, prepare_restarts
from twopass.engines.vllm.plugin import drafts
from twopass.engines.vllm.plugin.compatibility import RESTARTS
from twopass.models import find_model
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.runtime import retry
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

BUFFERS_PER_SEQUENCE = 1.5  # images prepared ahead, so that enough prompts wait in the core for priorities to matter
FINISH_REASONS = {"stop": "stop", "length": "length", "repetition": "loop"}
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what `decode` makes of bytes that are not, or not yet, a character

log = structlog.get_logger()


class VllmEngine(GroupMember):
    """AsyncLLM, launched on the main thread with `launch_engines`, then opened and used on the worker's event loop."""

    kind = "vllm"
    needs_canary = True

    def __init__(
        self,
        settings: Settings,
        model: Path,
        gpu_ids: Sequence[str] = (),
        start: StartCore | None = None,
        is_first: bool = True,
        **overrides: Any,
    ) -> None:
        """Start the core's process; `open` waits for it.

        The first of several fetches compiled code and reads the weights ahead for all.
        """
        settings = settings if is_first else startup.without_sharing(settings)
        plan = startup.plan_core(settings, model, gpu_ids, **overrides)
        self._plan, self._cache = plan, plan.cache
        self._compiles_if_found = settings.torch_compile == "auto"
        self._is_uncompiled = False
        self._can_fork = settings.engine_restarts and f"own_{RESTARTS}_of_vllm" not in plan.fallbacks
        self.gpus = plan.gpus
        self.images = images.choose(settings)
        self.family = settings.model
        self.has_ngram_ban = find_model(settings.model).has_ngram_ban
        self.uses_drafts = "speculative_config" in plan.arguments
        self.precision = describe_precision(plan.arguments, self.images, settings.logprobs)
        self.buffers = PixelBufferPool(
            round(BUFFERS_PER_SEQUENCE * plan.arguments["max_num_seqs"]) + settings.page_worker_count,
            budget=1 << 62,  # their number is the limit
            fixed_size=self.images.max_nbytes,
        )
        self.buffer_pools = (self.buffers,)
        self.stage_ends: Mapping[str, float] = {}
        self.logprobs = settings.logprobs
        self._time_share = TimeShare()
        self._page_pool: PagePool | None = None
        self._tokenize = lru_cache(maxsize=256)(lambda text: self.images.tokenize(self.tokenizer, text))
        with ExitStack() as stack:
            if is_first:
                stack.enter_context(startup.read_ahead(model))
            try:
                self.core = Core(plan, settings, start or partial(CoreProcess, adapt=self._finish_arguments))
            finally:
                self._cache.abandon()
            self._until_open = stack.pop_all()  # what lasts until the engine is open, or its start has ended

    @property
    def tokenizer(self) -> Any:
        return self.core.client.renderer.tokenizer

    @property
    def sequences(self) -> int:  # type: ignore[override]
        return self.core.sequences

    @property
    def statuses(self) -> Sequence[EngineStatus]:  # type: ignore[override]
        core = self.core
        return [EngineStatus(self.gpus, core.sequences, self._time_share.active, core.restarts, core.is_ready)]

    @property
    def incidents(self) -> Sequence[Incident]:  # type: ignore[override]
        return self.core.incidents

    @property
    def fallbacks(self) -> Sequence[str]:  # type: ignore[override]
        uncompiled = ("not_compiled",) if self._is_uncompiled else ()
        return (*self.core.fallbacks, *self._cache.lacks, *uncompiled)

    @property
    def is_gone(self) -> bool:  # type: ignore[override]
        return self.core.is_gone

    def _finish_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Wait for the shared cache. Without compiled code in it, the model may run uncompiled: it starts sooner."""
        is_found = self._cache.wait().is_found
        if is_found or not self._compiles_if_found or arguments["enforce_eager"]:
            return arguments
        self._is_uncompiled = True
        return forgo_compilation(arguments)

    async def after_ready(self, is_warmed_up: bool = False) -> None:
        # vLLM has set this variable where it must not fork, as in WSL and in Ray's actors. On a CPU it never forks.
        must_spawn = self.gpus and os.environ.get("VLLM_WORKER_MULTIPROC_METHOD") == "spawn"
        if self._can_fork and not (is_warmed_up or must_spawn):
            prepare_restarts(self.family, has_gpu=bool(self.gpus))
        if not self._is_uncompiled and self.core.arguments == self._plan.arguments:
            await self._cache.share(is_complete=is_warmed_up)

    async def open(self, page_pool: PagePool) -> None:
        self._page_pool = page_pool
        with self._until_open:
            self.stage_ends = await self.core.open()

    def abandon(self) -> None:
        """End an engine that is not open."""
        self._until_open.close()
        self.core.abandon()

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
        async with self.core.admit(is_alone):
            return await self._answer(prompt)

    async def wait_for_restart(self) -> None:
        await self.core.wait_for_restart()

    async def close(self) -> None:
        self._until_open.close()
        await self.core.close()

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
        remaining = self.core.arguments["max_model_len"] - len(engine_input["prompt_token_ids"])
        params = _build_params(prompt.sampling, remaining, self.logprobs, self._pack_draft(prompt.draft))
        async with aclosing(self.core.stream(engine_input, params, prompt.priority)) as stream:
            async for output in stream:
                answer = output.outputs[0]
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


def launch_engines(
    settings: Settings,
    model: Path,
    shares: Sequence[Sequence[str]] = ((),),
    create: Callable[..., VllmEngine] = VllmEngine,
    **overrides: Any,
) -> list[VllmEngine]:
    """Launch an engine on each share of the GPUs, by default one on all; raises EngineError, and then none is left.

    Their cores load the model until the engines are opened or closed. Before, this process must not use CUDA or
    threads: all cores are forked here, and threads do not survive a fork. `overrides` are arguments of vLLM's engine
    that no setting names.
    """
    engines: list[VllmEngine] = []
    with ExitStack() as stack:
        for gpu_ids in shares:
            engines.append(create(settings, model, gpu_ids, is_first=not engines, **overrides))
            stack.callback(engines[-1].abandon)
        stack.pop_all()
    return engines


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


class IncrementalDetokenizer:
    """Turns an answer's tokens into text as they arrive, many at a time, decoding each token once where possible.

    `decode` must turn ids into text independently of the ids before them, as byte-level tokenizers do.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._text = ""
        self._pending: list[int] = []  # tokens since the last complete character

    def add(self, tokens: Sequence[int]) -> str:
        """The text so far, without a last character whose bytes are incomplete."""
        self._pending += tokens
        text = self._decode(self._pending)
        if not text.endswith(REPLACEMENT):
            self._text, self._pending = self._text + text, []
        return self._text

    def finish(self) -> str:
        """The whole text, without the bytes of a character in which the answer was cut off."""
        return self._text + self._decode(self._pending).rstrip(REPLACEMENT)


class TimeShare:
    """Divides the engine's busy time among the requests that were in it.

    While n requests are in the engine, each is charged 1/n of the time, so that all shares add up to the time in which
    the engine was busy. `enter` returns a mark; `leave(mark)` returns the seconds since then that are charged to this
    request.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.active = 0  # requests in the engine
        self._share = 0.0  # seconds charged to a request that has been in the engine from the beginning
        self._last = clock()

    def enter(self) -> float:
        self._advance()
        self.active += 1
        return self._share

    def leave(self, mark: float) -> float:
        self._advance()
        self.active -= 1
        return self._share - mark

    def _advance(self) -> None:
        now = self._clock()
        if self.active:
            self._share += (now - self._last) / self.active
        self._last = now
