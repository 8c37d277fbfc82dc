"""The requests of stage (c), and what is compared of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from twopass.acceptance.pictures import Picture
from twopass.engines.interface import Sampling
from twopass.pages.shared_pixels import Pixels

STRICT_NGRAM = 3


@dataclass(frozen=True)
class Request:
    """A prompt with its image, how its answer is sampled, and a text with which our engine may draft it."""

    name: str
    prompt: str
    image: Pixels
    sampling: Sampling
    draft: str = ""

    @property
    def is_strict(self) -> bool:
        """Whether the n-gram ban acts on nearly every answer."""
        return self.sampling.ngram == STRICT_NGRAM


@dataclass(frozen=True)
class Answer:
    """An answer, and why it ended: stop or length."""

    text: str
    finish_reason: str


@dataclass(frozen=True)
class Answers:
    """The answers of one engine: to the first requests one at a time, and to all requests at once.

    `halves` are those to one half at once and then to the other, which shows what batching alone changes; only stock
    vLLM is asked for them. `preemptions` counts how often a request was interrupted and computed again because the KV
    cache was full. `drafted` and `accepted` count the draft tokens of an engine that `uses_drafts`.
    """

    alone: list[Answer]
    together: list[Answer]
    preemptions: int
    halves: Sequence[Answer] = ()
    uses_drafts: bool = False
    drafted: int = 0
    accepted: int = 0


def build_requests(prompts: Sequence[str], pictures: Sequence[Picture], count: int, usual: Sampling) -> list[Request]:
    """Return so many requests: every picture with each prompt in turn.

    Every third has a ban that often acts, if the model is used with an n-gram ban.
    """
    strict = replace(usual, ngram=STRICT_NGRAM) if usual.ngram else usual
    pairs = islice(cycle([(prompt, picture) for prompt in prompts for picture in pictures]), count)
    return [
        Request(
            name=f"{picture.name}, request {number}",
            prompt=prompt,
            image=picture.image,
            sampling=strict if number % 3 == 2 else usual,
        )
        for number, (prompt, picture) in enumerate(pairs)
    ]


def add_drafts(requests: Sequence[Request], alone: Sequence[Answer]) -> list[Request]:
    """Give the requests drafts: every other one an answer that was given alone, the others its words backwards.

    So some drafts are right and others wrong. A request that was not asked alone gets another one's answer.
    """
    texts = [alone[number % len(alone)].text for number in range(len(requests))]
    drafts = [text if number % 2 else " ".join(reversed(text.split())) for number, text in enumerate(texts)]
    return [replace(request, draft=draft) for request, draft in zip(requests, drafts, strict=True)]
