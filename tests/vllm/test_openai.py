"""The openai engine against a real `vllm serve` of a tiny DeepSeek-OCR with random weights."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise

import httpx
import numpy as np
import pytest

from tests.vllm import tiny
from twopass.engines import factory
from twopass.engines.interface import Prompt, Sampling
from twopass.engines.openai.engine import OpenAIEngine
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch's and vLLM's are not ours to mend

CONTEXT = 4096
TOKENS = 24
IMAGE_TOKENS = 273  # one view of 1024 × 1024
FREE, TIGHT = 100, 2  # n-gram sizes: no ban within so few tokens, and one that bites at once
START_S = 300.0
SERVE = (
    "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
    "--max-model-len", str(CONTEXT), "--max-num-seqs", "4", "--gpu-memory-utilization", "0.3",
    "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0", "--skip-mm-profiling",
    "--limit-mm-per-prompt", '{"image": 1}', "--scheduling-policy", "priority", "--host", "127.0.0.1",
    "--logits-processors", "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
)  # fmt: skip

PICTURE = np.random.default_rng(1).integers(0, 256, (600, 600, 3), dtype=np.uint8)
PROMPT = Prompt(
    "doc/p0001",
    "<image>\n<|grounding|>Convert the document to markdown.",
    Pixels(600, 600, held=PICTURE.tobytes()),
    sampling=Sampling(max_tokens=TOKENS, ngram=FREE),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address, without /v1."""
    folder = tiny.checkpoint(tmp_path_factory.mktemp("tiny"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    log = folder / "serve.log"
    with log.open("w") as told, subprocess.Popen([*command, *SERVE], stdout=told, stderr=told) as process:
        try:
            _wait(process, f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}"
        except TimeoutError:
            pytest.fail(log.read_text()[-4000:])
        finally:
            process.terminate()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(1)
    raise TimeoutError


@pytest.fixture(scope="module")
async def engine(server: str) -> AsyncIterator[OpenAIEngine]:
    buffers = PixelBufferPool(2, 1 << 26)
    page_pool = PagePool(1, buffers)
    await page_pool.open()
    engine = factory.constructed(Settings(engine="openai", openai_base_url=f"{server}/v1", openai_priority=True))
    assert isinstance(engine, OpenAIEngine)
    await engine.open(page_pool)
    yield engine
    await engine.close()
    await page_pool.close()
    buffers.close()


def running(server: str) -> float:
    """Requests in the engine, as the server's metrics say."""
    lines = httpx.get(f"{server}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


async def test_a_page_gets_tokens(engine: OpenAIEngine) -> None:
    """Text, counts and reason; BOS, the picture's places and the text's 35 tokens go in."""
    completion = await engine.generate(PROMPT)

    assert completion.text
    assert (completion.tokens_in, completion.tokens_out) == (1 + IMAGE_TOKENS + 35, TOKENS)
    assert completion.finish_reason == "length"


async def test_the_ngram_ban_arrives(engine: OpenAIEngine) -> None:
    """With a ban on pairs no pair comes twice; without it this model says one over and over."""
    free, tight = await asyncio.gather(
        engine.generate(PROMPT), engine.generate(replace(PROMPT, sampling=Sampling(max_tokens=TOKENS, ngram=TIGHT)))
    )

    assert len(set(pairs(free.text))) < len(pairs(free.text))
    assert len(set(pairs(tight.text))) == len(pairs(tight.text)) > TOKENS // 2


def pairs(text: str) -> list[tuple[str, str]]:
    """Neighbouring tokens; in this vocabulary one is w and a number, or a single letter."""
    return list(pairwise(re.findall(r"w\d+|.", text, re.S)))


async def test_a_loop_is_hung_up_on_and_the_server_ends_it(engine: OpenAIEngine, server: str) -> None:
    """At the first look, far from the context's end; the engine is free soon after."""
    prompt = replace(PROMPT, sampling=Sampling(ngram=FREE), watch=lambda text: True)
    completion = await engine.generate(prompt)

    assert (completion.finish_reason, completion.tokens_out) == ("loop", 64)
    async with asyncio.timeout(30):
        while running(server):
            await asyncio.sleep(0.2)


async def test_a_cancelled_prompt_ends_in_the_server(engine: OpenAIEngine, server: str) -> None:
    """Nobody reads for a caller that has gone."""
    task = asyncio.create_task(engine.generate(replace(PROMPT, sampling=Sampling(ngram=FREE))))
    async with asyncio.timeout(60):
        while not running(server):
            await asyncio.sleep(0.2)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(30):
        while running(server):
            await asyncio.sleep(0.2)


async def test_a_limit_as_long_as_the_context_is_taken(engine: OpenAIEngine, server: str) -> None:
    """vLLM itself answers 400 to it; the engine leaves it out."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": CONTEXT}
    refused = httpx.post(f"{server}/v1/chat/completions", json=body, timeout=60)
    prompt = replace(PROMPT, sampling=Sampling(max_tokens=CONTEXT, ngram=FREE), watch=lambda text: True)

    assert refused.status_code == 400
    assert (await engine.generate(prompt)).finish_reason == "loop"


async def test_a_prompt_longer_than_the_context_is_refused(engine: OpenAIEngine) -> None:
    """It costs itself and nothing else."""
    completion = await engine.generate(replace(PROMPT, text="<image>" + "x" * 2 * CONTEXT))

    assert (completion.text, completion.finish_reason) == ("", "error")


@pytest.mark.parametrize(("mode", "places"), [("tiny", 73), ("small", 111), ("large", 421)])
async def test_a_server_with_our_plugin_takes_modes(server: str, mode: str, places: int) -> None:
    """vLLM finds the plugin by itself; its own class knows one mode, and dies of another."""
    buffers = PixelBufferPool(1, 1 << 26)
    page_pool = PagePool(1, buffers)
    await page_pool.open()
    engine = factory.constructed(Settings(engine="openai", openai_base_url=f"{server}/v1", openai_modes=True))
    await engine.open(page_pool)
    try:
        answer = await engine.generate(replace(PROMPT, mode=mode, sampling=Sampling(max_tokens=2)))
        refused = await engine.generate(replace(PROMPT, mode="huge", sampling=Sampling(max_tokens=2)))
    finally:
        await engine.close()
        await page_pool.close()
        buffers.close()

    assert (answer.tokens_in, answer.tokens_out) == (1 + places + 35, 2)
    assert refused.finish_reason == "error"
