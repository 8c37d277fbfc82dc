"""The pictures of the acceptance run: pages of the kinds that users have, drawn here, so that none is shipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twopass.acceptance import drawn_pages
from twopass.pages import canary_images, pillow_image
from twopass.pages.shared_pixels import Pixels

if TYPE_CHECKING:
    import pymupdf

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


@dataclass(frozen=True)
class Picture:
    name: str
    image: Pixels


def draw_all() -> list[Picture]:
    """Draw every picture: A4 text, a table, two columns, Chinese, a scan, and a crop of a formula without tiles."""
    text = drawn_pages.render(_write_text)
    table = drawn_pages.table(TABLE_ROWS, "Table 3. Ships and duties in 1887", PARAGRAPHS[0])
    chinese = drawn_pages.prose(CHINESE * 3, "灯塔看守人的账簿")
    return [
        Picture("A4 text", text),
        Picture("table", drawn_pages.render(table.write)),
        Picture("two columns", canary_images.draw_page().image),
        Picture("Chinese", drawn_pages.render(chinese.write)),
        Picture("scan", drawn_pages.scan(text)),
        Picture("formula", _crop(drawn_pages.render(_write_formula), 460, 120)),
    ]


def save(pictures: Sequence[Picture], folder: Path) -> list[Path]:
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
