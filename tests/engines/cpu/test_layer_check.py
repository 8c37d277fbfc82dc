"""The text layer compared with the pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pymupdf
import pytest

from twopass.engines.cpu import layer_check
from twopass.engines.cpu.geometry import Rect, StyledWord
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
CYRILLIC = (
    "Все люди рождаются свободными и равными в своем достоинстве",
    "Они наделены разумом и совестью и должны поступать в отношении",
    "Каждый человек должен обладать всеми правами и свободами",
)
GREEK = (
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια",
    "Είναι προικισμένοι με λογική και συνείδηση και οφείλουν",
)
IDENTIFIERS = "getUserName currentUser userService findById requestQueue"


@pytest.fixture
def page() -> tuple[Array, list[StyledWord]]:
    """The pixels of a page, and its words."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=200)
        for row, line in enumerate(LINES):
            page.insert_text((60, 60 + 30 * row), line, fontsize=12, fontname="tiro")
        return read_words(page)


def draw_paragraphs(lines: tuple[str, ...]) -> tuple[Array, list[StyledWord]]:
    """A page with each line as a paragraph, in any script."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=300)
        page.insert_htmlbox((40, 20, 555, 280), "".join(f"<p style='font-size:12px'>{line}</p>" for line in lines))
        return read_words(page)


def read_words(page: Any) -> tuple[Array, list[StyledWord]]:
    """The page's pixels and words, each MuPDF line with a number of its own."""
    pixmap = page.get_pixmap(dpi=144)
    array = np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)
    words = page.get_text("words")
    return array, [StyledWord(Rect(*word[:4]), word[4], 1000 * word[5] + word[6]) for word in words]


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


@pytest.mark.parametrize("lines", [(*CYRILLIC, IDENTIFIERS), (IDENTIFIERS, *GREEK), CYRILLIC])
def test_pixels_in_other_scripts_say_nothing(lines: tuple[str, ...]) -> None:
    """A correct layer is not compared with Latin letters that look like its Cyrillic or Greek ones."""
    array, words = draw_paragraphs(lines)

    agreement = layer_check.measure_agreement(words, array, 2.0)

    assert agreement is None


@pytest.mark.parametrize(("text", "expected"), [("PRICES ÷ 水 3", True), ("ЦЕНЫ и цены", False), ("3 + 4", True)])
def test_letters_decide_whether_the_recogniser_can_read(text: str, expected: bool) -> None:
    """Small and capital letters count alike, and signs and digits not at all."""
    assert layer_check.is_readable(text) is expected


def test_lines_in_other_scripts_are_not_sampled() -> None:
    """Only the lines in Latin script are compared, if they are most of the page."""
    array, words = draw_paragraphs((*LINES, CYRILLIC[0], GREEK[0]))

    agreement = layer_check.measure_agreement(words, array, 2.0)

    assert agreement is not None and agreement > 0.97


def test_chinese_lines_are_sampled() -> None:
    """Han characters are compared, which the recogniser reads."""
    array, words = draw_paragraphs(("水泵启动之前测量钻孔中的水位并记录时间", "两名操作员在巡视时写下他们看到的情况"))

    agreement = layer_check.measure_agreement(words, array, 2.0)

    assert agreement is not None and agreement > 0.9


def test_identifiers_make_no_layer_suspicious() -> None:
    """Names in programs are no sign of wrong fonts, alone or within Cyrillic text."""
    texts = (*CYRILLIC, *[IDENTIFIERS] * 5)

    words = [StyledWord(Rect(0, 0, 1, 1), word, 0) for word in " ".join(texts).split()]

    assert not layer_check.is_suspicious(words)


def test_only_odd_words_make_a_visible_layer_suspicious(page: tuple[Array, list[StyledWord]]) -> None:
    """Ordinary text is not compared, which keeps ordinary pages fast; text with shifted letters is."""
    _, words = page
    shifted = [replace(word, text="".join(chr(ord(letter) + 1) for letter in word.text)) for word in words]

    assert not layer_check.is_suspicious(words)
    assert layer_check.is_suspicious(shifted)
