"""The text layer compared with the pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pymupdf
import pytest

from twopass.engines.cpu import layer_check
from twopass.engines.cpu.reading_order import Rect, StyledWord
from twopass.pages.ocr import Array

LINES = (
    "The level in the borehole is measured before the pump starts",
    "Prices are those of January and half of the loss is now thought",
    "Both operators write down what they see on their rounds",
)
WRONG = (
    "Tne 1evei ln tbe boreno1e ls rneasurcd beforc thc purnp sfarts",
    "Priccs aie fhose ot Jannaiy anb haif of tne ioss is uow tbougbt",
    "Bofh opciators wriie dovvn wbat tbey sce ou theii ronnds",
)


@pytest.fixture
def page() -> tuple[Array, list[StyledWord]]:
    """The pixels of a page, and its words."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=200)
        for row, line in enumerate(LINES):
            page.insert_text((60, 60 + 30 * row), line, fontsize=12, fontname="tiro")
        pixmap = page.get_pixmap(dpi=144)
        raw = page.get_text("words")
    array = np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)
    return array, [StyledWord(Rect(*word[:4]), word[4], word[5]) for word in raw]


def replace_words(words: list[StyledWord], lines: tuple[str, ...]) -> list[StyledWord]:
    texts = " ".join(lines).split()
    return [replace(word, text=text) for word, text in zip(words, texts, strict=True)]


def test_a_layer_that_says_what_the_page_shows_agrees(page: tuple[Array, list[StyledWord]]) -> None:
    """A correct layer agrees almost completely, one with errors in most words clearly less, another text hardly."""
    array, words = page
    other = replace_words(words, (LINES[2], LINES[0], LINES[1]))

    right, wrong, unrelated = (
        layer_check.measure_agreement(layer, array, 2.0) or 0.0 for layer in (words, replace_words(words, WRONG), other)
    )

    assert right > 0.97
    assert 0.6 < wrong < 0.9
    assert unrelated < 0.6


def test_pixels_without_readable_lines_say_nothing(page: tuple[Array, list[StyledWord]]) -> None:
    """On an empty picture, and for a layer without long lines, there is no agreement to measure."""
    array, words = page

    assert layer_check.measure_agreement(words, np.full_like(array, 255), 2.0) is None
    assert layer_check.measure_agreement(words[:1], array, 2.0) is None


def test_only_odd_words_make_a_visible_layer_suspicious(page: tuple[Array, list[StyledWord]]) -> None:
    """Ordinary text is not compared, which keeps ordinary pages fast; text with shifted letters is."""
    _, words = page
    shifted = [replace(word, text="".join(chr(ord(letter) + 1) for letter in word.text)) for word in words]

    assert not layer_check.is_suspicious(words)
    assert layer_check.is_suspicious(shifted)
