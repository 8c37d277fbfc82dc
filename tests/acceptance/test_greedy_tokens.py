"""Stage (c): which differences between our answers and stock vLLM's are accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.acceptance import drawn_pages, greedy_tokens
from twopass.acceptance.checks import CheckOutcome
from twopass.acceptance.greedy_tokens import STRICT_NGRAM, Answer, Answers, add_drafts, build_requests
from twopass.engines.interface import Sampling
from twopass.pages.shared_pixels import Pixels

PICTURE = drawn_pages.Picture("formula", Pixels(8, 8, data=bytes(192)))  # nobody looks at it
REQUESTS = build_requests(["<image>\nFree OCR."], [PICTURE], count=12, usual=Sampling(max_tokens=50))
TEXT = "The lighthouse keeper wrote in a blue ledger every evening: the height of the tide, and the wind."
SOUND = Answer(TEXT, "stop")
STOCK = Answers([SOUND] * 4, [SOUND] * 12, preemptions=3, halves=[SOUND] * 12)
OURS = replace(STOCK, uses_drafts=True, drafted=900, accepted=500)
ALL = range(12)
USUAL, STRICT = "8 at once, usual n-gram ban", "4 at once, strict n-gram ban"


def change(
    answers: Answers, change_text: Callable[[str], str], numbers: Iterable[int] = ALL, finish_reason: str = "stop"
) -> Answers:
    """Change the answers of these numbers that were given at once."""
    changed = [
        Answer(change_text(answer.text), finish_reason) if n in numbers else answer
        for n, answer in enumerate(answers.together)
    ]
    return replace(answers, together=changed)


def cut(text: str) -> str:
    return text[:60]


def find_failed(ours: Answers, stock: Answers = STOCK) -> list[str]:
    checks = greedy_tokens.check_answers(REQUESTS, ours, stock)
    return [check.name for check in checks if check.outcome is CheckOutcome.FAILED]


def test_equal_answers_pass() -> None:
    """Preemptions of both engines are reported."""
    checks = greedy_tokens.check_answers(REQUESTS, OURS, STOCK)

    assert {check.outcome for check in checks} == {CheckOutcome.PASSED}
    assert checks[-1].value == "3 by our engine, 3 by stock vLLM"


def test_one_other_character_in_every_answer_passes() -> None:
    """Another attention kernel may change a near tie."""
    assert find_failed(change(STOCK, lambda text: text.replace("blue", "bluo"))) == []


def test_a_few_other_answers_pass() -> None:
    """One token that differs changes the rest of an answer: two of eight, and one of four with a strict ban."""
    assert find_failed(change(STOCK, cut, [0, 1, 2])) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda text: text + 40 * " the the", id="a ban that does not act"),
        pytest.param(lambda text: text[:30], id="a KV cache with a block missing"),
        pytest.param(lambda text: text.replace(" ", ""), id="lost spaces"),
    ],
)
def test_a_fault_in_the_batch_is_caught(fault: Callable[[str], str]) -> None:
    """Only the answers at once are wrong: those one at a time still pass."""
    assert find_failed(change(STOCK, fault)) == [USUAL, STRICT]


def test_a_fault_of_the_ban_alone_is_caught() -> None:
    """Answers that it does not change are equal; those with a strict ban are judged by themselves."""
    assert find_failed(change(STOCK, lambda text: text + 40 * " the the", range(2, 12, 3))) == [STRICT]


def test_a_fault_of_single_prompts_is_caught() -> None:
    """Stock vLLM answers them as it does in the batch."""
    ours = replace(STOCK, alone=[Answer(cut(TEXT), "stop")] * 4)

    assert find_failed(ours) == ["4 one at a time"]


def test_other_finish_reasons_are_caught() -> None:
    """All answers have the right text and end at the limit."""
    failed = find_failed(change(STOCK, str, finish_reason="length"))

    assert failed == [f"{USUAL}: finish reasons", f"{STRICT}: finish reasons"]


def test_what_stock_vllm_differs_from_itself_is_allowed() -> None:
    """If batching changes half of stock vLLM's own answers, half of our engine's may be others."""
    unstable = replace(STOCK, halves=change(STOCK, cut, range(0, 12, 2)).together)

    assert find_failed(change(STOCK, cut, range(6))) == [USUAL, STRICT]
    assert find_failed(change(STOCK, cut, range(6)), unstable) == []


def test_without_preemptions_the_check_was_not_run() -> None:
    """Answers that fit into the KV cache do not test what happens when it is full."""
    *_, check = greedy_tokens.check_answers(REQUESTS, replace(STOCK, preemptions=0), STOCK)

    assert (check.outcome, check.meaning[:15]) == (CheckOutcome.NOT_RUN, "0 by our engine")


def test_interruptions_of_our_engine_are_enough() -> None:
    """Stock vLLM's answers are the reference, whether or not it was interrupted."""
    *_, check = greedy_tokens.check_answers(REQUESTS, STOCK, replace(STOCK, preemptions=0))

    assert check.outcome == CheckOutcome.PASSED


def test_every_third_request_has_a_strict_ban() -> None:
    """So that the ban acts on answers that would not loop."""
    assert [request.sampling.ngram == STRICT_NGRAM for request in REQUESTS] == [False, False, True] * 4


@given(st.text(), st.text(), st.text())
def test_the_first_difference_is_where_texts_part(common: str, one: str, other: str) -> None:
    """Before it the texts are equal; at it they differ or one has ended."""
    at = greedy_tokens.find_first_difference(common + one, common + other)

    assert at >= len(common)
    assert (common + one)[:at] == (common + other)[:at]
    assert (common + one)[at : at + 1] != (common + other)[at : at + 1] or one == other


def test_every_other_request_is_drafted_with_an_answer() -> None:
    """The others get its words backwards."""
    drafted = add_drafts(REQUESTS, [SOUND] * 4)

    assert [request.draft == TEXT for request in drafted] == [False, True] * 6
    assert all(sorted(request.draft.split()) == sorted(TEXT.split()) for request in drafted)


@pytest.mark.parametrize(
    ("uses_drafts", "drafted", "accepted", "outcome"),
    [
        (True, 900, 500, CheckOutcome.PASSED),
        (True, 900, 900, CheckOutcome.FAILED),
        (True, 900, 0, CheckOutcome.FAILED),
        (True, 0, 0, CheckOutcome.FAILED),
        (False, 0, 0, CheckOutcome.NOT_RUN),
    ],
)
def test_drafts_must_have_been_right_and_wrong(
    uses_drafts: bool, drafted: int, accepted: int, outcome: CheckOutcome
) -> None:
    """The requests have right and wrong drafts. An engine without drafts, as on a CPU, is not asked for any."""
    ours = replace(STOCK, uses_drafts=uses_drafts, drafted=drafted, accepted=accepted)

    checks = greedy_tokens.check_answers(REQUESTS, ours, STOCK)

    assert {check.name: check.outcome for check in checks}["drafts"] is outcome
