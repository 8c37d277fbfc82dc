"""Doubled signs become quotation marks where they open and close a quotation, and nowhere else."""

from __future__ import annotations

import pytest

from twopass.text import quotes


def replace(text: str) -> str:
    words = text.split()
    for n, found in enumerate(quotes.find_doubled(words)):
        for start, mark in reversed(found):
            words[n] = words[n][:start] + mark + words[n][start + 2 :]
    return " ".join(words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("said ``the lock is closed'' today", "said “the lock is closed” today"),
        ("said ‘‘the lock is closed.’’", "said “the lock is closed.”"),
        ("wrote ''not before May'', he", "wrote “not before May”, he"),
        ("heißt ,,Seehafen`` dort", "heißt „Seehafen“ dort"),
        ("das ‚‚alte Schiff‘‘ kam", "das „alte Schiff“ kam"),
        ("(``so'') and ``so''?", "(“so”) and “so”?"),
        ("“It ’’ ends’’", "“It ’’ ends”"),
    ],
)
def test_doubled_signs_are_quotation_marks(text: str, expected: str) -> None:
    """All pairs that typists and TeX write are one mark each, beside other signs too."""
    assert replace(text) == expected


@pytest.mark.parametrize("text", ["a pipe of 5'' and 6'2''", "f'' = g''", "rock ’n’ roll, the ’90s", "a ,, b", "x``"])
def test_other_doubled_signs_stay(text: str) -> None:
    """Lengths, derivatives and stray signs are no quotations."""
    assert replace(text) == text
