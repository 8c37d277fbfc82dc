"""The readers' answers: tables, repetitions, formulas, charts, and the size of crops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.families.regions import cleanup, otsl
from twopass.families.regions.reader import READERS, RegionReader, Task
from twopass.models import MODELS, ResizeRule

TAGS = ["<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<ched>", "one", "two ", "<br>", "|"]
answers = st.lists(st.sampled_from(TAGS), max_size=30).map("".join)


@given(answers)
def test_any_otsl_gives_a_table_that_fills_its_grid(text: str) -> None:
    """Every place of the grid belongs to exactly one cell, whatever the tags are."""
    table = otsl.parse(text)

    if table is None:
        return
    places = [
        (cell.row + down, cell.col + across)
        for cell in table.cells
        for down in range(cell.row_span)
        for across in range(cell.col_span)
    ]
    assert sorted(places) == [(row, col) for row in range(table.rows) for col in range(table.cols)]


@given(answers)
def test_otsl_loses_no_words(text: str) -> None:
    """Each word of the answer is in a cell, also where tags contradict each other."""
    table = otsl.parse(text)

    if table is not None:
        for word in ("one", "two"):
            assert sum(cell.text.count(word) for cell in table.cells) == text.count(word)


def test_spans_of_otsl_are_cells() -> None:
    """A cell over two columns, and one over two rows and two columns."""
    table = otsl.parse("<ched>Rain<lcel><fcel>mm<nl><fcel>a<lcel><fcel>1<nl><ucel><xcel><fcel>2<nl>")

    assert table
    assert [(c.row, c.col, c.row_span, c.col_span, c.text, c.header) for c in table.cells] == [
        (0, 0, 1, 2, "Rain", True),
        (0, 2, 1, 1, "mm", False),
        (1, 0, 2, 2, "a", False),
        (1, 2, 1, 1, "1", False),
        (2, 2, 1, 1, "2", False),
    ]


@given(st.text(min_size=10, max_size=40).filter(lambda unit: unit.strip() == unit), st.integers(15, 60))
def test_a_unit_that_repeats_is_cut_to_its_first_copy(unit: str, times: int) -> None:
    """What is before the repetition remains, and of the repetition not more than two copies."""
    text = "A sentence before it. " + unit * times

    cut, was_cut = cleanup.cut_repetition(text, is_long_from=50)

    assert was_cut
    assert len(cut) <= len("A sentence before it. ") + 2 * len(unit) + cleanup.REPEATS
    assert text.startswith(cut[:22])


@given(st.text(max_size=300))
def test_cleaning_never_fails_and_changes_nothing_twice(text: str) -> None:
    """Any answer can be cleaned."""
    cleaned, _ = cleanup.clean_text(text, is_long_from=50)

    assert cleaned == cleaned.strip()
    cleanup.unwrap_formula(text)
    cleanup.parse_chart(text)
    cleanup.parse_table(text)


def test_ordinary_text_is_not_cut() -> None:
    """A form with few equal lines, and a paragraph, stay whole."""
    text = "\n".join(f"Name {number}: ____" for number in range(30)) + "\nThe end of the form, and its date."

    assert cleanup.cut_repetition(text, is_long_from=50) == (text, False)


def test_dots_of_a_table_of_contents_are_no_repetition() -> None:
    """Runs of dots and lines become three, and are not reported as a loop."""
    assert cleanup.clean_text(f"Rivers {'.' * 300}", is_long_from=50) == ("Rivers ...", False)


@pytest.mark.parametrize("wrapped", ["$$\n{}\n$$", "${}$", r"\[ {} \]", r"\({}\)", "```latex\n{}\n```", "{}"])
def test_a_formula_is_its_latex(wrapped: str) -> None:
    """The signs around it are left out."""
    assert cleanup.unwrap_formula(wrapped.replace("{}", r"\frac{a}{b}")) == r"\frac{a}{b}"


def test_blanks_within_dollars_go_and_those_around_them_stay() -> None:
    """Readers write blanks within the signs of a formula; what follows a formula is no formula."""
    assert cleanup.clean_text("is $ x^2 $ and $y = 2$ or $z$ here", 50) == ("is $x^2$ and $y = 2$ or $z$ here", False)


def test_marks_in_tags_are_raised_and_lowered() -> None:
    """No digit of a mark joins its number."""
    assert cleanup.clean_text("2007<sup>12</sup>, H<sub>2</sub>O", 50) == ("2007¹², H₂O", False)


def test_a_chart_of_lines_is_a_table() -> None:
    """The first line is the header."""
    table = cleanup.parse_chart("Year | Rain\n2023 | 610\n2024 | 480")

    assert table
    assert [(cell.text, cell.header) for cell in table.cells[:3]] == [("Year", True), ("Rain", True), ("2023", False)]
    assert cleanup.parse_chart("A bar chart of rain.") is None


def test_boilerplate_is_no_text() -> None:
    """What a model says instead of text is not the page's text."""
    assert cleanup.clean_text("The image is too blurry to recognize any text content.", 50) == ("", False)
    assert cleanup.clean_text("None.", 50) == ("None.", False)  # a field of a form may say so


def test_signs_of_code_are_kept() -> None:
    """Leaders and bullets are shortened and rewritten in text only."""
    code = "x = ______init\n* y"

    assert cleanup.clean_code(f"```python\n{code}\n```", 50) == (code, False)
    assert cleanup.clean_text(code, 50) == ("x = ___init\n- y", False)


def test_equal_rows_of_a_long_table_are_kept() -> None:
    """Text may repeat a unit ten times; a table may have as many equal rows as the loop check allows."""
    rows = "<tr><td>lime</td><td></td></tr>\n" * 200

    assert cleanup.cut_repetition(f"<table>{rows[: 31 * 100]}", 50)[1] is False
    assert cleanup.cut_repetition(f"<table>{rows}", 50)[1] is True


@given(
    st.sampled_from([MODELS[name].crop_input.resize for name in READERS]),
    st.integers(1, 9000),
    st.integers(1, 9000),
)
def test_every_crop_has_a_size_that_its_reader_accepts(rule: ResizeRule, width: int, height: int) -> None:
    """Both sides are multiples, and the pixels are within the limits but for rounding a thin side up."""
    across, down = rule.apply(width, height)

    assert across % rule.multiple == down % rule.multiple == 0
    assert across * down >= rule.least
    is_thin = min(across, down) == rule.multiple
    assert across * down <= rule.most or is_thin


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_every_task_of_a_reader_has_a_prompt(reader: RegionReader) -> None:
    """A label without a prompt would lose its regions."""
    assert set(reader.tasks.values()) <= set(reader.prompts)
    assert {Task.TEXT, Task.TABLE, Task.FORMULA} <= set(reader.tasks.values())
