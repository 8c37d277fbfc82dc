#!/usr/bin/env python3
"""What the vLLM engine does on this machine's GPU, as JSON lines: start, modes, decoder, pages.

Random weights will do (LOAD_FORMAT=dummy): lengths are forced, only times and counts are told. Every run is
a process of its own, so that each measures a fresh engine:

    python scripts/bench_engine.py modes --model-dir DIR
    python scripts/bench_engine.py decoder --model-dir DIR --ban ours
    python scripts/bench_engine.py pages --model-dir DIR --pages 512 --tokens 500
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

BANS = {
    "none": [],
    "ours": ["twopass.engines.vllm.plugin.ngram_ban:NoRepeatNGram"],
    "stock": ["vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"],
}
A4 = (1190, 1684)
PROMPT = "<image>\n<|grounding|>Convert the document to markdown."
PROMPT_TOKENS = 938  # of an A4 page in gundam mode
PAGES = 4  # different ones
INTERVAL = 128  # as STREAM_INTERVAL
MODES = ("tiny", "small", "base", "large", "gundam")


def main() -> None:
    options = _options()
    since = _process_start()
    tell(stage="imports of this script", seconds=time.time() - since)
    run: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {"modes": modes, "decoder": decoder, "pages": pages}
    from twopass.engines.vllm import engine as vllm

    arguments = vllm.arguments
    vllm.arguments = lambda *told: {**arguments(*told), "logits_processors": BANS[options.ban]}
    before = time.time()
    engine = vllm.VllmEngine(_settings(options), options.model_dir)
    tell(stage="engine constructed", seconds=time.time() - before, since_start=time.time() - since)
    options.engine, options.since = engine, since
    asyncio.run(run[options.what](options))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("modes", "decoder", "pages"))
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--ban", choices=BANS, default="ours")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--pages", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--interval", type=int, default=INTERVAL, help="tokens between two looks at an answer")
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    return parser.parse_args()


def _settings(options: Any) -> Any:
    from twopass.settings import Settings

    return Settings(
        engine="vllm", max_num_seqs=options.sequences, page_workers=options.page_pool,
        load_format=load_format(options.model_dir), stream_interval=options.interval, model_dir=options.model_dir,
    )  # fmt: skip


def load_format(folder: Path) -> str:
    """As MODEL_DIR is to be read: random weights where it has none."""
    return "auto" if any(folder.glob("*.safetensors")) else "dummy"


def _process_start() -> float:
    """When this process began, as time.time() has it."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def tell(**facts: Any) -> None:
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in facts.items()}), flush=True)


async def modes(options: Any) -> None:
    """A page in every mode, the first of all apart: it sets things up."""
    from twopass.engines.interface import Prompt, Sampling

    async with _opened(options) as engine:
        for mode in ("gundam", *MODES):
            prompt = Prompt(
                mode, PROMPT, options.shown[0], mode=mode, sampling=Sampling(max_tokens=64, ignore_eos=True)
            )
            before = time.time()
            answer = await engine.generate(prompt)
            tell(mode=mode, tokens_in=answer.tokens_in, tokens_out=answer.tokens_out, finish=answer.finish_reason,
                 seconds=time.time() - before, since_start=time.time() - options.since)  # fmt: skip


async def decoder(options: Any) -> None:
    """Tokens a second without pictures: as many prompts as sequences, all of one length."""
    from vllm.sampling_params import RequestOutputKind

    from vllm import SamplingParams

    rng = np.random.default_rng(1)
    ban = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
    plain = SamplingParams(
        temperature=0, max_tokens=options.tokens, ignore_eos=True, skip_special_tokens=False,
        output_kind=RequestOutputKind.DELTA,
    )  # fmt: skip
    banned = plain.clone()
    banned.extra_args = ban

    async def one(name: str, params: SamplingParams) -> None:
        told = {"type": "token", "prompt_token_ids": rng.integers(5, 100_000, PROMPT_TOKENS).tolist()}
        async for _ in options.engine._core.generate(told, params, name):
            pass

    async def tokens_per_s(name: str, params: SamplingParams) -> float:
        before = time.time()
        await asyncio.gather(*(one(f"{name}-{n}", params) for n in range(options.sequences)))
        return float(options.sequences * options.tokens) / (time.time() - before)

    await tokens_per_s("warm", banned)
    speeds: dict[str, list[float]] = {"without": [], "with": []}
    for repeat in range(options.repeats):  # in turn, and in turn who is first: this machine's speed changes
        for name in sorted(speeds, reverse=repeat % 2 == 0):
            speeds[name].append(await tokens_per_s(f"{name}{repeat}", banned if name == "with" else plain))
    ratio = statistics.median(speeds["with"]) / statistics.median(speeds["without"])
    tell(ban=options.ban, sequences=options.sequences, tokens=options.tokens, ratio=ratio,
         **{name: [round(speed) for speed in some] for name, some in speeds.items()})  # fmt: skip
    await options.engine.close()


async def pages(options: Any) -> None:
    """Pages a second through the engine as jobs use it: pixels in, answers of a forced length out."""
    from twopass.engines.interface import Prompt, Sampling

    sampling = replace(Sampling(), max_tokens=options.tokens, ignore_eos=True)
    async with _opened(options) as engine:
        for repeat in range(options.repeats):
            before, cpu = time.time(), time.process_time()
            asked = [
                Prompt(str(n), PROMPT, options.shown[n % PAGES], mode="gundam", sampling=sampling)
                for n in range(options.pages)
            ]
            answers = await asyncio.gather(*(engine.generate(prompt) for prompt in asked))
            seconds = time.time() - before
            tell(repeat=repeat, pages_per_s=options.pages / seconds, ban=options.ban, sequences=options.sequences,
                 tokens_per_s=sum(a.tokens_out for a in answers) / seconds, interval=options.interval,
                 own_cpu_ms_a_page=1000 * (time.process_time() - cpu) / options.pages)  # fmt: skip


class _opened:
    """The engine with its page workers."""

    def __init__(self, options: Any) -> None:
        self._options = options

    async def __aenter__(self) -> Any:
        from twopass.pages.shared_pixels import PixelBuffer, PixelBufferPool
        from twopass.runtime.page_pool import PagePool

        engine = self._options.engine
        size = A4[0] * A4[1] * 3
        buffers = PixelBufferPool(PAGES, PAGES * size, fixed=size)
        self._page_pool = PagePool(self._options.page_pool, buffers, more_buffers=(engine.buffers,))
        self._options.shown = [_page(buffer) for buffer in (PixelBuffer(number) for number in buffers.descriptors)]
        await self._page_pool.open()
        await engine.open(self._page_pool)
        return engine

    async def __aexit__(self, *error: object) -> None:
        await self._options.engine.close()
        await self._page_pool.close()


def _page(buffer: Any) -> Any:
    """A page of grey noise: every page is worth the same to a model that sees all pixels."""
    from twopass.pages.shared_pixels import Pixels

    width, height = A4
    noise = np.random.default_rng(buffer.number).integers(0, 256, width * height * 3, np.uint8)
    np.frombuffer(buffer.map(noise.nbytes), np.uint8)[:] = noise
    return Pixels(width, height, buffer)


if __name__ == "__main__":
    main()
