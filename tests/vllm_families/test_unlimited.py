"""Unlimited-OCR starts in the real vLLM with our classes, and answers images with many tiles.

On a CPU vLLM runs its attention for CPUs, which does not limit what an answer sees of itself: answers here are shorter
than the 128 tokens that it may see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from tests.vllm import tiny
from twopass.engines.interface import Prompt, Sampling
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.families.unlimited import PROMPTS
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

SAMPLING = Sampling(max_tokens=24, ngram=35, window=128, allowed_tokens=(), ignore_eos=True)
SETTINGS = Settings(
    model="unlimited_ocr", preset="cpu", load_format="dummy", max_num_seqs=2, gpu_memory_utilization=0.3,
    engine_restarts=0,  # no fork server, which takes a gigabyte
)  # fmt: skip


def page(width: int, height: int) -> Pixels:
    noise = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Pixels(width, height, data=noise.tobytes())


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    folder = tiny.write_checkpoint(tmp_path_factory.mktemp("unlimited"), "UnlimitedOCRForCausalLM")
    (engine,) = launch_engines(SETTINGS, folder, distributed_executor_backend=tiny.SINGLE_PROCESS)
    assert engine.buffers
    page_pool = PagePool(1, PixelBufferPool(0, 0), more_buffers=(engine.buffers,))
    await page_pool.open()
    await engine.open(page_pool)
    yield engine
    await engine.close()
    await page_pool.close()


async def test_an_answer_token_sees_the_last_128_tokens(engine: VllmEngine) -> None:
    """Our arguments leave the window and the missing prefix cache as vLLM sets them for this model."""
    config = engine.core.client.vllm_config

    assert (config.model_config.rswa_window, config.model_config.hf_text_config.rswa_window) == (128, 128)
    assert not config.cache_config.enable_prefix_caching
    assert config.attention_config.backend.name == "TRITON_ATTN"


async def test_it_answers_in_both_modes_and_with_many_tiles(engine: VllmEngine) -> None:
    """The numbers of image tokens are those of the tiles: none, and one by eight, more than other models have."""
    prompts = [
        Prompt("base", PROMPTS["document"], page(595, 842), mode="base", sampling=SAMPLING),
        Prompt("strip", PROMPTS["document"], page(700, 5600), mode="gundam", max_crops=12, sampling=SAMPLING),
    ]

    answers = [await engine.generate(prompt) for prompt in prompts]

    text_tokens = 1 + len("document parsing.")  # BOS, and one token for each letter in the tiny vocabulary
    assert [answer.tokens_in for answer in answers] == [tokens + text_tokens for tokens in (273, 1153)]
    assert {(answer.finish_reason, answer.tokens_out) for answer in answers} == {("length", 24)}
