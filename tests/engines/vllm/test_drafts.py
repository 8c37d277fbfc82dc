"""Draft tokens from the text of the page and from the answer's own past."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from twopass.engines.vllm.plugin.drafts import (
    FEW_ANSWERS,
    MAX_MATCH,
    MIN_MATCH,
    choose_count,
    count_in_step,
    find_draft,
)

NUMBERS = range(10, 20)
REF, LABEL, REF_END, DET, OPEN, COMMA, CLOSE, DET_END, NEWLINE = range(100, 109)
TAG = (REF, LABEL, REF_END, DET, OPEN, 10, COMMA, 11, CLOSE, DET_END, NEWLINE)

tokens = st.lists(st.integers(0, 4) | st.sampled_from(NUMBERS[:3]), max_size=24)
calls = st.tuples(tokens, st.integers(0, 24), tokens, st.integers(0, 9), st.integers(0, 8)).map(
    lambda call: (call[0], min(call[1], len(call[0])), call[2], min(call[3], len(call[2])), call[4])
)


@given(calls)
def test_the_draft_is_what_trying_each_candidate_in_order_finds(
    call: tuple[list[int], int, list[int], int, int],
) -> None:
    """The order of the scores is that of the description."""
    assert find_draft(*call, NUMBERS) == _try_in_order(*call)


@given(calls)
def test_drafts_come_from_the_text_or_the_answer(call: tuple[list[int], int, list[int], int, int]) -> None:
    """A draft is never longer than asked, has no invented token, and the cursor stays inside the text."""
    text, _, output, _, count = call

    draft, cursor = find_draft(*call, NUMBERS)

    assert len(draft) <= count
    assert any(draft == source[at : at + len(draft)] for source in (text, output) for at in range(len(source) + 1))
    assert 0 <= cursor <= len(text)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60, unique=True), st.integers(1, 8))
def test_an_answer_that_is_the_text_is_drafted_without_a_miss(text: list[int], count: int) -> None:
    """Every step then yields `count` tokens and the one that the model adds."""
    assert _count_steps(text, text, count) == -(-len(text) // (count + 1))


@given(st.lists(st.integers(20, 99), min_size=12, max_size=40, unique=True), st.integers(4, 8), st.integers(1, 4))
def test_the_position_continues_after_a_grounding_tag(text: list[int], split: int, count: int) -> None:
    """The cursor rests during the tag, and one token of the text is enough to draft the rest of it."""
    output, cursor = [], 0
    for token in (*TAG, *text[:split], *TAG, text[split]):
        output.append(token)
        draft, cursor = find_draft(text, cursor, output, 1, count, NUMBERS)

    assert cursor == split + 1
    assert draft == text[split + 1 : split + 1 + count]


def test_the_signs_between_new_coordinates_are_drafted() -> None:
    """Numbers equal each other in the answer's past: an unseen coordinate does not end the match."""
    output = [*TAG, 1, 2, 3, REF, LABEL, REF_END, DET, OPEN, 19]

    assert find_draft([], 0, output, 1, 2, NUMBERS) == ([COMMA, 11], 0)


def test_numbers_differ_in_the_text() -> None:
    """Otherwise the amounts of another row would be drafted."""
    draft, cursor = find_draft([1, 10, 5, 1, 11, 6], 0, [1, 11], 1, 1, NUMBERS)

    assert (draft, cursor) == ([6], 5)


def test_a_word_that_the_model_reads_differently_costs_one_step() -> None:
    """The text after the replaced token is drafted at once."""
    draft, cursor = find_draft([1, 2, 3, 4, 5, 6, 7], 0, [1, 2, 3, 9], 4, 2, NUMBERS)

    assert (draft, cursor) == ([5, 6], 3)


def test_a_repeated_phrase_is_taken_from_the_cursor_on() -> None:
    """The phrase occurs before and after the cursor; reading goes forward."""
    text = [1, 2, 3, 9, 9, 1, 2, 4, 8, 1, 2, 5]

    draft, cursor = find_draft(text, 4, [0, 1, 2], 2, 1, NUMBERS)

    assert (draft, cursor) == ([4], 7)


def _count_steps(answer: Sequence[int], text: Sequence[int], count: int) -> int:
    """Return how many calls a model needs that accepts what it would write itself."""
    output: list[int] = []
    cursor, fresh, steps = 0, 0, 0
    while len(output) < len(answer):
        draft, cursor = find_draft(text, cursor, output, fresh, count, NUMBERS)
        rest = answer[len(output) :]
        accepted = next((at for at, token in enumerate(draft) if rest[at : at + 1] != [token]), len(draft))
        fresh = min(accepted + 1, len(rest))
        output += rest[:fresh]
        steps += 1
    return steps


def _try_in_order(text: list[int], cursor: int, output: list[int], fresh: int, count: int) -> tuple[list[int], int]:
    """Try the candidates one by one, the longest matches first."""
    new = output[len(output) - fresh :]
    kept = max(length for length in range(fresh + 1) if text[cursor : cursor + length] == new[:length])
    cursor += kept
    classes = ["number" if token in NUMBERS else token for token in output]
    ahead = range(cursor, len(text))
    behind = range(min(cursor, len(text)) - 1, 0, -1)
    for length in range(MAX_MATCH, 0, -1):
        for end in (*ahead, *behind):
            long_enough = length >= MIN_MATCH and end >= length and length <= len(output)
            if long_enough and text[end - length : end] == output[-length:]:
                return text[end : end + count], end
        for end in range(len(output) - 1, length - 1, -1):
            if classes[end - length : end] == classes[-length:]:
                return output[end : end + count], cursor
    start = cursor if kept == fresh else cursor + 1
    return text[start : start + count], cursor


@given(most=st.integers(0, 15), sequences=st.integers(1, 600))
def test_a_step_has_room_for_the_drafts_of_any_number_of_answers(most: int, sequences: int) -> None:
    """All of few answers, half of more; a setting of one draft never becomes none."""
    counts = [choose_count(most, answers) for answers in range(1, sequences + 1)]

    assert count_in_step(most, sequences) == max(answers * count for answers, count in enumerate(counts, 1))
    assert set(counts[:FEW_ANSWERS]) == {most}
    assert all(most <= 2 * count <= most + 1 for count in counts[FEW_ANSWERS:])
