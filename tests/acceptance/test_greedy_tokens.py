"""Stage (c): which differences between our answers and stock vLLM's are accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.acceptance import greedy_tokens, pictures
from twopass.acceptance.checks import Outcome
from twopass.acceptance.greedy_requests import STRICT_NGRAM, Answer, Answers, build_requests

PICTURE = pictures.Picture("formula", pictures.draw_all()[-1].image)
REQUESTS = build_requests(["<image>\nFree OCR."], [PICTURE], count=6, max_tokens=50)
TEXT = "The lighthouse keeper wrote in a blue ledger every evening: the height of the tide, and the wind."
STOCK = Answers([Answer(TEXT, "stop")] * 2, [Answer(TEXT, "stop")] * 6, preemptions=3)


def change(answers: Answers, change_text: Callable[[str], str], finish_reason: str = "stop") -> Answers:
    changed = [Answer(change_text(answer.text), finish_reason) for answer in answers.together]
    return replace(answers, together=changed)


def find_failed(ours: Answers, stock: Answers = STOCK) -> list[str]:
    checks = greedy_tokens.check_answers(REQUESTS, ours, stock)
    return [check.name for check in checks if check.outcome is Outcome.FAILED]


def cut(text: str) -> str:
    return text[:80]


def test_equal_answers_pass() -> None:
    """Preemptions of both engines are reported."""
    checks = greedy_tokens.check_answers(REQUESTS, STOCK, STOCK)

    assert {check.outcome for check in checks} == {Outcome.PASSED}
    assert checks[-1].value == "3 ours, 3 stock"


def test_one_other_character_in_an_answer_passes() -> None:
    """Another attention kernel may change a near tie."""
    assert find_failed(change(STOCK, lambda text: text.replace("blue", "bluo"))) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda text: text + 40 * " the the", id="a ban that does not act"),
        pytest.param(lambda text: text[:30], id="a KV cache with a block missing"),
        pytest.param(lambda text: text.replace(" ", ""), id="lost spaces"),
    ],
)
def test_a_fault_in_the_batch_is_caught(fault: Callable[[str], str]) -> None:
    """Only the answers at once are wrong: those one by one still pass."""
    assert find_failed(change(STOCK, fault)) == ["answers, 6 at once"]


def test_other_ends_are_caught() -> None:
    """All answers have the right text and end at the limit."""
    assert find_failed(change(STOCK, str, "length")) == ["ends, 6 at once"]


def test_what_stock_vllm_differs_from_itself_is_allowed() -> None:
    """If batching changes a fifth of stock vLLM's own answers, our engine's may differ as much."""
    unstable = replace(STOCK, alone=change(STOCK, cut).together[:2])

    assert find_failed(change(STOCK, cut)) == ["answers, 6 at once"]
    assert find_failed(change(unstable, cut), unstable) == []


def test_without_preemptions_the_check_was_not_run() -> None:
    """Answers that fit into the KV cache do not test what happens when it is full."""
    *_, check = greedy_tokens.check_answers(REQUESTS, replace(STOCK, preemptions=0), STOCK)

    assert (check.outcome, check.value or check.meaning[:16]) == (Outcome.NOT_RUN, "0 ours, 3 stock:")


def test_every_third_request_has_a_strict_ban() -> None:
    """So that the ban acts on answers that would not loop."""
    assert [request.ngram == STRICT_NGRAM for request in REQUESTS] == [False, False, True] * 2


@given(st.text(), st.text(), st.text())
def test_the_first_difference_is_where_texts_part(common: str, one: str, other: str) -> None:
    """Before it the texts are equal; at it they differ or one has ended."""
    at = greedy_tokens.find_first_difference(common + one, common + other)

    assert at >= len(common)
    assert (common + one)[:at] == (common + other)[:at]
    assert (common + one)[at : at + 1] != (common + other)[at : at + 1] or one == other
