"""The requests of stage (c), and what is compared of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from twopass.acceptance.pictures import Picture
from twopass.engines.interface import Sampling
from twopass.pages.shared_pixels import Pixels

STRICT_NGRAM = 3  # a ban that acts on nearly every answer
DEFAULT = Sampling()


@dataclass(frozen=True)
class Request:
    """A prompt with its image, and the n-gram ban of its answer."""

    name: str
    prompt: str
    image: Pixels
    max_tokens: int
    ngram: int = DEFAULT.ngram
    window: int = DEFAULT.window
    allowed: tuple[int, ...] = DEFAULT.allowed_tokens

    @property
    def sampling(self) -> Sampling:
        return Sampling(max_tokens=self.max_tokens, ngram=self.ngram, window=self.window, allowed_tokens=self.allowed)


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
    cache was full.
    """

    alone: list[Answer]
    together: list[Answer]
    preemptions: int
    halves: Sequence[Answer] = ()


def build_requests(prompts: Sequence[str], pictures: Sequence[Picture], count: int, max_tokens: int) -> list[Request]:
    """Return so many requests: every picture with each prompt in turn, every third with a ban that often acts."""
    pairs = islice(cycle([(prompt, picture) for prompt in prompts for picture in pictures]), count)
    return [
        Request(
            name=f"{picture.name}, request {number}",
            prompt=prompt,
            image=picture.image,
            max_tokens=max_tokens,
            ngram=STRICT_NGRAM if number % 3 == 2 else DEFAULT.ngram,
        )
        for number, (prompt, picture) in enumerate(pairs)
    ]
