"""A family that the package does not know works everywhere after one line in the registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.detection.test_recall import PAGE
from tests.fakes import canary_answers, openai_server
from tests.fakes.lines_family import PROMPTS, LinesFamily
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.reader import Reader
from tests.fakes.source_files import save_headline
from twopass.acceptance import drawn_pages
from twopass.cli import reparse_folder
from twopass.cli.app import app
from twopass.document import Canary
from twopass.engines import factory
from twopass.errors import InvalidJob, InvalidSetting
from twopass.families import registry
from twopass.pages import canary_images
from twopass.pages.canary_images import BLOCKS, ROWS
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import canary, reparse
from twopass.worker import check_settings

ANSWER = "title 10 5 90 10 A report about the river\ntext 10 20 90 40 The river rose.\nformula 10 50 90 60 a = b"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The one line in families/registry.py."""
    registry.FAMILIES["lines_ocr"] = LinesFamily()
    yield
    del registry.FAMILIES["lines_ocr"]


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    """Its engine is set in each test."""
    return Reader(page_pool, buffers, factory.create_engine(Settings(engine="cpu")))


def answer_request(request: dict[str, Any]) -> str:
    """The page for the prompt of pages, LaTeX for the question about a crop."""
    return ANSWER if get_prompt(request) == PROMPTS["page"] else r"a = b + \gamma"


def get_prompt(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"][1]["text"])


def answer_canary(request: dict[str, Any]) -> str:
    """What this model answers to the canary's images."""
    if get_prompt(request) != PROMPTS["page"]:
        return canary_answers.TEXT
    page = canary_images.draw_page()
    table = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in ROWS)
    texts = [*((block.text, "text") for block in BLOCKS), (f"<table>{table}</table>", "table")]
    boxes = [*page.block_boxes, page.table_box]
    return "\n".join(
        f"{kind} {' '.join(f'{100 * side:.3f}' for side in box)} {text}"
        for (text, kind), box in zip(texts, boxes, strict=True)
    )


async def test_a_family_of_ones_own_reads_documents_with_a_server(reader: Reader, tmp_path: Path) -> None:
    """OPENAI_FAMILY names it: its prompts, sampling and grammar are used in both passes, and the document names it."""
    save_headline(tmp_path / "page.pdf")
    async with openai_server.serve(OpenAIServer(answer_request)) as server:
        engine = factory.create_engine(Settings(engine="openai", openai_base_url=server.url, openai_family="lines_ocr"))
        result = await reader.run(engine=engine, source=f"{tmp_path}/page.pdf", output=f"{tmp_path}/out")
        await engine.close()

    [path] = (tmp_path / "out").rglob("document.json")
    document = json.loads(path.read_text())
    assert (result.status, result.problems) == ("success", ())
    assert [element["text"] for element in document["elements"]][2] == r"a = b + \gamma"
    assert (document["run"]["options"]["family"], document["run"]["prompts"]) == ("lines_ocr", PROMPTS)
    assert {get_prompt(request) for request in server.requests} == set(PROMPTS.values())
    assert {request["max_tokens"] for request in server.requests} == {2000}
    assert not any("vllm_xargs" in request for request in server.requests)  # it has no n-gram ban

    again = reparse_folder.Arguments(str(path.parent), source=f"{tmp_path}/page.pdf", output=f"{tmp_path}/again")
    report = await asyncio.to_thread(reparse_folder.run, again, Settings(page_workers=1))
    assert not report["pages_changed"]


async def test_its_canary_is_that_of_every_model(page_pool: PagePool) -> None:
    """The images, and what is expected of the answers, are not written for one grammar."""
    async with openai_server.serve(OpenAIServer(answer_canary)) as server:
        settings = Settings(engine="openai", openai_base_url=server.url, openai_family="lines_ocr")
        engine = factory.create_engine(settings)
        await engine.open(page_pool)

        verdict = await canary.check(engine, registry.get_family(engine.family), page_pool, settings)
        await engine.close()

    assert verdict is Canary.PASSED
    assert len(server.requests) == 2  # without a ban there is nothing to repeat


async def test_what_it_does_not_support_is_refused_before_a_page_is_read(reader: Reader, tmp_path: Path) -> None:
    """Jobs may ask only for modes and tasks that the family names."""
    drawn_pages.save([PAGE], tmp_path / "page.pdf")
    engine = factory.create_engine(Settings(engine="cpu"))

    with pytest.raises(InvalidJob, match="task: lines_ocr does not support free; use one of document"):
        await reader.run(
            engine=engine, family=LinesFamily(), source=f"{tmp_path}/page.pdf", output=f"{tmp_path}/out", task="free"
        )


def test_its_raw_answers_can_be_parsed_by_the_command() -> None:
    """`twopass parse-answer --family` knows every registered family."""
    run = CliRunner().invoke(app, ["parse-answer", "-", "--family", "lines_ocr"], input=ANSWER)

    assert run.exit_code == 0, run.stderr
    assert [element["kind"] for element in json.loads(run.stdout)] == ["title", "text", "formula"]


def test_an_unknown_family_is_refused_with_the_name_of_what_names_it() -> None:
    """A setting is named by its environment name, and a recorded option by its place in the document."""
    with pytest.raises(InvalidSetting, match="OPENAI_FAMILY: unknown family none_ocr; it is one of layout, "):
        check_settings(Settings(engine="openai", openai_base_url="http://127.0.0.1:1", openai_family="none_ocr"))
    with pytest.raises(InvalidSetting, match=r"run\.options\.family: unknown family None; it is one of layout, "):
        reparse.restore_family({})
