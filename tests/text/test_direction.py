"""The direction of a text, and the forms of its letters."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.text import direction


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("שלום", True),
        ("لغة Python", False),
        ("اللغة العربية Python", True),
        ("The word שלום means peace", False),
        ("12 (3)", False),
        ("", False),
    ],
)
def test_the_direction_is_that_of_most_letters(text: str, expected: bool) -> None:
    """Letters decide, and numbers and punctuation do not."""
    assert direction.is_rtl(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufedf\ufe8e", "لا"),  # initial lam, final alef
        ("\ufefb", "لا"),  # the ligature of both
        ("\ufb01nd", "find"),
        ("\ufb2a", "ש\u05c1"),
        ("\ufe76", "\u064e"),  # an isolated vowel sign, without the space of its NFKC form
        ("\ufdfa ² ﬩", "\ufdfa ² ﬩"),  # the sign of a phrase, a superscript and a plus are not forms of letters
    ],
)
def test_forms_of_letters_are_replaced(text: str, expected: str) -> None:
    """Only forms of letters become letters."""
    assert direction.replace_forms(text) == expected


@given(st.text())
def test_replacing_forms_changes_nothing_else(text: str) -> None:
    """The result has no space more, is stable, and the same in NFKC but for spaces."""
    replaced = direction.replace_forms(text)

    assert direction.replace_forms(replaced) == replaced
    assert replaced.count(" ") == text.count(" ")
    assert strip(replaced) == strip(text)


def strip(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).replace(" ", ""))


def test_the_direction_of_a_text_is_that_of_its_letters() -> None:
    """Most of the letters decide; a text without letters has no direction."""
    assert [direction.find_direction(text) for text in ("Water", "שלום", "שלום עולם a", "12:30 – 5", "")] == [
        "ltr",
        "rtl",
        "rtl",
        None,
        None,
    ]
