"""Words of a text are placed on the ink of a page, with only the boxes of its elements known."""

from __future__ import annotations

import tracemalloc

import pymupdf
import pytest

from tests.fakes.source_files import A4
from twopass.document import Box, Rect, Word, enclose
from twopass.pages import word_places
from twopass.pages.ink import PageInk
from twopass.pages.source_files import copy_pixels
from twopass.pages.word_places import GridText, Text

PROSE = (
    "The reservoir holds nine hundred cubic metres and is filled from two springs in the hills above the town. "
    "Ill-fitting lilies will fill many a moment, Mr. Watson; it is 12,345.67 EUR wide, and administrators communicate. "
) * 3
ROWS = (("Item", "Count", "Price"), ("Red bricks", "12", "4.50"), ("Mortar, in bags", "3", "120.00"))
LEFTS = (77, 250, 350)


def draw_prose(font: str, width: float) -> pymupdf.Page:
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    page.insert_textbox((72, 100, 72 + width, 700), PROSE, fontname=font, fontsize=11 if width > 300 else 8, align=3)
    return page


def read_words(page: pymupdf.Page) -> list[Word]:
    return [Word(Box.of(*word[:4], *A4), word[4]) for word in page.get_text("words")]


def find_ink(page: pymupdf.Page) -> PageInk:
    return PageInk.find(copy_pixels(page.get_pixmap(dpi=140)), 100)


def measure_share(placed: list[Word], truth: list[Word]) -> float:
    """The share of words of which half of the true box is in their own one."""
    return sum(any(_is_near(one, word) for one in placed) for word in truth) / len(truth)


def _is_near(one: Word, word: Word) -> bool:
    return one.text == word.text and Rect(*one.box).overlap(word.box) >= word.box.area / 2


@pytest.mark.parametrize("width", [400, 220])
@pytest.mark.parametrize("font", ["helv", "tiro", "cour"])
def test_words_of_a_paragraph_are_where_they_are_drawn(font: str, width: float) -> None:
    """Nineteen of twenty words of a justified paragraph cover their true places by half, in any of three faces."""
    page = draw_prose(font, width)
    truth = read_words(page)
    text = Text((enclose(word.box for word in truth),), " ".join(word.text for word in truth))

    placed = word_places.place(text, find_ink(page))

    assert [word.text for word in placed] == text.text.split()
    assert measure_share(placed, truth) >= 0.95


def test_every_word_of_a_long_text_is_placed() -> None:
    """A page in small type, whose letters are more than those of unknown ink that are looked at."""
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    page.insert_textbox((40, 40, 555, 800), " ".join(f"word{number:03d}" for number in range(900)), fontsize=8)
    truth = read_words(page)

    placed = word_places.place(
        Text((enclose(word.box for word in truth),), " ".join(word.text for word in truth)), find_ink(page)
    )

    assert len(truth) == 900
    assert measure_share(placed, truth) >= 0.95


def test_a_page_of_many_words_takes_little_memory() -> None:
    """Page workers have a limit: tables of all letters with all others, or all words with all ink, take 100 MB."""
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    page.insert_textbox((40, 40, 555, 800), "The pump of the spring has a meter for water. " * 85, fontsize=7)
    truth, ink = read_words(page), find_ink(page)
    text = Text((enclose(word.box for word in truth),), " ".join(word.text for word in truth))

    tracemalloc.start()
    placed = word_places.place(text, ink)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(truth) == 850 and measure_share(placed, truth) >= 0.95
    assert peak < 20e6


@pytest.mark.parametrize("count", [1, 2, 3000])
def test_text_and_ink_of_different_lengths(count: int) -> None:
    """No word is lost if nearly all of the ink belongs to none, or nearly all words have no ink."""
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    shown = 1200 if count < 3000 else 2
    page.insert_textbox((40, 40, 555, 800), " ".join(f"{number}" for number in range(1000, 1000 + shown)), fontsize=7)
    words = [f"word{number}" for number in range(count)]

    placed = word_places.place(Text((Box(0.05, 0.04, 0.95, 0.96),), " ".join(words)), find_ink(page))

    letters = "".join(word.text for word in placed).replace("-", "")
    assert letters == "".join(words)


def test_a_word_on_two_lines_is_two_words() -> None:
    """The part before the end of the line has a hyphen, and the words around it stay at their places."""
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    lines = ("The great reservoir of the old town is in a docu-", "mentation that was kept by the pump house keeper.")
    for number, line in enumerate(lines):
        page.insert_text((72, 100 + 16 * number), line, fontsize=11)
    truth = read_words(page)
    text = " ".join(lines).replace("docu- ", "docu")

    placed = word_places.place(Text((enclose(word.box for word in truth),), text), find_ink(page))

    start = next(n for n, word in enumerate(placed) if word.text.startswith("docu"))
    parts = [word.text for word in placed[start : start + 2]]
    assert parts[0].endswith("-") and "".join(parts).replace("-", "") == "documentation"
    assert len(placed) == len(truth)
    assert measure_share(placed, truth) >= 1 - 2 / len(truth)  # but for where it is divided


def test_lines_of_a_script_without_spaces() -> None:
    """Each line has the letters that it shows, but for one at its end."""
    lines = (
        "水库容量九百立方米，水源来自城镇上方山丘中",
        "的两处泉水。第一处泉水位于旧采石场下方，于",
        "首次测量是很久以前。",
    )
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    for number, line in enumerate(lines):
        page.insert_text((72, 100 + 16 * number), line, fontname="china-s", fontsize=11)
    box = enclose(word.box for word in read_words(page))

    placed = word_places.place(Text((box,), "".join(lines)), find_ink(page))

    assert len(placed) == len(lines)
    assert all(abs(len(word.text) - len(line)) <= 1 for word, line in zip(placed, lines, strict=True))


def test_words_of_a_table_are_in_their_cells() -> None:
    """Rows and columns are found by the white between them."""
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])
    for number, row in enumerate(ROWS):
        for left, cell in zip(LEFTS, row, strict=True):
            page.insert_text((left, 120 + 20 * number), cell, fontsize=10)
    truth = read_words(page)
    cells = tuple(GridText((r, r + 1), (c, c + 1), cell) for r, row in enumerate(ROWS) for c, cell in enumerate(row))

    placed = word_places.place(Text((enclose(word.box for word in truth),), cells=cells), find_ink(page))

    assert measure_share(placed, truth) == 1.0


def test_words_without_ink_are_inside_their_box() -> None:
    """Where nothing can be seen, they are spread over the box in their order."""
    box = Box(0.1, 0.1, 0.5, 0.2)
    page = pymupdf.open().new_page(width=A4[0], height=A4[1])

    placed = word_places.place(Text((box,), PROSE), find_ink(page))

    assert [word.text for word in placed] == PROSE.split()
    assert all(box.contains(word.box.centre, 1e-4) for word in placed)


@pytest.mark.parametrize("text", ["", " ", "\u0301", "漢字かな交じり文。", "שלום עולם", "a " * 300, "x" * 500])
def test_any_text_is_placed(text: str) -> None:
    """No word and no letter is lost, whatever the ink is: the letters of the result are those of the text."""
    page = draw_prose("helv", 220)

    placed = word_places.place(Text((Box(0.1, 0.1, 0.5, 0.4),), text), find_ink(page))

    assert "".join(word.text for word in placed).replace("-", "") == "".join(text.split())
