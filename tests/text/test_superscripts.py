"""Superscripts and subscripts in plain text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.document import Rect
from twopass.engines.cpu.content import StyledRun, StyledWord
from twopass.text import superscripts


@pytest.mark.parametrize(
    ("text", "start", "stop", "style", "written"),
    [
        ("20071", 4, 5, "^", "2007¹"),
        ("190023", 4, 6, "b^", "1900²³"),
        ("273,418,9051,2", 11, 14, "^", "273,418,905¹,²"),
        ("12.5a", 4, 5, "^", "12.5ᵃ"),
        ("m2", 1, 2, "^", "m²"),
        ("10-3", 2, 4, "^", "10⁻³"),
        ("H2O", 1, 2, "_", "H₂O"),
        ("14C", 0, 2, "^", "¹⁴C"),
        ("1st", 1, 3, "^", "1st"),
        ("bold", 0, 4, "b", "bold"),
        ("1", 0, 1, "^", "1"),
    ],
)
def test_a_raised_mark_never_joins_a_number(text: str, start: int, stop: int, style: str, written: str) -> None:
    """Digits, signs and single letters have characters of their own; words like `st`, and marks alone, stay."""
    assert StyledWord(Rect(0, 0, 9, 9), text, 0, runs=(StyledRun(start, stop, style),)).written == written


@given(st.text(max_size=8), st.sampled_from("^_"))
def test_places_of_characters_stay(text: str, style: str) -> None:
    """Each character becomes one character, and a digit none of the ten that numbers are written with."""
    written = superscripts.to_unicode(text, style)

    assert len(written) == len(text)
    assert written == text or not any(character in "0123456789" for character in written)


@given(st.text(alphabet="0123456789+()", max_size=8), st.sampled_from("^_"))
def test_what_a_tag_raises_is_plain(text: str, style: str) -> None:
    """The way back, for Markdown."""
    assert superscripts.from_unicode(superscripts.to_unicode(text, style)) == text
