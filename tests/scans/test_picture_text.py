"""What the images of a page show and its text layer lacks; on pages that the tests draw."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.prose import PROSE
from twopass.document import Rect
from twopass.engines.cpu import picture_text, scanned_page
from twopass.engines.cpu.content import StyledWord
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.pages import ocr
from twopass.pages.rendered_page import PagePointer
from twopass.pages.scripts import Tesseract
from twopass.pages.shared_pixels import Pixels
from twopass.pages.strips import Array

NOTES = (
    "Received by the archive on the second of March and entered under the number below.",
    "Copy for internal use only, the original remains with the council of the lower town.",
)
SCREENSHOT = ("Overflow alarm", "Level above limit in tank")


class CountingReader:
    """Counts its calls and the lines that it was given; it reads them as `ocr.read_lines` does, or finds no text."""

    def __init__(self, is_blind: bool = True) -> None:
        self.is_blind = is_blind
        self.calls = 0
        self.lines = 0
        self.is_sharp = False

    def __call__(
        self,
        array: Array,
        quads: Sequence[ocr.Corners],
        language: str | None = None,
        sharp: Array | None = None,
        tesseract: Tesseract | None = None,
    ) -> ocr.OcrResult:
        self.calls += 1
        self.lines += len(quads)
        self.is_sharp = sharp is not None
        if self.is_blind:
            return ocr.OcrResult((), unreadable=False)
        return ocr.read_lines(array, quads, language, sharp, tesseract)


def draw_lines(page: Any, lines: Sequence[str], y: float = 60, size: float = 12, x: float = 40) -> None:
    for row, line in enumerate(lines):
        page.insert_text((x, y + 1.8 * size * row), line, fontsize=size, fontname="tiro")


def draw_image(lines: Sequence[str], width: float, height: float, size: float = 12, y: float = 60) -> Any:
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        draw_lines(page, lines, y, size)
        return page.get_pixmap(dpi=144)


def draw_scan(lines: Sequence[str], y: float = 120) -> tuple[Any, Any]:
    """A page that is filled by an image of the lines, and its document."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    page.insert_image(page.rect, pixmap=draw_image(lines, 595, 400, y=y))
    return document, page


def read(document: Any, path: Path, reader: ocr.ReadLines = ocr.read_lines) -> Any:
    document.save(path)
    pixmap = document[0].get_pixmap(dpi=144)
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
    document.close()
    return json.loads(read_page(PagePointer(str(path), 1), pixels, None, read_lines=reader))


def read_words(answer: Any) -> Counter[str]:
    lines = [line["text"] for box in answer["boxes"] for line in box.get("lines", ())]
    return Counter(" ".join(lines).split())


def count(lines: Sequence[str]) -> Counter[str]:
    return Counter(" ".join(lines).split())


def test_a_note_typed_over_a_scan_hides_nothing_of_it(tmp_path: Path) -> None:
    """The words of both are there once, where the layer is short."""
    document, page = draw_scan(PROSE * 2)
    draw_lines(page, NOTES, y=40)
    answer = read(document, tmp_path / "note.pdf")

    assert answer["via"] == "ocr"
    assert read_words(answer) == count(PROSE * 2) + count(NOTES)


def test_a_title_in_the_image_is_added_to_a_longer_layer(tmp_path: Path) -> None:
    """A page that is mostly text layer stays one, and says which words come from the pixels."""
    document, page = draw_scan(("Report of the waterworks",), y=60)
    draw_lines(page, PROSE * 3, y=120)
    answer = read(document, tmp_path / "title.pdf")

    assert answer["via"] == "text_layer"
    assert read_words(answer) == count(PROSE * 3) + count(("Report of the waterworks",))
    lines = [line for box in answer["boxes"] for line in box["lines"]]
    assert [line["text"] for line in lines if "from_pixels" in line] == ["Report of the waterworks"]


def test_a_value_typed_into_a_scanned_line_is_not_doubled(tmp_path: Path) -> None:
    """Of a line that the layer has in part, only the rest is read."""
    document, page = draw_scan(("Name of the owner:                                     Date:",))
    page.insert_text((150, 120), "Margarethe Lindner", fontsize=12, fontname="tiro")
    answer = read(document, tmp_path / "form.pdf")

    words = read_words(answer)
    assert words["Margarethe"] == words["Lindner"] == words["Date:"] == 1
    assert words["owner:"] == words["Name"] == 1
    assert sum(words.values()) == 7


def test_a_layer_that_has_all_lines_is_not_read_again(tmp_path: Path) -> None:
    """The detector alone says so: the recogniser has nothing to do on such a page."""
    document, page = draw_scan(PROSE * 3)
    draw_lines(page, PROSE * 3, y=120)
    reader = CountingReader()
    answer = read(document, tmp_path / "same.pdf", reader)

    assert reader.calls == 0
    assert answer["via"] == "text_layer" and read_words(answer) == count(PROSE * 3)


@pytest.mark.parametrize("layer", [(), NOTES, PROSE * 4])
def test_lines_are_read_once(tmp_path: Path, layer: tuple[str, ...]) -> None:
    """Whether the image or the layer has more text, the recogniser runs once."""
    document, page = draw_scan(PROSE, y=330)
    draw_lines(page, layer, y=40)
    reader = CountingReader()
    read(document, tmp_path / "once.pdf", reader)

    assert reader.calls == 1
    assert reader.lines <= 2 * len(PROSE)


def test_a_screenshot_is_read_as_the_text_of_its_picture(tmp_path: Path) -> None:
    """The words of a large image are the figure's visible text, with a flag; the page keeps its text layer."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=400)
    draw_lines(page, PROSE[:2], y=60)
    page.insert_image((100, 220, 400, 340), pixmap=draw_image(SCREENSHOT, 300, 120, size=16, y=50))
    answer = read(document, tmp_path / "shot.pdf")
    parsed = LayoutFamily().parse(json.dumps(answer), 1)

    (picture,) = (element for element in parsed.elements if element.figure)
    assert answer["via"] == "text_layer" and read_words(answer) == count(PROSE[:2]) + count(SCREENSHOT)
    assert picture.figure.visible_text.split() == " ".join(SCREENSHOT).split()
    assert "image_text" in picture.flags


def test_a_small_image_is_not_read(tmp_path: Path) -> None:
    """Logos and icons cost no time."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=842)
    draw_lines(page, PROSE, y=60)
    page.insert_image((100, 220, 300, 280), pixmap=draw_image(SCREENSHOT, 200, 60, size=12, y=25))
    reader = CountingReader()
    read(document, tmp_path / "logo.pdf", reader)

    assert reader.calls == 0


def test_a_picture_full_of_text_costs_a_limited_time(tmp_path: Path) -> None:
    """Of a picture that does not fill the page, at most 40 lines are read."""
    document = pymupdf.open()
    page = document.new_page(width=595, height=842)
    draw_lines(page, PROSE[:1], y=40)
    lines = [f"{PROSE[n % 3][:30]} {n}" for n in range(50)]
    page.insert_image((60, 60, 400, 830), pixmap=draw_image(lines, 340, 770, size=7, y=20))
    reader = CountingReader()
    read(document, tmp_path / "full.pdf", reader)

    assert reader.lines == picture_text.MAX_LINES


def test_a_watermark_covers_no_line(tmp_path: Path) -> None:
    """A large word of the layer over a scan is not the scan's line below it."""
    document, page = draw_scan(PROSE * 2)
    page.insert_text((100, 250), "COPY", fontsize=150, fontname="helv", fill_opacity=0.1)
    answer = read(document, tmp_path / "watermark.pdf")

    assert (read_words(answer) & count(PROSE * 2)).total() >= 0.95 * count(PROSE * 2).total()


def test_doubtful_lines_of_pictures_are_dropped() -> None:
    """Shapes are read as letters with low scores; on a scan the same line may be faint print."""
    corners = ((0.0, 0.0), (100.0, 0.0), (100.0, 10.0), (0.0, 10.0))
    result = ocr.OcrResult((ocr.OcrLine(corners, "lll", 0.7), ocr.OcrLine(corners, "--", 0.99)), unreadable=False)

    assert picture_text.drop_shapes(result, is_scan=False) == ()
    assert [line.text for line in picture_text.drop_shapes(result, is_scan=True)] == ["lll"]


def test_strips_of_one_image_are_one() -> None:
    """Some programs cut a scan into strips, which are too small one by one."""
    page = Rect(0, 0, 600, 800)
    strips = [{"type": 1, "bbox": (0, 100 + 10 * n, 600, 110 + 10 * n)} for n in range(30)]

    assert picture_text.find_images(strips, page) == [Rect(0, 100, 600, 400)]


boxes = st.tuples(*[st.floats(0, 500)] * 4).map(
    lambda b: Rect(min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)


@given(boxes, st.lists(boxes, max_size=4))
def test_uncovered_parts_lie_in_their_line_and_touch_no_word(line: Rect, words: list[Rect]) -> None:
    """Any line and any words of a layer: nothing of the line is read twice, and no word of its height."""
    quad = ((line.x0, line.y0), (line.x1, line.y0), (line.x1, line.y1), (line.x0, line.y1))
    own = [StyledWord(box._replace(y0=line.y0, y1=line.y1), "w", 0) for box in words]
    noise = np.random.default_rng(0).integers(0, 256, (510, 510, 3), np.uint8)
    parts = [Rect.around(part) for part in picture_text.find_uncovered(quad, own, noise)]

    assert all(line.x0 - 1 <= part.x0 and part.x1 <= line.x1 + 1 for part in parts)
    assert all(one.x1 <= other.x0 for one, other in zip(parts, parts[1:], strict=False))
    if line.x1 - line.x0 >= line.height > 1:
        assert all(part.overlap(word.box) <= 0.01 * part.area + 1 for part in parts for word in own)


# ---- small type ----


def test_a_small_page_is_read_from_a_sharper_rendering(tmp_path: Path) -> None:
    """Type of 3.5 points has lines of 11 pixels at 144 dpi; the file has the pixels to read it, and OCR runs once."""
    lines = [f"{PROSE[n % 3][:40]} {n}" for n in range(12)]
    with pymupdf.open() as drawn:
        page = drawn.new_page(width=180, height=150)
        draw_lines(page, lines, y=15, size=3.5, x=15)
        pixmap = page.get_pixmap(dpi=400, colorspace=pymupdf.csGRAY)
    document = pymupdf.open()
    document.new_page(width=180, height=150).insert_image((0, 0, 180, 150), pixmap=pixmap)
    reader = CountingReader(is_blind=False)
    words = read_words(read(document, tmp_path / "small.pdf", reader))

    assert reader.calls == 1 and reader.is_sharp
    assert (words & count(lines)).total() >= 0.99 * count(lines).total()


@given(st.lists(st.floats(0, 1e4), max_size=9), st.integers(1, 10**9))
def test_a_sharper_rendering_is_bounded(heights: list[float], pixels: int) -> None:
    """Whatever the lines, a page is enlarged four times at most, and to 20 megapixels at most."""
    scale = scanned_page.choose_scale(heights, pixels)

    assert scale is None or (scanned_page.MIN_SCALE <= scale <= 4 and pixels * scale**2 <= 20e6 * 1.001)


LEFT, RIGHT = 40.0, 320.0
TOP, MIDDLE, BOTTOM = 60.0, 280.0, 400.0
PLACES = [(x, y) for x in (LEFT, RIGHT) for y in (TOP, BOTTOM)]


def outline_line(x: float, y: float) -> ocr.Corners:
    """The corners of a line that begins there, in pixels of an image of two pixels a point."""
    x0, y0, x1, y1 = 2 * x, 2 * y, 2 * x + 480, 2 * y + 24
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


class LosingReader:
    """Reads two columns of two paragraphs each, and leaves out a line that begins at `unread`."""

    def __init__(self, unread: tuple[float, float]) -> None:
        self.unread = unread

    def __call__(self, array: Array, *_: Any, **__: Any) -> ocr.OcrResult:
        starts = [(x, y + 15 * row) for x, y in PLACES for row in range(len(PROSE))]
        lines = [ocr.OcrLine(outline_line(*start), text, 0.99) for start, text in zip(starts, PROSE * 4, strict=True)]
        return ocr.OcrResult(tuple(lines), unreadable=False, unread=(outline_line(*self.unread),))


@pytest.mark.parametrize(("x", "place"), [(LEFT, 1), (RIGHT, 3)])
def test_a_line_that_was_left_out_stands_below_what_is_above_it(x: float, place: int) -> None:
    """Not behind what is below it, nor behind what is higher up in another column."""
    pixels = Pixels(1190, 1190, data=bytes([255]) * (3 * 1190 * 1190))
    reader = LosingReader((x, MIDDLE))

    answer = json.loads(read_page(PagePointer("a", 1, is_pdf=False), pixels, None, read_lines=reader))

    unread = [number for number, box in enumerate(answer["boxes"]) if box["label"] == "unread"]
    assert (unread, len(answer["boxes"])) == ([place], len(PLACES) + 1)
