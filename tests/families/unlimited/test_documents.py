"""Whole documents with recorded answers of Unlimited-OCR: unusable ones are asked for again, headings fit together."""

from __future__ import annotations

import json
from pathlib import Path

import pymupdf
import pytest

from tests.fakes.reader import Reader
from tests.families.unlimited import answers
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool

ANSWERS = {
    1: ["[Non-Text]\n" * 3, answers.PAGE_1],
    2: [answers.NUMERIC_LOOP, "", answers.PAGE_2],
    3: [answers.CONTENTS],
}


class RecordedEngine(Engine):
    """Gives each page's answers in turn, and remembers the prompts."""

    kind, precision, family, sequences, needs_canary = "scripted", "none", "unlimited_ocr", 4, False

    def __init__(self) -> None:
        self.prompts: dict[int, list[Prompt]] = {page: [] for page in ANSWERS}

    async def open(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def generate(self, prompt: Prompt) -> Completion:
        page = int(prompt.id.rpartition("/p")[2][:4])
        self.prompts[page].append(prompt)
        return Completion(ANSWERS[page][len(self.prompts[page]) - 1])

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, RecordedEngine(), dpi=72)


async def test_a_document_is_read_in_spite_of_unusable_answers(reader: Reader, tmp_path: Path) -> None:
    """Boilerplate and a loop without boxes are asked about again, an empty answer once more in the other mode."""
    with pymupdf.open() as pdf:
        for number in ANSWERS:
            pdf.new_page().insert_text((72, 96), f"The log book of station {number}", fontsize=18)
        pdf.save(tmp_path / "log.pdf")
    engine = RecordedEngine()

    result = await reader.run(engine=engine, source=f"{tmp_path}/log.pdf", output=f"{tmp_path}/out", pass2="none")

    [path] = tmp_path.rglob("document.json")
    document = json.loads(path.read_text())
    assert result.documents[0].pages == {"read": 1, "repaired": 2}
    assert [len(prompts) for prompts in engine.prompts.values()] == [2, 3, 1]
    first, again, other = engine.prompts[2]
    assert (first.sampling.temperature, again.sampling.temperature, again.sampling.ngram) == (0.0, 0.2, 35)
    assert first.mode == again.mode != other.mode
    headings = [(e["kind"], e["text"]) for e in document["elements"] if e["kind"] in ("title", "section_header")]
    assert headings == [
        ("title", "Unlimited-OCR End-to-End Sample"),
        ("section_header", "Section 2: Figures and Lists"),
        ("section_header", "Contents"),
    ]
