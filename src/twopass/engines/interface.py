"""A prompt in, a completion out: the one seam between documents and what reads them.

Knows prompts, pixels and tokens. Knows nothing of documents, elements, S3 or jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from twopass.document import RawCompletion
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool


@dataclass(frozen=True)
class PagePointer:
    """One page of a file on disk, for engines that read the file and not only its picture.

    `number` counts from 1; `turn` is the clockwise rotation (0, 90, 180, 270) to apply on top of
    the file's own; `password` opens an encrypted file. `is_scalable`: a page of a PDF that is drawn in no time,
    has text and hardly any pictures: it is better drawn anew than enlarged.
    """

    file: str
    number: int
    turn: int = 0
    password: str | None = field(default=None, repr=False)
    is_scalable: bool = False


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; engines ignore what they have no use for."""

    temperature: float = 0.0
    max_tokens: int | None = None
    ngram: int = 30
    window: int = 90
    allowed_tokens: tuple[int, ...] = (128821, 128822)  # <td> and </td> may repeat
    ignore_eos: bool = False  # for measuring: answers of a forced length


def sampling(*wanted: Mapping[str, Any]) -> Sampling:
    """The defaults with what is wanted instead, by field name; later ones win."""
    return replace(Sampling(), **{name: value for fields in wanted for name, value in fields.items()})


@dataclass(frozen=True)
class Prompt:
    """One question about one image. `priority` 0 goes before 1.

    `watch` is asked every hundred tokens or so whether the answer so far loops; True ends the request with
    finish_reason loop.
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
    watch: Callable[[str], bool] | None = None


@dataclass(frozen=True)
class Completion:
    """An engine's answer; finish_reason is stop, length, loop, abort, error where it refused, or crash.

    crash: the engine died over this prompt more than once, the last time with nothing else in it.
    """

    text: str
    finish_reason: str = "stop"
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    logprob: float | None = None


@dataclass(frozen=True)
class Incident:
    """Something that befell an engine and that it survived; jobs of that time tell it as a warning."""

    code: Code
    message: str


class Engine(Protocol):
    """What reads. Constructed on the main thread; everything else runs on the house's loop.

    `sequences` is how many prompts it works on at once, `family` the name of the one that asks it, `canary`
    whether a model answers that must first read a known picture, `slabs` memory of its own that page workers
    must share, None when it needs none. `started` has the seconds of each stage of its start. `incidents` only
    grows. `is_gone`: it will never answer again, and its worker has to be replaced.
    """

    kind: str
    precision: str
    family: str
    sequences: int
    canary: bool
    buffers: PixelBufferPool | None = None
    started: Mapping[str, float] = {}
    incidents: Sequence[Incident] = ()
    is_gone: bool = False

    async def open(self, page_pool: PagePool) -> None:
        """Become ready and warm; raises EngineError."""
        ...

    async def generate(self, prompt: Prompt) -> Completion:
        """Answer; raises EngineError. Cancelling the awaiting task aborts the request."""
        ...

    async def close(self) -> None: ...


def told(prompt: Prompt, completion: Completion) -> RawCompletion:
    """The completion as a checkpoint keeps it."""
    return RawCompletion(
        prompt_id=prompt.id,
        prompt=prompt.text,
        text=completion.text,
        finish_reason=completion.finish_reason,
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
    )


def describe(engine: Engine) -> dict[str, Any]:
    """The engine's part of a document's identity."""
    return {"engine": engine.kind, "precision": engine.precision}
