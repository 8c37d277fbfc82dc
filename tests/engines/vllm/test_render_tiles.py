"""Tiles drawn anew show what resized ones show, whatever the page's box, turn or lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pymupdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twopass.engines.interface import PagePointer
from twopass.engines.vllm import render_tiles, tiling
from twopass.engines.vllm.tiling import DEEPSEEK_OCR
from twopass.pages import source_files
from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool, Pixels
from twopass.steps import render

LOREM = "The borehole reached water at a depth of forty metres, where gravel gives way to clay. " * 4


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    """A page with text, a filled box in its upper left corner, a red line and a picture."""
    path = tmp_path / "page.pdf"
    with pymupdf.open() as made:
        page = made.new_page(width=420, height=595)
        page.draw_rect((10, 10, 110, 60), fill=(0, 0, 0))
        page.draw_line((20, 580), (400, 580), color=(1, 0, 0), width=3)
        page.insert_textbox((30, 120, 390, 420), LOREM, fontsize=11)
        grey = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 64, 64))
        grey.clear_with(90)
        page.insert_image((250, 450, 390, 560), pixmap=grey)
        page.draw_rect((30, 430, 200, 560), fill=(1, 0, 0))
        made.save(path)
    return path


@contextmanager
def buffers() -> Iterator[tuple[PixelBuffer, PixelBuffer]]:
    pools = PixelBufferPool(1, 1 << 28), PixelBufferPool(1, DEEPSEEK_OCR.most_bytes, fixed=DEEPSEEK_OCR.most_bytes)
    try:
        first, second = ([PixelBuffer(number) for number in pool.descriptors][0] for pool in pools)
        yield first, second
    finally:
        for pool in pools:
            pool.close()


def rendered(path: Path, memory: PixelBuffer, password: str | None = None) -> render.Drawn:
    """The first page at 144 dpi in the slab."""
    os.ftruncate(memory.descriptor, 1 << 24)
    return render.draw_pdf(PagePointer(str(path), 1, 0, password), 2.0, memory, 1 << 24)


def both(path: Path, mode: str, password: str | None = None) -> tuple[tiling.Views, tiling.Views, render.Drawn]:
    """The views resized from the page's pixels and those drawn, and what the renderer says of the page."""
    with buffers() as (page, seen):
        shown = rendered(path, page, password)
        pixels = Pixels(shown.width, shown.height, page)
        tiles = DEEPSEEK_OCR.tiles(shown.width, shown.height, mode, 6)
        resized = tiling.views(DEEPSEEK_OCR, pixels.array().copy(), mode, tiles)
        turned = PagePointer(str(path), 1, shown.turn, password)
        render_tiles.prepare(DEEPSEEK_OCR, turned, pixels, mode, tiles, seen)
        there = tiling.mapped(DEEPSEEK_OCR, seen, mode, tiles)
        return resized, tiling.Views(there.whole.copy(), there.tiles.copy()), shown


def far(one: tiling.Array, other: tiling.Array) -> float:
    """Mean difference of 16 × 16 blocks, which is small where the same things lie in the same places."""
    blocks = [
        picture.astype(np.float32)
        .reshape(*picture.shape[:-3], picture.shape[-3] // 16, 16, picture.shape[-2] // 16, 16, 3)
        .mean((-4, -2))
        for picture in (one, other)
    ]
    return float(np.abs(blocks[0] - blocks[1]).mean()) if one.size else 0.0


def same(one: tiling.Views, other: tiling.Views) -> None:
    for resized, ours in zip(one, other, strict=True):
        assert resized.shape == ours.shape
        assert far(resized, ours) < 1.0


@pytest.mark.parametrize("mode", sorted(DEEPSEEK_OCR.modes))
def test_drawn_tiles_show_what_enlarged_ones_show(pdf: Path, mode: str) -> None:
    """And the whole is the same to the last bit."""
    resized, ours, shown = both(pdf, mode)

    assert np.array_equal(resized.whole, ours.whole)
    same(resized, ours)
    assert shown.is_scalable
    assert not ours.tiles.size or not np.array_equal(resized.tiles, ours.tiles)


@pytest.mark.parametrize(("width", "height", "tiles"), [(840, 1190, (2, 3)), (1280, 1920, (2, 3)), (400, 500, (1, 1))])
def test_only_what_has_fewer_pixels_is_enlarged(width: int, height: int, tiles: tuple[int, int]) -> None:
    assert DEEPSEEK_OCR.enlarges(width, height, tiling.Tiles(*tiles)) == ((width, height) == (840, 1190))


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_as_the_page_is_displayed_and_turned(pdf: Path, rotation: int) -> None:
    """/Rotate and crop box count, text that lies sideways is upright, and the file that others share is as before."""
    turned = pdf.with_name("turned.pdf")
    with pymupdf.open(pdf) as made:
        made[0].set_cropbox(pymupdf.Rect(5, 5, 410, 590))
        made[0].set_rotation(rotation)
        made.save(turned)

    resized, ours, shown = both(turned, "gundam")

    same(resized, ours)
    assert shown.turn == -rotation % 360
    with source_files.shared_pdf(str(turned), None) as shared:
        assert shared[0].rotation == rotation


def test_a_locked_page_is_drawn_with_its_password(pdf: Path) -> None:
    locked = pdf.with_name("locked.pdf")
    with pymupdf.open(pdf) as made:
        made.save(locked, encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner", user_pw="open")

    resized, ours, _ = both(locked, "gundam", "open")

    same(resized, ours)


def test_a_page_that_takes_long_is_not_drawn_again(tmp_path: Path) -> None:
    """Three thousand lines across the page: its views are resized, which takes the same time for any page."""
    strokes = " ".join(f"0 {n % 595} m 420 {(7 * n) % 595} l S" for n in range(3000))
    with pymupdf.open() as made:
        page = made.new_page(width=420, height=595)
        page.clean_contents()
        made.update_stream(page.get_contents()[0], f"3 w {strokes}".encode())
        made.save(tmp_path / "map.pdf")

    with buffers() as (memory, _):
        shown = rendered(tmp_path / "map.pdf", memory)

    assert not shown.is_scalable


@pytest.mark.parametrize("rotation", [0, 90])
def test_a_page_with_a_large_picture_is_resized(pdf: Path, rotation: int) -> None:
    """MuPDF enlarges pictures without smoothing them; where they lie is told as if the page were not rotated."""
    with pymupdf.open(pdf) as made:
        page, grey = made[0], pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 64, 64))
        few = source_files.pictured(page.get_displaylist())
        page.insert_image((20, 350, 400, 590), pixmap=grey, keep_proportion=False)
        many = source_files.pictured(page.get_displaylist())
        page.set_rotation(rotation)
        made.save(pdf.with_name("pictured.pdf"))

    shown = both(pdf.with_name("pictured.pdf"), "gundam")[2]

    assert few == pytest.approx(110 * 110 / (420 * 595), rel=0.01)
    assert many - few == pytest.approx(380 * 240 / (420 * 595), rel=0.01)
    assert not shown.is_scalable


def test_a_picture_within_the_page_itself_counts() -> None:
    """Old fax software writes a scan into the page's contents, where no resource names it."""
    with pymupdf.open() as made:
        page = made.new_page(width=420, height=595)
        page.insert_text((30, 30), LOREM)
        scan = b"q 400 0 0 500 10 10 cm BI /W 2 /H 2 /BPC 8 /CS /G ID \x00\x80\x80\x00 EI Q"
        made.update_stream(page.get_contents()[0], page.read_contents() + b"\n" + scan)

        assert source_files.pictured(made[0].get_displaylist()) == pytest.approx(400 * 500 / (420 * 595), rel=0.01)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("unit", ["1", "2"])
def test_a_picture_covers_a_page_however_it_is_rotated(rotation: int, unit: str) -> None:
    """A long page, of which a picture that lay the other way would cover less than counts; in whatever unit."""
    with pymupdf.open() as made:
        page = made.new_page(width=400, height=900)
        page.insert_image(page.rect, pixmap=pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 8, 18)))
        page.set_rotation(rotation)
        made.xref_set_key(page.xref, "UserUnit", unit)

        assert source_files.covered(made.reload_page(page))[0]


def test_words_without_ink_are_words(tmp_path: Path) -> None:
    """Under a scan, in a font whose letters have no height, each on its own: a display list leaves them out."""
    letters = [f"/{chr(letter)}" for letter in range(97, 123)]
    written = [f"BT 3 Tr /helv 12 Tf 1 0 0 1 {40 + 60 * n} 700 Tm (word) Tj ET" for n in range(5)]
    with pymupdf.open() as made:
        page = made.new_page()
        page.insert_text((40, 60), "seen", fontname="cour")
        made.update_object(empty := made.get_new_xref(), "<<>>")
        made.update_stream(empty, b"500 0 0 0 0 0 d1")
        font = (
            "<</Type/Font/Subtype/Type3/FontBBox[0 0 1000 1000]/FontMatrix[.001 0 0 .001 0 0]/FirstChar 97/LastChar 122"
            f"/Widths[{'500 ' * 26}]/Encoding<</Type/Encoding/Differences[97{''.join(letters)}]>>"
            f"/CharProcs<<{''.join(f'{letter} {empty} 0 R' for letter in letters)}>>>>"
        )
        made.update_object(page.insert_font("helv"), font)
        made.update_stream(page.get_contents()[0], page.read_contents() + " ".join(["", *written]).encode())
        made.save(tmp_path / "scan.pdf")

    with buffers() as (memory, _):
        shown = rendered(tmp_path / "scan.pdf", memory)

    assert shown.words.texts == ("seen", *5 * ["word"])


@settings(max_examples=30)
@given(width=st.floats(3, 2000), height=st.floats(3, 2000))
def test_a_page_of_any_size_fills_its_tiles(width: float, height: float) -> None:
    """What is drawn reaches the last pixel: nothing is left white where the page is black."""
    with pymupdf.open() as made:
        page = made.new_page(width=width, height=height)
        page.draw_rect(page.rect + (-9, -9, 9, 9), fill=(0, 0, 0))
        tiles = DEEPSEEK_OCR.tiles(round(width * 2), round(height * 2), "gundam", 6)

        grid = render_tiles._drawn(page.get_displaylist(), *DEEPSEEK_OCR.grid(tiles))

    assert not grid.any()
