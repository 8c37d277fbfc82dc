"""Coloured ink across print, and colour that is none; on pages that the tests draw.

Ink below black letters looks like translucent ink above them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymupdf
import pytest

from tests.fakes.prose import PROSE
from twopass.pages import colored_ink
from twopass.pages.strips import Array

RED, BLUE, BROWN = (0.8, 0.15, 0.2), (0.15, 0.25, 0.7), (0.28, 0.18, 0.1)
Draw = Callable[[Any], None]


def draw(below: Draw | None = None, above: Draw | None = None, color: tuple[float, float, float] = (0, 0, 0)) -> Array:
    """Nine lines of print between what is drawn below and above them."""
    with pymupdf.open() as document:
        page = document.new_page(width=500, height=400)
        if below:
            below(page)
        for row in range(9):
            page.insert_text((30, 60 + 17 * row), PROSE[row % 3], fontsize=11, fontname="tiro", color=color)
        if above:
            above(page)
        pixmap = page.get_pixmap(dpi=144)
    return np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)


def stamp(page: Any, color: tuple[float, float, float] = RED) -> None:
    page.draw_rect((150, 90, 330, 140), color=color, width=2.5)
    page.insert_text((160, 128), "RECEIVED", fontsize=34, fontname="hebo", color=color)


def draw_heading_and_link(page: Any) -> None:
    page.insert_text((30, 35), "Report of the waterworks", fontsize=18, fontname="hebo", color=RED)
    page.insert_text((30, 240), "The list of wells", fontsize=11, fontname="tiro")
    page.insert_text((107, 240), "in the annex", fontsize=11, fontname="tiro", color=BLUE)
    page.draw_line((107, 242), (165, 242), color=BLUE, width=0.6)
    page.insert_text((168, 240), "says which of them are measured.", fontsize=11, fontname="tiro")


def draw_bands(page: Any) -> None:
    for top, fill, color in ((230, BLUE, (1, 1, 1)), (250, (0.7, 0.85, 0.95), (0, 0, 0)), (270, RED, (0, 0, 0))):
        page.draw_rect((30, top, 440, top + 16), fill=fill, color=fill)
        page.insert_text((36, top + 12), "Well number, depth in metres, level in March", fontsize=10, color=color)


def draw_boxes(page: Any) -> None:
    """A chart of labelled boxes."""
    for left, fill in ((30, (0.98, 0.85, 0.45)), (170, (0.6, 0.85, 0.55)), (310, (0.95, 0.6, 0.6))):
        page.draw_rect((left, 250, left + 90, 270), fill=fill, width=0.7, radius=0.2)
        page.insert_text((left + 8, 264), "Pump station", fontsize=11)


def draw_form(page: Any) -> None:
    for row in range(5):
        page.draw_rect((30, 230 + 24 * row, 440, 254 + 24 * row), color=BLUE)
        page.insert_text((36, 246 + 24 * row), "Name of the well", fontsize=10, color=BLUE)
        page.insert_text((180, 246 + 24 * row), "Borehole in the lower town", fontsize=10)


def draw_tight_table(page: Any) -> None:
    """Letters' tails cross its rules, and its header has another colour."""
    for row in range(7):
        for column, text in enumerate(("Paying agency", "Judging", "yearly pay", "gauging")):
            box = pymupdf.Rect(30 + 90 * column, 230 + 13 * row, 120 + 90 * column, 243 + 13 * row)
            page.draw_rect(box, color=BLUE)
            page.insert_text((box.x0 + 3, box.y1 - 2), text, fontsize=10, color=(0, 0, 0) if row else RED)


def draw_photograph(page: Any) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)
    pixels = np.ascontiguousarray(np.kron(noise, np.ones((6, 6, 1), np.uint8)))
    page.insert_image((30, 230, 330, 390), pixmap=pymupdf.Pixmap(pymupdf.csRGB, 240, 144, pixels.tobytes(), False))


def draw_stamp_apart(page: Any) -> None:
    page.draw_rect((150, 260, 330, 310), color=RED, width=2.5)
    page.insert_text((160, 298), "RECEIVED", fontsize=34, fontname="hebo", color=RED)


@pytest.mark.parametrize(
    "other",
    [
        None,
        draw_heading_and_link,
        draw_bands,
        draw_boxes,
        draw_form,
        draw_tight_table,
        draw_photograph,
        draw_stamp_apart,
    ],
)
def test_colour_that_crosses_no_print_is_left_alone(other: Draw | None) -> None:
    """Such pages are read from the same pixels as ever."""
    assert colored_ink.find_inks(draw(above=other)) == []


def draw_runs(page: Any, row: Sequence[tuple[str, Any]]) -> None:
    """Six lines of these texts and their colours."""
    for number in range(6):
        left = 30.0
        for text, color in row:
            page.insert_text((left, 240 + 12 * number), text, fontsize=10, fontname="tiro", color=color)
            left += pymupdf.get_text_length(text, fontname="tiro", fontsize=10)


BLACK = (0, 0, 0)
CITATIONS = [("The loss was found (", BLACK), ("Smith", RED), (", ", BLACK), ("2019", RED), (") [", BLACK), ("12", RED)]
LETTERS = [(letter, RED if letter in "aeiou" else BLACK) for letter in PROSE[0]]
REVISED = [("The loss of the organi", BLACK), ("s", RED), ("ation’s ", BLACK), ("wells", RED), (", ", BLACK)]


@pytest.mark.parametrize("row", [CITATIONS * 2, LETTERS, REVISED * 2])
def test_coloured_words_and_letters_within_lines_of_print_are_left_alone(row: Sequence[tuple[str, Any]]) -> None:
    """They touch their neighbours. Read apart, they would be missing in their sentences."""
    assert colored_ink.find_inks(draw(above=lambda page: draw_runs(page, row))) == []


@pytest.mark.parametrize("size", [13, 20])
def test_small_letters_across_print_are_ink(size: int) -> None:
    """A date in a frame, or a note without one: the ink shines through, so the print is seen in it."""

    def write(page: Any) -> None:
        if size < 20:
            page.draw_rect((100, 96, 210, 122), color=BLUE, width=1.5)
        page.insert_text((106, 114), "ENTERED 4 MAY", fontsize=size, fontname="hebo", color=BLUE)

    assert len(colored_ink.find_inks(draw(below=write))) == 1


@pytest.mark.parametrize("color", [(0.16, 0.18, 0.43), BROWN, (0.5, 0.1, 0.1)])
def test_print_in_dark_coloured_ink_is_print(color: tuple[float, float, float]) -> None:
    """Some of its letters look black, others do not."""
    assert colored_ink.find_inks(draw(color=color)) == []


def test_a_page_is_what_it_was_without_its_stamp() -> None:
    """The ink is found, and lifting it leaves the print as it was printed."""
    stamped, plain = draw(below=stamp), draw()
    (ink,) = colored_ink.find_inks(stamped)
    lifted = colored_ink.lift(stamped, [ink])

    x0, y0, x1, y1 = (int(value) for value in ink.box)
    outside = np.ones(plain.shape[:2], bool)
    outside[y0:y1, x0:x1] = False
    assert np.array_equal(lifted[outside], stamped[outside])
    assert (np.abs(lifted.astype(int) - plain) > 80).mean() < 0.1 * (np.abs(stamped.astype(int) - plain) > 80).mean()


def test_nothing_is_left_of_thin_letters_in_ink() -> None:
    """A shadow of them would be read a second time."""

    def note(page: Any) -> None:
        stamp(page)
        page.insert_text((335, 235), "see note 2", fontsize=9, fontname="tiit", color=(0.05, 0.55, 0.2))
        page.draw_line((325, 140), (334, 232), color=(0.05, 0.55, 0.2), width=1.5)

    noted = draw(below=note)
    lifted = colored_ink.lift(noted, colored_ink.find_inks(noted))

    assert (noted[440:480, 660:760] < 150).any()
    assert (lifted[440:480, 660:760] > 230).all()


@pytest.mark.parametrize(("below", "above", "hides"), [(stamp, None, False), (None, stamp, True)])
def test_ink_hides_print_if_none_shines_through(below: Draw | None, above: Draw | None, hides: bool) -> None:
    page = draw(below, above)
    (ink,) = colored_ink.find_inks(page)

    assert ink.hides_print(page) == hides


def test_inks_of_two_colours_in_one_place_are_lifted_together() -> None:
    """A stamp is often signed."""

    def sign(page: Any) -> None:
        stamp(page)
        page.draw_polyline([(140 + 20 * n, 130 if n % 2 else 95) for n in range(10)], color=BLUE, width=1.5)

    signed, plain = draw(below=sign), draw()
    lifted = colored_ink.lift(signed, colored_ink.find_inks(signed))

    assert (np.abs(lifted.astype(int) - plain) > 80).mean() < 0.1 * (np.abs(signed.astype(int) - plain) > 80).mean()
