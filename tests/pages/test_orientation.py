"""Which way up scanned pages are."""

from __future__ import annotations

import textwrap

import numpy as np
import numpy.typing as npt
import pymupdf
import pytest
from PIL import Image

from tests.fakes.prose import PROSE
from twopass.pages import orientation

HINDI = "पुराना चौकीदार हर शाम मौसम का हाल एक मोटी कॉपी में लिखता था। वसंत में नदी शहर की निचली गलियों में भर जाती है। "
CONTENTS = ("The salt road", "A cold winter", "Boats and fog", "Maps of the north", "The old quarry", "Apple trees")


def draw(*paragraphs: str) -> npt.NDArray[np.uint8]:
    """The pixels of an upright page with these paragraphs."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=420)
        html = "".join(f'<p style="font-size:11pt">{text}</p>' for text in paragraphs)
        page.insert_htmlbox((60, 40, 535, 400), html)
        pixmap = page.get_pixmap(dpi=144)
    return np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)


@pytest.fixture
def text_page() -> npt.NDArray[np.uint8]:
    """The pixels of an upright page with five lines of text."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=400)
        for row, line in enumerate((PROSE * 2)[:5]):
            page.insert_text((60, 60 + 22 * row), line, fontsize=11, fontname="tiro")
        pixmap = page.get_pixmap(dpi=144)
    return np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_the_turn_that_makes_a_scan_upright_is_detected(text_page: npt.NDArray[np.uint8], degrees: int) -> None:
    """The result is the clockwise turn that makes the page readable; for an upright page it is 0."""
    assert orientation.detect_turn(np.ascontiguousarray(np.rot90(text_page, degrees // 90))) == degrees


def test_narrow_columns_of_small_type_on_a_large_page_are_lines_across() -> None:
    """In a small copy of a newspaper's page, each column is one tall blob."""
    lines = textwrap.wrap(" ".join(PROSE * 5), 30)
    with pymupdf.open() as document:
        page = document.new_page(width=842, height=1191)
        for column in range(6):
            for row, line in enumerate(lines):
                page.insert_text((40 + 129 * column, 96 + 10.35 * row), line, fontsize=9, fontname="tiro")
        pixmap = page.get_pixmap(dpi=144)
    upright = np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)

    assert orientation.cut_sample_lines(upright)[1] is False
    assert orientation.detect_turn(upright) == 0


def test_two_clear_lines_decide_which_way_up_a_page_is(text_page: npt.NDArray[np.uint8]) -> None:
    """If the first two lines clearly read better as they are, the others are not read; else all lines are."""
    strips, _ = orientation.cut_sample_lines(text_page)
    lines = strips[:2]
    turned = [np.ascontiguousarray(line[::-1, ::-1]) for line in lines]

    assert orientation.is_upside_down([*lines, *2 * turned]) is False
    assert orientation.is_upside_down([lines[0], turned[0], *turned]) is True
    assert orientation.is_upside_down([*turned, *2 * lines]) is False


def test_a_page_without_lines_is_not_turned() -> None:
    """A page on which nothing can be read keeps its rotation."""
    assert orientation.detect_turn(np.full((300, 200, 3), 255, np.uint8)) == 0


@pytest.mark.parametrize("degrees", [90, 270])
def test_a_skewed_scan_with_close_lines_is_turned_upright(degrees: int) -> None:
    """Lines that are not quite straight show parts of their neighbours, which do not hide which way up they are."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=400)
        for row, line in enumerate((PROSE * 2)[:5]):
            page.insert_text((60, 60 + 15 * row), line, fontsize=11, fontname="tiro")
        pixmap = page.get_pixmap(dpi=144)
    upright = Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples)
    skewed = np.asarray(upright.rotate(1.2, Image.Resampling.BICUBIC, fillcolor="white"))

    assert orientation.detect_turn(np.ascontiguousarray(np.rot90(skewed, degrees // 90))) == degrees


def test_a_page_in_hindi_is_not_turned() -> None:
    """The classifier takes it for text upside down, but the line that joins its letters is at their top."""
    assert orientation.detect_turn(draw(HINDI * 4)) == 0


def test_a_contents_page_is_not_turned() -> None:
    """The classifier calls leaders of dots upside down whichever way up they are, which says nothing."""
    lines = [f"{title} {' .' * 60} {number}" for number, title in enumerate((*CONTENTS, "The tower"), 3)]

    assert orientation.detect_turn(draw(*lines)) == 0
