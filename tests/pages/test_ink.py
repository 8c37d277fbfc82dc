"""Lines of ink that look like text, outside known boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymupdf
import pytest

from twopass.document import Box
from twopass.pages.ink import PageInk, Turn
from twopass.pages.strips import Array

DPI = 144
SIDE = 300  # points
LINE = (40, 150)  # where a line begins
HERE = Box(0.1, 0.43, 0.9, 0.53)  # around it
RED, NAVY, WHITE = (1, 0, 0), (0, 0, 0.4), (1, 1, 1)


def draw(on_page: Callable[[Any], object]) -> Array:
    """The pixels of a square page."""
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=SIDE, height=SIDE)
        on_page(page)
        pixmap = page.get_pixmap(dpi=DPI)
        return np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)


def find(on_page: Callable[[Any], object], *boxes: Box) -> list[Box]:
    return [line.box for line in PageInk.find(draw(on_page), DPI).find_lines(boxes)]


def write(page: Any, text: str = "Invoice 2023-04417", **options: Any) -> None:
    page.insert_text(LINE, text, **options)


@pytest.mark.parametrize("text", ["Invoice number", "20-4471-9083", "1,250.00", "42"])
@pytest.mark.parametrize("size", [8, 11, 24])
def test_a_line_outside_all_boxes_is_found(text: str, size: int) -> None:
    """Also one that is a single number, in small print or in a headline."""
    (box,) = find(lambda page: write(page, text, fontsize=size), Box(0.1, 0.1, 0.9, 0.2))

    assert box.contains((0.15, 0.49), 0.02)


def test_a_headline_is_found() -> None:
    """Letters of an inch are text as well."""
    (box,) = find(lambda page: write(page, "Prices", fontsize=64))

    assert HERE.contains(box.centre, 0.1)


def test_a_line_in_a_box_is_not_found() -> None:
    """Boxes may cut the strokes at their edges."""
    tight = Box(0.135, 0.475, 0.45, 0.5)

    assert find(write, tight) == []


def test_light_text_on_a_dark_bar_is_found() -> None:
    """Whatever is darker: page or text."""

    def draw_bar(page: Any) -> None:
        page.draw_rect((30, 135, 270, 158), fill=NAVY, color=NAVY)
        write(page, color=WHITE)

    assert any(HERE.contains(box.centre) for box in find(draw_bar))


def test_text_on_a_tinted_page_is_found() -> None:
    """The background is what is around the text."""

    def draw_tint(page: Any) -> None:
        page.draw_rect(page.rect, fill=(0.8, 0.7, 0.5), color=None)
        write(page, color=RED)

    assert [HERE.contains(box.centre) for box in find(draw_tint)] == [True]


def draw_lines(page: Any) -> None:
    for y in range(40, 280, 20):
        page.draw_line((20, y), (280, y))
    page.draw_rect((20, 20, 280, 280))


def draw_shadow(page: Any) -> None:
    page.draw_rect((0, 0, 6, 300), fill=(0, 0, 0))
    page.draw_rect((0, 294, 300, 300), fill=(0, 0, 0))


@pytest.mark.parametrize("on_page", [lambda page: None, draw_lines, draw_shadow])
def test_what_is_no_text_is_not_found(on_page: Callable[[Any], object]) -> None:
    """Rules, frames and the shadow of the paper."""
    assert find(on_page) == []


def test_a_word_shows_only_where_there_is_ink_beside_paper() -> None:
    """A bar over a word hides it, and so does nothing at all."""

    def draw_words(page: Any) -> None:
        write(page)
        page.draw_rect((40, 200, 120, 220), fill=(0, 0, 0))

    ink = PageInk.find(draw(draw_words), DPI)

    assert ink.shows(Box(40 / SIDE, 138 / SIDE, 90 / SIDE, 153 / SIDE))
    assert not ink.shows(Box(45 / SIDE, 202 / SIDE, 110 / SIDE, 218 / SIDE))
    assert not ink.shows(Box(40 / SIDE, 60 / SIDE, 90 / SIDE, 80 / SIDE))


def test_a_page_of_which_nothing_is_known_gives_its_lines() -> None:
    """The widest first, so that a limit leaves out the shortest."""
    texts = ["Pier", "The harbour board met", "Repairs were"]

    def draw_texts(page: Any) -> None:
        for row, text in enumerate(texts):
            page.insert_text((40, 60 + 40 * row), text)

    assert [round(box.centre[1] * SIDE / 40 - 1.4) for box in find(draw_texts)] == [1, 2, 0]


def draw_paragraph(page: Any) -> None:
    for y in range(60, 260, 15):
        page.insert_text((40, y), "The harbour board met in March and in May.", fontsize=10)


@pytest.mark.parametrize("degrees", [-3.0, 0.0, 1.5])
def test_a_skew_is_measured_and_set_right(degrees: float) -> None:
    """Level lines have the same boxes on both pages."""
    page = draw(draw_paragraph)
    turn = Turn(degrees, page.shape[1], page.shape[0])
    skewed = PageInk.find(Turn(-degrees, page.shape[1], page.shape[0]).level_pixels(page), DPI)
    line = Box(0.1, 0.2, 0.8, 0.24)

    assert skewed.measure_skew() == pytest.approx(degrees, abs=0.25)
    assert turn.level(turn.restore(line)) == pytest.approx(line, abs=0.0002)  # boxes are rounded


def test_lines_in_a_box_are_found_from_top_to_bottom() -> None:
    """And nothing that is outside."""
    lines = PageInk.find(draw(draw_paragraph), DPI).find_lines_in(Box(0.1, 0.23, 0.9, 0.36))

    assert [round(line.box.centre[1] * SIDE) for line in lines] == pytest.approx([72, 87, 102], abs=2)
