"""Which words of a PDF's text layer can be seen, and which fonts draw nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests.fakes import hidden_pages
from tests.fakes.hidden_pages import A4, HIDDEN, LABEL, SEEN, SHOWN, WAYS, Line, write_in_blank_font
from tests.fakes.source_files import SENTENCE, insert_text, make_pdf
from twopass.pages.hidden_words import Reason
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
from twopass.steps import render
from twopass.steps.render import DrawRequest, DrawResult

Render = Callable[..., DrawResult]
SHAPES = [("helv", A4), ("cour", LABEL)]


@pytest.fixture
def draw(tmp_path: Path) -> Render:
    """Draws the page of a PDF as page workers do."""
    pool = PixelBufferPool(1, 1 << 24, fixed_size=1 << 24)
    (number,) = pool.descriptors

    def draw(data: bytes, dpi: int = 144) -> DrawResult:
        path = tmp_path / "file.pdf"
        path.write_bytes(data)
        return render.draw_pdf(DrawRequest(PagePointer(str(path), 1), dpi / 72, PixelBuffer(number), 1 << 24))

    return draw


@pytest.mark.parametrize("way", WAYS)
def test_words_that_nobody_can_see_are_not_in_the_layer(draw: Render, way: str) -> None:
    """Whatever the way of hiding, the font and the size of the page: all hidden words leave, and no other."""
    for font, size in SHAPES:
        drawn = draw(hidden_pages.draw(WAYS[way], HIDDEN, font, size))

        words = " ".join(drawn.words.texts)
        assert not set(HIDDEN.split()) & set(words.split())
        assert words.count("the pilot boards vessel") == 5
        assert set(drawn.unseen.hidden.texts) <= set(HIDDEN.split())
        assert not drawn.unseen.undrawn


@pytest.mark.parametrize("way", SEEN)
def test_words_that_are_seen_stay(draw: Render, way: str) -> None:
    """White on colour, thin grey, on pictures, struck out, a scan's invisible text: nothing of it is hidden."""
    shapes = SHAPES[1:2] if way.startswith("scan") else SHAPES  # which way up a scan is takes long to find
    for font, size in shapes:
        drawn = draw(hidden_pages.draw(SEEN[way], SHOWN, font, size))

        assert set(SHOWN.split()) <= set(drawn.words.texts)
        assert not drawn.unseen.hidden


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("invisible mode", Reason.INVISIBLE),
        ("opacity 0", Reason.TRANSPARENT),
        ("tiny", Reason.TINY),
        ("white", Reason.COLOUR),
        ("white box with a border", Reason.COVERED),
        ("clip", Reason.CLIPPED),
        ("clip of a shape", Reason.CLIPPED),
        ("painted over and written again", Reason.COVERED),
        ("layer off", Reason.LAYER_OFF),
        ("layer off by an expression", Reason.LAYER_OFF),
    ],
)
def test_a_hidden_word_has_its_reason(draw: Render, way: str, reason: Reason) -> None:
    """Hidden words are kept, each with the reason why it cannot be seen, in the order of the layer."""
    unseen = draw(hidden_pages.draw(WAYS[way], HIDDEN)).unseen

    assert " ".join(unseen.hidden.texts) == HIDDEN
    assert set(unseen.reasons) == {reason}


def test_a_part_of_a_word_is_hidden(draw: Render) -> None:
    """White letters that touch a word of black ones leave, and the word stays."""

    def write(page: Any) -> None:
        insert_text(page)
        line = Line(page, "", "helv")
        line.append("BT /helv 11 Tf 60 300 Td (in June) Tj 1 g (IgnoreThis) Tj 0 g (, at 7) Tj ET")

    drawn = draw(make_pdf(write))

    assert drawn.unseen.hidden.texts == ("IgnoreThis",)
    assert {"June", ",", "at", "7"} <= set(drawn.words.texts)


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_turned_page_has_its_hidden_words(draw: Render, turn: int) -> None:
    """The words are looked for where the page shows them, also with /Rotate."""
    with pymupdf.open("pdf", hidden_pages.draw(WAYS["black bar"], HIDDEN)) as pdf:
        pdf[0].set_rotation(turn)
        drawn = draw(pdf.tobytes())

    assert " ".join(drawn.unseen.hidden.texts) == HIDDEN


def test_words_of_a_font_that_draws_nothing_are_kept(draw: Render) -> None:
    """A damaged font is no way of hiding: the words stay in the layer and are named."""

    def write(page: Any) -> None:
        page.insert_textbox((72, 72, 500, 300), SENTENCE * 3, fontname="tiro")
        write_in_blank_font(Line(page, SHOWN, "helv"))

    drawn = draw(make_pdf(write))

    assert " ".join(drawn.unseen.undrawn.texts) == SHOWN
    assert not drawn.unseen.hidden
    assert set(SHOWN.split()) <= set(drawn.words.texts)


def test_a_page_in_a_small_scale_keeps_its_words(draw: Render) -> None:
    """Where all text is tiny, the page was drawn at a small scale."""
    drawn = draw(make_pdf(lambda page: page.insert_text((72, 72), "all is tiny here", fontsize=0.8)))

    assert "tiny" in drawn.words.texts


def test_a_redaction_that_is_not_applied_is_found(draw: Render) -> None:
    """The box of a mark for blacking out is known, because what lies below it is still in the file."""

    def mark(page: Any) -> None:
        insert_text(page)
        page.add_redact_annot((72, 72, 300, 90))

    (box,) = draw(make_pdf(mark)).unseen.redactions

    assert (round(box.x0, 2), round(box.y1, 2)) == (0.12, 0.11)
