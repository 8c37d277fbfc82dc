"""The stages `twopass` and `warm`: our engine's start, and its pages, crops and tokens a second."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from scripts.bench.engine_setup import build_overrides, build_settings, open_engine, read_process_start
from scripts.bench.report import print_json
from scripts.bench.throughput import measure_decoder, measure_mix, per_second
from scripts.bench.workload import (
    CROP_PROMPT,
    CROP_SIDE,
    CROP_TOKENS,
    DISTINCT_PAGES,
    DRAFT_TEXT,
    NGRAM_BAN,
    PAGE_TOKENS,
    STREAM_INTERVAL,
    WARM_UP_TOKENS,
    add_draft,
    is_scan,
    make_prompt,
    read_mix,
)

Facts = dict[str, Any]


def measure_cold(options: Any) -> Facts:
    """Measure the start and everything of `--what` on one engine. The suite has emptied the caches before."""
    return _start(options, "cold", _measure_parts)


def measure_warm(options: Any) -> Facts:
    """Measure the start only, with the caches that the stage `twopass` filled."""

    async def measure_nothing(engine: Any, pages: Sequence[Any], options: Any) -> Facts:
        return {}

    return _start(options, "warm", measure_nothing)


def _start(options: Any, kind: str, measure: Callable[[Any, Sequence[Any], Any], Awaitable[Facts]]) -> Facts:
    """Start the engine, let it read one page, then measure; `kind` is the start's name in the JSON."""
    from twopass.engines.vllm import engine as vllm
    from twopass.telemetry.stopwatch import measure_stages

    process_start = read_process_start()
    began = time.monotonic() - (time.time() - process_start)
    settings = build_settings(options, STREAM_INTERVAL)
    (engine,) = vllm.start_engines(settings, options.model_dir, **build_overrides(options))
    constructed = time.time() - process_start

    async def run() -> Facts:
        async with open_engine(engine, options.workers) as pages:
            await engine.generate(make_prompt(pages[0], 1))
            ready = round(time.time() - process_start, 1)
            stages = {"constructed_s": constructed, **measure_stages(began, engine.stage_ends.items())}
            start = {kind: {name: round(seconds, 1) for name, seconds in stages.items()}}
            print_json(found={"ready_s": {kind: ready}, "start_s": start})
            return {"ready_s": {kind: ready}, "start_s": start, **await measure(engine, pages, options)}

    return asyncio.run(run())


async def _measure_parts(engine: Any, pages: Sequence[Any], options: Any) -> Facts:
    parts = {"pass1": _measure_pages, "crops": _measure_crops, "mix": _measure_mix, "decoder": _measure_decoder}
    results: Facts = {}
    warm_up = [make_prompt(pages[n % DISTINCT_PAGES], WARM_UP_TOKENS) for n in range(options.sequences)]
    await _measure_rate(engine, warm_up)
    for what in options.what:
        results |= await parts[what](engine, pages, options)
        print_json(found=results)
    return results


async def _measure_pages(engine: Any, pages: Sequence[Any], options: Any) -> Facts:
    """Measure pages of a fixed length, and the CPU time that they take in this process."""
    prompts = [make_prompt(pages[n % DISTINCT_PAGES], PAGE_TOKENS) for n in range(options.pages)]
    cpu = time.process_time()
    rates = [await _measure_rate(engine, prompts) for _ in range(options.rounds)]
    cpu_ms = 1000 * (time.process_time() - cpu) / (options.rounds * options.pages)
    print_json(pass1_500=rates)
    return {"pass1_500": {"twopass": statistics.median(rates)}, "engine_process_cpu_ms_per_page": round(cpu_ms, 2)}


async def _measure_crops(engine: Any, pages: Sequence[Any], options: Any) -> Facts:
    crops = [page.crop(0, 0, CROP_SIDE, CROP_SIDE) for page in pages]
    prompts = [make_prompt(crops[n % DISTINCT_PAGES], CROP_TOKENS, "small", CROP_PROMPT) for n in range(options.crops)]
    await _measure_rate(engine, prompts[: options.sequences])
    rates = [await _measure_rate(engine, prompts) for _ in range(options.rounds + 1)]
    print_json(crops=rates)
    return {"crops_per_s": {"twopass": statistics.median(rates)}}


async def _measure_mix(engine: Any, pages: Sequence[Any], options: Any) -> Facts:
    def ask(number: int, tokens: int) -> AsyncIterator[int]:
        text = "" if is_scan(number, options.scans) else DRAFT_TEXT
        return _count_tokens(engine, pages[number % DISTINCT_PAGES], tokens, text)

    lengths = [page["tokens"] for page in read_mix(options.mix_pages)]
    return {"pass1_mix": {"twopass": await measure_mix(ask, lengths, options.sequences)}}


async def _measure_decoder(engine: Any, pages: Sequence[Any], options: Any) -> Facts:
    bans = {"twopass": add_draft(NGRAM_BAN), "no_ban": add_draft({})}
    return {"decoder_tokens_per_s": await measure_decoder(engine.core.client, options, bans)}


async def _measure_rate(engine: Any, prompts: Sequence[Any]) -> float:
    """Prompts a second, all asked at once."""
    started = time.time()
    await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))
    return per_second(len(prompts), started)


async def _count_tokens(engine: Any, pixels: Any, tokens: int, draft: str) -> AsyncIterator[int]:
    """Yield how many tokens one answer has so far, each time the engine streams some."""
    counts: asyncio.Queue[int] = asyncio.Queue()
    streamed = iter(range(1, tokens + 1, STREAM_INTERVAL))

    def count(text: str) -> bool:
        counts.put_nowait(next(streamed, tokens))
        return False  # no loop

    answer = asyncio.create_task(engine.generate(make_prompt(pixels, tokens, draft=draft, loop_check=count)))
    answer.add_done_callback(lambda _: counts.put_nowait(tokens))
    try:
        while (so_far := await counts.get()) < tokens:
            yield so_far
        yield tokens
    finally:
        answer.cancel()
        await asyncio.wait([answer])
