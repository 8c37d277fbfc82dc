"""DeepSeek-OCR-2 gives the same answers in Transformers and in vLLM, in float32 and with the same random weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twopass.engines import factory
from twopass.engines.hf import models
from twopass.engines.hf.engine import HfEngine
from twopass.engines.interface import Prompt, Sampling
from twopass.errors import EngineError, InvalidSetting
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix

TEXT = "<image>\n<|grounding|>Convert the document to markdown."
BOS = "<｜begin▁of▁sentence｜>"  # this tokenizer does not add it
TOKENS = 24
UNBANNED, BANNED = 100, 3  # n-gram sizes: longer than an answer, so that nothing is banned, and one that bans early


def draw_noise(width: int, height: int, seed: int) -> Pixels:
    """Coarse coloured squares, different for each seed."""
    squares = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    pixels = squares.repeat(8, 0).repeat(8, 1)[:height, :width]
    return Pixels(width, height, data=pixels.tobytes())


PROMPTS = {
    f"{name}-{ngram}": Prompt(name, TEXT, image, mode="gundam", sampling=Sampling(max_tokens=TOKENS, ngram=ngram))
    for name, image in {
        "padded": draw_noise(500, 700, 2),
        "tiled": draw_noise(800, 400, 3),  # two tiles side by side
    }.items()
    for ngram in (UNBANNED, BANNED)
}


@pytest.fixture(scope="module")
async def engine(random_model: Path) -> AsyncIterator[HfEngine]:
    engine = factory.create_engine(
        Settings(engine="hf", model="deepseek_ocr2", model_dir=random_model, dtype="float32")
    )
    assert isinstance(engine, HfEngine)
    await engine.open(PagePool(0, PixelBufferPool(0, 0)))
    yield engine
    await engine.close()


@pytest.fixture(scope="module")
def vllm_answers(random_model: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """vLLM's answer to each prompt, and the number of tokens in the prompt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from vllm import LLM, SamplingParams
        from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor

        llm = LLM(
            model=str(random_model), dtype="float32", max_model_len=2048, enforce_eager=True, max_num_seqs=2,
            enable_prefix_caching=False, mm_processor_cache_gb=0, limit_mm_per_prompt={"image": 1},
            logits_processors=[NGramPerReqLogitsProcessor], skip_mm_profiling=True, gpu_memory_utilization=0.3,
        )  # fmt: skip
        answers = {}
        for name, prompt in PROMPTS.items():
            sampling = SamplingParams(
                temperature=0, max_tokens=TOKENS, skip_special_tokens=False,
                extra_args={"ngram_size": prompt.sampling.ngram, "window_size": prompt.sampling.window},
            )  # fmt: skip
            request = {"prompt": BOS + TEXT, "multi_modal_data": {"image": Image.fromarray(prompt.image.array())}}
            (output,) = llm.generate([request], sampling, use_tqdm=False)
            assert output.prompt_token_ids
            answers[name] = (output.outputs[0].text, len(output.prompt_token_ids))
        yield answers


@pytest.mark.parametrize("name", PROMPTS)
async def test_transformers_and_vllm_give_the_same_answer(
    engine: HfEngine, vllm_answers: dict[str, tuple[str, int]], name: str
) -> None:
    """For a padded image and one cut into tiles, greedily, with and without the n-gram ban."""
    completion = await engine.generate(PROMPTS[name])

    assert (completion.text, completion.tokens_in) == vllm_answers[name]
    assert (completion.tokens_out, completion.finish_reason) == (TOKENS, "length")


def test_the_image_and_the_ban_affect_the_answer(vllm_answers: dict[str, tuple[str, int]]) -> None:
    """Otherwise equal answers would prove nothing."""
    assert len({text for text, _ in vllm_answers.values()}) == len(PROMPTS)


def test_the_full_encoder_has_the_sizes_of_vllms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests shorten both encoders, and neither size is in the model's files."""
    from transformers.models.deepseek_ocr2.configuration_deepseek_ocr2 import DeepseekOcr2SamVisionConfig as Sam
    from vllm.model_executor.models import deepencoder
    from vllm.model_executor.models.deepencoder2 import build_qwen2_decoder_as_encoder

    theirs = {name: one.default for name, one in signature(build_qwen2_decoder_as_encoder).parameters.items()}
    names = {"num_hidden_layers": "decoder_layer", "hidden_size": "hidden_dimension"}
    ours = {names.get(name, name): size for name, size in models.ENCODER_CONFIG.items()}

    monkeypatch.setattr(deepencoder, "_build_sam", lambda **sizes: sizes)

    assert theirs.items() <= ours.items()
    assert deepencoder.build_sam_vit_b() == {
        "encoder_embed_dim": Sam.hidden_size, "encoder_depth": Sam.num_hidden_layers,
        "encoder_num_heads": Sam.num_attention_heads, "encoder_global_attn_indexes": list(Sam.global_attn_indexes),
    }  # fmt: skip


async def test_a_loop_ends(engine: HfEngine) -> None:
    """`loop_check` is called every 64 tokens, and when it returns True the answer ends."""
    texts: list[str] = []

    def loop_check(text: str) -> bool:
        texts.append(text)
        return len(texts) == 2

    prompt = replace(
        PROMPTS[f"padded-{UNBANNED}"], mode="base", sampling=Sampling(max_tokens=400), loop_check=loop_check
    )
    completion = await engine.generate(prompt)

    assert (completion.finish_reason, completion.tokens_out) == ("loop", 128)
    assert completion.text.startswith(texts[0])


async def test_a_cancelled_prompt_frees_the_thread(engine: HfEngine) -> None:
    """The next prompt does not wait for the cancelled one's answer."""
    loop, answering = asyncio.get_running_loop(), asyncio.Event()

    def loop_check(text: str) -> bool:
        loop.call_soon_threadsafe(answering.set)
        return False

    long_prompt = replace(PROMPTS[f"padded-{UNBANNED}"], sampling=Sampling(max_tokens=1500), loop_check=loop_check)
    task = asyncio.create_task(engine.generate(long_prompt))
    async with asyncio.timeout(120):
        await answering.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(120):
        assert (await engine.generate(PROMPTS[f"padded-{UNBANNED}"])).tokens_out == TOKENS


async def test_a_prompt_longer_than_the_context_is_refused(engine: HfEngine) -> None:
    """The completion has finish_reason error, and the engine does not crash."""
    completion = await engine.generate(replace(PROMPTS[f"padded-{UNBANNED}"], text="<image>" + "x" * 9000))

    assert (completion.text, completion.finish_reason) == ("", "error")


async def test_a_folder_without_a_model_is_an_engine_error(tmp_path: Path) -> None:
    """The message includes Transformers' own error."""
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_ocr2"}')

    with pytest.raises(EngineError, match="cannot load"):
        await HfEngine("deepseek_ocr2", tmp_path, "float32").open(PagePool(0, PixelBufferPool(0, 0)))


async def test_an_unknown_dtype_is_an_invalid_setting(tmp_path: Path) -> None:
    """The message lists the valid values."""
    with pytest.raises(InvalidSetting, match="DTYPE is one of float32, bfloat16, float16"):
        await HfEngine("deepseek_ocr2", tmp_path, "fp8").open(PagePool(0, PixelBufferPool(0, 0)))
