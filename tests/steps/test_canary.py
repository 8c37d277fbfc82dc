"""The canary: a model must read a test image before any page, or its worker takes no job."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.fakes import openai_server, recorded
from tests.fakes.openai_server import OpenAIServer, never_answer
from tests.fakes.reader import Reader
from twopass.document import Canary
from twopass.engines import factory
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError
from twopass.families import registry
from twopass.pages import ocr
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import Result
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import canary
from twopass.worker import open_worker

TEXT = " ".join(canary.LINES)
NONSENSE = "the the harbour of of of, 1 1 1 and so on and so on before"


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server.serve(OpenAIServer(answer=TEXT)) as server:
        yield server


def make_settings(server: OpenAIServer, **fields: Any) -> Settings:
    return Settings(engine="openai", openai_base_url=server.url, openai_tries=1, page_workers=1, **fields)


async def run_canary(server: OpenAIServer, **fields: Any) -> Canary | None:
    """The result for a worker that opens in another thread, because the server runs on this event loop."""

    def open_and_check() -> Canary | None:
        with open_worker(make_settings(server, **fields)) as worker:
            return worker.canary

    return await asyncio.to_thread(open_and_check)


def test_the_test_image_shows_its_words() -> None:
    """A recogniser that does not know the text reads it from the image."""
    result = ocr.read(canary.draw_test_image().array())

    assert canary.is_correct("\n".join(line.text for line in result.lines))


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (TEXT, True),
        ("\n".join(canary.LINES).upper(), True),
        ("# The harbour master\n\ncount ed seven-teen yellow lan terns before the western ferry crossed", True),
        ("", False),
        (NONSENSE, False),
        ("The harbour master counted seventeen yellow lanterns. " * 9, False),
    ],
)
def test_most_of_the_words_must_be_in_the_answer(answer: str, passes: bool) -> None:
    """Case, spaces, line ends and a few missing words do not matter; nonsense and half of the text fail."""
    assert canary.is_correct(answer) is passes


async def test_a_model_that_reads_the_image_passes(server: OpenAIServer) -> None:
    """It is asked once, before any job, with its family's own prompt for plain text."""
    assert await run_canary(server) is Canary.PASSED

    (request,) = server.requests
    assert request["messages"][0]["content"][1]["text"] == "<image>\nFree OCR."


async def test_a_wrong_answer_stops_the_worker(server: OpenAIServer) -> None:
    """The error has its code, the model's answer, and advice."""
    server.answer = NONSENSE

    with pytest.raises(EngineError, match="CANARY: the model answered 'the the harbour.*Random weights") as caught:
        await run_canary(server)
    assert caught.value.code is Code.CANARY


async def test_an_answer_that_takes_too_long_stops_the_worker(server: OpenAIServer) -> None:
    """A GPU that hangs makes the start fail after the timeout."""
    server.script = [never_answer]

    with pytest.raises(EngineError, match=r"CANARY: no answer to the test image within 0.5 s.*CANARY_TIMEOUT_S"):
        await run_canary(server, canary_timeout_s=0.5)


async def test_a_setting_turns_the_canary_off(server: OpenAIServer) -> None:
    """The model is not asked, and the worker records that the canary is off."""
    server.answer = NONSENSE

    assert await run_canary(server, canary=False) is Canary.OFF
    assert not server.requests


@pytest.mark.parametrize("engine", [CpuEngine(1), ReplayEngine({}, "deepseek_ocr")], ids=lambda engine: engine.kind)
async def test_an_engine_without_a_model_needs_no_canary(engine: Engine, page_pool: PagePool) -> None:
    """This holds for the cpu engine and for replayed answers."""
    assert await canary.check(engine, registry.get_family(engine.family), page_pool, Settings()) is None


def test_every_engine_that_runs_a_model_needs_the_canary() -> None:
    """Every family for such an engine has a canary prompt, in a mode that the family supports."""
    pytest.importorskip("twopass.engines.hf")
    from twopass.engines.hf.engine import HfEngine
    from twopass.engines.openai.engine import OpenAIEngine
    from twopass.engines.vllm.engine import VllmEngine

    families = [family for name, family in registry.FAMILIES.items() if name != "layout"]

    engines = (HfEngine, OpenAIEngine, VllmEngine, CpuEngine, ReplayEngine)
    assert set(factory.ENGINE_NAMES) == {engine.kind for engine in engines}
    assert HfEngine.needs_canary and OpenAIEngine.needs_canary and VllmEngine.needs_canary
    assert families and all(family.canary and family.canary.mode in family.modes for family in families)


async def test_a_worker_that_fails_the_canary_exits_with_an_error(server: OpenAIServer) -> None:
    """handler.py exits before it takes a job; its log has the error code and no traceback."""
    server.answer = NONSENSE
    env = {"ENGINE": "openai", "OPENAI_BASE_URL": server.url, "OPENAI_TRIES": "1", "PAGE_WORKERS": "1"}
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    handler = await asyncio.create_subprocess_exec(sys.executable, "handler.py", cwd=ROOT, env=env, **pipes)
    output, _ = await handler.communicate()

    assert handler.returncode == 1
    assert "worker cannot serve" in output.decode() and "CANARY" in output.decode()
    assert "Traceback" not in output.decode()


class AnsweringEngine(ReplayEngine):
    """Answers with the recorded report, like an engine that runs a model."""

    async def generate(self, prompt: Prompt) -> Completion:
        return await super().generate(replace(prompt, id=prompt.id.rpartition("/")[2]))


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    answers = {name: Completion(text) for name, text in recorded.ANSWERS.items()}
    return Reader(page_pool, buffers, AnsweringEngine(answers, "deepseek_ocr"))


async def read_report(reader: Reader, folder: Path, **fields: Any) -> tuple[Result, dict[str, Any]]:
    if not (folder / "report.pdf").exists():
        (folder / "report.pdf").write_bytes(recorded.report())
    result = await reader.run(source=f"{folder}/report.pdf", output=f"{folder}/out", **fields)
    found = list((folder / "out").rglob("document.json"))
    return result, json.loads(found[0].read_text()) if found else {}


@pytest.mark.parametrize("recorded_canary", [Canary.PASSED, Canary.OFF, None])
async def test_document_and_result_record_the_canary(
    reader: Reader, tmp_path: Path, recorded_canary: Canary | None
) -> None:
    """Readers of the document can see whether the model was tested first."""
    result, document = await read_report(replace(reader, canary=recorded_canary), tmp_path, pages="1-2")

    assert document["run"]["canary"] == recorded_canary
    assert result.as_answer()["documents"][0].get("canary") == recorded_canary


async def test_one_page_read_without_the_canary_marks_the_document(reader: Reader, tmp_path: Path) -> None:
    """The document's value comes from its pages, so that two workers write equal bytes under the same id."""
    sliced, _ = await read_report(replace(reader, canary=Canary.OFF), tmp_path, slice="1")
    whole, document = await read_report(replace(reader, canary=Canary.PASSED), tmp_path)

    assert document["run"]["canary"] == "off"
    assert sliced.documents[0].canary == whole.documents[0].canary == "off"
    assert sliced.documents[0].id == whole.documents[0].id
