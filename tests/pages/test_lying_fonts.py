"""Fonts that name other characters than they draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pymupdf
import pytest

from tests.fakes import lying_pages
from tests.fakes.lying_pages import PARAGRAPH
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
            _, layer, _ = layer_words.extract(page)
            array = source_files.render_display_list(page.get_displaylist(), ZOOM, ZOOM)
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


@pytest.mark.parametrize("place", ["paragraph", "heading", "column"])
def test_a_font_that_swaps_a_few_characters_lies(read: Read, place: str) -> None:
    """Two letters and two digits that change places are noticed, although most characters are right."""
    fonts, words = read(lying_pages.draw(place, "tiro", "s"))

    assert fonts.lying == {"Times-Roman"}
    assert set(" ".join(lying_pages.PLACES[place]).split()) <= {word.text for word in words}


def _copy_font(pdf: pymupdf.Document, page: pymupdf.Page) -> None:
    """Give the font Two, which is the same object as One, objects of its own."""
    one = page.get_fonts()[0][0]
    two, descendant = pdf.get_new_xref(), pdf.get_new_xref()
    pdf.update_object(descendant, pdf.xref_object(int(pdf.xref_get_key(one, "DescendantFonts")[1][1:].split()[0])))
    pdf.update_object(two, pdf.xref_object(one))
    pdf.xref_set_key(two, "DescendantFonts", f"[{descendant} 0 R]")
    resources = int(pdf.xref_get_key(page.xref, "Resources")[1].split()[0])
    pdf.xref_set_key(resources, "Font/Two", f"{two} 0 R")


def test_of_two_fonts_with_one_name_one_lies(read: Read) -> None:
    """Fonts are told apart by their objects: the words of the honest one stay."""
    font = pymupdf.Font("tiro")
    with pymupdf.open() as pdf:
        page = pdf.new_page()
        for name, text, y in (("One", PARAGRAPH[0], 100), ("Two", lying_pages.HEADING, 200)):
            page.insert_font(name, fontbuffer=font.buffer)
            page.insert_text((60, y), text, fontname=name, fontsize=11)
        _copy_font(pdf, page)
        named = {font.has_glyph(code): ord("a") + (code - 94) % 26 for code in range(ord("a"), ord("z") + 1)}
        (lying,) = (found[0] for found in page.get_fonts() if found[4] == "Two")
        lying_pages.name_characters(pdf, lying, named, digits=4)
        names = {found[3] for found in page.get_fonts()}
        fonts, words = read(pdf.tobytes())

    assert len(names) == 1 and len(fonts.lying) == 1
    assert {*PARAGRAPH[0].split(), *lying_pages.HEADING.split()} <= {word.text for word in words}
    assert [word.text for word in words if not word.from_pixels] == PARAGRAPH[0].split()


def test_a_font_without_sense_that_cannot_be_read_is_unsure(read: Read) -> None:
    """Ciphertext too small for the recogniser is not used, as that of a font that is known to lie."""
    with pymupdf.open("pdf", lying_pages.draw("paragraph", "tiro")) as pdf:
        fonts, _ = read(pdf.tobytes())
    words = [
        FontWord(text, Rect(0, 0, 20, 4), "Tiny", 1.0)
        for text in ["Wkh", "kduerxu", "riilfh", "nhhsv", "d", "uhjlvwhu", "ri", "hyhub"]
    ]
    blank = render.np.full((10, 20, 3), 255, render.np.uint8)

    assert fonts.unsure == frozenset()
    assert lying_fonts.examine(words, blank).wrong == {"Tiny"}


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
