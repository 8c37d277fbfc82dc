"""Pages that are drawn with known text, as pixels, as PDF with a text layer, and as PDF of scans.

The pictures of the acceptance run are pages of the kinds that users have, drawn here, so that none is shipped.

MuPDF draws them with its own fonts, so that a page is the same on every machine with this version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twopass.pages import canary_images, pillow_image
from twopass.pages.shared_pixels import Pixels

if TYPE_CHECKING:
    import pymupdf

A4 = (595, 842)  # points
_ZOOM = 2.0  # 144 dpi, as pages are rendered
MARGIN = 70
ROW_HEIGHT = 30
NOISE = 14  # standard deviation of a scan's noise, of 256 levels
TILT = 0.7  # degrees
_JPEG_QUALITY = 85

# what the pictures of a run say
PARAGRAPHS = (
    "The lighthouse keeper wrote in a blue ledger every evening: the height of the tide, the direction of the wind, "
    "and the names of the ships that passed before dark. On Tuesday he counted nineteen of them.",
    "In the spring of 1887 a storm carried away the wooden pier. Forty men rebuilt it within six weeks, for 2 "
    "shillings a day and their bread, and the ledger lists what each of them had brought: rope, tar, nails, a kettle.",
    "Nobody knows who added the drawings. They show herons, mostly, and once the keeper's dog, asleep beside the lamp; "
    "below it stands in pencil that the dog was called Admiral and disliked the sea.",
)
CHINESE = (
    "灯塔看守人每天晚上都在蓝色的账簿上写字：潮水的高度、风的方向，以及天黑前经过的船只的名字。",
    "一八八七年春天，一场暴风雨卷走了木码头。四十个人在六个星期之内把它重建起来。",
)
_TABLE_ROWS = (
    ("Harbour", "Ships", "Cargo in t", "Duty"),
    ("Aberdeen", "19", "4,210", "£ 318"),
    ("Bergen", "7", "1,034", "£ 92"),
    ("Cádiz", "23", "6,875", "£ 507"),
    ("Total", "49", "12,119", "£ 917"),
)
FORMULA = "P = ρ · g · Q · H / (3600 · η)"

Rows = Sequence[Sequence[str]]
Write = Callable[["pymupdf.Page"], None]


@dataclass(frozen=True)
class DrawnPage:
    """A function that draws an A4 page, and what it draws: all words, and the rows of each table."""

    write: Write
    text: str
    tables: tuple[Rows, ...] = ()


def prose(paragraphs: Sequence[str], title: str = "", size: float | None = None, columns: int = 1) -> DrawnPage:
    """Running text; `size` is that of the letters in points, None for MuPDF's own, 12."""
    style = f' style="font-size:{size}px"' if size else ""
    heading = f"<h1>{title}</h1>" if title else ""
    width, gap = (A4[0] - 2 * MARGIN) / columns, 16 if columns > 1 else 0
    parts = [paragraphs[len(paragraphs) * n // columns : len(paragraphs) * (n + 1) // columns] for n in range(columns)]

    def write(page: pymupdf.Page) -> None:
        for column, part in enumerate(parts):
            body = "".join(f"<p{style}>{paragraph}</p>" for paragraph in part)
            left = MARGIN + column * width
            box = (left, MARGIN, left + width - gap, A4[1] - MARGIN - 2)
            page.insert_htmlbox(box, body if column else f"{heading}{body}")

    return DrawnPage(write, "\n".join([title, *paragraphs]))


def table(
    rows: Rows, caption: str, note: str = "", column_width: float = 110, row_height: float = ROW_HEIGHT
) -> DrawnPage:
    """A table with rules, below its caption and above a note."""
    size = min(12, row_height * 0.6)

    def write(page: pymupdf.Page) -> None:
        page.insert_text((MARGIN, 90), caption, fontsize=13)
        bottom = _write_cells(page, rows, 120, column_width, row_height, size)
        page.insert_htmlbox((MARGIN, bottom + 30, A4[0] - MARGIN, bottom + 230), f"<p>{note}</p>")

    return DrawnPage(write, "\n".join([caption, *(" ".join(row) for row in rows), note]), (rows,))


def small_parts(tables: Sequence[Rows], sums: Sequence[str]) -> DrawnPage:
    """Small tables and displayed sums, whose crops have at most 640 pixels."""

    def write(page: pymupdf.Page) -> None:
        top = 90.0
        for rows in tables:
            top = _write_cells(page, rows, top, 90, 26, 11) + 40
        for line in sums:
            page.insert_text((200, top), line, fontsize=14)
            top += 50

    cells = [" ".join(row) for rows in tables for row in rows]
    return DrawnPage(write, "\n".join([*cells, *sums]), tuple(tables))


def _write_cells(page: pymupdf.Page, rows: Rows, top: float, width: float, height: float, size: float) -> float:
    """Draw the cells one by one, because MuPDF's HTML has no rules around cells; returns the bottom of the last row."""
    for row, cells in enumerate(rows):
        for column, text in enumerate(cells):
            x, y = MARGIN + width * column, top + height * row
            page.draw_rect((x, y, x + width, y + height), color=(0, 0, 0), width=0.8)
            page.insert_text((x + 8, y + height * 2 / 3), text, fontsize=size)
    return top + height * len(rows)


def render(write: Write) -> Pixels:
    import pymupdf

    with _new_pdf() as pdf:
        pixmap = _add_page(pdf, write).get_pixmap(matrix=pymupdf.Matrix(_ZOOM, _ZOOM))
        return Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))


def scan(pixels: Pixels) -> Pixels:
    """Make a grey scan of a page: tilted, blurred by the rotation, with noise and a shadow along the left edge."""
    tilted = pillow_image.to_image(pixels.array()).rotate(TILT, fillcolor="white", resample=2).convert("L")
    grey = np.asarray(tilted, np.float32)
    noise = np.random.default_rng(7).normal(0, NOISE, grey.shape)
    shadow = np.linspace(40, 0, grey.shape[1], dtype=np.float32)
    scanned = np.clip(0.9 * grey + 12 + noise - shadow, 0, 255).astype(np.uint8)
    return Pixels(pixels.width, pixels.height, data=np.repeat(scanned[:, :, None], 3, axis=2).tobytes())


def save(pages: Sequence[DrawnPage], path: Path) -> None:
    """Write a PDF whose text layer is the pages' text."""
    with _new_pdf() as pdf:
        for page in pages:
            _add_page(pdf, page.write)
        pdf.subset_fonts()
        pdf.ez_save(path)


def save_scans(pages: Sequence[DrawnPage], path: Path) -> None:
    """Write a PDF of scans, without a text layer."""
    import pymupdf

    with _new_pdf() as pdf:
        for page in pages:
            scanned = scan(render(page.write))
            pixmap = pymupdf.Pixmap(pymupdf.csRGB, scanned.width, scanned.height, scanned.array().tobytes(), False)
            image = pixmap.tobytes("jpeg", jpg_quality=_JPEG_QUALITY)
            pdf.new_page(width=A4[0], height=A4[1]).insert_image((0, 0, *A4), stream=image)
        pdf.ez_save(path)


@contextmanager
def _new_pdf() -> Iterator[pymupdf.Document]:
    import pymupdf

    with pymupdf.open() as pdf:
        yield pdf


def _add_page(pdf: pymupdf.Document, write: Write) -> pymupdf.Page:
    page = pdf.new_page(width=A4[0], height=A4[1])
    write(page)
    return page


@dataclass(frozen=True)
class Picture:
    name: str
    image: Pixels


def draw_pictures() -> list[Picture]:
    """Draw every picture: A4 text, a table, two columns, Chinese, a scan, and a crop of a formula without tiles."""
    text = render(_write_text)
    ships = table(_TABLE_ROWS, "Table 3. Ships and duties in 1887", PARAGRAPHS[0])
    chinese = prose(CHINESE * 3, "灯塔看守人的账簿")
    return [
        Picture("A4 text", text),
        Picture("table", render(ships.write)),
        Picture("two columns", canary_images.draw_page().image),
        Picture("Chinese", render(chinese.write)),
        Picture("scan", scan(text)),
        Picture("formula", _crop(render(_write_formula), 460, 120)),
    ]


def save_pictures(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write every picture as a PNG file named after it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{picture.name.replace(' ', '_')}.png" for picture in pictures]
    for picture, path in zip(pictures, paths, strict=True):
        pillow_image.to_image(picture.image.array()).save(path)
    return paths


def _write_text(page: pymupdf.Page) -> None:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in PARAGRAPHS)
    page.insert_htmlbox((70, 70, 525, 770), f"<h1>The keeper's ledger</h1>{body}<h2>Tides</h2>{body}")


def _write_formula(page: pymupdf.Page) -> None:
    page.insert_htmlbox((10, 10, 300, 60), f"<p>{FORMULA}</p>")


def _crop(pixels: Pixels, width: int, height: int) -> Pixels:
    return Pixels(width, height, data=np.ascontiguousarray(pixels.array()[:height, :width]).tobytes())
