"""The ink of strips with one line of text."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from twopass.pages import strips
from twopass.pages.strips import Array

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
