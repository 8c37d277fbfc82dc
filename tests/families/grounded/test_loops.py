"""What counts as a loop, and what a page may repeat."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import answers
from twopass.families.grounded import grounding, loops


@pytest.mark.parametrize("text", answers.LOOPS.values(), ids=answers.LOOPS)
def test_a_loop_is_seen_while_it_grows_and_afterwards(text: str) -> None:
    """The watch stops a growing answer after its sound part, and the finished answer is recognised as well."""
    seen = next(n for n in range(256, len(text) + 256, 256) if loops.is_in_loop(text[:n]))

    assert seen > len(answers.PAGE)
    assert loops.remove_loops(grounding.parse(text).blocks)[1]


@pytest.mark.parametrize("text", answers.LOOPS.values(), ids=answers.LOOPS)
def test_blocks_before_a_loop_are_kept(text: str) -> None:
    """All blocks before the loop are kept, and at most three of the loop's own, the last sound one flagged."""
    before = grounding.parse(answers.PAGE).blocks
    kept, _ = loops.remove_loops(grounding.parse(text).blocks)

    assert [block.content for block in kept[: len(before)]] == [block.content for block in before]
    assert len(before) <= len(kept) <= len(before) + 3
    assert sum(len(block.content) for block in kept[len(before) :]) < 9000
    assert any(block.flags == ("loop",) for block in kept[len(before) - 1 :])


@pytest.mark.parametrize("text", answers.LEGITIMATE)
def test_what_a_page_may_repeat_is_no_loop(text: str) -> None:
    """Forms, tables of contents, lists of dates and empty tables are no loops, at any length of the answer."""
    assert not [n for n in range(0, len(text) + 64, 64) if loops.has_loop(text[:n])]
    assert loops.remove_loops(grounding.parse(text).blocks) == (grounding.parse(text).blocks, False)


@pytest.mark.parametrize("text", answers.EVEN.values(), ids=answers.EVEN)
def test_repetitions_in_places_of_their_own_are_kept(text: str) -> None:
    """The column of a form and a sheet of labels are kept whole and flagged as repeats."""
    assert not [n for n in range(0, len(text) + 64, 64) if loops.has_loop(text[:n])]
    kept, has_loops = loops.remove_loops(grounding.parse(text).blocks)

    assert not has_loops
    assert [replace(block, flags=()) for block in kept] == list(grounding.parse(text).blocks)
    assert sum(block.flags == ("repeats",) for block in kept) >= len(kept) - 8


def test_evenly_spaced_repetitions_are_stopped_while_they_grow() -> None:
    """130 repetitions are a loop even if their boxes do not touch: no page has so many."""
    text = "".join(answers.block("text", "so", (100, 8 * n, 300, 8 * n + 5)) for n in range(130))

    assert loops.has_loop(text)


def test_boxes_are_counted_with_and_without_spaces() -> None:
    """Bare boxes with a space between the brackets count, in an answer from which a server removed the tags."""
    stuck = "text[ [10, 20, 10, 20]]\nso\n" * 9

    assert loops.has_loop(f"text[[1, 2, 30, 40]]\nso it goes\n{stuck}")


@pytest.mark.skipif(not answers.REAL.exists(), reason="the real answers are not part of the repository")
def test_of_the_real_answers_only_the_form_loops() -> None:
    """simple_form repeats three letters endlessly; all other real answers are sound."""
    looping = {path.name for path in answers.REAL.glob("*.txt") if loops.has_loop(path.read_text())}

    assert looping == {"simple_form.grounding_markdown.txt"}


WORD = st.text(st.sampled_from("abcdefgh äöü中文"), min_size=1, max_size=8)


@given(WORD, st.lists(st.integers(1, 400), min_size=1, max_size=39, unique=True))
def test_a_forms_repeated_line_is_no_loop(line: str, heights: list[int]) -> None:
    """The same text in up to 39 places that do not touch is no loop."""
    text = "".join(answers.block("text", line, (100, 2 * y, 300, 2 * y + 1)) for y in sorted(heights))

    assert not loops.has_loop(text)


@given(st.lists(st.tuples(WORD, st.integers(0, 10**6)), min_size=1, max_size=60))
def test_rows_that_differ_in_their_numbers_are_no_loop(rows: list[tuple[str, int]]) -> None:
    """A table of sixty rows with the same words and different numbers is no loop."""
    word = rows[0][0]
    table = "".join(f"<tr><td>{word}</td><td>{n}</td></tr>" for n in sorted({n for _, n in rows}))

    assert not loops.has_loop(answers.block("table", f"<table>{table}</table>"))


@given(
    st.text("ab 01", max_size=9), st.lists(st.integers(0, 10**5), min_size=1, max_size=9), st.text("a1\n", max_size=30)
)
def test_lines_that_differ_only_in_numbers_are_found_whatever_the_period(
    word: str, numbers: list[int], lead: str
) -> None:
    """Repetitions that differ only in numbers are always found: the quick check before the search misses none."""
    tail = (lead + "".join(f"{word}{numbers[n % len(numbers)]}x" for n in range(800)))[-loops.TAIL :]
    without_numbers = re.sub(r"\d+", "0", tail)
    periods = range(1, len(without_numbers) // loops.NUMBERED_REPEATS + 1)

    if any(without_numbers.endswith(without_numbers[-period:] * loops.NUMBERED_REPEATS) for period in periods):
        assert loops.find_repetition(tail) is not None


@given(st.text(max_size=60), st.text(max_size=400))
def test_any_text_can_be_checked_for_loops(unit: str, lead: str) -> None:
    """Both checks accept any text, whatever is repeated in it."""
    text = lead + unit * 70
    offset = loops.find_repetition(text)

    assert offset is None or 0 <= offset <= len(text)
    assert loops.has_loop(text) in (True, False)


PLACES = ((100, 100, 300, 120), (100, 110, 300, 130), (400, 100, 600, 120), (20, 844, 20, 860), (500, 700, 510, 690))
RUNS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(("a", "b", "so it goes")), st.sampled_from(PLACES)), min_size=1, max_size=5),
        st.integers(1, 40),
        st.sampled_from((0, 0, 3)),
    ),
    min_size=1,
    max_size=4,
)


@given(RUNS, st.integers(0, 60))
def test_checking_only_the_last_blocks_finds_every_new_loop(
    runs: list[tuple[list[tuple[str, tuple[int, int, int, int]]], int, int]], cut: int
) -> None:
    """The check of a growing answer finds a loop as soon as the full check does, wherever the answer is cut off."""
    blocks = [
        answers.block("text", text, (x0, y0 + n * step, x1, y1 + n * step))
        for unit, times, step in runs
        for n in range(times)
        for text, (x0, y0, x1, y1) in unit
    ]
    prefixes = ["".join(blocks[:end]) for end in range(6, len(blocks) + 1, 6)]  # six new blocks per check
    prefixes = [text[: len(text) - cut] for text in prefixes]
    first = next((text for text in prefixes if loops.has_loop(text)), None)

    assert first is None or loops.is_in_loop(first)
    assert not any(loops.is_in_loop(text) and not loops.has_loop(text) for text in prefixes)


def test_an_answer_that_left_its_loop_is_not_stopped() -> None:
    """The model may go on after a loop; the loop is cut out of the finished answer."""
    text = answers.LOOPS["same place"] + answers.PAGE

    assert loops.has_loop(text)
    assert not loops.is_in_loop(text)


def test_the_watch_is_cheap_however_long_the_answer() -> None:
    """The check runs every 128 tokens, so its cost must not grow with the answer. Calls are counted, not time."""
    long = answers.PAGE * 20
    assert len(long) > 2 * loops.TAIL

    assert 0 < calls_of(loops.is_in_loop, long) <= 1.1 * calls_of(loops.is_in_loop, long[-loops.TAIL :])
    assert calls_of(loops.is_in_loop, long) < 1000


def calls_of(function: Callable[[str], object], text: str) -> int:
    """Count the Python and C function calls of a second run, when the caches are filled."""
    events: Counter[str] = Counter()
    function(text)
    sys.setprofile(lambda _frame, event, _what: events.update([event]))
    try:
        function(text)
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]


@pytest.mark.parametrize("columns", [5, 10, 31])
def test_the_rows_of_an_empty_form_in_otsl_are_no_loop(columns: int) -> None:
    """As many rows as in HTML may be equal: 149."""
    row = "<fcel>Name" + "<ecel>" * columns + "<nl>\n"

    assert loops.find_repetition(row * 140) is None
    assert loops.find_repetition("<ecel><ecel><nl>\n" * 200) is not None
