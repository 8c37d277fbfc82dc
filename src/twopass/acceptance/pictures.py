"""The pictures of the acceptance run: pages of the kinds that users have, drawn here, so that none has to be shipped.

Every picture is drawn from PDF or HTML by MuPDF with its own fonts, and is the same on every machine with this version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twopass.pages import canary_images, pillow_image
from twopass.pages.shared_pixels import Pixels

if TYPE_CHECKING:
    import pymupdf

A4 = (595, 842)  # points
ZOOM = 2.0  # 144 dpi, as pages are rendered
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
TABLE_ROWS = (
    ("Harbour", "Ships", "Cargo in t", "Duty"),
    ("Aberdeen", "19", "4,210", "£ 318"),
    ("Bergen", "7", "1,034", "£ 92"),
    ("Cádiz", "23", "6,875", "£ 507"),
    ("Total", "49", "12,119", "£ 917"),
)
FORMULA = "P = ρ · g · Q · H / (3600 · η)"
NOISE = 14  # standard deviation of the scan's noise, of 256 levels
TILT = 0.7  # degrees


@dataclass(frozen=True)
class Picture:
    name: str
    image: Pixels


def draw_all() -> list[Picture]:
    """Draw every picture: A4 text, a table, two columns, Chinese, a scan, and a crop of a formula without tiles."""
    text = _render(_write_text)
    return [
        Picture("A4 text", text),
        Picture("table", _render(_write_table)),
        Picture("two columns", canary_images.draw_page().image),
        Picture("Chinese", _render(_write_chinese)),
        Picture("scan", _scan(text)),
        Picture("formula", _crop(_render(_write_formula), 460, 120)),
    ]


def save(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write every picture as a PNG file named after it."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{picture.name.replace(' ', '_')}.png" for picture in pictures]
    for picture, path in zip(pictures, paths, strict=True):
        pillow_image.to_image(picture.image.array()).save(path)
    return paths


def _render(write: Callable[[pymupdf.Page], None]) -> Pixels:
    import pymupdf

    with pymupdf.open() as pdf:
        page = pdf.new_page(width=A4[0], height=A4[1])
        write(page)
        pixmap = page.get_pixmap(matrix=pymupdf.Matrix(ZOOM, ZOOM))
        return Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))


def _write_text(page: pymupdf.Page) -> None:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in PARAGRAPHS)
    page.insert_htmlbox((70, 70, 525, 770), f"<h1>The keeper's ledger</h1>{body}<h2>Tides</h2>{body}")


def _write_table(page: pymupdf.Page) -> None:
    """Draw the cells one by one: MuPDF's HTML has no rules around cells."""
    page.insert_text((70, 90), "Table 3. Ships and duties in 1887", fontsize=13)
    for row, cells in enumerate(TABLE_ROWS):
        for column, text in enumerate(cells):
            left, top = 70 + 110 * column, 120 + 30 * row
            page.draw_rect((left, top, left + 110, top + 30), color=(0, 0, 0), width=0.8)
            page.insert_text((left + 8, top + 20), text, fontsize=12)
    page.insert_htmlbox((70, 300, 525, 500), f"<p>{PARAGRAPHS[0]}</p>")


def _write_chinese(page: pymupdf.Page) -> None:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in CHINESE * 3)
    page.insert_htmlbox((70, 70, 525, 770), f"<h1>灯塔看守人的账簿</h1>{body}")


def _write_formula(page: pymupdf.Page) -> None:
    page.insert_htmlbox((10, 10, 300, 60), f"<p>{FORMULA}</p>")


def _scan(pixels: Pixels) -> Pixels:
    """Make a grey scan of a page: tilted, blurred by the rotation, with noise and a shadow along the left edge."""
    tilted = pillow_image.to_image(pixels.array()).rotate(TILT, fillcolor="white", resample=2).convert("L")
    grey = np.asarray(tilted, np.float32)
    noise = np.random.default_rng(7).normal(0, NOISE, grey.shape)
    shadow = np.linspace(40, 0, grey.shape[1], dtype=np.float32)
    scanned = np.clip(0.9 * grey + 12 + noise - shadow, 0, 255).astype(np.uint8)
    return Pixels(pixels.width, pixels.height, data=np.repeat(scanned[:, :, None], 3, axis=2).tobytes())


def _crop(pixels: Pixels, width: int, height: int) -> Pixels:
    return Pixels(width, height, data=np.ascontiguousarray(pixels.array()[:height, :width]).tobytes())
