"""Scans of which coloured ink crosses the print: both are read, or what is hidden is said to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from tests.fakes.prose import PROSE
from twopass.document import Flag
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

RED = (0.8, 0.15, 0.2)
TOP = 60


def draw_prose(page: Any) -> None:
    for row in range(6):
        page.insert_text((40, TOP + 17 * row), PROSE[row % 3], fontsize=12, fontname="tiro")


def draw_stamp(page: Any, color: tuple[float, float, float] = RED) -> None:
    turned = pymupdf.Point(240, 130), pymupdf.Matrix(15)
    shape = page.new_shape()
    shape.draw_rect((150, 90, 345, 150))
    shape.finish(color=color, width=2.5, morph=turned)
    shape.insert_text((160, 132), "RECEIVED", fontsize=34, fontname="hebo", color=color, morph=turned)
    shape.commit()


def scan(*drawings: Any) -> Any:
    """A page that is an image of these drawings, each above those before it."""
    with pymupdf.open() as drawn:
        page = drawn.new_page(width=520, height=400)
        for draw in drawings:
            draw(page)
        pixmap = page.get_pixmap(dpi=200)
    document = pymupdf.open()
    document.new_page(width=520, height=400).insert_image((0, 0, 520, 400), pixmap=pixmap)
    return document


def read(document: Any, path: Path) -> Any:
    """What the engine answers about its only page."""
    document.save(path)
    pixmap = document[0].get_pixmap(dpi=144)
    document.close()
    is_pdf = path.suffix == ".pdf"
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
    return json.loads(read_page(PagePointer(str(path), 1, is_pdf=is_pdf), pixels, None))


def list_words(answer: Any, label: str) -> list[str]:
    lines = [line["text"] for box in answer["boxes"] if box["label"] == label for line in box.get("lines", ())]
    return " ".join(lines).split()


@pytest.mark.parametrize("name", ["scan.pdf", "scan.image"])
def test_words_below_a_stamp_are_read_and_its_own_apart_from_them(name: str, tmp_path: Path) -> None:
    """Translucent ink looks as if it were below the print."""
    answer = read(scan(draw_stamp, draw_prose), tmp_path / name)

    assert list_words(answer, "text") == " ".join(PROSE * 2).split()
    assert list_words(answer, "orphan") == ["RECEIVED"]
    assert "lacks_lines" not in answer


def test_print_below_opaque_ink_is_said_to_be_missing(tmp_path: Path) -> None:
    """No reading is sure, so the page says that something was left out, and where."""
    answer = read(scan(draw_prose, draw_stamp), tmp_path / "opaque.pdf")
    parsed = LayoutFamily().parse(json.dumps(answer), 1)

    assert answer["lacks_lines"] and list_words(answer, "orphan") == ["RECEIVED"]
    (unread,) = (element for element in parsed.elements if Flag.MISSED in element.flags)
    assert unread.boxes[0].x0 < 240 / 520 < unread.boxes[0].x1


def test_a_stamp_of_two_inks_on_a_page_of_small_type_is_read(tmp_path: Path) -> None:
    """The page is rendered again with more pixels, of which the ink is lifted, too."""
    lines = [f"{PROSE[row % 3]} {row}" for row in range(12)]

    def draw_small(page: Any) -> None:
        for row, line in enumerate(lines):
            page.insert_text((60, 70 + 8.2 * row), line, fontsize=5.5, fontname="tiro")

    def draw_signed(page: Any) -> None:
        page.draw_rect((100, 100, 220, 140), color=RED, width=2)
        page.insert_text((110, 130), "PAID", fontsize=26, fontname="hebo", color=RED)
        page.draw_polyline([(180 + 8 * n, 160 if n % 2 else 110) for n in range(9)], color=(0.1, 0.2, 0.7), width=1.2)

    answer = read(scan(draw_signed, draw_small), tmp_path / "small.pdf")

    assert set(" ".join(lines).split()) <= set(list_words(answer, "text"))
    assert list_words(answer, "orphan") == ["PAID"]
