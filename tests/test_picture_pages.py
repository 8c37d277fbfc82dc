"""Documents with pages that are pictures without text."""

from __future__ import annotations

import json
from pathlib import Path

import pymupdf
import pytest

from tests.fakes.reader import Reader
from tests.pages.test_picture_page import draw_colour_squares, draw_dashed_line, draw_photograph
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool

LINE = "The meter of the pump was read on Monday and entered in the log book by both operators."


class SilentEngine(Engine):
    """Gives an empty answer to every prompt, as a model does for a photograph."""

    kind = "silent"
    needs_canary = False
    family = "deepseek_ocr"
    precision = "none"
    sequences = 1

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    async def generate(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        return Completion("")


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, CpuEngine(2), dpi=72)


def save_report(path: Path) -> None:
    """A page of text, a photograph that fills its page, a dashed line, and colour squares."""
    photograph = draw_photograph()
    with pymupdf.open() as document:
        document.new_page(width=300, height=400).insert_textbox((20, 20, 280, 380), LINE * 3, fontsize=11)
        page = document.new_page(width=300, height=400)
        height, width = photograph.shape[:2]
        page.insert_image(page.rect, pixmap=pymupdf.Pixmap(pymupdf.csRGB, width, height, photograph.tobytes(), False))
        draw_dashed_line(document.new_page(width=300, height=400))
        draw_colour_squares(document.new_page(width=300, height=400))
        document.save(path)


async def test_photographs_and_drawings_do_not_fail(reader: Reader, tmp_path: Path) -> None:
    """Each page that is a picture is `read` and has a figure with its crop; a warning says that no text was found."""
    save_report(tmp_path / "a.pdf")

    result = await reader.run(source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert result.status == "success"
    assert result.documents[0].pages == {"read": 4}
    assert [(p.code, p.severity, p.page) for p in result.problems] == [(Code.NO_TEXT, "warning", n) for n in (2, 3, 4)]
    (folder,) = (tmp_path / "out").glob("a-*")
    pictures = [e for e in json.loads((folder / "document.json").read_text())["elements"] if e["page"] > 1]
    assert [(e["page"], e["kind"], e["text"]) for e in pictures] == [(n, "picture", "") for n in (2, 3, 4)]
    assert all((folder / e["image"]).stat().st_size for e in pictures)
    assert (folder / "document.md").read_text().count("![picture](images/") == 3


async def test_an_empty_answer_of_any_engine_about_a_picture_is_a_picture(reader: Reader, tmp_path: Path) -> None:
    """If a model says nothing about a page without lines of text, it is not asked again, and the page is read."""
    with pymupdf.open() as document:
        draw_colour_squares(document.new_page(width=300, height=400))
        document.save(tmp_path / "a.pdf")
    engine = SilentEngine()

    result: Result = await reader.run(engine=engine, source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out", pass2="none")

    assert result.documents[0].pages == {"read": 1}
    assert [problem.code for problem in result.problems] == [Code.NO_TEXT]
    assert len(engine.prompts) == 1


async def test_an_empty_answer_about_text_is_a_failure(reader: Reader, tmp_path: Path) -> None:
    """If a model says nothing about a scan on which the detector sees a line, the page fails as EMPTY."""
    with pymupdf.open() as source, pymupdf.open() as document:
        source.new_page(width=300, height=400).insert_text((20, 80), LINE[:40], fontsize=11)
        page = document.new_page(width=300, height=400)
        page.insert_image(page.rect, pixmap=source[0].get_pixmap(dpi=144))
        document.save(tmp_path / "a.pdf")

    result = await reader.run(engine=SilentEngine(), source=f"{tmp_path}/a.pdf", output=f"{tmp_path}/out")

    assert result.documents[0].pages == {"failed": 1}
    assert [problem.code for problem in result.problems] == [Code.EMPTY]
