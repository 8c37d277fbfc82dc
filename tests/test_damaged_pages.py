"""Damaged pages in whole jobs: how they end, and that no model is asked about what is not drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import damaged_pages
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine
from tests.fakes.source_files import A4, SENTENCE, insert_text, make_pdf
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

ANSWER = f"<|ref|>text<|/ref|><|det|>[[100, 50, 900, 300]]<|/det|>\n{SENTENCE}\n"


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine("deepseek_ocr", lambda prompt: ANSWER)


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool, engine: ScriptedEngine) -> Reader:
    return Reader(page_pool, buffers, engine)


async def read_page(reader: Reader, folder: Path, data: bytes) -> tuple[dict[str, Any], str]:
    """The page of the document, and the document's text."""
    source = folder / "file.pdf"
    source.write_bytes(data)
    await reader.run(source=str(source), output=f"{folder}/out", pass2="none")
    (output,) = (folder / "out").glob("file-*")
    document = json.loads((output / "document.json").read_text())
    return document["pages"][0], " ".join(element["text"] for element in document["elements"])


async def test_no_model_is_asked_about_a_page_of_which_nothing_is_drawn(
    reader: Reader, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A page whose content cannot be decoded has failed; a model would invent its text."""
    data = damaged_pages.damage(make_pdf(insert_text), 0, "content stream, start overwritten")

    page, text = await read_page(reader, tmp_path, data)

    assert (page["state"], page["reason"], text) == ("failed", Code.CONTENT_LOST, "")
    assert not engine.prompts


async def test_a_scan_that_cannot_be_drawn_keeps_the_text_of_its_layer(
    reader: Reader, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """The image of a scan is missing; its invisible text is used, and its loss is in the audit."""

    def draw(page: Any) -> None:
        page.insert_textbox((72, 72, 500, 300), SENTENCE * 3, render_mode=3)
        image = page.insert_image((0, 0, *A4), stream=damaged_pages.save_picture("JPEG"))
        page.parent.update_object(image, "null")

    page, text = await read_page(reader, tmp_path, make_pdf(draw))

    assert (page["state"], page["reason"]) == ("text_layer", Code.CONTENT_LOST)
    assert SENTENCE in text and not engine.prompts
    assert [finding["kind"] for finding in page["audit"]["findings"]] == ["content_lost"]


async def test_a_damaged_page_of_which_something_is_drawn_is_read(
    reader: Reader, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """The answer is kept, and the loss is in the audit."""
    data = damaged_pages.damage(make_pdf(insert_text), 0, "image missing")

    page, text = await read_page(reader, tmp_path, data)

    assert (page["state"], page["audit"]["findings"][0]["kind"]) == ("read", "content_lost")
    assert SENTENCE in text and engine.prompts
