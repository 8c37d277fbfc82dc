"""Start twopass's vLLM engine with its page workers, as a worker process does."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.workload import A4, DISTINCT_PAGES, choose_load_format


def read_process_start() -> float:
    """When this process started, on the clock of time.time()."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def raise_descriptor_limit() -> None:
    """Allow as many open files as the machine permits: each sequence has a buffer and a half."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def build_overrides(options: Any) -> dict[str, Any]:
    """Arguments of vLLM's engine that no setting names."""
    from twopass.engines.vllm.arguments import build_speculative_config

    if not options.drafts:
        return {}
    simulated = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": options.acceptance}
    return {"speculative_config": build_speculative_config(options.drafts) | simulated}


def build_settings(options: Any, stream_interval: int) -> Any:
    from twopass.settings import Settings

    return Settings(
        engine="vllm", max_num_seqs=options.sequences, page_workers=options.workers,
        load_format=choose_load_format(options.model_dir), stream_interval=stream_interval,
        model_dir=options.model_dir, draft_tokens=options.drafts,
    )  # fmt: skip


@asynccontextmanager
async def open_engine(engine: Any, page_workers: int) -> AsyncIterator[list[Any]]:
    """Open the engine and its page workers; yield DISTINCT_PAGES pages in shared memory."""
    from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
    from twopass.runtime.page_pool import PagePool

    size = A4[0] * A4[1] * 3
    buffers = PixelBufferPool(DISTINCT_PAGES, DISTINCT_PAGES * size, fixed_size=size)
    page_pool = PagePool(page_workers, buffers, more_buffers=engine.buffer_pools)
    pages = [_draw_noise(PixelBuffer(number)) for number in buffers.descriptors]
    await page_pool.open()
    await engine.open(page_pool)
    try:
        yield pages
    finally:
        await engine.close()
        await page_pool.close()


def _draw_noise(buffer: Any) -> Any:
    """Fill a page with random pixels; the model does the same work for any page."""
    from twopass.pages.shared_pixels import Pixels

    width, height = A4
    noise = np.random.default_rng(buffer.number).integers(0, 256, width * height * 3, np.uint8)
    np.frombuffer(buffer.map(noise.nbytes), np.uint8)[:] = noise
    return Pixels(width, height, buffer)
