"""The openai engine against a real `vllm serve` of a tiny DeepSeek-OCR with random weights."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise

import httpx
import numpy as np
import pytest

from tests.fakes.ports import reserve_port
from tests.vllm import tiny
from twopass.engines import factory
from twopass.engines.interface import Prompt, Sampling
from twopass.engines.openai.engine import OpenAIEngine
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix

CONTEXT = 4096
TOKENS = 24
IMAGE_TOKENS = 273  # of one view of 1024 × 1024
UNBANNED, BANNED = 100, 2  # n-gram sizes: longer than an answer, so that nothing is banned, and one that bans early
START_S, WAIT_S = 600.0, 120.0  # for a busy machine
MOST_TOKENS = 3000  # an answer that nobody ends fills the context
SERVE = (
    "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
    "--max-model-len", str(CONTEXT), "--max-num-seqs", "4", "--gpu-memory-utilization", "0.3",
    "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0", "--skip-mm-profiling",
    "--limit-mm-per-prompt", '{"image": 1}', "--scheduling-policy", "priority", "--host", "127.0.0.1",
    "--trust-request-mm-kwargs", "--distributed-executor-backend", tiny.SINGLE_PROCESS,
    "--logits-processors", "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
)  # fmt: skip

IMAGE = np.random.default_rng(1).integers(0, 256, (600, 600, 3), dtype=np.uint8)
PROMPT = Prompt(
    "doc/p0001",
    "<image>\n<|grounding|>Convert the document to markdown.",
    Pixels(600, 600, data=IMAGE.tobytes()),
    sampling=Sampling(max_tokens=TOKENS, ngram=UNBANNED),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the server and return its address, without /v1."""
    folder = tiny.write_checkpoint(tmp_path_factory.mktemp("tiny"))
    port = reserve_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    log = folder / "serve.log"
    env = os.environ | {"TWOPASS_VLLM_PLUGIN": "1"}
    with (
        log.open("w") as output,
        subprocess.Popen([*command, *SERVE], stdout=output, stderr=output, env=env) as process,
    ):
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}"
        except TimeoutError:
            pytest.fail(log.read_text()[-4000:])
        finally:
            process.terminate()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
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
    engine = factory.create_engine(Settings(engine="openai", openai_base_url=f"{server}/v1", openai_priority=True))
    assert isinstance(engine, OpenAIEngine)
    await engine.open(page_pool)
    yield engine
    await engine.close()
    await page_pool.close()
    buffers.close()


def read_metric(server: str, name: str) -> float:
    lines = httpx.get(f"{server}/metrics", timeout=WAIT_S).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


def count_running(server: str) -> float:
    """Requests in the engine."""
    return read_metric(server, "num_requests_running")


def count_generated(server: str) -> float:
    """Tokens of all answers so far."""
    return read_metric(server, "generation_tokens_total")


async def count_when_idle(server: str) -> float:
    """Tokens of all answers, when none is being generated."""
    async with asyncio.timeout(WAIT_S):
        while count_running(server):
            await asyncio.sleep(0.2)
    return count_generated(server)


async def test_a_page_gets_tokens(engine: OpenAIEngine) -> None:
    """The completion has text, counts and reason; the prompt is BOS, the image tokens and 35 tokens of text."""
    completion = await engine.generate(PROMPT)

    assert completion.text
    assert (completion.tokens_in, completion.tokens_out) == (1 + IMAGE_TOKENS + 35, TOKENS)
    assert completion.finish_reason == "length"


async def test_the_ngram_ban_is_applied(engine: OpenAIEngine) -> None:
    """With a ban on pairs no pair of tokens occurs twice; without it this model repeats one over and over."""
    unbanned, banned = await asyncio.gather(
        engine.generate(PROMPT), engine.generate(replace(PROMPT, sampling=Sampling(max_tokens=TOKENS, ngram=BANNED)))
    )

    assert len(set(token_pairs(unbanned.text))) < len(token_pairs(unbanned.text))
    assert len(set(token_pairs(banned.text))) == len(token_pairs(banned.text)) > TOKENS // 2


def token_pairs(text: str) -> list[tuple[str, str]]:
    """Neighbouring tokens; in this vocabulary a token is w and a number, or a single letter."""
    return list(pairwise(re.findall(r"w\d+|.", text, re.S)))


async def test_a_loop_is_disconnected_and_ends_in_the_server(engine: OpenAIEngine, server: str) -> None:
    """It ends at the first loop check, far from the end of the context, and the server soon frees its engine."""
    prompt = replace(PROMPT, sampling=Sampling(ngram=UNBANNED), loop_check=lambda text: True)
    before = count_generated(server)
    completion = await engine.generate(prompt)

    assert (completion.finish_reason, completion.tokens_out) == ("loop", 64)
    assert await count_when_idle(server) - before < MOST_TOKENS


async def test_a_cancelled_prompt_ends_in_the_server(engine: OpenAIEngine, server: str) -> None:
    """Cancelling the task disconnects, and the server aborts the request."""
    before = count_generated(server)
    task = asyncio.create_task(engine.generate(replace(PROMPT, sampling=Sampling(ngram=UNBANNED))))
    async with asyncio.timeout(WAIT_S):
        while not count_running(server):
            await asyncio.sleep(0.2)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await count_when_idle(server) - before < MOST_TOKENS


async def test_a_prompt_longer_than_the_context_is_refused(engine: OpenAIEngine) -> None:
    """The completion has finish_reason error."""
    completion = await engine.generate(replace(PROMPT, text="<image>" + "x" * 2 * CONTEXT))

    assert (completion.text, completion.finish_reason) == ("", "error")


@pytest.mark.parametrize(("mode", "image_tokens"), [("tiny", 73), ("small", 111), ("large", 421)])
async def test_a_server_with_our_plugin_supports_modes(server: str, mode: str, image_tokens: int) -> None:
    """vLLM loads the plugin through its entry point; the stock class supports one mode and crashes on another."""
    buffers = PixelBufferPool(1, 1 << 26)
    page_pool = PagePool(1, buffers)
    await page_pool.open()
    engine = factory.create_engine(Settings(engine="openai", openai_base_url=f"{server}/v1", openai_modes=True))
    await engine.open(page_pool)
    try:
        answer = await engine.generate(replace(PROMPT, mode=mode, sampling=Sampling(max_tokens=2)))
        refused = await engine.generate(replace(PROMPT, mode="huge", sampling=Sampling(max_tokens=2)))
    finally:
        await engine.close()
        await page_pool.close()
        buffers.close()

    assert (answer.tokens_in, answer.tokens_out) == (1 + image_tokens + 35, 2)
    assert refused.finish_reason == "error"
