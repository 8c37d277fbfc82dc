"""The ink of strips with one line of text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twopass.pages import strips
from twopass.pages.strips import Array, place_words

sizes = st.tuples(st.integers(1, 40), st.integers(1, 60))


def make_noise(size: tuple[int, int]) -> Array:
    return np.random.default_rng(sum(size)).integers(0, 255, (*size, 3)).astype(np.uint8)


@given(sizes)
def test_a_strip_of_any_size_is_trimmed_to_some_rows(size: tuple[int, int]) -> None:
    """Rows are only taken away at the edges, and never all."""
    trimmed = strips.trim(make_noise(size))

    assert 1 <= trimmed.shape[0] <= size[0] and trimmed.shape[1] == size[1]


@given(sizes, st.lists(st.floats(-10, 100)))
def test_coverage_is_a_share(size: tuple[int, int], letters: list[float]) -> None:
    """More letters never cover less."""
    shares = [strips.measure_coverage(make_noise(size), letters[:count]) for count in range(len(letters) + 1)]

    assert all(0 <= share <= 1 for share in shares) and shares == sorted(shares)


def test_columns_with_a_dark_pixel_have_ink() -> None:
    """Grey that differs from the background by less than half of what the ink does is none."""
    strip = np.full((30, 6, 3), 250, np.uint8)
    strip[10, 2], strip[4:20, 4], strip[:, 5] = 0, 100, 200

    assert strips.find_inked_columns(strip).tolist() == [False, False, True, False, True, False]


def test_ink_without_letters_is_not_covered() -> None:
    """Half of a line that was not read is half of its ink; a rule below the gap is no ink of letters."""
    strip = np.full((30, 400, 3), 255, np.uint8)
    strip[5:25, 0:400:6] = 0
    ruled = np.full((30, 400, 3), 255, np.uint8)
    ruled[5:25, 0:200:6], ruled[24:26, 200:] = 0, 0
    letters = [float(x) for x in range(0, 200, 12)]

    assert 0.45 < strips.measure_coverage(strip, letters) < 0.6
    assert strips.measure_coverage(ruled, letters) == 1.0
    assert strips.measure_coverage(np.full((30, 400, 3), 255, np.uint8), []) == 1.0


HEIGHT = 20  # pixels
LETTER = 8  # pixels of width


def draw_strip(letters: Sequence[int], width: int = 100) -> Array:
    """A white line with a letter at each of these columns."""
    strip = np.full((HEIGHT, width, 3), 255, np.uint8)
    for x in letters:
        strip[6:15, x : x + LETTER] = 0
    return strip


def list_centres(letters: Sequence[int], width: int = 100) -> list[float]:
    return [(x + LETTER / 2) / width for x in letters]


def test_words_end_at_their_ink() -> None:
    """The places of characters are only roughly known; the ink shows where a word begins and ends."""
    letters = [10, 20, 50, 60]
    rough = [centre + 0.03 for centre in list_centres(letters)]

    assert place_words(draw_strip(letters), "ab cd", rough) == (["ab", "cd"], ((0.1, 0.28), (0.5, 0.68)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3256ab", ["32", "56ab"]),  # two numbers
        ("32cdef", ["32", "cdef"]),
        ("abcdef", ["abcdef"]),  # letters alone do not show where a blank is missing
        ("311256", ["311256"]),  # a one is narrow
        ("3.,256", ["3.,256"]),
    ],
)
def test_a_number_without_its_blank_is_a_word_of_its_own(text: str, words: list[str]) -> None:
    """The recogniser leaves blanks out between numbers and what stands beside them."""
    letters = [10, 20, 40, 50, 60, 70]

    found, extents = place_words(draw_strip(letters), text, list_centres(letters))

    assert found == words
    assert len(extents) == len(words)


def test_rules_are_no_ink() -> None:
    """Rules along a line and across it belong to no word."""
    letters = [10, 20, 50, 60]
    strip = draw_strip(letters)
    strip[[1, 12]] = 0
    strip[:, [5, 38, 80]] = 0

    assert place_words(strip, "ab cd", list_centres(letters))[1] == ((0.1, 0.28), (0.5, 0.68))


def test_white_letters_on_black_are_ink() -> None:
    """What differs from most of the line is ink."""
    letters = [10, 20, 50, 60]

    assert place_words(255 - draw_strip(letters), "ab cd", list_centres(letters))[1] == ((0.1, 0.28), (0.5, 0.68))


def test_without_places_there_are_no_extents() -> None:
    """Places that are not those of the characters say nothing."""
    assert place_words(draw_strip([10, 20]), "a b", [0.1]) == (["a", "b"], ())
    assert place_words(draw_strip([]), "", []) == ([], ())


@given(
    st.text(st.sampled_from("ab019 .,é国"), max_size=12),
    st.lists(st.integers(0, 90), max_size=8),
    st.lists(st.floats(-0.5, 1.5), min_size=12, max_size=12),
)
def test_any_places_keep_every_letter(text: str, letters: list[int], places: list[float]) -> None:
    """Words have the letters of the text; their extents are within the line, or there are none."""
    centres = places[: len("".join(text.split()))]
    words, extents = place_words(draw_strip(letters), text, centres)

    assert "".join(words) == "".join(text.split())
    if extents:
        assert len(extents) == len(words)
        assert all(0 <= start < stop <= 1 for start, stop in extents)


def draw_surroundings(letters: Sequence[int], rows: Sequence[int] = ()) -> Array:
    """A line with a margin of its height around it, and rules across both in these rows of the line."""
    wide = np.full((3 * HEIGHT, 100 + 2 * HEIGHT, 3), 255, np.uint8)
    wide[HEIGHT : 2 * HEIGHT, HEIGHT:-HEIGHT] = draw_strip(letters)
    wide[[HEIGHT + row for row in rows]] = 0
    return wide


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ((), 0.0),
        ((15,), 0.0),  # the rule on which the letters stand
        ((2, 19), 0.4),  # above and below them, in a table
        ((8,), 1.0),  # a wire
        ((11, 15, 19), 1.0),  # a staff
    ],
)
def test_symbols_on_wires_are_one_with_ink_beyond_the_line(rows: Sequence[int], share: float) -> None:
    """Letters stand apart, but for the rule on which they stand."""
    assert strips.measure_linked(draw_surroundings([30, 50, 70], rows), HEIGHT) == pytest.approx(share, abs=0.15)


def test_letters_on_a_rule_that_slopes_stand_apart() -> None:
    """A line is straightened by its letters, not by the rule under them."""
    wide = draw_surroundings([30, 50, 70])
    for x in range(wide.shape[1]):
        wide[HEIGHT + 14 + x // 50 : HEIGHT + 16 + x // 50, x] = 0

    assert strips.measure_linked(wide, HEIGHT) < 0.2


@given(sizes, st.integers(1, 40))
@example((3, 30), 1)
@example((4, 30), 1)
def test_any_strip_has_a_linked_share(size: tuple[int, int], margin: int) -> None:
    """A strip that is all margin has none."""
    assert 0 <= strips.measure_linked(make_noise(size), margin) <= 1


def test_four_strokes_with_a_bar_are_tally_marks() -> None:
    """Four letters in a frame have the strokes, too, and a stroke along all of it."""
    tally = np.full((HEIGHT, 60, 3), 255, np.uint8)
    for x in range(10, 50, 10):
        tally[2:18, x : x + 2] = 0
    for x in range(8, 44):
        tally[5 + x // 5, x] = 0
    framed = tally.copy()
    framed[[2, 17], 8:44] = 0

    assert strips.show_tallies(tally)
    assert not strips.show_tallies(framed) and not strips.show_tallies(draw_strip([10, 20, 50, 60]))
