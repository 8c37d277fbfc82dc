"""The canary's images, drawn in code in Pillow's default font, and what a sound model reads from them.

All functions run in page workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twopass.document import Box, Cell, Table
from twopass.pages.shared_pixels import Pixels

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

# ---- plain text ---------------------------------------------------------------------------------
LINES = (
    "The harbour master counted",
    "seventeen yellow lanterns",
    "before the western ferry",
    "crossed the frozen river",
    "on Wednesday morning.",
)
TEXT_SIZE = (1000, 500)  # pixels: large enough to be tiled, so that the model's global and tiled views are both tested

# ---- a repeated line ----------------------------------------------------------------------------
REPEATED_LINE = "Seven yellow lanterns crossed the river."
REPEATS = 8  # about 70 tokens, fewer than the window of the ban
REPEATED_SIZE = (640, 640)  # pixels: the largest image without tiles, because only the ban is tested

# ---- a page -------------------------------------------------------------------------------------
# Pixels: two by three tiles of DeepSeek-OCR, not scaled. In the view of the whole page, which is scaled to 0.53, small
# print has 6 pixels: too little for the recogniser that reads scans, which misreads a quarter of the words there and
# few in the tiles. A token of a tile has about nine text tokens of it, as many as the model reads well (at ten 97 %:
# figure 1 of the paper).
PAGE_SIZE = (1280, 1920)
SMALL_PRINT = 11


@dataclass(frozen=True)
class _DrawnBlock:
    """A block of text on the page: its lines, the corner at the top left in pixels, and the font's size in pixels."""

    lines: tuple[str, ...]
    left: int
    top: int
    font_size: int = SMALL_PRINT

    @property
    def text(self) -> str:
        return " ".join(self.lines)

    @property
    def line_height(self) -> int:
        return round(1.3 * self.font_size)


# Tiles meet at 640 pixels from the left and at 640 and 1280 from the top: the introduction continues from one tile into
# the next, and both columns continue into the tile below. A line of text is nowhere cut lengthwise.
BLOCKS = (
    _DrawnBlock(("The granite towpath",), 240, 120, 44),
    _DrawnBlock(
        (
            "Twelve masons carried granite blocks along the narrow towpath while the bargemen argued about tolls, the",
            "weather and the price of copper nails; nobody noticed that a heron had stolen the foreman's breakfast.",
        ),
        240,
        400,
    ),
    _DrawnBlock(
        (
            "Marigold seeds travel badly in winter, so the",
            "gardener wrapped each packet in oiled paper",
            "and hid the parcel behind a copper kettle.",
        ),
        240,
        610,
    ),
    _DrawnBlock(
        (
            "Our telescope needs a smaller mirror before",
            "the autumn comet returns; the old one was",
            "scratched by a curious magpie in September.",
        ),
        720,
        610,
    ),
)
ROWS = (("Cargo", "Barrels", "Duty"), ("Salt", "418", "Paid"), ("Amber", "73", "Owed"))
TABLE_LEFT, TABLE_TOP, COLUMN_WIDTH, ROW_HEIGHT, CELL_SIZE = 240, 1340, 240, 60, 28  # pixels
TABLE = Table(
    html="",
    rows=len(ROWS),
    cols=len(ROWS[0]),
    cells=tuple(Cell(row=n, col=m, text=text) for n, row in enumerate(ROWS) for m, text in enumerate(row)),
)
TABLE_TEXT = " ".join(cell.text for cell in TABLE.cells)


@dataclass(frozen=True)
class PageImage:
    """The image of the page, the box of each block, and the box of the table."""

    image: Pixels
    block_boxes: tuple[Box, ...]
    table_box: Box


def draw_text() -> Pixels:
    """Draw LINES: few words in large print, which any view shows."""
    return _draw_lines(LINES, TEXT_SIZE, font_size=60, corner=(70, 40), line_height=88)


def draw_repeated_line() -> Pixels:
    return _draw_lines([REPEATED_LINE] * REPEATS, REPEATED_SIZE, font_size=28, corner=(40, 60), line_height=64)


def draw_page() -> PageImage:
    """Draw a title, an introduction and two columns in small print, and a table with rules."""
    image, draw = _create_canvas(PAGE_SIZE)
    boxes = [_draw_block(draw, block) for block in BLOCKS]
    table_box = _draw_table(draw)
    return PageImage(_to_pixels(image), tuple(boxes), table_box)


def _draw_lines(
    lines: Sequence[str], size: tuple[int, int], font_size: int, corner: tuple[int, int], line_height: int
) -> Pixels:
    from PIL import ImageFont

    image, draw = _create_canvas(size)
    font = ImageFont.load_default(font_size)
    for number, line in enumerate(lines):
        draw.text((corner[0], corner[1] + line_height * number), line, fill="black", font=font)
    return _to_pixels(image)


def _draw_block(draw: ImageDraw.ImageDraw, block: _DrawnBlock) -> Box:
    """Draw a block and return the box of its ink."""
    from PIL import ImageFont

    font = ImageFont.load_default(block.font_size)
    boxes = []
    for number, line in enumerate(block.lines):
        corner = (block.left, block.top + block.line_height * number)
        draw.text(corner, line, fill="black", font=font)
        boxes.append(draw.textbbox(corner, line, font=font))
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return Box.of(min(x0), min(y0), max(x1), max(y1), *PAGE_SIZE)


def _draw_table(draw: ImageDraw.ImageDraw) -> Box:
    from PIL import ImageFont

    font = ImageFont.load_default(CELL_SIZE)
    for cell in TABLE.cells:
        x, y = TABLE_LEFT + cell.col * COLUMN_WIDTH, TABLE_TOP + cell.row * ROW_HEIGHT
        draw.rectangle((x, y, x + COLUMN_WIDTH, y + ROW_HEIGHT), outline="black", width=2)
        draw.text((x + 16, y + 12), cell.text, fill="black", font=font)
    right, bottom = TABLE_LEFT + TABLE.cols * COLUMN_WIDTH, TABLE_TOP + TABLE.rows * ROW_HEIGHT
    return Box.of(TABLE_LEFT, TABLE_TOP, right, bottom, *PAGE_SIZE)


def _create_canvas(size: tuple[int, int]) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, "white")
    return image, ImageDraw.Draw(image)


def _to_pixels(image: Image.Image) -> Pixels:
    return Pixels(*image.size, data=image.tobytes())
