"""Letters in the boxes of a form are the words that they spell."""

from __future__ import annotations

from typing import Any

import pymupdf
import pytest

from twopass.engines.cpu import layer_words, letter_boxes
from twopass.engines.cpu.tables.rules import find_rules


def draw_boxes(page: Any, y: float, text: str, pitch: float = 18, width: float = 18, count: int = 12) -> None:
    for number in range(count):
        x = 100 + pitch * number
        page.draw_rect((x, y, x + width, y + 18))
        page.insert_text((x + width / 2 - 3, y + 13), text[number : number + 1].strip(), fontsize=11)


def read_words(page: Any) -> list[str]:
    blocks, layer, _ = layer_words.extract(page)
    return [word.text for word in letter_boxes.join(layer.words, list(find_rules(blocks)))]


@pytest.mark.parametrize("width", [18.0, 15.0])
def test_letters_in_boxes_are_words(width: float) -> None:
    """Digits too, whether the boxes share their sides or stand apart; an empty box ends a word."""
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=200)
        page.insert_text((20, 53), "Account", fontsize=9)
        draw_boxes(page, 40, "DE1180442", width=width)
        draw_boxes(page, 80, "HEDDA MOSS", width=width)

        assert read_words(page) == ["Account", "DE1180442", "HEDDA", "MOSS"]


def test_cells_of_a_table_stay_apart() -> None:
    """Boxes that touch others below them, wide ones, and letters without boxes are none of a form."""
    with pymupdf.open() as document:
        page = document.new_page(width=600, height=300)
        for row, text in enumerate(("45237", "18461", "xx xx")):
            draw_boxes(page, 40 + 18 * row, text, count=5)
        draw_boxes(page, 140, "7391", pitch=40, width=40, count=4)
        page.insert_text((100, 220), "a c e g i", fontsize=11)

        assert read_words(page) == list("4523718461xxxx7391acegi")


def test_marks_in_several_rows_and_scales_stay_apart() -> None:
    """Boxes to choose from, and a table of which the rows have gaps between them; dates below each other are joined."""
    with pymupdf.open() as document:
        page = document.new_page(width=600, height=400)
        draw_boxes(page, 20, "12345", count=5)
        for row, text in enumerate(("MEGHP", "YNYYN", "NNYYN", "YYYNN", "NYYNY", "YNNYN")):
            draw_boxes(page, 60 + 24 * row, text, count=5)
        for row, text in enumerate(("01122014", "17052016", "23092018")):
            draw_boxes(page, 260 + 30 * row, text, count=8)

        assert read_words(page) == [*"12345MEGHPYNYYNNNYYNYYYNNNYYNYYNNYN", "01122014", "17052016", "23092018"]
