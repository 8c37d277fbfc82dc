"""scripts/bench gpus: whole jobs on several engines, here scripted ones, and what the benchmark needs to run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

from scripts.bench import jobs
from scripts.bench.harness import DRAFT_TOKENS
from scripts.bench.latency import HostEngine
from tests import ROOT
from twopass.engines.interface import Prompt, Sampling
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

OPTIONS = ("--scripted", "--sequences", "2", "--pages", "16", "--workers", "1")


def test_jobs_run_on_several_scripted_engines() -> None:
    """The result has pages a second, the number of engines, and what the main process could do at most."""
    facts: dict[str, Any] = jobs.measure_gpus(jobs.parse_gpus(OPTIONS), 2)

    assert (facts["engines"], facts["pages"], facts["started"]["engines"]) == (2, 32, 2)
    assert facts["pages_per_s"] > 0 and facts["host_limit_pages_per_s"] > 0
    assert facts["cpu_ms_per_page"].keys() == {"main", "core", "workers"}


def test_engines_of_several_gpus_have_drafts() -> None:
    """As a worker's, with simulated acceptance; without --acceptance there are none."""
    real = ("--model-dir", "model", "--tensor-parallel", "2")
    with_drafts, without = (jobs.parse_gpus([*real, *more]) for more in (("--acceptance", "3"), ()))

    settings = jobs._build_settings(with_drafts, 2)

    assert (settings.draft_tokens, jobs._build_settings(without, 2).draft_tokens) == (DRAFT_TOKENS, 0)
    assert (settings.gpus, settings.tensor_parallel_size) == (4, 2)


def test_the_benchmark_needs_no_boto3() -> None:
    """Documents and artefacts are in a folder; a machine with GPUs may have no client of S3."""
    code = "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None; import scripts.bench.jobs"

    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


async def test_a_scripted_engine_generates_what_is_asked() -> None:
    """Every answer has all its tokens, and is checked for loops after every piece but the last."""
    buffers = PixelBufferPool(1, 1 << 20)
    engine = HostEngine("0", Settings(max_num_seqs=2, page_workers=1), tokens_per_s=100_000)
    page_pool = PagePool(1, buffers, more_buffers=engine.buffer_pools)
    await page_pool.open()
    await engine.open(page_pool)
    checks: list[str] = []

    def check_loop(text: str) -> bool:
        checks.append(text)
        return False

    image = Pixels(100, 100, data=bytes(30_000))
    prompt = Prompt("p", "", image, mode="tiny", sampling=Sampling(max_tokens=500), loop_check=check_loop)
    answers = await asyncio.gather(engine.generate(prompt), engine.generate(prompt))
    await page_pool.close()
    for pool in (buffers, *engine.buffer_pools):
        pool.close()

    assert [(answer.finish_reason, answer.tokens_out) for answer in answers] == [("length", 500)] * 2
    assert len(checks) == 6
