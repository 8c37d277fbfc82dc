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
from twopass.families.deepseek import grounding, loops


@pytest.mark.parametrize("text", answers.LOOPS.values(), ids=answers.LOOPS)
def test_a_loop_is_seen_while_it_grows_and_afterwards(text: str) -> None:
    """The watch ends it before the answer is whole; the verdict knows it too."""
    seen = next(n for n in range(256, len(text) + 256, 256) if loops.growing(text[:n]))

    assert seen > len(answers.PAGE)
    assert loops.without(grounding.read(text).blocks)[1]


@pytest.mark.parametrize("text", answers.LOOPS.values(), ids=answers.LOOPS)
def test_what_was_read_before_the_loop_stays(text: str) -> None:
    """The page's own blocks are all there, what came in the loop hardly."""
    before = grounding.read(answers.PAGE).blocks
    kept, _ = loops.without(grounding.read(text).blocks)

    assert [block.content for block in kept[: len(before)]] == [block.content for block in before]
    assert len(before) <= len(kept) <= len(before) + 3
    assert sum(len(block.content) for block in kept[len(before) :]) < 9000
    assert any(block.flags == ("loop",) for block in kept[len(before) - 1 :])


@pytest.mark.parametrize("text", answers.LEGITIMATE)
def test_what_a_page_may_repeat_is_no_loop(text: str) -> None:
    """Forms, contents, lists of dates and empty tables, at every length."""
    assert not [n for n in range(0, len(text) + 64, 64) if loops.looping(text[:n])]
    assert loops.without(grounding.read(text).blocks) == (grounding.read(text).blocks, False)


@pytest.mark.parametrize("text", answers.EVEN.values(), ids=answers.EVEN)
def test_what_is_said_again_in_places_of_its_own_stays(text: str) -> None:
    """A form's column and a sheet of labels are whole, and say that they repeat."""
    assert not [n for n in range(0, len(text) + 64, 64) if loops.looping(text[:n])]
    kept, looped = loops.without(grounding.read(text).blocks)

    assert not looped
    assert [replace(block, flags=()) for block in kept] == list(grounding.read(text).blocks)
    assert sum(block.flags == ("repeats",) for block in kept) >= len(kept) - 8


def test_a_march_ends_while_it_grows() -> None:
    """Even where its boxes do not touch: no page has so many."""
    text = "".join(answers.block("text", "so", (100, 8 * n, 300, 8 * n + 5)) for n in range(130))

    assert loops.looping(text)


def test_boxes_are_counted_however_they_are_spaced() -> None:
    """Where a server has skipped all tags, and the model puts a blank between two brackets."""
    stuck = "text[ [10, 20, 10, 20]]\nso\n" * 9

    assert loops.looping(f"text[[1, 2, 30, 40]]\nso it goes\n{stuck}")


@pytest.mark.skipif(not answers.REAL.exists(), reason="real answers are not beside the repository")
def test_of_the_real_answers_only_the_form_loops() -> None:
    """simple_form says three letters over and over; all others are sound."""
    looping = {path.name for path in answers.REAL.glob("*.txt") if loops.looping(path.read_text())}

    assert looping == {"simple_form.grounding_markdown.txt"}


WORD = st.text(st.sampled_from("abcdefgh äöü中文"), min_size=1, max_size=8)


@given(WORD, st.lists(st.integers(1, 400), min_size=1, max_size=39, unique=True))
def test_a_forms_repeated_line_is_no_loop(line: str, heights: list[int]) -> None:
    """One text in up to 39 places that do not touch."""
    text = "".join(answers.block("text", line, (100, 2 * y, 300, 2 * y + 1)) for y in sorted(heights))

    assert not loops.looping(text)


@given(st.lists(st.tuples(WORD, st.integers(0, 10**6)), min_size=1, max_size=60))
def test_rows_that_differ_in_their_numbers_are_no_loop(rows: list[tuple[str, int]]) -> None:
    """A table of sixty rows with the same words and other numbers."""
    word = rows[0][0]
    table = "".join(f"<tr><td>{word}</td><td>{n}</td></tr>" for n in sorted({n for _, n in rows}))

    assert not loops.looping(answers.block("table", f"<table>{table}</table>"))


@given(
    st.text("ab 01", max_size=9), st.lists(st.integers(0, 10**5), min_size=1, max_size=9), st.text("a1\n", max_size=30)
)
def test_what_is_asked_first_of_numbered_lines_is_never_wrong(word: str, numbers: list[int], lead: str) -> None:
    """Whatever repeats itself often enough but for its numbers is looked at."""
    tail = (lead + "".join(f"{word}{numbers[n % len(numbers)]}x" for n in range(800)))[-loops.TAIL :]
    folded = re.sub(r"\d+", "0", tail)

    if loops._repeated(folded, loops._enough_numbered) is not None:
        assert loops._may_be_numbered(tail)


@given(st.text(max_size=60), st.text(max_size=400))
def test_any_text_has_a_verdict(unit: str, lead: str) -> None:
    """Neither the watch nor the cut fails, whatever is repeated."""
    text = lead + unit * 70
    place = loops.repetition(text)

    assert place is None or 0 <= place <= len(text)
    assert loops.looping(text) in (True, False)


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
def test_a_loop_is_seen_when_it_is_one_by_looking_at_the_last_blocks(
    runs: list[tuple[list[tuple[str, tuple[int, int, int, int]]], int, int]], cut: int
) -> None:
    """At the first look, six blocks after the one before, that the whole end would say so; wherever it breaks off."""
    told = [
        answers.block("text", said, (x0, y0 + n * step, x1, y1 + n * step))
        for unit, times, step in runs
        for n in range(times)
        for said, (x0, y0, x1, y1) in unit
    ]
    looks = ["".join(told[:end]) for end in range(6, len(told) + 1, 6)]
    looks = [text[: len(text) - cut] for text in looks]
    first = next((text for text in looks if loops.looping(text)), None)

    assert first is None or loops.growing(first)
    assert not any(loops.growing(text) and not loops.looping(text) for text in looks)


def test_who_got_out_of_a_loop_goes_on() -> None:
    """It is cut out of the answer afterwards."""
    out = answers.LOOPS["same place"] + answers.PAGE

    assert loops.looping(out)
    assert not loops.growing(out)


def test_the_watch_is_cheap_however_long_the_answer() -> None:
    """It is asked every 128 tokens of every answer in flight. Counted in calls: a clock depends on the hour."""
    long = answers.PAGE * 20
    assert len(long) > 2 * loops.TAIL

    assert 0 < calls_of(loops.growing, long) <= 1.1 * calls_of(loops.growing, long[-loops.TAIL :])
    assert calls_of(loops.growing, long) < 1000


def calls_of(function: Callable[[str], object], text: str) -> int:
    """Of Python's and C's functions, once what it remembers is remembered."""
    events: Counter[str] = Counter()
    function(text)
    sys.setprofile(lambda _frame, event, _what: events.update([event]))
    try:
        function(text)
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]
