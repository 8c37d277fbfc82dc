"""The interface between the pipeline and the engines: prompts, completions and the Engine protocol.

Engines know nothing of documents, elements, S3 or jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from twopass.document import RawCompletion
from twopass.errors import Code
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool

# Characters: a job may ask for 8,192 tokens (job.Sampling). A token of prose has about four characters and the longest
# tag nine, so that no answer has 32 for each of its tokens. What a server sends beyond is no reading of a page.
MAX_ANSWER = 8192 * 32


@dataclass(frozen=True)
class Sampling:
    """How an engine samples tokens; an engine ignores the fields that it does not support.

    `ngram` is the length of the n-grams that may not repeat within the last `window` tokens; 0 allows every repetition.
    `repetition_penalty` divides the logits of tokens that the prompt or the answer already has; 1 changes nothing. vLLM
    refuses it together with an n-gram ban.
    """

    temperature: float = 0.0
    max_tokens: int | None = None
    ngram: int = 30
    window: int = 90
    allowed_tokens: tuple[int, ...] = (128821, 128822)  # <td> and </td> may repeat
    repetition_penalty: float = 1.0
    ignore_eos: bool = False  # for benchmarks, which need answers of a fixed length


def build_sampling(*overrides: Mapping[str, Any]) -> Sampling:
    """The default sampling with fields overridden by name; later overrides win."""
    return replace(Sampling(), **{name: value for fields in overrides for name, value in fields.items()})


@dataclass(frozen=True)
class Prompt:
    """One question about one image; priority 0 is served before 1.

    The engine calls `loop_check` with the answer so far about every hundred tokens; True ends the request with
    finish_reason loop. `draft` is text that the answer probably contains: an engine may verify it instead of generating
    it token by token. It changes the speed and not the distribution of answers; rounding may decide a tie otherwise. So
    it is neither recorded nor part of any identity.
    """

    id: str
    text: str
    image: Pixels
    page: PagePointer | None = None
    mode: str = "auto"
    max_crops: int = 6
    language: str | None = None
    sampling: Sampling = Sampling()
    priority: int = 1
    loop_check: Callable[[str], bool] | None = None
    draft: str = ""


@dataclass(frozen=True)
class Completion:
    """An engine's answer.

    `finish_reason` is stop, length, loop, abort, error (the engine refused the prompt) or crash (the engine died on
    this prompt more than once, the last time with no other request in flight). `logprob` is the mean log probability of
    its tokens, None if the engine does not report it.
    """

    text: str
    finish_reason: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    logprob: float | None = None


@dataclass(frozen=True)
class Incident:
    """A non-fatal engine failure, reported as a warning by the jobs that were running."""

    code: Code
    message: str


class EngineDied(Exception):
    """An engine died, and a prompt may be sent again. `had_prompt`: it was in the engine and may be the reason."""

    def __init__(self, had_prompt: bool) -> None:
        super().__init__("the engine died")
        self.had_prompt = had_prompt


class Engine(Protocol):
    """Answers prompts. It is constructed on the main thread; its methods run on the worker's event loop.

    `sequences`: how many prompts it processes at once.
    `prompts_per_page`: how many of them a page has at once; fewer pages are in flight where it is more than one.
    `members`: the engines that it consists of, each of which must pass the canary; empty if it is a single one.
    `statuses`: its state, or that of each member; empty for engines that do not report it.
    `family`: name of the family whose prompts it answers.
    `needs_canary`: whether it runs a model, which must read a known image correctly before it serves.
    `has_ngram_ban`: whether it has to apply `Sampling.ngram`; then it must be seen to act before the engine serves.
    `uses_drafts`: whether prompts need a draft; for other engines none is made.
    `buffer_pools`: pixel buffers of its own that page workers must share.
    `stage_ends`: when each stage of its start ended, as time.monotonic() counts, which all processes share.
    `incidents`: append-only.
    `fallbacks`: what it does more slowly than it could, by its name in `started`: with a library's own code, because
        that of twopass does not fit the library's version, or without CUDA graphs.
    `is_gone`: it will never answer again, and its worker must be replaced.
    `detector`: the layout detector in front of it with revision and precision, as documents name it; None without one.
    """

    kind: str
    precision: str
    family: str
    sequences: int
    needs_canary: bool
    has_ngram_ban: bool = True
    uses_drafts: bool = False
    buffer_pools: Sequence[PixelBufferPool] = ()
    stage_ends: Mapping[str, float] = {}
    incidents: Sequence[Incident] = ()
    fallbacks: Sequence[str] = ()
    is_gone: bool = False
    detector: str | None = None
    prompts_per_page: int = 1
    members: Sequence[Engine] = ()
    statuses: Sequence[EngineStatus] = ()

    async def open(self, page_pool: PagePool) -> None:
        """Load and warm up; raises EngineError."""
        ...

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer one prompt; raises EngineError. Cancelling the awaiting task aborts the request."""
        ...

    async def after_ready(self, is_warmed_up: bool = False) -> None:
        """Do what can wait until the worker serves; it may be cancelled.

        `is_warmed_up`: pictures of all kinds were read, so that all that jobs need is compiled.
        """
        return

    async def close(self) -> None: ...


class GroupMember(Engine, Protocol):
    """An engine that can leave it to a group where its prompts go when it dies. `gpus` names its GPUs."""

    gpus: str

    async def attempt(self, prompt: Prompt, is_alone: bool = False) -> Completion:
        """Answer a prompt, without any other in the engine if `is_alone`; raises EngineDied, EngineError."""
        ...

    async def wait_for_restart(self) -> None:
        """Start the engine again if it is dead, and return when it runs; raises EngineError."""
        ...


def to_raw_completion(prompt: Prompt, completion: Completion) -> RawCompletion:
    """The completion as a checkpoint stores it."""
    return RawCompletion(
        prompt_id=prompt.id,
        prompt=prompt.text,
        text=completion.text,
        finish_reason=completion.finish_reason,
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
    )


@dataclass(frozen=True)
class Identity:
    """What documents record of an engine. It follows from the settings, so that it is known before the engine starts.

    The names are those of Engine's attributes.
    """

    kind: str
    precision: str
    family: str
    detector: str | None = None


def describe(engine: Engine | Identity) -> dict[str, Any]:
    """The engine's part of a document's identity."""
    detector = {"detector": engine.detector} if engine.detector else {}  # named only if used: it changes document ids
    return {"engine": engine.kind, "precision": engine.precision, **detector}
