"""Pages that are one picture: what the text detector sees in pictures, and the box of their ink."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pymupdf
import pytest
from PIL import Image

from twopass.document import Kind
from twopass.pages import ocr, picture_page
from twopass.pages.ocr import OcrLine
from twopass.pages.shared_pixels import Pixels

Array = npt.NDArray[np.uint8]
SIZE = (800, 600)  # height and width in pixels


def to_pixels(array: Array) -> Pixels:
    return Pixels(array.shape[1], array.shape[0], data=np.ascontiguousarray(array).tobytes())


def draw_photograph() -> Array:
    """Smooth noise of several sizes in three colours, with a camera's fine noise and dark shapes along a horizon."""
    random = np.random.default_rng(7)
    height, width = SIZE

    def smooth(grain: int) -> npt.NDArray[np.float64]:
        small = random.integers(0, 256, (height // grain, width // grain), np.uint8)
        return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC), np.float64)

    light = smooth(200) + smooth(80) * 0.6 + smooth(20) * 0.2
    colours = np.stack([light + smooth(150) * 0.5 for _ in range(3)], axis=2)
    colours *= 255 / colours.max()
    colours += random.normal(0, 4, colours.shape)
    for x in range(20, width - 60, 70):
        top = 380 + int(random.integers(0, 30))
        colours[top:430, x : x + int(random.integers(10, 60))] *= 0.3
    return colours.clip(0, 255).astype(np.uint8)


def draw_gradient() -> Array:
    height, width = SIZE
    across, down = np.linspace(0, 255, width)[None, :], np.linspace(0.3, 1, height)[:, None]
    return np.stack([across * down, across * down * 0.7, across * down * 0.3], axis=2).astype(np.uint8)


def draw_page(draw: Callable[[pymupdf.Page], object]) -> Array:
    with pymupdf.open() as document:
        page = document.new_page(width=SIZE[1] / 2, height=SIZE[0] / 2)
        draw(page)
        pixmap = page.get_pixmap(dpi=144)
    return np.frombuffer(bytes(pixmap.samples), np.uint8).reshape(pixmap.height, pixmap.width, 3)


def draw_dashed_line(page: pymupdf.Page) -> None:
    page.draw_line((40, 200), (260, 200), dashes="[6 4]", width=1.5)


def draw_colour_squares(page: pymupdf.Page) -> None:
    for row in range(5):
        for column in range(4):
            box = (40 + 60 * column, 40 + 60 * row, 80 + 60 * column, 80 + 60 * row)
            page.draw_rect(box, fill=(0.2 * column, 0.2 * row, 0.5))


PICTURES = {
    "photograph": draw_photograph,
    "gradient": draw_gradient,
    "dashed line": lambda: draw_page(draw_dashed_line),
    "colour squares": lambda: draw_page(draw_colour_squares),
    "noise": lambda: np.random.default_rng(1).integers(0, 256, (*SIZE, 3), np.uint8),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_page_without_lines_of_script_is_a_picture(name: str) -> None:
    """A photograph, a gradient, a dashed line and colour squares are pictures, and no script is called unreadable."""
    array = PICTURES[name]()

    picture = picture_page.find_picture(to_pixels(array), 3)

    assert picture is not None
    assert (picture.id, picture.kind, picture.flags) == ("p0003-e000", Kind.PICTURE, ("picture_page",))
    assert not ocr.read(array).unreadable


@pytest.mark.parametrize(
    ("text", "font"), [("The meter was read on Monday.", "tiro"), ("두 곳의 샘과 한 곳의 관정에서", "korea")]
)
def test_a_page_with_a_line_of_script_is_no_picture(text: str, font: str) -> None:
    """One line of text is enough, also in a script that the recogniser does not know."""
    array = draw_page(lambda page: page.insert_text((40, 100), text, fontname=font, fontsize=12))

    assert picture_page.find_picture(to_pixels(array), 1) is None


def test_the_box_of_a_picture_holds_its_ink() -> None:
    """The margins of a drawing are not part of its picture; a page without any contrast is kept as a whole."""
    drawing = picture_page.find_inked_box(draw_page(draw_colour_squares))

    assert drawing == pytest.approx((40 / 300, 40 / 400, 260 / 300, 320 / 400), abs=0.01)
    assert picture_page.find_inked_box(np.full((*SIZE, 3), 200, np.uint8)) == (0, 0, 1, 1)


def make_line(x: int, y: int, length: int, height: int) -> OcrLine:
    return OcrLine(((x, y), (x + length, y), (x + length, y + height), (x, y + height)), "", 0.0)


def test_a_line_of_script_is_long_and_on_a_uniform_background() -> None:
    """Short shapes, and shapes in the middle of a photograph, are not lines of script."""
    print_like = np.full((*SIZE, 3), 220, np.uint8)
    print_like[105:115, 100:300:4] = 30

    grain = np.random.default_rng(0).normal(0, 26, (*SIZE, 1))
    grainy = np.clip(print_like + grain, 0, 255).astype(np.uint8)

    assert ocr.is_line_of_script(print_like, make_line(100, 100, 200, 20))
    assert ocr.is_line_of_script(grainy, make_line(100, 100, 200, 20))
    assert not ocr.is_line_of_script(print_like, make_line(100, 100, 40, 20))
    assert not ocr.is_line_of_script(draw_photograph(), make_line(100, 395, 200, 20))
    assert not ocr.is_line_of_script(print_like, make_line(2000, 2000, 200, 20))


def draw_wave(page: pymupdf.Page, y: float, loop: float) -> None:
    """A wavy line as of a pen, with loops."""
    turns = np.arange(0, 60, 0.15)
    x = 40 + turns * 3.6 + loop * np.cos(turns)
    page.draw_polyline(list(zip(x.tolist(), (y + 9 * np.sin(turns)).tolist(), strict=True)), width=1.5)


def draw_scribble(page: pymupdf.Page) -> None:
    for number in range(3):
        draw_wave(page, 80 + 60 * number, 0)


def draw_signature(page: pymupdf.Page) -> None:
    draw_wave(page, 200, 7)
    page.draw_line((30, 225), (270, 218), width=1.5)


def draw_boxes(page: pymupdf.Page) -> None:
    for row in range(6):
        for column in range(12):
            x, y = 30 + 18 * column, 40 + 50 * row
            page.draw_rect((x, y, x + 11, y + 11))


def draw_hatching(page: pymupdf.Page) -> None:
    for row in range(4):
        for column in range(24):
            x, y = 30 + 10 * column, 60 + 75 * row
            page.draw_line((x, y), (x + 2 + column % 5, y + 25), width=1.5)


def draw_circuit(page: pymupdf.Page) -> None:
    """Three wires with two resistors each, between two posts."""
    for y in (60, 200, 340):
        page.draw_line((30, y), (30, y + 30), width=1.5)
        for start in (30, 150):
            page.draw_line((start, y), (start + 40, y), width=1.5)
            peaks = [(start + 43 + 5 * n, y + (9 if n % 2 else -9)) for n in range(8)]
            page.draw_polyline([(start + 40, y), *peaks, (start + 83, y)], width=1.5)
            page.draw_line((start + 83, y), (start + 120, y), width=1.5)


def draw_marks(page: pymupdf.Page) -> None:
    """A plot of crosses and circles."""
    page.draw_line((30, 370), (270, 370))
    page.draw_line((30, 370), (30, 30))
    for number in range(12):
        x, y = 50 + 18 * number, 330 - 23 * (number * 5 % 12)
        if number % 2:
            page.draw_circle((x, y), 6, width=1.5)
        else:
            page.draw_line((x - 6, y - 6), (x + 6, y + 6), width=1.5)
            page.draw_line((x - 6, y + 6), (x + 6, y - 6), width=1.5)


def draw_tallies(page: pymupdf.Page) -> None:
    """Rows of strokes in groups of five, drawn by hand."""
    random = np.random.default_rng(3)
    for row, groups in enumerate((4, 3, 2, 4, 3)):
        for left in range(30, 30 + 60 * groups, 60):
            y = 30 + 70 * row
            for x in range(left, left + 36, 9):
                start, end = random.normal(0, 1, 2) + (x, y), random.normal(0, 1, 2) + (x, y + 30)
                page.draw_line(tuple(start), tuple(end), width=1.5)
            page.draw_line((left - 5, y + 23), (left + 32, y + 7), width=1.5)


@pytest.mark.parametrize(
    "draw", [draw_scribble, draw_signature, draw_boxes, draw_hatching, draw_circuit, draw_tallies, draw_marks]
)
def test_what_only_looks_like_lines_is_a_picture(draw: Callable[[pymupdf.Page], None]) -> None:
    """The detector takes scribbles, signatures, boxes and hatching for lines; no script is called unreadable."""
    array = draw_page(draw)

    result = ocr.read(array)

    assert not (result.lines or result.unreadable or result.lacks_lines)
    assert picture_page.find_picture(to_pixels(array), 1) is not None


def test_labels_of_a_drawing_are_read_and_its_symbols_are_not() -> None:
    """What is written beside a symbol stands apart from the wires."""
    texts = ["A filter of the second order", "R1", "10k", "R2", "4.7k", "Vcc", "R4"]

    def draw(page: pymupdf.Page) -> None:
        draw_circuit(page)
        page.insert_text((60, 20), texts[0], fontsize=11)
        for number, label in enumerate(texts[1:]):
            page.insert_text((80 + 120 * (number % 2), 42 + 140 * (number // 2)), label, fontsize=11)

    assert [line.text for line in ocr.read(draw_page(draw)).lines] == texts


def test_letters_that_touch_rules_are_read() -> None:
    """Values in a form stand on its rules, and numbers in the corners of a grid."""

    def draw(page: pymupdf.Page) -> None:
        for number, value in enumerate(("42", "7", "No", "A", "W")):
            page.draw_line((60, 60 + 40 * number), (220, 60 + 40 * number))
            page.insert_text((100, 60 + 40 * number), value, fontsize=14)
        for number in range(1, 6):
            page.draw_rect((20 + 40 * number, 280, 60 + 40 * number, 320))
            page.insert_text((23 + 40 * number, 292), str(number), fontsize=11)

    texts = [line.text for line in ocr.read(draw_page(draw)).lines]

    assert sorted(texts) == sorted(["42", "7", "No", "A", "W", "1", "2", "3", "4", "5"])


def test_letters_at_the_edge_are_read() -> None:
    """Nothing goes on beyond the pixels: a tightly cropped label, and a number that the page's edge cuts."""

    def draw(page: pymupdf.Page) -> None:
        page.insert_text((40, 60), "The level is measured", fontsize=12)
        page.insert_text((260, 180), "9", fontsize=70)
        page.insert_text((100, SIZE[0] / 2 + 3), "42", fontsize=14)

    label = draw_page(lambda page: page.insert_text((50, 120), "A4", fontsize=60))
    rows, columns = np.nonzero(label.mean(axis=2) < 128)
    cropped = label[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]

    assert [line.text for line in ocr.read(cropped).lines] == ["A4"]
    assert {line.text for line in ocr.read(draw_page(draw)).lines} == {"The level is measured", "9", "42"}
