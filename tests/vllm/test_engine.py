"""The whole program on the real vLLM: both passes, every mode, two jobs at once, aborts, loops, a crashing core."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest

from tests.fakes.children import find_children
from tests.fakes.reader import Reader
from tests.vllm import phrase_model, tiny
from twopass.engines.interface import Prompt, Sampling
from twopass.engines.vllm import tiling
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.engines.vllm.images import TiledImages
from twopass.engines.vllm.plugin import core_exit
from twopass.errors import Code, EngineError
from twopass.models import MODELS, TileGrid
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

DEEPSEEK_OCR = MODELS["deepseek_ocr"].vision

MAX_WAIT_S, SILENCE_S = 300, 30
FEW_PROMPTS: Mapping[str, Any] = {"mode": "tiny", "figure_descriptions": "none"}
PHRASE_WORKER = "tests.vllm.phrase_worker.PhraseWorker"
INTERVAL = 4  # tokens between two loop checks; short, like these answers
TEXT = "<image>\n<|grounding|>Convert the document to markdown."
# BOS, a newline, <|grounding|>, text of which each letter is a token, and "markdown.", a phrase of one token.
TEXT_TOKENS = 1 + len("\n") + 1 + len("Convert the document to ") + 1
NOISE = np.random.default_rng(1).integers(0, 256, (500, 1000, 3), dtype=np.uint8)
IMAGE_TOKENS = {"tiny": 73, "small": 111, "base": 273, "large": 421, "gundam": 273 + 10 * 21}


@dataclass
class Running:
    """The engine, its page pool, and a reader to run jobs on it."""

    engine: VllmEngine
    page_pool: PagePool
    reader: Reader

    async def ask(self, text: str = TEXT, mode: str = "tiny", size: int = 1000, **more: Any) -> Any:
        image = NOISE[:, :size]
        pixels = Pixels(image.shape[1], image.shape[0], data=image.tobytes())
        return await self.engine.generate(Prompt("p", text, pixels, mode=mode, **more))

    @property
    def unfinished(self) -> int:
        return len(self.engine.core.client.output_processor.request_states)


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # so that functions can be sent to vLLM's worker
    folder = tiny.write_checkpoint(tmp_path_factory.mktemp("tiny"), phrases=phrase_model.PHRASES)
    settings = Settings(
        engine="vllm", model_dir=folder, load_format="dummy", max_num_seqs=4, stream_interval=INTERVAL,
        gpu_memory_utilization=0.3, engine_restarts=5, engine_start_s=4 * MAX_WAIT_S, engine_silence_s=MAX_WAIT_S,
        canary=False, page_workers=1,
        small_crops=True,  # the encoder takes seconds for a large image on a CPU
    )  # fmt: skip
    (engine,) = launch_engines(
        settings, folder, worker_cls=PHRASE_WORKER, distributed_executor_backend=tiny.SINGLE_PROCESS
    )
    assert engine.buffers
    buffers = PixelBufferPool(8, 1 << 28)
    page_pool = PagePool(1, buffers, more_buffers=(engine.buffers,))
    await page_pool.open()
    await engine.open(page_pool)
    try:
        yield Running(engine, page_pool, Reader(page_pool, buffers, engine, settings))
    finally:
        await engine.close()
        await page_pool.close()


def write_pdf(path: Path, pages: int = 2, green: float = 0.8) -> str:
    with pymupdf.open() as pdf:
        for number in range(pages):
            page = pdf.new_page(width=200, height=280)
            page.draw_rect(pymupdf.Rect(20, 120, 180, 200), color=(0, 0, 1), fill=(0.5, green, number / 3))
        pdf.save(path)
    return str(path)


def read_artefact(folder: Path, name: str) -> bytes:
    (path,) = folder.glob(f"*/{name}")
    return path.read_bytes()


@pytest.mark.parametrize("mode", IMAGE_TOKENS)
async def test_an_image_takes_the_modes_number_of_tokens(running: Running, mode: str) -> None:
    """The prompt has as many image tokens as the model makes embeddings; a difference would crash the core."""
    answer = await running.ask(mode=mode)

    assert answer.tokens_in - IMAGE_TOKENS[mode] == TEXT_TOKENS
    assert (answer.text.startswith(phrase_model.TITLE), answer.finish_reason) == (True, "stop")


async def test_the_start_is_timed_by_stage(running: Running) -> None:
    """This process reports its imports, and its core reports its own stages."""
    order = ["plan_s", "imports_s", "cache_s", "configuration_s", "launch_s", "device_s", "weights_s", "profile_s"]
    order += ["graphs_s", "core_s", "client_s"]

    ends = running.engine.stage_ends

    assert sorted(ends, key=ends.__getitem__) == order
    assert ends["client_s"] < time.monotonic()


async def test_a_document_goes_through_both_passes(running: Running, tmp_path: Path) -> None:
    """Pass 1's table and figure are read again from crops, and those answers are in the document."""
    source = write_pdf(tmp_path / "bees.pdf")

    result = await running.reader.run(source=source, output=str(tmp_path / "out"), mode="tiny")

    assert result.status == "success"
    assert result.documents[0].pages["read"] == 2
    checkpoint = json.loads(read_artefact(tmp_path / "out", "pages/0001.json"))
    kinds = [(element["kind"], element["category"], element["read_by"]) for element in checkpoint["elements"]]
    assert kinds == [
        ("title", "text_header", 1),
        ("text", "text_paragraph", 1),
        ("table", "table", 2),
        ("chart", "graph", 2),
    ]
    prompts = [completion["prompt"].splitlines()[-1] for completion in checkpoint["completions"]]
    assert prompts[0] == TEXT.splitlines()[-1]
    assert prompts[-2:] == ["Parse the figure.", "Describe this image in detail."]
    document = json.loads(read_artefact(tmp_path / "out", "document.json"))
    assert document["run"]["options"]["engine"] == "vllm"
    markdown = read_artefact(tmp_path / "out", "document.md").decode()
    assert "Forty-one hives" in markdown
    assert "Honey" in markdown


async def test_two_jobs_at_once_give_the_same_documents_as_one_by_one(running: Running, tmp_path: Path) -> None:
    """Jobs share only the engine's batch."""
    sources = [write_pdf(tmp_path / f"{green}.pdf", pages=1, green=green) for green in (0.2, 0.8)]

    async def run(folder: str, source: str) -> bytes:
        out = tmp_path / folder / Path(source).stem
        result = await running.reader.run(source=source, output=str(out), job_id=folder, **FEW_PROMPTS)
        assert result.status == "success"
        return read_artefact(out, "document.json")

    alone = [await run("alone", source) for source in sources]
    together = await asyncio.gather(*(run("together", source) for source in sources))

    assert together == alone


def test_vllms_imports_are_frozen_for_the_garbage_collector(running: Running) -> None:
    """Collections do not visit the objects that importing vLLM creates."""
    assert gc.get_freeze_count() > 100_000


@pytest.mark.parametrize(
    ("draw_views", "is_scalable", "number", "is_rendered"),
    [(True, True, 1, True), (True, False, 1, False), (True, True, 3, False), (False, True, 1, False)],
)
async def test_draw_views_renders_the_tiles_of_scalable_pages(
    running: Running, tmp_path: Path, draw_views: bool, is_scalable: bool, number: int, is_rendered: bool
) -> None:
    """Without it, or if rendering fails (there is no page 3), they are cut out of the resized image."""
    page, grid = PagePointer(write_pdf(tmp_path / "bees.pdf"), number, is_scalable=is_scalable), TileGrid(2, 1)
    with pymupdf.open(page.file) as pdf:
        zoom = pymupdf.Matrix(1280 / 200, 640 / 280)
        rendered = np.frombuffer(pdf[0].get_pixmap(matrix=zoom).samples, np.uint8).reshape(640, 1280, 3)
    prompt = Prompt("p", TEXT, Pixels(1000, 500, data=NOISE.tobytes()), page, mode="gundam")

    image = TiledImages(DEEPSEEK_OCR, draw_views).plan(prompt)

    assert running.engine.buffers and image and image.grid == grid
    async with running.engine.buffers.lend(image.nbytes) as buffer:
        await image.write(buffer, running.page_pool)
        tiles = np.hstack(tiling.map_views(DEEPSEEK_OCR, buffer, "gundam", grid).tiles)

        resized = np.hstack(tiling.make_views(DEEPSEEK_OCR, NOISE, "gundam", grid).tiles)
        assert np.array_equal(tiles, rendered if is_rendered else resized)


async def test_a_cancelled_prompt_leaves_the_engine(running: Running) -> None:
    """vLLM aborts the request, and the next prompt is answered."""
    task = asyncio.create_task(running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=3000)))
    async with asyncio.timeout(120):
        while not running.unfinished:
            await asyncio.sleep(0.05)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert running.unfinished == 0
    assert (await running.ask("<image>\nFree OCR.")).text.startswith(phrase_model.FREE_TEXT)


async def test_an_answer_that_loops_is_stopped(running: Running) -> None:
    """It ends long before the token limit, and the request leaves the engine at once."""
    lengths = []

    def loop_check(text: str) -> bool:
        lengths.append(len(text))
        return text.count("bee bee") > 20

    answer = await running.ask(
        "<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=3000), loop_check=loop_check
    )

    assert answer.finish_reason == "loop"
    assert answer.tokens_out < 60
    assert len(lengths) <= 1 + answer.tokens_out // INTERVAL  # the first token, and every fourth
    assert running.unfinished == 0


async def test_tokens_leave_the_core_an_interval_at_a_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message for each token would cost more than the token."""
    processor, counts = running.engine.core.client.output_processor, list[int]()
    process = processor.process_outputs

    def count_tokens(outputs: Any, *more: Any, **others: Any) -> Any:
        counts.extend(len(output.new_token_ids) for output in outputs if output.request_id in processor.request_states)
        return process(outputs, *more, **others)

    monkeypatch.setattr(processor, "process_outputs", count_tokens)
    answer = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=10))

    assert counts == [1, INTERVAL, INTERVAL, 1]
    assert (answer.text, answer.tokens_out) == (phrase_model.LOOP * 10, 10)


async def test_the_ban_breaks_a_loop_of_tokens(running: Running) -> None:
    """With the ban, no three tokens may repeat within twenty; without it, the same prompt loops."""
    unbanned = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=0, max_tokens=12))
    banned = await running.ask("<image>\nOCR this image.", sampling=Sampling(ngram=3, window=20, max_tokens=12))

    assert unbanned.text == phrase_model.LOOP * 12
    assert not banned.text.startswith(phrase_model.LOOP * 4)
    assert banned.text.startswith(phrase_model.LOOP * 3)


async def test_a_prompt_that_is_too_long_gets_finish_reason_error(running: Running) -> None:
    """It is not an exception, so that the page's next rung runs, and the engine still answers."""
    answer = await running.ask("<image>\n" + "Free OCR. " * 1000)

    assert (answer.finish_reason, answer.text) == ("error", "")
    assert (await running.ask("<image>\nFree OCR.")).finish_reason == "stop"


async def test_a_prompt_without_an_image_marker_gets_one(running: Running) -> None:
    """The image then precedes the text."""
    assert (await running.ask("Free OCR.")).text == phrase_model.FREE_TEXT


async def test_log_probabilities_are_optional(running: Running) -> None:
    """A completion has its mean log-probability if the setting LOGPROBS is on, else None."""
    assert (await running.ask("<image>\nFree OCR.")).logprob is None
    running.engine.logprobs = True
    try:
        answer = await running.ask("<image>\nFree OCR.")
    finally:
        running.engine.logprobs = False
    assert -0.01 < answer.logprob <= 0  # this model's next token is nearly certain


async def test_after_running_out_of_memory_the_next_core_takes_less(running: Running) -> None:
    """The prompt is still answered; from then on half as many run at once, and jobs get a warning."""
    await running.engine.core.client.collective_rpc(phrase_model.run_out_of_memory)
    answer = await running.ask()

    assert answer.text.startswith(phrase_model.TITLE)
    assert [incident.code for incident in running.engine.incidents] == [Code.ENGINE_MEMORY]
    assert running.engine.sequences == running.engine.core.arguments["max_num_seqs"] == 2
    assert running.engine.core.client.vllm_config.scheduler_config.max_num_seqs == 2


async def test_a_core_killed_during_a_document_loses_nothing(running: Running, tmp_path: Path) -> None:
    """The document equals that of an undisturbed run, and its job reports the crash as a warning."""
    source = write_pdf(tmp_path / "bees.pdf")
    await running.reader.run(source=source, output=str(tmp_path / "alone"), **FEW_PROMPTS)

    job = asyncio.create_task(running.reader.run(source=source, output=str(tmp_path / "out"), **FEW_PROMPTS))
    async with asyncio.timeout(MAX_WAIT_S):
        while not running.unfinished:
            await asyncio.sleep(0.01)
    for process in find_children("EngineCore"):
        process.kill()
    result = await job

    assert (result.status, result.documents[0].pages) == ("success", {"read": 2})
    assert [(problem.code, problem.severity) for problem in result.problems] == [(Code.ENGINE_DEAD, "warning")]
    for name in ("document.json", "document.md"):
        assert read_artefact(tmp_path / "out", name) == read_artefact(tmp_path / "alone", name)


def read_environment(worker: Any) -> dict[str, str]:
    """Runs in vLLM's worker, which has the environment of the core that started it."""
    return dict(os.environ)


async def test_the_core_after_a_killed_one_is_forked_from_a_server(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers all prompts of the killed one, and has the environment of the moment of its start."""
    expected = await running.ask()
    await running.engine.after_ready()
    (server,) = find_children("multiprocessing.forkserver")
    monkeypatch.setenv("SET_LATER", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    asking = asyncio.gather(*(running.ask() for _ in range(6)))
    while not running.unfinished:
        await asyncio.sleep(0.01)
    for process in find_children("EngineCore"):
        process.kill()

    answers = await asking
    (environment,) = await running.engine.core.client.collective_rpc(read_environment)

    assert [answer.text for answer in answers] == [expected.text] * 6
    assert {core.ppid() for core in find_children("VLLM::EngineCore")} == {server.pid}
    assert server.num_threads() == 1  # a fork leaves all others out, and what they hold stays held
    assert environment["SET_LATER"] == "1" and "HF_HUB_OFFLINE" not in environment
    assert core_exit.PATH_VARIABLE in environment


async def test_a_fork_server_that_is_gone_costs_time_and_no_answers(running: Running) -> None:
    """Whatever killed it, the next core is started in a new interpreter, or from a new server."""
    for process in [*find_children("multiprocessing.forkserver"), *find_children("EngineCore")]:
        process.kill()

    answer = await running.ask(sampling=Sampling(max_tokens=2))

    assert answer.finish_reason == "length"


async def test_a_core_that_hangs_or_dies_is_started_again(running: Running) -> None:
    """The next core answers its prompts; when all restarts are used up, the worker has to be replaced."""
    running.engine.core.silence.base_s = SILENCE_S
    await running.engine.open(running.page_pool)
    cores = find_children("EngineCore")
    for process in cores:
        process.suspend()  # alive, but without output
    answer = await running.ask(sampling=Sampling(max_tokens=2))
    assert cores and answer.finish_reason == "length"
    assert not running.engine.is_gone

    for process in find_children("EngineCore"):
        process.kill()
    with pytest.raises(EngineError) as error:
        await running.ask(sampling=Sampling(max_tokens=2))
    assert error.value.code is Code.ENGINE_DEAD
    assert running.engine.is_gone
