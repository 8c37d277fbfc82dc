"""Stage (c): greedy answers of our engine compared with those of stock vLLM, one by one and many at once.

Arithmetic in bfloat16 depends on how many prompts are computed together, so even stock vLLM answers differently in a
batch. How much it does is measured in the same run, and our engine may differ by little more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from rapidfuzz.distance import Levenshtein

from twopass.acceptance.checks import Check, Outcome, judge, skip
from twopass.acceptance.greedy_requests import Answer, Answers, Request

STAGE = "c"
MARGIN = 0.02  # of an answer's characters, allowed beyond what stock vLLM differs from itself; provisional
MAX_OTHER_ENDS = 0.05  # share of answers that may end for another reason, beyond the same of stock vLLM; provisional
WRONG_ANSWERS = (
    "our engine does not compute what vLLM computes: if the embeddings of stage (b) agree, the n-gram ban, the "
    "scheduler or the worker of the plugin does not fit this GPU or these versions"
)


@dataclass(frozen=True)
class Difference:
    """How two lists of answers differ: mean share of edited characters, the first difference, share of other ends."""

    edit_share: float
    first: tuple[str, int] | None
    other_ends: float

    def __str__(self) -> str:
        where = f", first in {self.first[0]} at character {self.first[1]}" if self.first else ""
        return f"{self.edit_share:.1%} of characters differ{where}"


def compare(requests: Sequence[Request], ours: Sequence[Answer], theirs: Sequence[Answer]) -> Difference:
    """`edit_share` is Levenshtein's distance divided by the longer answer's length, from 0 to 1."""
    shares, first, other_ends = [], None, 0
    for request, one, other in zip(requests, ours, theirs, strict=True):
        shares.append(Levenshtein.normalized_distance(one.text, other.text))
        other_ends += one.finish_reason != other.finish_reason
        if first is None and one.text != other.text:
            first = (request.name, find_first_difference(one.text, other.text))
    return Difference(mean(shares), first, other_ends / len(requests))


def find_first_difference(one: str, other: str) -> int:
    """The first position at which the texts differ, or the length of the shorter one."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def check_answers(requests: Sequence[Request], ours: Answers, stock: Answers) -> list[Check]:
    """Compare the answers of our engine with those of stock vLLM."""
    alone = len(stock.alone)
    batching = compare(requests[:alone], stock.alone, stock.together[:alone])
    checks = [Check(STAGE, "stock vLLM against itself", Outcome.PASSED, f"{batching}, one by one against at once")]
    for name, one, other in (
        (f"{alone} one by one", ours.alone, stock.alone),
        (f"{len(requests)} at once", ours.together, stock.together),
    ):
        found = compare(requests[: len(other)], one, other)
        edits, ends = batching.edit_share + MARGIN, batching.other_ends + MAX_OTHER_ENDS
        checks += [
            judge(STAGE, f"answers, {name}", found.edit_share <= edits, found, f"at most {edits:.1%}", WRONG_ANSWERS),
            judge(STAGE, f"ends, {name}", found.other_ends <= ends, f"{found.other_ends:.1%} end for other reasons",
                  f"at most {ends:.1%}", WRONG_ANSWERS),
        ]  # fmt: skip
    value = f"{ours.preemptions} ours, {stock.preemptions} stock"
    if ours.preemptions and stock.preemptions:
        return [*checks, Check(STAGE, "interrupted answers", Outcome.PASSED, value)]
    return [
        *checks,
        skip(STAGE, "interrupted answers", f"{value}: the KV cache was not full, so fewer paths are tested"),
    ]
