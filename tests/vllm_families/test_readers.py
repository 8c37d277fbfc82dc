"""GLM-OCR and PaddleOCR-VL with small random weights in the real vLLM: crops, documents, aborts and restarts.

In float32, vLLM's answers are those of Transformers, whose processor gets the same crops. Takes four minutes on two
cores.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
import torch
import transformers
from PIL import Image

from tests.fakes.children import find_children
from tests.fakes.reader import Reader
from tests.vllm import tiny
from tests.vllm_families import tiny_detector, tiny_readers
from twopass.detection.region import Detection, make_region, to_json
from twopass.document import Box
from twopass.engines.detector.engine import Detector, DetectorFirstEngine
from twopass.engines.detector.process import ChildDetector, DetectorOptions
from twopass.engines.interface import Completion, Prompt, Sampling
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.engines.vllm.plugin.readers import split_images
from twopass.errors import Code
from twopass.families.regions.family import RegionFamily
from twopass.families.regions.reader import GLM_OCR, READERS, Task
from twopass.models import MODELS
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix

TOKENS = 16
SIZES = ((300, 100), (40, 28), (56, 400), (1190, 90), (640, 480), (501, 333))
MAX_WAIT_S = 300
LABELS = ("text", "table", "display_formula", "image")
CUT_OFF = "partial_success"  # how documents end here: random weights never end an answer


def draw_crop(width: int, height: int) -> Pixels:
    """Coarse coloured squares, different for each size."""
    squares = np.random.default_rng(width * height).integers(0, 256, (-(-height // 8), -(-width // 8), 3), np.uint8)
    return Pixels(width, height, data=squares.repeat(8, 0).repeat(8, 1)[:height, :width].tobytes())


@dataclass
class Running:
    """An engine with its page pool, the folder of its model, and a reader to run jobs on it."""

    name: str
    folder: Path
    engine: VllmEngine
    page_pool: PagePool
    buffers: PixelBufferPool

    async def ask(self, size: tuple[int, int] = SIZES[0], tokens: int = TOKENS, penalty: float = 1.0) -> Completion:
        sampling = Sampling(max_tokens=tokens, ngram=0, allowed_tokens=(), ignore_eos=True, repetition_penalty=penalty)
        text = READERS[self.name].prompts[Task.TEXT]
        return await self.engine.generate(Prompt("p", text, draw_crop(*size), sampling=sampling))

    async def read(self, detector: Detector, **fields: Any) -> Any:
        engine = DetectorFirstEngine(detector, self.engine, self.name)
        reader = Reader(self.page_pool, self.buffers, engine, self.engine_settings)
        family = RegionFamily(MODELS[self.name])
        return await reader.run(family=family, sampling={"max_tokens": TOKENS}, dpi=72, **fields)

    @property
    def engine_settings(self) -> Settings:
        return Settings(model=self.name, page_workers=1, canary=False)

    @property
    def unfinished(self) -> int:
        return len(self.engine.core.client.output_processor.request_states)


@pytest.fixture(scope="module", params=sorted(READERS))
async def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tiny_readers.write_checkpoint(tmp_path_factory.mktemp("reader"), request.param)
    settings = Settings(
        engine="vllm", model=request.param, model_dir=folder, max_num_seqs=8, gpu_memory_utilization=0.3,
        engine_restarts=2, engine_silence_s=MAX_WAIT_S, page_workers=1,
    )  # fmt: skip
    (engine,) = launch_engines(settings, folder, distributed_executor_backend=tiny.SINGLE_PROCESS)
    assert engine.buffers
    buffers = PixelBufferPool(8, 1 << 28)
    page_pool = PagePool(1, buffers, more_buffers=(engine.buffers,))
    await page_pool.open()
    await engine.open(page_pool)
    try:
        yield Running(request.param, folder, engine, page_pool, buffers)
    finally:
        await engine.close()
        await page_pool.close()


def resize_crop(name: str, size: tuple[int, int]) -> Image.Image:
    image = Image.fromarray(draw_crop(*size).array())
    return image.resize(MODELS[name].crop_input.resize.apply(*size))


def process(processor: Any, name: str, image: Image.Image) -> Any:
    content = [{"type": "image", "image": image}, {"type": "text", "text": READERS[name].prompts[Task.TEXT]}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=True, add_generation_prompt=True, return_dict=True,
        return_tensors="pt",
    )  # fmt: skip


@pytest.mark.parametrize("penalty", [1.0, GLM_OCR.repetition_penalty])
async def test_answers_equal_those_of_transformers(running: Running, penalty: float) -> None:
    """Token by token, for crops of several sizes that vLLM encodes and answers together."""
    processor = transformers.AutoProcessor.from_pretrained(running.folder)
    model = transformers.AutoModelForImageTextToText.from_pretrained(running.folder, dtype=torch.float32).eval()
    if running.name == "paddleocr_vl":  # vLLM interpolates as the published code; Transformers 5.19 differently
        model.model.visual.vision_model.embeddings.interpolation_align_corners = False
    expected = []
    for size in SIZES:
        inputs = process(processor, running.name, resize_crop(running.name, size))
        with torch.inference_mode():
            answer = model.generate(
                **inputs, do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS, repetition_penalty=penalty
            )
        tokens = answer[0, inputs["input_ids"].shape[1] :].tolist()
        text = running.engine.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        expected.append((inputs["input_ids"].shape[1], text))

    answers = await asyncio.gather(*(running.ask(size, penalty=penalty) for size in SIZES))

    assert [(answer.tokens_in, answer.text) for answer in answers] == expected
    # The model sees the image. Random weights answer some crops alike.
    assert len({answer.text for answer in answers}) > len(SIZES) / 2


async def test_a_crop_takes_the_tokens_that_the_processor_counts(running: Running) -> None:
    """Our size of a crop is the processor's, which also leaves a crop of that size as it is."""
    processor = transformers.AutoProcessor.from_pretrained(running.folder)
    for size in SIZES:
        raw, resized = (
            process(processor, running.name, image)["input_ids"].shape[1]
            for image in (Image.fromarray(draw_crop(*size).array()), resize_crop(running.name, size))
        )

        answer = await running.ask(size, tokens=1)

        assert answer.tokens_in == raw == resized


async def test_the_largest_crop_is_read(running: Running) -> None:
    """It has as many image tokens as a step may have, and fills its buffer."""
    images = running.engine.images

    answer = await running.ask((2180, 2180), tokens=1)

    assert 0.9 * images.max_tokens < answer.tokens_in < images.max_tokens + 40
    assert answer.finish_reason == "length"


def test_images_are_split_by_their_patches() -> None:
    """Every image is in one part, in order, and only an image that is too large by itself exceeds the limit."""
    parts = [[5, 5, 5][part] for part in split_images([5, 5, 5], 10)]
    uneven = [[3, 12, 1, 9, 1][part] for part in split_images([3, 12, 1, 9, 1], 10)]

    assert parts == [[5, 5], [5]]
    assert uneven == [[3], [12], [1, 9], [1]]


async def test_crops_that_are_encoded_in_parts_have_their_own_answers(running: Running) -> None:
    """Two crops of 11,000 patches and a small one, which a step has together, are answered as they are alone."""
    sizes = ((1500, 1480), SIZES[0], (1480, 1500))
    alone = [(await running.ask(size)).text for size in sizes]

    together = await asyncio.gather(*(running.ask(size) for size in sizes))

    assert [answer.text for answer in together] == alone
    assert len(set(alone)) > 1  # random weights answer large crops alike


async def test_a_cancelled_crop_leaves_the_engine(running: Running) -> None:
    """vLLM aborts the request, and the next crop is answered."""
    task = asyncio.create_task(running.ask(tokens=3000))
    async with asyncio.timeout(120):
        while not running.unfinished:
            await asyncio.sleep(0.05)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert running.unfinished == 0
    assert (await running.ask()).finish_reason == "length"


async def test_a_crop_has_no_modes(running: Running) -> None:
    """A mode of DeepSeek-OCR gets finish_reason error and does not reach vLLM."""
    prompt = Prompt("p", "OCR:", draw_crop(*SIZES[0]), mode="gundam")

    assert (await running.engine.generate(prompt)).finish_reason == "error"


async def test_the_engine_bans_no_ngrams(running: Running) -> None:
    """The readers were not trained with a ban, and without one vLLM uses its faster runner."""
    assert not running.engine.has_ngram_ban
    assert "logits_processors" not in running.engine.core.arguments


class ScriptedDetector:
    """Finds one region of each of LABELS, from the top of the page to its bottom."""

    async def prepare(self, page_pool: PagePool) -> None:
        """Do nothing: there is nothing to load."""

    async def open(self, page_pool: PagePool) -> None:
        """Do nothing either."""

    async def detect(self, pages: Sequence[Pixels]) -> list[str]:
        step = 1 / len(LABELS)
        regions = [
            make_region(label, Box(x0=0.1, y0=(n + 0.1) * step, x1=0.9, y1=(n + 0.9) * step), order=n)
            for n, label in enumerate(LABELS)
        ]
        return [to_json(Detection(regions=tuple(regions), ink=()))] * len(pages)

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


def write_pdf(path: Path, pages: int, text: str = "") -> str:
    """Pages of coloured areas, without words but `text` at their foot."""
    with pymupdf.open() as pdf:
        for number in range(pages):
            page = pdf.new_page(width=300, height=400)
            for part in range(8):
                page.draw_rect((40, 20 + 45 * part, 260, 60 + 45 * part), fill=(part / 8, 0.4, number / pages))
            page.insert_text((40, 392), text)
        pdf.save(path)
    return str(path)


def load(folder: Path, name: str) -> Any:
    [path] = folder.rglob(name)
    return json.loads(path.read_text())


async def test_a_document_goes_through_both_passes(running: Running, tmp_path: Path) -> None:
    """Each region is asked about with the prompt of its label; pictures are not asked about."""
    source = write_pdf(tmp_path / "page.pdf", pages=2)

    result = await running.read(ScriptedDetector(), source=source, output=f"{tmp_path}/out")

    assert (result.status, result.documents[0].pages) == (CUT_OFF, {"read": 2})
    checkpoint = load(tmp_path / "out", "0001.json")
    prompts = READERS[running.name].prompts
    asked = {completion["prompt"] for completion in checkpoint["completions"][1:]}
    assert asked == {prompts[Task.TEXT], prompts[Task.TABLE], prompts[Task.FORMULA]}
    assert [element["read_by"] for element in checkpoint["elements"]] == [2, 2, 2, 1]


async def test_a_core_that_is_killed_loses_nothing(running: Running, tmp_path: Path) -> None:
    """The document equals that of an undisturbed run, and its job reports the crash as a warning."""
    source = write_pdf(tmp_path / "page.pdf", pages=2)
    alone = await running.read(ScriptedDetector(), source=source, output=f"{tmp_path}/alone")

    job = asyncio.create_task(running.read(ScriptedDetector(), source=source, output=f"{tmp_path}/out"))
    async with asyncio.timeout(MAX_WAIT_S):
        while not running.unfinished:
            await asyncio.sleep(0.01)
    for process in find_children("EngineCore"):
        process.kill()
    result = await job

    assert (result.status, alone.status) == (CUT_OFF, CUT_OFF)
    undisturbed = [problem.code for problem in alone.problems]
    assert [problem.code for problem in result.problems] == [*undisturbed, Code.ENGINE_DEAD]
    assert set(undisturbed) <= {Code.TRUNCATED, Code.UNKNOWN_CHARACTERS}  # of random weights
    assert load(tmp_path / "out", "document.json") == load(tmp_path / "alone", "document.json")


async def test_a_real_detector_and_a_real_reader_read_a_document(running: Running, tmp_path: Path) -> None:
    """Both with random weights: words outside of what is detected are read, and nothing fails.

    What random weights detect has no area, and is dropped.
    """
    detector = ChildDetector(DetectorOptions(tiny_detector.write_checkpoint(tmp_path / "detector")))
    source = write_pdf(tmp_path / "page.pdf", pages=1, text="Words at the foot of the page")

    result = await running.read(detector, source=source, output=f"{tmp_path}/out")
    await detector.close()

    assert (result.status, result.documents[0].pages) == (CUT_OFF, {"read": 1})
    checkpoint = load(tmp_path / "out", "0001.json")
    [first, answer] = checkpoint["completions"]
    assert json.loads(first["text"])["regions"]
    assert answer["prompt"] == READERS[running.name].prompts[Task.TEXT]
    assert "missed_by_detector" in checkpoint["elements"][-1]["flags"]
