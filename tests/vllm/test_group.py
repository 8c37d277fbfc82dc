"""Two engines of the real vLLM, on the CPU, as one engine: both answer, and prompts survive the death of one core."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.vllm import phrase_model, tiny
from tests.vllm.test_engine import PHRASE_WORKER
from twopass.engines.group import EngineGroup
from twopass.engines.interface import Completion, Prompt, Sampling
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

MAX_WAIT_S = 300
LONG = "<image>\nOCR this image."  # an answer without end
NOISE = np.random.default_rng(1).integers(0, 256, (400, 400, 3), dtype=np.uint8)


@dataclass
class Running:
    """The group and its engines."""

    group: EngineGroup
    engines: Sequence[VllmEngine]

    def ask(self, text: str, **sampling: Any) -> asyncio.Task[Completion]:
        pixels = Pixels(NOISE.shape[1], NOISE.shape[0], data=NOISE.tobytes())
        prompt = Prompt("p", text, pixels, mode="tiny", sampling=Sampling(ngram=0, **sampling))
        return asyncio.create_task(self.group.generate(prompt))

    async def wait_until_inside(self, *counts: int) -> None:
        """Wait until each core works on so many prompts."""
        async with asyncio.timeout(MAX_WAIT_S):
            while [len(engine.core.client.output_processor.request_states) for engine in self.engines] != [*counts]:
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # so that functions can be sent to vLLM's worker
    folder = tiny.write_checkpoint(tmp_path_factory.mktemp("tiny"), phrases=phrase_model.PHRASES)
    settings = Settings(
        engine="vllm", model_dir=folder, load_format="dummy", max_num_seqs=4, stream_interval=4,
        gpu_memory_utilization=0.1, engine_silence_s=MAX_WAIT_S, canary=False, page_workers=1,
    )  # fmt: skip
    engines = launch_engines(
        settings, folder, [(), ()], worker_cls=PHRASE_WORKER, distributed_executor_backend=tiny.SINGLE_PROCESS
    )
    group = EngineGroup(engines)
    page_pool = PagePool(1, PixelBufferPool(1, 1 << 20), more_buffers=group.buffer_pools)
    await page_pool.open()
    await group.open(page_pool)
    try:
        yield Running(group, engines)
    finally:
        await group.close()
        await page_pool.close()


async def test_prompts_are_shared_out(running: Running) -> None:
    """Each engine answers half of them."""
    tasks = [running.ask(LONG, max_tokens=60) for _ in range(4)]
    await running.wait_until_inside(2, 2)

    assert {(await task).text for task in tasks} == {phrase_model.LOOP * 60}
    assert [status.prompts for status in running.group.statuses] == [0, 0]


async def test_a_cancelled_prompt_leaves_its_core(running: Running) -> None:
    """vLLM aborts it in the engine where it is, and not in the other."""
    tasks = [running.ask(LONG, max_tokens=3000) for _ in range(2)]
    await running.wait_until_inside(1, 1)

    tasks[1].cancel()
    await running.wait_until_inside(1, 0)
    tasks[0].cancel()
    await running.wait_until_inside(0, 0)


async def test_prompts_of_a_killed_core_are_answered_by_the_other(running: Running) -> None:
    """No answer is lost or changed; the dead core starts again on its own and takes prompts again."""
    first, second = running.engines
    tasks = [running.ask(LONG, max_tokens=100) for _ in range(4)]
    await running.wait_until_inside(2, 2)

    for process in find_processes(first):
        process.kill()
    answers = await asyncio.gather(*tasks)

    assert {(answer.text, answer.finish_reason) for answer in answers} == {(phrase_model.LOOP * 100, "length")}
    assert [incident.code for incident in running.group.incidents] == [Code.ENGINE_DEAD]
    assert [len(first.incidents), len(second.incidents)] == [1, 0]
    async with asyncio.timeout(MAX_WAIT_S):
        while not all(status.is_ready for status in running.group.statuses):
            await asyncio.sleep(0.1)
    tasks = [running.ask(LONG, max_tokens=60) for _ in range(4)]
    await running.wait_until_inside(2, 2)
    assert {(await task).text for task in tasks} == {phrase_model.LOOP * 60}


def find_processes(engine: VllmEngine) -> Any:
    return engine.core.client.engine_core.resources.engine_manager.processes
