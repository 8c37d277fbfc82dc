"""Words of an answer that end in no element, and answers of which a part was cut: what the page says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import answers
from tests.fakes.reader import Reader
from tests.fakes.scripted import Answer, ScriptedEngine, answer_detections, detect
from tests.fakes.source_files import save_headline
from twopass.document import Element
from twopass.engines.interface import Completion
from twopass.families.deepseek import DeepseekOcrFamily
from twopass.families.interface import ParsedPage, Reply, Rung
from twopass.families.regions.family import RegionFamily
from twopass.models import MODELS
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.runtime.page_pool import PagePool

ANSWER = answers.block("text", "Salt came by ship.") + answers.block(
    "text", "Tolls rose in autumn.", (100, 300, 900, 400)
)


@dataclass(frozen=True)
class ForgetfulFamily(DeepseekOcrFamily):
    """A family whose parser loses the last element of a page."""

    def parse(self, text: str, page: int, rung: Rung, layer: TextLayer = NO_LAYER) -> ParsedPage:  # type: ignore[override]
        parsed = super().parse(text, page, rung, layer)
        return replace(parsed, elements=parsed.elements[:-1])


@dataclass(frozen=True)
class ForgetfulReader(RegionFamily):
    """A family of region readers that loses the last word of a reply."""

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        return super().apply_replies(element, [replace(one, text=one.text.rpartition(" ")[0]) for one in replies])


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    return Reader(page_pool, buffers, ScriptedEngine("layout", lambda prompt: ""))


async def read(reader: Reader, folder: Path, family: Any, answer: Answer) -> tuple[str, dict[str, Any]]:
    """The status of a page that is read like this, and the page."""
    save_headline(folder / "page.pdf")
    engine = ScriptedEngine(family.name, answer)
    fields = {"source": f"{folder}/page.pdf", "output": f"{folder}/out", "pass2": "none"}
    result = await reader.run(engine=engine, family=family, **fields)
    [path] = (folder / "out").rglob("document.json")
    return str(result.status), json.loads(path.read_text())


def list_lost(document: dict[str, Any]) -> list[tuple[int, list[str]]]:
    found = document["pages"][0]["audit"]["findings"]
    return [(one["count"], one["words"]) for one in found if one["kind"] == "words_lost"]


async def test_words_that_a_parser_loses_are_found(reader: Reader, tmp_path: Path) -> None:
    """The page names them, the document is not complete, and the problem says how many."""
    status, document = await read(reader, tmp_path, ForgetfulFamily(MODELS["deepseek_ocr"]), lambda prompt: ANSWER)

    assert (status, list_lost(document)) == ("partial_success", [(4, ["tolls", "rose", "in", "autumn"])])
    [problem] = document["problems"]
    assert problem["code"] == "WORDS_LOST" and "4 words of the answer in no element (tolls rose" in problem["message"]


async def test_words_of_a_region_that_are_lost_are_found(reader: Reader, tmp_path: Path) -> None:
    """The same for what a reader says about one region; words that another element has are not lost."""
    texts = {"text": "Salt came by ship", "doc_title": "Old salt came"}
    replies = iter(texts.values())
    answer = answer_detections(detect(*texts), lambda prompt: next(replies, ""))

    status, document = await read(reader, tmp_path, ForgetfulReader(MODELS["glm_ocr"]), answer)

    assert (status, list_lost(document)) == ("partial_success", [(1, ["ship"])])


async def test_a_complete_answer_has_no_lost_words(reader: Reader, tmp_path: Path) -> None:
    """Tags, tables and formulas are no words."""
    status, document = await read(
        reader, tmp_path, DeepseekOcrFamily(MODELS["deepseek_ocr"]), lambda prompt: answers.PAGE
    )

    assert (status, list_lost(document)) == ("success", [])


async def test_an_answer_that_loops_says_how_much_of_it_went(reader: Reader, tmp_path: Path) -> None:
    """What a repetition cost is counted for a page that could not be used."""
    loop = answers.block("text", "Salt came by ship. " * 400)

    _, document = await read(reader, tmp_path, DeepseekOcrFamily(MODELS["deepseek_ocr"]), lambda prompt: loop)

    messages = [one["message"] for one in document["problems"] if one["code"] == "LOOP"]
    assert any("of 76" in message and "are left out" in message for message in messages), messages


async def test_a_region_that_is_cut_says_after_how_much(reader: Reader, tmp_path: Path) -> None:
    """A region whose reply ends at the limit, or repeats itself, says how long the reply was."""
    replies = iter([Completion("Salt came by", "length"), Completion("Tolls rose in autumn. " * 200, "stop")])
    answer = answer_detections(detect("text", "text"), lambda prompt: next(replies, ""))

    _, document = await read(reader, tmp_path, RegionFamily(MODELS["glm_ocr"]), answer)

    said = [one["said"] for one in document["pages"][0]["audit"]["findings"] if one["said"]]
    assert said == ["it ends after 12 characters", "4379 of its 4400 characters were left out"]
