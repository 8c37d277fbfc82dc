"""The suite's stages: how much an engine generates a second, for ours and for those it is compared with.

These are vLLM without our plugin (`stock_…`), and Transformers.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.harness import print_json
from scripts.bench.workload import (
    A4,
    BAN_ENVIRONMENT,
    CROP_PROMPT,
    CROP_SIDE,
    CROP_TOKENS,
    DISTINCT_PAGES,
    DRAFT_TEXT,
    NGRAM_BAN,
    PAGE_PROMPT,
    PAGE_TOKENS,
    PROMPT_TOKENS,
    STREAM_INTERVAL,
    WARM_UP_TOKENS,
    add_draft,
    choose_load_format,
    is_scan,
    list_processors,
    make_prompt,
    read_mix,
)

MAX_DECODER_SEQUENCES = 256


def make_sampling(tokens: int, ngram_ban: Any) -> Any:
    """Sampling parameters of vLLM for an answer of exactly so many tokens, streamed as differences."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0, max_tokens=tokens, ignore_eos=True, skip_special_tokens=False, extra_args=ngram_ban,
        output_kind=RequestOutputKind.DELTA,
    )  # fmt: skip


def per_second(count: int, started: float) -> float:
    """Rate since a moment on the clock of time.time()."""
    return round(count / (time.time() - started), 2)


async def generate_tokens(core: Any, request_id: str, sampling: Any, rng: np.random.Generator) -> None:
    """Run one request of random tokens, without an image, on vLLM's own engine."""
    prompt = {"type": "token", "prompt_token_ids": rng.integers(5, 100_000, PROMPT_TOKENS).tolist()}
    async for _ in core.generate(prompt, sampling, request_id):
        pass


async def measure_decoder(core: Any, options: Any, bans: dict[str, Any]) -> dict[str, float]:
    """The best tokens a second without images for each n-gram ban; the bans take turns in every round."""
    rng, sequences = np.random.default_rng(1), min(options.sequences, MAX_DECODER_SEQUENCES)
    speeds: dict[str, list[float]] = {name: [] for name in bans}
    for number in range(options.rounds):
        for name, ban in bans.items():
            started = time.time()
            await asyncio.gather(*(
                generate_tokens(core, f"{name}-{number}-{n}", make_sampling(PAGE_TOKENS, ban), rng)
                for n in range(sequences)
            ))  # fmt: skip
            speeds[name].append(round(sequences * PAGE_TOKENS / (time.time() - started)))
    print_json(decoder=speeds)
    return {name: max(rates) for name, rates in speeds.items()}


async def measure_mix(ask: Callable[[int, int], AsyncIterator[int]], lengths: Sequence[int], sequences: int) -> float:
    """Pages a second while every sequence is in use: tokens generated then, divided by the mean page's.

    `ask` takes a page's number and length and yields how many tokens it has so far. The measurement lasts from when
    the first `sequences` pages have begun until the last page has; then the pages still running are cancelled. A
    service never has that long tail of a few pages.
    """
    begun, generated, marks = 0, 0, list[tuple[float, int]]()
    last_begun = asyncio.Event()

    async def read_page(number: int, tokens: int) -> None:
        nonlocal begun, generated
        before = 0
        async for so_far in ask(number, tokens):
            begun += before == 0
            generated += so_far - before
            before = so_far
            if begun in (sequences, len(lengths)) and len(marks) < 1 + (begun == len(lengths)):
                marks.append((time.time(), generated))
                if begun == len(lengths):
                    last_begun.set()

    pages = [asyncio.create_task(read_page(number, tokens)) for number, tokens in enumerate(lengths)]
    waiting = asyncio.create_task(last_begun.wait())
    all_pages = asyncio.gather(*pages)  # done before `waiting` only if a page fails
    await asyncio.wait((waiting, all_pages), return_when=asyncio.FIRST_COMPLETED)
    if not last_begun.is_set():
        await all_pages
    all_pages.cancel()
    await asyncio.wait(pages)
    (since, first), (until, last) = marks
    print_json(mix_tokens_per_s=(last - first) / (until - since), seconds=until - since)
    return round((last - first) / (until - since) / statistics.mean(lengths), 2)


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


TRANSFORMERS_PAGES = 3  # each takes long


def measure_generate(options: Any) -> dict[str, Any]:
    """Measure pages a second through `LLM.generate`, as most people run vLLM."""
    from vllm import LLM

    llm = LLM(**_build_arguments(options, "stock"))
    images = _make_images(*A4)

    def measure_rate(count: int, tokens: int) -> float:
        prompts = [
            {"prompt": PAGE_PROMPT, "multi_modal_data": {"image": images[n % DISTINCT_PAGES]}} for n in range(count)
        ]
        started = time.time()
        llm.generate(prompts, make_sampling(tokens, NGRAM_BAN), use_tqdm=False)
        return per_second(count, started)

    measure_rate(16, 8)
    return {"pass1_500": {"stock_generate": measure_rate(options.pages // 2, PAGE_TOKENS)}}


def measure_async(options: Any) -> dict[str, Any]:
    """Measure vLLM at its best, with the n-gram ban, which exists for its first model runner."""
    return _measure_stock(options, "stock_async", "stock")


def measure_v2(options: Any) -> dict[str, Any]:
    """Measure vLLM's second model runner, which is its default and has no n-gram ban of vLLM's own."""
    return _measure_stock(options, "stock_v2", "none")


def _measure_stock(options: Any, name: str, ban: str) -> dict[str, Any]:
    """Images are prepared by threads, answers are streamed in steps as large as ours."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = {
        **_build_arguments(options, ban),
        "renderer_num_workers": min(options.workers, options.renderers),
        "stream_interval": STREAM_INTERVAL,
    }
    core = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    async def run() -> None:
        try:
            await _measure_core(core, options, name)
        finally:
            core.shutdown()  # on the loop, as twopass's engine does

    asyncio.run(run())
    return {}  # everything was printed as it was found


def measure_transformers(options: Any) -> dict[str, Any]:
    """Measure one page after the other of DeepSeek-OCR-2, which Transformers implements itself, with random weights."""
    import torch
    import transformers

    from twopass.engines.hf import models
    from twopass.engines.interface import Prompt, Sampling
    from twopass.pages.shared_pixels import Pixels

    width, height = A4
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    torch.set_default_dtype(dtype)
    with torch.device(models.choose_device()):
        model = transformers.DeepseekOcr2ForConditionalGeneration(models.build_config(options.model_dir))
    torch.set_default_dtype(torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model_dir, local_files_only=True)
    reader = models.TransformersModel(model.eval(), tokenizer, transformers.DeepseekOcr2ImageProcessorPil())

    def generate(image: Any, max_tokens: int) -> int:
        """How many tokens were generated."""
        pixels = Pixels(width, height, data=image.tobytes())
        prompt = Prompt("p", PAGE_PROMPT, pixels, mode="gundam", sampling=Sampling(max_tokens=max_tokens))
        return int(reader.answer(prompt, lambda: False).tokens_out)

    images = _make_images(width, height)
    generate(images[0], 8)
    started = time.time()
    tokens = sum(generate(images[n % DISTINCT_PAGES], PAGE_TOKENS) for n in range(TRANSFORMERS_PAGES))
    seconds = time.time() - started
    print_json(transformers_tokens=tokens, seconds=seconds)
    return {"pass1_500": {"transformers": round(tokens / PAGE_TOKENS / seconds, 3)}}


def _make_images(width: int, height: int) -> list[Any]:
    from PIL import Image

    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for _ in range(DISTINCT_PAGES)]


def _build_arguments(options: Any, ban: str) -> dict[str, Any]:
    os.environ["VLLM_PLUGINS"] = ""  # without ours
    os.environ |= BAN_ENVIRONMENT.get(ban, {})
    return {
        "model": str(options.model_dir), "dtype": "bfloat16", "load_format": choose_load_format(options.model_dir),
        "max_model_len": 8192,
        "max_num_seqs": options.sequences, "max_num_batched_tokens": 8192, "enable_prefix_caching": False,
        "mm_processor_cache_gb": 0, "limit_mm_per_prompt": {"image": 1}, "disable_log_stats": True,
        "logits_processors": list_processors(ban),
    }  # fmt: skip


async def _measure_core(core: Any, options: Any, name: str) -> None:
    pages, crops, request_ids = _make_images(*A4), _make_images(CROP_SIDE, CROP_SIDE), iter(map(str, range(10**6)))

    async def count_tokens(image: Any, tokens: int, text: str = PAGE_PROMPT) -> AsyncIterator[int]:
        (rendered,) = await core.renderer.render_cmpl_async([{"prompt": text, "multi_modal_data": {"image": image}}])
        so_far = 0
        async for output in core.generate(rendered, make_sampling(tokens, NGRAM_BAN), next(request_ids)):
            so_far += len(output.outputs[0].token_ids)
            yield so_far

    async def measure_rate(images: Sequence[Any], count: int, tokens: int, text: str = PAGE_PROMPT) -> float:
        async def ask(number: int) -> None:
            async for _ in count_tokens(images[number % DISTINCT_PAGES], tokens, text):
                pass

        started = time.time()
        await asyncio.gather(*(ask(number) for number in range(count)))
        return per_second(count, started)

    def ask_page(number: int, tokens: int) -> AsyncIterator[int]:
        return count_tokens(pages[number % DISTINCT_PAGES], tokens)

    await measure_rate(pages, 1, 8)  # alone: otherwise all threads load a tokenizer at once, which takes minutes
    # As many sequences and rounds, and the same warm-up, as in the stage `twopass`.
    await measure_rate(pages, options.sequences, WARM_UP_TOKENS)
    rates = [await measure_rate(pages, options.pages, PAGE_TOKENS) for _ in range(options.rounds)]
    print_json(found={"pass1_500": {name: statistics.median(rates)}})
    await measure_rate(crops, min(options.sequences, options.crops), CROP_TOKENS, CROP_PROMPT)
    rates = [await measure_rate(crops, options.crops, CROP_TOKENS, CROP_PROMPT) for _ in range(options.rounds + 1)]
    print_json(found={"crops_per_s": {name: statistics.median(rates)}})
    decoder = await measure_decoder(core, options, {name.removesuffix("_async"): NGRAM_BAN})
    print_json(found={"decoder_tokens_per_s": decoder})
    lengths = [page["tokens"] for page in read_mix(options.mix_pages)]
    print_json(found={"pass1_mix": {name: await measure_mix(ask_page, lengths, options.sequences)}})
