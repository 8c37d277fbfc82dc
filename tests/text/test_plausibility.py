"""Words that can be words, without a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import texts
from twopass.text.plausibility import measure_plausibility

GERMAN = "Der Pegel im Brunnen wird gemessen, bevor die Pumpe läuft, und noch einmal nach einer Stunde Betrieb."
FRENCH = "Le niveau dans le forage est mesuré avant que la pompe ne démarre, puis une heure après la mise en marche."
SPANISH = "El nivel del pozo se mide antes de que arranque la bomba y después de una hora de funcionamiento."


@pytest.mark.parametrize("text", [texts.ENGLISH, GERMAN, FRENCH, SPANISH])
def test_prose_is_plausible(text: str) -> None:
    """Prose in a known language has hardly a word that cannot be one."""
    share, words = measure_plausibility(text)

    assert share > 0.9 and words >= 12


def test_wrong_letters_are_implausible() -> None:
    """Text whose fonts map each letter to another, and text with the errors of bad OCR, have a low share."""
    shifted = texts.ENGLISH.translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "zabcdefghijklmnopqrstuvwxy"))

    assert measure_plausibility(shifted)[0] < 0.5
    assert measure_plausibility("tne Orefon saUed f,.om NVvw Y0rkk to thc Harhbxr wi1h jjre rnen")[0] < 0.7


def test_nothing_is_said_about_other_scripts() -> None:
    """Words in other than Latin script are not judged."""
    assert measure_plausibility(texts.KOREAN) == measure_plausibility(texts.CHINESE) == (1.0, 0)


@given(st.text())
def test_any_text_has_a_plausibility(text: str) -> None:
    """The share is from 0 to 1, and 1 where no word was judged."""
    share, words = measure_plausibility(text)

    assert 0 <= share <= 1
    assert words or share == 1
