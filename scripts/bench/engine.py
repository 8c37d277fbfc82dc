"""Benchmark the vLLM engine on this machine's GPU: its modes, its decoder, or pages a second, as JSON lines.

Random weights are used where DIR has none: lengths are forced, and only times and counts are reported. Every run is
a process of its own, so that each measures a fresh engine:

    python -m scripts.bench engine modes --model-dir DIR
    python -m scripts.bench engine decoder --model-dir DIR --ban ours
    python -m scripts.bench engine pages --model-dir DIR --pages 512 --tokens 500 --acceptance 2.5 --drafts 4

With --acceptance, the engine decodes speculatively: --drafts tokens of a text are verified at each step. --acceptance
is the mean number of tokens that a step then yields, which vLLM simulates: random weights accept almost no draft.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.engine_setup import build_overrides, build_settings, open_engine, read_process_start
from scripts.bench.options import create_parser, parse_with_drafts
from scripts.bench.report import print_json
from scripts.bench.throughput import generate_tokens, make_sampling
from scripts.bench.workload import (
    BAN_ENVIRONMENT,
    BANS,
    DISTINCT_PAGES,
    DRAFT_TEXT,
    NGRAM_BAN,
    PAGE_PROMPT,
    STREAM_INTERVAL,
    add_draft,
    list_processors,
)

MODES = ("tiny", "small", "base", "large", "gundam")


def main(arguments: Sequence[str]) -> None:
    options = _parse_options(arguments)
    started = read_process_start()
    print_json(stage="imports of this script", seconds=time.time() - started)
    runs: dict[str, Callable[[Any, Any], Coroutine[Any, Any, None]]] = {
        "modes": run_modes, "decoder": run_decoder, "pages": run_pages,
    }  # fmt: skip
    from twopass.engines.vllm import engine as vllm

    os.environ |= BAN_ENVIRONMENT.get(options.ban, {})
    processors = list_processors(options.ban, options.drafts > 0)
    overrides = {"logits_processors": processors} | build_overrides(options)
    before = time.time()
    (engine,) = vllm.start_engines(build_settings(options, options.interval), options.model_dir, **overrides)
    print_json(stage="engine constructed", seconds=time.time() - before, since_start=time.time() - started)
    options.process_start = started
    asyncio.run(runs[options.what](engine, options))


def _parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench engine", __doc__)
    parser.add_argument("what", choices=("modes", "decoder", "pages"))
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument(
        "--ban", choices=BANS, default="ours", help="implementation of the n-gram ban; stock: without drafts"
    )
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--pages", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--interval", type=int, default=STREAM_INTERVAL, help="tokens between two outputs of a streamed answer"
    )
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    options = parse_with_drafts(parser, arguments)
    if options.ban == "stock":  # it exists for vLLM's first model runner, which has no drafts of ours
        options.drafts = 0
    return options


async def run_modes(engine: Any, options: Any) -> None:
    """Read a page in every mode. The first one is read twice, because the first prompt of all takes longer."""
    from twopass.engines.interface import Prompt, Sampling

    async with open_engine(engine, options.workers) as pages:
        for mode in ("gundam", *MODES):
            prompt = Prompt(mode, PAGE_PROMPT, pages[0], mode=mode, sampling=Sampling(max_tokens=64, ignore_eos=True))
            before = time.time()
            answer = await engine.generate(prompt)
            print_json(mode=mode, tokens_in=answer.tokens_in, tokens_out=answer.tokens_out, finish=answer.finish_reason,
                       seconds=time.time() - before, since_start=time.time() - options.process_start)  # fmt: skip


async def run_decoder(engine: Any, options: Any) -> None:
    """Measure tokens a second without images, with and without the ban: as many prompts as sequences, of one length."""
    rng = np.random.default_rng(1)
    samplings = {
        name: make_sampling(options.tokens, add_draft(ban)) for name, ban in (("without", {}), ("with", NGRAM_BAN))
    }

    async def tokens_per_s(request_id: str, sampling: Any) -> float:
        before = time.time()
        await asyncio.gather(*(
            generate_tokens(engine.core.client, f"{request_id}-{n}", sampling, rng) for n in range(options.sequences)
        ))  # fmt: skip
        return float(options.sequences * options.tokens) / (time.time() - before)

    await tokens_per_s("warm", samplings["with"])
    speeds: dict[str, list[float]] = {"without": [], "with": []}
    for repeat in range(options.repeats):  # the order alternates, because the machine's speed drifts
        for name in sorted(speeds, reverse=repeat % 2 == 0):
            speeds[name].append(await tokens_per_s(f"{name}{repeat}", samplings[name]))
    ratio = statistics.median(speeds["with"]) / statistics.median(speeds["without"])
    print_json(ban=options.ban, sequences=options.sequences, tokens=options.tokens, ratio=ratio,
               **{name: [round(speed) for speed in rates] for name, rates in speeds.items()})  # fmt: skip
    await engine.close()


async def run_pages(engine: Any, options: Any) -> None:
    """Measure pages a second through the engine as jobs use it: pixels in, answers of a forced length out."""
    from twopass.engines.interface import Prompt, Sampling

    sampling = replace(Sampling(), max_tokens=options.tokens, ignore_eos=True)
    async with open_engine(engine, options.workers) as pages:
        for repeat in range(options.repeats):
            before, cpu = time.time(), time.process_time()
            prompts = [
                Prompt(
                    str(n), PAGE_PROMPT, pages[n % DISTINCT_PAGES], mode="gundam", sampling=sampling, draft=DRAFT_TEXT
                )
                for n in range(options.pages)
            ]
            answers = await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))
            seconds = time.time() - before
            print_json(repeat=repeat, pages_per_s=options.pages / seconds, ban=options.ban, sequences=options.sequences,
                       tokens_per_s=sum(answer.tokens_out for answer in answers) / seconds, interval=options.interval,
                       drafts=options.drafts, acceptance=options.acceptance,
                       own_cpu_ms_a_page=1000 * (time.process_time() - cpu) / options.pages)  # fmt: skip
