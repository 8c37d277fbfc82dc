"""Fonts that name other characters than they draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pymupdf
import pytest

from scripts.bench import lying_pages
from scripts.bench.lying_pages import PARAGRAPH
from twopass.document import Rect
from twopass.engines.cpu import layer_check, layer_words
from twopass.engines.cpu.content import StyledWord
from twopass.pages import lying_fonts, source_files
from twopass.pages.lying_fonts import Fonts, FontWord
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.steps import render
from twopass.steps.render import DrawRequest

ZOOM = 2.0
Read = Callable[[bytes], tuple[Fonts, tuple[StyledWord, ...]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What the pixels say of the fonts of a page, and its words after that."""

    def read(data: bytes) -> tuple[Fonts, tuple[StyledWord, ...]]:
        path = tmp_path / "file.pdf"
        path.write_bytes(data)
        with source_files.open_page(str(path), 1, 0, None) as page:
            array = source_files.render_display_list(page.get_displaylist(), ZOOM, ZOOM)
            _, layer, _ = layer_words.extract(page)
        fonts = layer_check.examine_fonts(layer.words, array, ZOOM)
        return fonts, layer_check.repair_fonts(layer.words, fonts, array, ZOOM)

    return read


@pytest.mark.parametrize("place", ["paragraph", "heading"])
def test_a_shifted_font_lies_and_its_words_are_read_from_the_pixels(read: Read, place: str) -> None:
    """A paragraph and a heading in a font with a shifted map have the words that the page shows."""
    fonts, words = read(lying_pages.draw(place, "tiro"))

    shown = " ".join(word.text for word in words)
    assert fonts.lying == {"Times-Roman"} and "Helvetica" in fonts.honest
    assert set(" ".join(lying_pages.PLACES[place]).split()) <= set(shown.split())


def test_shifted_digits_lie_although_all_digits_have_one_width(read: Read) -> None:
    """A column of numbers in a font that shifts only digits has the numbers that the page shows."""
    fonts, words = read(lying_pages.draw("column", "tiro", "d"))

    assert fonts.lying == {"Times-Roman"}
    assert set(lying_pages.PLACES["column"]) <= {word.text for word in words}


def test_honest_fonts_are_found_honest_and_their_words_stay(read: Read) -> None:
    """Without a shifted font no word is read from the pixels, and the fonts count as compared."""
    fonts, words = read(lying_pages.draw("paragraph", None))

    assert (fonts.lying, fonts.honest) == (frozenset(), {"Helvetica"})
    assert not any(word.from_pixels for word in words)


def test_only_doubtful_fonts_are_read_unless_all_are_compared() -> None:
    """A font whose words and widths are those of its characters costs no reading."""
    words = [
        FontWord(text, Rect(0, 0, 20, 10), "Helvetica", pymupdf.get_text_length(text, "helv", 1))
        for text in PARAGRAPH[0].split()
    ]
    blank = render.np.full((10, 20, 3), 255, render.np.uint8)

    assert lying_fonts.examine(words, blank) == Fonts()


def test_words_of_a_lying_font_are_not_in_the_layer_of_models(tmp_path: Path) -> None:
    """They are in no draft and no fall-back, and they are counted."""
    path = tmp_path / "file.pdf"
    path.write_bytes(lying_pages.draw("paragraph", "tiro"))
    (number,) = PixelBufferPool(1, 1 << 24, fixed_size=1 << 24).descriptors

    drawn = render.draw_pdf(DrawRequest(PagePointer(str(path), 1), ZOOM, PixelBuffer(number), 1 << 24, with_draft=True))

    assert "Uhjlvwhu" not in drawn.draft and "harbour" not in " ".join(drawn.words.texts)
    assert len(drawn.unseen.lying) == sum(len(line.split()) for line in PARAGRAPH)
    assert "Members asked" in drawn.draft
