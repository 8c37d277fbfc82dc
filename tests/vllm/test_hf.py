"""DeepSeek-OCR-2 in Transformers against the same in vLLM, in float32, on the same random weights.

Takes five minutes on two cores, most of it in the vision part, whose size vLLM has written into its code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twopass.engines import factory
from twopass.engines.hf.engine import HfEngine
from twopass.engines.interface import Prompt, Sampling
from twopass.errors import EngineError
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch's and vLLM's are not ours to mend

TEXT = "<image>\n<|grounding|>Convert the document to markdown."
BOS = "<｜begin▁of▁sentence｜>"  # this tokenizer adds none by itself
TOKENS = 24
FREE, TIGHT = 100, 3  # n-gram sizes: no ban within so few tokens, and one that bites at once


def noise(width: int, height: int, seed: int) -> Pixels:
    """Coarse coloured squares: a picture like no other."""
    squares = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    pixels = squares.repeat(8, 0).repeat(8, 1)[:height, :width]
    return Pixels(width, height, held=pixels.tobytes())


PROMPTS = {
    f"{name}-{ngram}": Prompt(name, TEXT, picture, mode="gundam", sampling=Sampling(max_tokens=TOKENS, ngram=ngram))
    for name, picture in {
        "square": noise(600, 600, 1),
        "padded": noise(500, 700, 2),
        "tiled": noise(800, 400, 3),  # two tiles beside each other
    }.items()
    for ngram in (FREE, TIGHT)
}


@pytest.fixture(scope="module")
async def engine(weighty: Path) -> AsyncIterator[HfEngine]:
    engine = factory.constructed(Settings(engine="hf", model="deepseek_ocr2", model_dir=weighty, dtype="float32"))
    assert isinstance(engine, HfEngine)
    await engine.open(PagePool(0, PixelBufferPool(0, 0)))
    yield engine
    await engine.close()


@pytest.fixture(scope="module")
def theirs(weighty: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """What vLLM says to every prompt, and how many tokens it counts in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor

        from vllm import LLM, SamplingParams

        llm = LLM(
            model=str(weighty), dtype="float32", max_model_len=2048, enforce_eager=True, max_num_seqs=2,
            enable_prefix_caching=False, mm_processor_cache_gb=0, limit_mm_per_prompt={"image": 1},
            logits_processors=[NGramPerReqLogitsProcessor], skip_mm_profiling=True, gpu_memory_utilization=0.3,
        )  # fmt: skip
        said = {}
        for name, prompt in PROMPTS.items():
            sampling = SamplingParams(
                temperature=0, max_tokens=TOKENS, skip_special_tokens=False,
                extra_args={"ngram_size": prompt.sampling.ngram, "window_size": prompt.sampling.window},
            )  # fmt: skip
            asked = {"prompt": BOS + TEXT, "multi_modal_data": {"image": Image.fromarray(prompt.image.array())}}
            (output,) = llm.generate([asked], sampling, use_tqdm=False)
            assert output.prompt_token_ids
            said[name] = (output.outputs[0].text, len(output.prompt_token_ids))
        yield said


@pytest.mark.parametrize("name", PROMPTS)
async def test_transformers_and_vllm_say_the_same(
    engine: HfEngine, theirs: dict[str, tuple[str, int]], name: str
) -> None:
    """Greedy tokens of a picture taken whole, one that is padded, and one cut into tiles; with and without the ban."""
    completion = await engine.generate(PROMPTS[name])

    assert (completion.text, completion.tokens_in) == theirs[name]
    assert (completion.tokens_out, completion.finish_reason) == (TOKENS, "length")


def test_the_picture_and_the_ban_matter(theirs: dict[str, tuple[str, int]]) -> None:
    """Equal answers to everything would prove nothing."""
    assert len({text for text, _ in theirs.values()}) == len(PROMPTS)


async def test_a_loop_ends(engine: HfEngine) -> None:
    """`watch` is asked every 64 tokens, and True is the end."""
    seen: list[str] = []

    def watch(text: str) -> bool:
        seen.append(text)
        return len(seen) == 2

    prompt = replace(PROMPTS[f"square-{FREE}"], mode="base", sampling=Sampling(max_tokens=400), watch=watch)
    completion = await engine.generate(prompt)

    assert (completion.finish_reason, completion.tokens_out) == ("loop", 128)
    assert completion.text.startswith(seen[0])


async def test_a_cancelled_prompt_frees_the_thread(engine: HfEngine) -> None:
    """The next one does not wait for an answer that nobody wants."""
    long = replace(PROMPTS[f"square-{FREE}"], sampling=Sampling(max_tokens=1500))
    task = asyncio.create_task(engine.generate(long))
    await asyncio.sleep(0.5)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(120):
        assert (await engine.generate(PROMPTS[f"square-{FREE}"])).tokens_out == TOKENS


async def test_a_prompt_without_room_is_refused(engine: HfEngine) -> None:
    """Longer than the context: an answer that says so, and no crash."""
    completion = await engine.generate(replace(PROMPTS[f"square-{FREE}"], text="<image>" + "x" * 9000))

    assert (completion.text, completion.finish_reason) == ("", "error")


async def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    """With Transformers' own words."""
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_ocr2"}')

    with pytest.raises(EngineError, match="cannot load"):
        await HfEngine("deepseek_ocr2", tmp_path, "float32").open(PagePool(0, PixelBufferPool(0, 0)))


async def test_a_precision_that_is_none_is_told(tmp_path: Path) -> None:
    """With those that there are."""
    with pytest.raises(EngineError, match="DTYPE is one of float32, bfloat16, float16"):
        await HfEngine("deepseek_ocr2", tmp_path, "fp8").open(PagePool(0, PixelBufferPool(0, 0)))
