"""Stage (c): greedy answers of our engine compared with those of stock vLLM, one at a time and many at once.

Arithmetic in bfloat16 depends on how many prompts are computed together, so even stock vLLM answers differently in a
batch, and one token that differs changes the rest of an answer. How often that happens is measured in the same run; our
engine may differ from stock vLLM somewhat more often than stock vLLM differs from itself. Requests with a strict
n-gram ban are judged by themselves: they differ more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from statistics import mean

from rapidfuzz.distance import Levenshtein

from twopass.acceptance.checks import Check, CheckOutcome, judge, skip
from twopass.acceptance.drawn_pages import Picture
from twopass.engines.interface import Sampling
from twopass.models import name_models
from twopass.pages.shared_pixels import Pixels

STAGE = "c"
_MIN_EDIT_SHARE = 0.1  # of an answer's characters, from which on it counts as another answer
# Share of answers that may be others, beyond what batching alone changes. In a simulation, not with real weights, a
# sound engine exceeds it in 0.5 % of the runs if batching changes a tenth of the answers, and 30 % of those with a
# strict ban.
MARGIN = 0.35
_MIN_OTHER_ENDS = 2  # answers that may always end for another reason
_WRONG_ANSWERS = (
    "our engine does not compute what vLLM computes: if the embeddings of stage (b) agree, the n-gram ban, the "
    "scheduler or the worker of the plugin does not fit this GPU or these versions"
)
_DRAFTED = name_models(lambda model: model.is_drafted, by_title=True)
_NOT_DRAFTED = f"only {_DRAFTED} have drafts, on GPUs, with DRAFT_TOKENS"
_NO_DRAFTS = "drafts do not reach the GPU, or are not verified"
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
    """So many requests: every picture with each prompt in turn.

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


@dataclass(frozen=True)
class _Difference:
    """How two lists of answers differ.

    `others` is the share of answers that differ in _MIN_EDIT_SHARE of their characters or more, `other_ends` the share
    with another finish reason, `edit_share` the mean share of edited characters, all from 0 to 1.
    """

    others: float
    other_ends: float
    edit_share: float
    first: str

    def __str__(self) -> str:
        return f"{self.others:.0%} are other answers ({self.edit_share:.1%} of characters{self.first})"


def compare(requests: Sequence[Request], ours: Sequence[Answer], theirs: Sequence[Answer]) -> _Difference:
    """Compare answers pair by pair. Edits are Levenshtein's distance divided by the longer answer's length."""
    shares, first, other_ends = [], "", 0
    for request, one, other in zip(requests, ours, theirs, strict=True):
        shares.append(Levenshtein.normalized_distance(one.text, other.text))
        other_ends += one.finish_reason != other.finish_reason
        if not first and one.text != other.text:
            first = f", first in {request.name} at character {find_first_difference(one.text, other.text)}"
    others = sum(share >= _MIN_EDIT_SHARE for share in shares)
    return _Difference(others / len(shares), other_ends / len(shares), mean(shares), first)


def find_first_difference(one: str, other: str) -> int:
    """The first position at which the texts differ, or the length of the shorter one."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def check_answers(requests: Sequence[Request], ours: Answers, stock: Answers) -> list[Check]:
    """Compare the answers of our engine with those of stock vLLM."""
    everything = range(len(requests))
    batching = _compare(requests, stock.halves, stock.together, everything)
    checks = [Check(STAGE, "stock vLLM in halves and at once", CheckOutcome.PASSED, str(batching))]
    alone = range(len(stock.alone))
    checks += _judge(f"{len(alone)} one at a time", _compare(requests, ours.alone, stock.alone, alone), batching, alone)
    for name, is_strict in (("usual", False), ("strict", True)):
        chosen = [n for n in everything if requests[n].is_strict == is_strict]
        if chosen:
            batching = _compare(requests, stock.halves, stock.together, chosen)
            found = _compare(requests, ours.together, stock.together, chosen)
            ban = f", {name} n-gram ban" if requests[0].sampling.ngram else ""
            checks += _judge(f"{len(chosen)} at once{ban}", found, batching, chosen)
    checks.append(_check_drafts(ours))
    value = f"{ours.preemptions} by our engine, {stock.preemptions} by stock vLLM"
    if ours.preemptions:
        return [*checks, Check(STAGE, "interrupted answers", CheckOutcome.PASSED, value)]
    reason = f"{value}: our answers did not fill the KV cache, so interruptions are not tested"
    return [*checks, skip(STAGE, "interrupted answers", reason)]


def _check_drafts(ours: Answers) -> Check:
    """Drafts must have been right and wrong, or the answers given at once say nothing about them."""
    if not ours.uses_drafts:
        return skip(STAGE, "drafts", _NOT_DRAFTED)
    value = f"{ours.accepted} of {ours.drafted} draft tokens were accepted"
    return judge(STAGE, "drafts", 0 < ours.accepted < ours.drafted, value, "some, but not all", _NO_DRAFTS)


def _compare(
    requests: Sequence[Request], ours: Sequence[Answer], theirs: Sequence[Answer], numbers: Sequence[int]
) -> _Difference:
    return compare([requests[n] for n in numbers], [ours[n] for n in numbers], [theirs[n] for n in numbers])


def _judge(name: str, found: _Difference, batching: _Difference, numbers: Sequence[int]) -> list[Check]:
    others = min(1.0, batching.others + MARGIN)
    ends = min(1.0, batching.other_ends + max(MARGIN / 2, _MIN_OTHER_ENDS / len(numbers)))
    return [
        judge(STAGE, name, found.others <= others, found, f"at most {others:.0%}", _WRONG_ANSWERS),
        judge(STAGE, f"{name}: finish reasons", found.other_ends <= ends, f"{found.other_ends:.0%} differ",
              f"at most {ends:.0%}", _WRONG_ANSWERS),
    ]  # fmt: skip
