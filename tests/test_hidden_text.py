"""Hidden text in whole jobs: it reaches neither the answer nor the draft of a model, and it is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import hidden_pages
from tests.fakes.hidden_pages import HIDDEN, SHOWN, WAYS, Line
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine
from tests.fakes.source_files import A4, SENTENCE, make_pdf
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Engine
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool


class DraftedEngine(ScriptedEngine):
    uses_drafts = True


@pytest.fixture
def engine() -> DraftedEngine:
    return DraftedEngine("deepseek_ocr", lambda prompt: "")


async def read(reader: Reader, folder: Path, data: bytes, **fields: Any) -> tuple[dict[str, Any], str, list[str]]:
    """The document, its Markdown, and the codes of its problems."""
    source = folder / "file.pdf"
    source.write_bytes(data)
    result = await reader.run(source=str(source), output=f"{folder}/out", **fields)
    (output,) = (folder / "out").glob("file-*")
    document = json.loads((output / "document.json").read_text())
    return document, (output / "document.md").read_text(), [problem.code for problem in result.problems]


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool, engine: Engine) -> Reader:
    return Reader(page_pool, buffers, engine)


@pytest.mark.parametrize("way", ["white", "black bar", "layer off by an expression"])
async def test_hidden_text_is_reported_and_left_out(
    page_pool: PagePool, buffers: PixelBufferPool, tmp_path: Path, way: str
) -> None:
    """The engine that reads the text layer leaves it out, DocJSON keeps it, and a warning says it without its words."""
    reader = Reader(page_pool, buffers, CpuEngine(1))

    document, markdown, codes = await read(reader, tmp_path, hidden_pages.draw(WAYS[way], HIDDEN))

    assert "Ignore" not in markdown and "Row 4" in markdown
    assert [found["text"] for found in document["elements"] if found["content_layer"] == "invisible"] == [HIDDEN]
    assert codes == [Code.HIDDEN_TEXT]
    assert "Ignore" not in json.dumps(document["problems"])
    assert document["status"] == "success"


async def test_a_model_never_gets_hidden_text(reader: Reader, engine: DraftedEngine, tmp_path: Path) -> None:
    """It is in no draft, and it is not used where the model's answers are empty."""
    document, markdown, codes = await read(reader, tmp_path, hidden_pages.draw(WAYS["white"], HIDDEN))

    assert engine.prompts and not any("Ignore" in prompt.draft for prompt in engine.prompts)
    assert any("pilot" in prompt.draft for prompt in engine.prompts)
    assert document["pages"][0]["state"] == "text_layer"
    assert "Ignore" not in markdown and "pilot" in markdown
    assert Code.HIDDEN_TEXT in codes


async def test_text_of_a_damaged_font_is_kept(reader: Reader, tmp_path: Path) -> None:
    """Where nothing of a page is drawn because its font is damaged, no model is asked, and the layer's text is kept."""
    data = make_pdf(lambda page: hidden_pages.write_in_blank_font(Line(page, SHOWN, "helv")), A4)

    document, markdown, codes = await read(reader, tmp_path, data)

    assert SHOWN in markdown
    assert Code.TEXT_NOT_DRAWN in codes
    (element,) = document["elements"]
    assert "not_drawn" in element["flags"] and element["confidence"]["score"] <= 0.5


async def test_text_of_a_model_where_the_page_shows_nothing_is_flagged(reader: Reader, tmp_path: Path) -> None:
    """A box without ink means that the text is invented, or stands elsewhere."""
    places = {"[[100, 50, 900, 300]]": SENTENCE, "[[100, 600, 900, 700]]": "A pilot boarded the vessel here."}
    answer = "\n".join(f"<|ref|>text<|/ref|><|det|>{box}<|/det|>\n{text}\n" for box, text in places.items())
    reader = replace(reader, engine=ScriptedEngine("deepseek_ocr", lambda prompt: answer))

    document, _, _ = await read(
        reader, tmp_path, make_pdf(lambda page: page.insert_textbox((72, 72, 500, 300), SENTENCE)), pass2="none"
    )

    assert ["no_ink" in element["flags"] for element in document["elements"]] == [False, True]


async def test_a_redaction_that_was_not_applied_is_reported(reader: Reader, tmp_path: Path) -> None:
    """What is marked to be blacked out is still in the file."""

    def mark(page: Any) -> None:
        page.insert_textbox((72, 72, 500, 300), SENTENCE * 3)
        page.add_redact_annot((72, 72, 300, 90))

    _, _, codes = await read(reader, tmp_path, make_pdf(mark))

    assert Code.REDACTION_PENDING in codes
