"""A model reads a known picture before it reads pages; one that cannot serves nobody."""

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
from tests.fakes.openai_server import OpenAIServer, silent
from tests.fakes.reader import Reader
from twopass.document import Canary
from twopass.engines import factory
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError
from twopass.families import registry
from twopass.job import Result
from twopass.pages import ocr
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings
from twopass.steps import canary
from twopass.worker import open_worker

SAID = " ".join(canary.LINES)
NONSENSE = "the the harbour of of of, 1 1 1 and so on and so on before"


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server.running(OpenAIServer(answer=SAID)) as server:
        yield server


def settings(server: OpenAIServer, **fields: Any) -> Settings:
    return Settings(engine="openai", openai_base_url=server.url, openai_tries=1, page_workers=1, **fields)


async def verdict(server: OpenAIServer, **fields: Any) -> Canary | None:
    """Of a house that opens on a thread of its own, because the server runs on this loop."""

    def opened() -> Canary | None:
        with open_worker(settings(server, **fields)) as worker:
            return worker.canary

    return await asyncio.to_thread(opened)


def test_the_picture_says_its_words() -> None:
    """A recogniser that knows nothing of it reads it."""
    read = ocr.read(canary.picture().array())

    assert canary.is_read("\n".join(line.text for line in read.lines))


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        (SAID, True),
        ("\n".join(canary.LINES).upper(), True),
        ("# The harbour master\n\ncount ed seven-teen yellow lan terns before the western ferry crossed", True),
        ("", False),
        (NONSENSE, False),
        ("The harbour master counted seventeen yellow lanterns. " * 9, False),
    ],
)
def test_most_of_the_words_must_be_there(answer: str, good: bool) -> None:
    """Case, blanks and line ends do not matter, a few words neither; nonsense and half a text do."""
    assert canary.is_read(answer) is good


async def test_a_model_that_reads_it_serves(server: OpenAIServer) -> None:
    """Asked once, with the family's own prompt for plain text, before any job."""
    assert await verdict(server) is Canary.PASSED

    (request,) = server.requests
    assert request["messages"][0]["content"][1]["text"] == "<image>\nFree OCR."


async def test_a_model_that_says_something_else_refuses_to_serve(server: OpenAIServer) -> None:
    """The error has its code, the answer, and what to do."""
    server.answer = NONSENSE

    with pytest.raises(EngineError, match="CANARY: the model answered 'the the harbour.*Random weights") as caught:
        await verdict(server)
    assert caught.value.code is Code.CANARY


async def test_a_model_that_does_not_answer_in_time_refuses_to_serve(server: OpenAIServer) -> None:
    """A hanging GPU ends the start, and not the operator's patience."""
    server.script = [silent]

    with pytest.raises(EngineError, match=r"CANARY: no answer to a known picture within 0.5 s.*CANARY_TIMEOUT_S"):
        await verdict(server, canary_timeout_s=0.5)


async def test_the_setting_switches_it_off(server: OpenAIServer) -> None:
    """Nothing is asked, and the house knows."""
    server.answer = NONSENSE

    assert await verdict(server, canary=False) is Canary.OFF
    assert not server.requests


@pytest.mark.parametrize("engine", [CpuEngine(1), ReplayEngine({}, "deepseek_ocr")], ids=lambda engine: engine.kind)
async def test_who_runs_no_such_model_needs_none(engine: Engine, page_pool: PagePool) -> None:
    """Not the cpu engine, and not one whose answers were read long ago."""
    assert await canary.verdict(engine, registry.named(engine.family), page_pool, Settings()) is None


def test_every_engine_that_runs_a_model_needs_one() -> None:
    """And every family that asks such a model knows how, in a mode that it takes."""
    pytest.importorskip("twopass.engines.hf")
    from twopass.engines.hf.engine import HfEngine
    from twopass.engines.openai.engine import OpenAIEngine
    from twopass.engines.vllm.engine import VllmEngine

    asking = [family for name, family in registry.FAMILIES.items() if name != "layout"]

    assert set(factory.NAMES) == {kind.kind for kind in (HfEngine, OpenAIEngine, VllmEngine, CpuEngine, ReplayEngine)}
    assert HfEngine.canary and OpenAIEngine.canary and VllmEngine.canary
    assert asking and all(family.canary and family.canary.mode in family.modes for family in asking)


async def test_a_worker_that_refuses_ends_and_says_why(server: OpenAIServer) -> None:
    """handler.py ends with an error before it takes a job; its log has the code, and no traceback."""
    server.answer = NONSENSE
    env = {"ENGINE": "openai", "OPENAI_BASE_URL": server.url, "OPENAI_TRIES": "1", "PAGE_WORKERS": "1"}
    both = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    handler = await asyncio.create_subprocess_exec(sys.executable, "handler.py", cwd=ROOT, env=env, **both)
    told, _ = await handler.communicate()

    assert handler.returncode == 1
    assert "worker refuses to serve" in told.decode() and "CANARY" in told.decode()
    assert "Traceback" not in told.decode()


class Asked(ReplayEngine):
    """The recorded report, by an engine that could be a model."""

    async def generate(self, prompt: Prompt) -> Completion:
        return await super().generate(replace(prompt, id=prompt.id.rpartition("/")[2]))


@pytest.fixture
def reader(page_pool: PagePool, buffers: PixelBufferPool) -> Reader:
    answers = {name: Completion(text) for name, text in recorded.ANSWERS.items()}
    return Reader(page_pool, buffers, Asked(answers, "deepseek_ocr"))


async def read(reader: Reader, folder: Path, **fields: Any) -> tuple[Result, dict[str, Any]]:
    if not (folder / "report.pdf").exists():
        (folder / "report.pdf").write_bytes(recorded.report())
    result = await reader.run(source=f"{folder}/report.pdf", output=f"{folder}/out", **fields)
    found = list((folder / "out").rglob("document.json"))
    return result, json.loads(found[0].read_text()) if found else {}


@pytest.mark.parametrize("said", [Canary.PASSED, Canary.OFF, None])
async def test_document_and_result_say_it(reader: Reader, tmp_path: Path, said: Canary | None) -> None:
    """Who reads the document later knows whether the model was tried first."""
    result, document = await read(replace(reader, canary=said), tmp_path, pages="1-2")

    assert document["run"]["canary"] == said
    assert result.as_answer()["documents"][0].get("canary") == said


async def test_one_page_read_without_it_tells(reader: Reader, tmp_path: Path) -> None:
    """The document's is its pages', whoever assembles it: two workers write the same bytes under the same id."""
    sliced, _ = await read(replace(reader, canary=Canary.OFF), tmp_path, slice="1")
    whole, document = await read(replace(reader, canary=Canary.PASSED), tmp_path)

    assert document["run"]["canary"] == "off"
    assert sliced.documents[0].canary == whole.documents[0].canary == "off"
    assert sliced.documents[0].id == whole.documents[0].id
