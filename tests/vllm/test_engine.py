"""The whole program on the real vLLM: both passes, every mode, two jobs at once, aborts, loops, a core that dies."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pymupdf
import pytest

from tests.fakes.reader import Reader
from tests.vllm import talking, tiny
from twopass.engines.interface import PagePointer, Prompt, Sampling
from twopass.engines.vllm import tiling
from twopass.engines.vllm.engine import VllmEngine
from twopass.engines.vllm.tiling import DEEPSEEK_OCR, Tiles
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

PATIENCE_S, SILENCE_S = 300, 30  # a step with several large pictures is silent for long; a tiny one is not
INTERVAL = 4  # tokens between two looks: these answers are short
TEXT = "<image>\n<|grounding|>Convert the document to markdown."
BESIDE = 1 + len("\n") + 1 + len("Convert the document to ") + 1  # tokens beside the picture's: two words are one each
NOISE = np.random.default_rng(1).integers(0, 256, (500, 1000, 3), dtype=np.uint8)
PLACES = {"tiny": 73, "small": 111, "base": 273, "large": 421, "gundam": 273 + 10 * 21}


@dataclass
class Running:
    """The engine, what page workers it has, and how to run jobs on it."""

    engine: VllmEngine
    page_pool: PagePool
    reader: Reader

    async def ask(self, text: str = TEXT, mode: str = "tiny", size: int = 1000, **more: Any) -> Any:
        picture = NOISE[:, :size]
        pixels = Pixels(picture.shape[1], picture.shape[0], held=picture.tobytes())
        return await self.engine.generate(Prompt("p", text, pixels, mode=mode, **more))

    @property
    def unfinished(self) -> int:
        return len(self.engine._core.output_processor.request_states)


class Talking(VllmEngine):
    """Every core it starts is given the words that its model says."""

    async def teach(self) -> None:
        ids = self._tokenizer.convert_tokens_to_ids
        pairs = [(ids(one), ids(other)) for one, other in talking.FOLLOWS.items()]
        await self._core.collective_rpc(talking.talk, args=(pairs,))

    async def _restarted(self) -> None:
        await super()._restarted()
        await self.teach()


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # to give the model its words
    folder = tiny.checkpoint(tmp_path_factory.mktemp("tiny"), phrases=talking.PHRASES)
    settings = Settings(
        engine="vllm", model_dir=folder, load_format="dummy", max_num_seqs=4, stream_interval=INTERVAL,
        gpu_memory_utilization=0.3, engine_restarts=3, engine_silence_s=PATIENCE_S, canary=False, page_workers=1,
    )  # fmt: skip
    engine = Talking(settings, folder)
    assert engine.buffers
    await engine.teach()
    buffers = PixelBufferPool(8, 1 << 28)
    page_pool = PagePool(1, buffers, more_buffers=(engine.buffers,))
    await page_pool.open()
    await engine.open(page_pool)
    try:
        yield Running(engine, page_pool, Reader(page_pool, buffers, engine, settings))
    finally:
        await engine.close()
        await page_pool.close()


def document(path: Path, pages: int = 2) -> str:
    with pymupdf.open() as pdf:
        for number in range(pages):
            page = pdf.new_page(width=200, height=280)
            page.draw_rect(pymupdf.Rect(20, 120, 180, 200), color=(0, 0, 1), fill=(0.5, 0.8, number / 3))
        pdf.save(path)
    return str(path)


def artefacts(folder: Path, name: str) -> bytes:
    (path,) = folder.glob(f"*/{name}")
    return path.read_bytes()


@pytest.mark.parametrize("mode", PLACES)
async def test_a_picture_takes_the_modes_places(running: Running, mode: str) -> None:
    """As many places in the prompt as the model gives embeddings: a core that counts otherwise dies of it."""
    answer = await running.ask(mode=mode)

    assert answer.tokens_in - PLACES[mode] == BESIDE
    assert (answer.text.startswith(talking.TITLE), answer.finish_reason) == (True, "stop")


async def test_the_start_is_told_by_stage(running: Running) -> None:
    """What this process imports, and what its core does."""
    assert {"imports_s", "device_s", "weights_s", "graphs_s"} <= running.engine.started.keys()
    assert min(running.engine.started.values()) >= 0
    assert running.engine.started["weights_s"] > 0


async def test_a_document_goes_through_both_passes(running: Running, tmp_path: Path) -> None:
    """Pass 1's table and picture are asked about again, and what the model says of them is in the document."""
    source = document(tmp_path / "bees.pdf")

    result = await running.reader.run(source=source, output=str(tmp_path / "out"), mode="tiny")

    assert result.status == "success"
    assert result.documents[0].pages["read"] == 2
    checkpoint = json.loads(artefacts(tmp_path / "out", "pages/0001.json"))
    kinds = [(element["kind"], element["category"], element["read_by"]) for element in checkpoint["elements"]]
    assert kinds == [
        ("title", "text_header", 1),
        ("text", "text_paragraph", 1),
        ("table", "table", 2),
        ("chart", "graph", 2),
    ]
    asked = [told["prompt"].splitlines()[-1] for told in checkpoint["completions"]]
    assert (asked[0], asked[-1]) == (TEXT.splitlines()[-1], "Parse the figure.")
    read = json.loads(artefacts(tmp_path / "out", "document.json"))
    assert read["run"]["options"]["engine"] == "vllm"
    markdown = artefacts(tmp_path / "out", "document.md").decode()
    assert "Forty-one hives" in markdown
    assert "Honey" in markdown


async def test_two_jobs_at_once_are_as_one_after_the_other(running: Running, tmp_path: Path) -> None:
    """They share the engine's batch and nothing else."""
    sources = [document(tmp_path / f"{name}.pdf", pages) for name, pages in (("one", 1), ("two", 2))]

    async def run(where: str, source: str) -> bytes:
        out = tmp_path / where / Path(source).stem
        result = await running.reader.run(source=source, output=str(out), mode="tiny", job_id=where)
        assert result.status == "success"
        return artefacts(out, "document.json")

    alone = [await run("alone", source) for source in sources]
    together = await asyncio.gather(*(run("together", source) for source in sources))

    assert together == alone


def test_what_vllm_imports_is_out_of_the_garbage_collectors_sight(running: Running) -> None:
    assert gc.get_freeze_count() > 100_000


@pytest.mark.parametrize(("is_scalable", "number", "is_drawn"), [(True, 1, True), (False, 1, False), (True, 3, False)])
async def test_tiles_of_letters_and_lines_are_drawn_and_not_enlarged(
    running: Running, tmp_path: Path, is_scalable: bool, number: int, is_drawn: bool
) -> None:
    """Whatever the picture shows. Of any other page, and where drawing fails, they are made of the picture."""
    page, tiles = PagePointer(document(tmp_path / "bees.pdf"), number, is_scalable=is_scalable), Tiles(2, 1)
    with pymupdf.open(page.file) as pdf:
        zoom = pymupdf.Matrix(1280 / 200, 640 / 280)
        drawn = np.frombuffer(pdf[0].get_pixmap(matrix=zoom).samples, np.uint8).reshape(640, 1280, 3)
    prompt = Prompt("p", TEXT, Pixels(1000, 500, held=NOISE.tobytes()), page, mode="gundam")

    assert running.engine.buffers
    async with running.engine.buffers.lend(DEEPSEEK_OCR.nbytes("gundam", tiles)) as buffer:
        await running.engine._prepared(prompt, "gundam", tiles, buffer)
        shown = np.hstack(tiling.mapped(DEEPSEEK_OCR, buffer, "gundam", tiles).tiles)

        made = tiling.views(DEEPSEEK_OCR, NOISE, "gundam", tiles)
        assert np.array_equal(shown, drawn if is_drawn else np.hstack(made.tiles))


async def test_a_cancelled_prompt_leaves_the_engine(running: Running) -> None:
    asked = asyncio.create_task(running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=3000)))
    async with asyncio.timeout(120):
        while not running.unfinished:
            await asyncio.sleep(0.05)

    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert running.unfinished == 0
    assert (await running.ask("<image>\nFree OCR.")).text.startswith(talking.FREE)


async def test_an_answer_that_loops_is_stopped(running: Running) -> None:
    """Long before the token limit, and the engine is free at once."""
    seen = []

    def loops(text: str) -> bool:
        seen.append(len(text))
        return text.count("bee bee") > 20

    answer = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=3000), watch=loops)

    assert answer.finish_reason == "loop"
    assert answer.tokens_out < 60
    assert len(seen) <= 1 + answer.tokens_out // INTERVAL  # the first token, and every fourth
    assert running.unfinished == 0


async def test_tokens_leave_the_core_an_interval_at_a_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message for each token costs more than the token."""
    processor, told = running.engine._core.output_processor, list[int]()
    process = processor.process_outputs

    def counted(outputs: Any, *more: Any) -> Any:
        told.extend(len(output.new_token_ids) for output in outputs if output.request_id in processor.request_states)
        return process(outputs, *more)

    monkeypatch.setattr(processor, "process_outputs", counted)
    answer = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=10))

    assert told == [1, INTERVAL, INTERVAL, 1]
    assert (answer.text, answer.tokens_out) == (talking.STUCK * 10, 10)


async def test_the_ban_breaks_a_loop_of_tokens(running: Running) -> None:
    """The same prompt with and without: three tokens may not come again within twenty."""
    free = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=12))
    banned = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=3, window=20, max_tokens=12))

    assert free.text == talking.STUCK * 12
    assert not banned.text.startswith(talking.STUCK * 4)
    assert banned.text.startswith(talking.STUCK * 3)


async def test_a_prompt_that_is_too_long_is_an_answer_with_an_error(running: Running) -> None:
    """The page's next rung goes on, and the engine is unharmed."""
    answer = await running.ask("<image>\n" + "Free OCR. " * 1000)

    assert (answer.finish_reason, answer.text) == ("error", "")
    assert (await running.ask("<image>\nFree OCR.")).finish_reason == "stop"


async def test_a_text_without_a_place_for_the_picture_gets_one(running: Running) -> None:
    assert (await running.ask("Free OCR.")).text == talking.FREE


async def test_log_probabilities_are_given_where_they_are_wanted(running: Running) -> None:
    assert (await running.ask("<image>\nFree OCR.")).logprob is None
    running.engine._logprobs = True
    try:
        answer = await running.ask("<image>\nFree OCR.")
    finally:
        running.engine._logprobs = False
    assert -0.01 < answer.logprob <= 0  # this model is sure of itself


async def test_a_core_without_memory_is_followed_by_one_that_takes_less(running: Running) -> None:
    """The prompt is answered all the same; half as many are read at once from now on, and jobs are told."""
    await running.engine._core.collective_rpc(talking.exhaust)
    answer = await running.ask()

    assert answer.text.startswith(talking.TITLE)
    assert [one.code for one in running.engine.incidents] == [Code.ENGINE_MEMORY]
    assert running.engine.sequences == running.engine._arguments["max_num_seqs"] == 2
    assert running.engine._core.vllm_config.scheduler_config.max_num_seqs == 2


async def test_a_core_killed_in_the_middle_of_a_document_costs_nothing(running: Running, tmp_path: Path) -> None:
    """The document is the one that an undisturbed run wrote, and its job tells what befell the engine."""
    source = document(tmp_path / "bees.pdf")
    await running.reader.run(source=source, output=str(tmp_path / "alone"), mode="tiny")

    job = asyncio.create_task(running.reader.run(source=source, output=str(tmp_path / "out"), mode="tiny"))
    async with asyncio.timeout(PATIENCE_S):
        while not running.unfinished:
            await asyncio.sleep(0.01)
    for process in _core():
        process.kill()
    result = await job

    assert (result.status, result.documents[0].pages) == ("success", {"read": 2})
    assert [(told.code, told.severity) for told in result.problems] == [(Code.ENGINE_DEAD, "warning")]
    for name in ("document.json", "document.md"):
        assert artefacts(tmp_path / "out", name) == artefacts(tmp_path / "alone", name)


async def test_a_core_that_hangs_or_dies_is_started_again(running: Running) -> None:
    """The prompts it held are answered by the next one; when its lives are used up, the worker has to be replaced."""
    running.engine._silence_s = SILENCE_S
    await running.engine.open(running.page_pool)
    for process in _core():
        process.suspend()  # alive and silent
    answer = await running.ask(sampling=Sampling(max_tokens=2))
    assert answer.finish_reason == "length"
    assert not running.engine.is_gone

    for process in _core():
        process.kill()
    with pytest.raises(EngineError) as error:
        await running.ask(sampling=Sampling(max_tokens=2))
    assert error.value.code is Code.ENGINE_DEAD
    assert running.engine.is_gone


def _core() -> list[psutil.Process]:
    cores = [
        child for child in psutil.Process().children() if "EngineCore" in " ".join([child.name(), *child.cmdline()])
    ]
    assert cores
    return cores
