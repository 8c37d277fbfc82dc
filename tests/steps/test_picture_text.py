"""Text in pictures is read, whatever reads the page."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from PIL import Image

from tests.fakes.lines_family import LinesFamily
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine
from twopass.engines.cpu.engine import CpuEngine
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

SENTENCE = "The harbour board met on the second Tuesday of the month and looked at the quay. "
STAMP = (360, 240, 500, 300)  # points


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2))


def draw_stamp() -> bytes:
    """A picture of a stamp, as a scanner would give it."""
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=280, height=120)
        page.draw_rect((4, 4, 276, 116), color=(0.7, 0, 0), width=3)
        page.insert_text((60, 50), "APPROVED", fontsize=28, color=(0.7, 0, 0))
        page.insert_text((40, 95), "Audit code QX-7719", fontsize=22, color=(0.7, 0, 0))
        return bytes(page.get_pixmap(dpi=144).tobytes("png"))


def draw_photo() -> bytes:
    noise = np.random.default_rng(1).integers(0, 256, (6, 14, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).resize((560, 240), Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


async def read(reader: Reader, folder: Path, image: bytes, engine: ScriptedEngine | None = None) -> dict[str, Any]:
    """The document of a page with two paragraphs and a small picture."""
    source = folder / "page.pdf"
    with pymupdf.open() as pdf:
        page = pdf.new_page()
        page.insert_textbox((72, 72, 520, 220), SENTENCE * 4, fontsize=11)
        page.insert_image(STAMP, stream=image)
        page.insert_textbox((72, 340, 520, 500), SENTENCE * 4, fontsize=11)
        source.write_bytes(pdf.tobytes())
    family = LinesFamily() if engine else None
    result = await reader.run(engine=engine, family=family, source=str(source), output=f"{folder}/out")
    assert result.documents[0].id, result.problems
    return json.loads(next((folder / "out").glob("*/document.json")).read_text())  # type: ignore[no-any-return]


def find_picture(document: dict[str, Any]) -> dict[str, Any]:
    (picture,) = (element for element in document["elements"] if element["kind"] == "picture")
    return picture  # type: ignore[no-any-return]


def answer(prompt: object) -> str:
    paragraph = (SENTENCE * 4).strip()
    return f"text 12 8 88 27 {paragraph}\npicture 60 28 85 36 \ntext 12 40 88 60 {paragraph}"


@pytest.mark.parametrize("is_model", [False, True])
async def test_a_stamp_is_read(reader: Reader, tmp_path: Path, is_model: bool) -> None:
    """A picture of any size has the text that it shows; a model that says nothing about it changes nothing."""
    engine = ScriptedEngine("lines_ocr", answer) if is_model else None

    picture = find_picture(await read(reader, tmp_path, draw_stamp(), engine))

    assert "APPROVED" in picture["text"]
    assert "QX-7719" in picture["text"]
    assert picture["figure"]["visible_text"] == picture["text"]
    assert (picture["confidence"]["method"], "image_text" in picture["flags"]) == ("ocr", True)


async def test_a_photo_has_no_text(reader: Reader, tmp_path: Path) -> None:
    """Shapes and colours are not read as letters."""
    picture = find_picture(await read(reader, tmp_path, draw_photo(), ScriptedEngine("lines_ocr", answer)))

    assert picture["text"] == ""
