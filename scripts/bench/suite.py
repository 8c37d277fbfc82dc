"""Measure stock vLLM and twopass on this machine's GPU, side by side: one table, and one JSON file.

    make gpu
    .venv/bin/python -m scripts.bench --model-dir DIR [--acceptance 3] [--json bench.json] [--only STAGE …]

DIR has config.json and the tokenizer's files of deepseek-ai/DeepSeek-OCR (a megabyte). Weights are random where it
has none, and always random in `encoder` and `transformers`. Lengths are forced (500 tokens a page, or
docs/bench/mix.json), the n-gram ban is 30/90 on both sides, experts are chosen evenly. With --acceptance, `twopass`,
`warm` and `job` decode speculatively, and vLLM simulates that each decoder step yields so many tokens; otherwise they
decode without drafts. With --scans, that share of the mix's pages has no text to draft from.

Every stage runs in a process of its own with a fresh engine; its results are merged into the JSON file, together with
its options, if the file is of this machine or one like it. All stages take about an hour and a half on an H200; a
slower GPU needs fewer --pages and --mix-pages or a higher --limit-s:

    twopass         the engine as jobs use it: pages, crops, the mix, the decoder alone; a start with empty caches
    warm            the start again in --starts fresh processes, with the caches that `twopass` filled
    encoder         the vision encoder alone, vLLM's and ours
    job             whole jobs: PDFs from S3, artefacts to S3 (the command `jobs`)
    stock_async     stock vLLM at its best; stock_graphs: with CUDA graphs of its encoder, too; stock_v2: without an
                    n-gram ban; stock_generate: as most people run it
    transformers    page by page in Transformers (DeepSeek-OCR-2, which Transformers implements itself)

This is what `python -m scripts.bench` runs when no command is given. Each command has its own --help:

    jobs            whole jobs against the engine alone
    latency         one document alone, in a fresh worker and a used one, without a model
    families        region readers and Unlimited-OCR, beside stock vLLM
    detector        the layout detector by pages in a batch
    gpus            whole jobs with engines on one GPU, on two and so on; or how many pages the host can feed
    encoder         the vision encoder by part and by number of pages
    starts          the engine's start by stage, by what was compiled before, after a kill; what serving compiles
    acceptance      tokens per decoder step with drafts from the page's text, without a model
    stages          CPU time of a job by stage with the cpu engine; memory
    corpus          the cpu engine's text against pymupdf4llm's
    scans           drawn scans in eight scripts, beside Tesseract
    calibration     OCR's confidence by script and height of lines, on drawn scans
    predict         what a change would gain, from measured times
    campaign        a campaign of many documents, simulated; S3 requests of a job
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.bench import harness
from scripts.bench.harness import (
    A4,
    BAN_ENVIRONMENT,
    CROP_PROMPT,
    CROP_SIDE,
    CROP_TOKENS,
    DISTINCT_PAGES,
    DRAFT_TEXT,
    ENVIRONMENT,
    NGRAM_BAN,
    PAGE_PROMPT,
    PAGE_TOKENS,
    PROMPT_TOKENS,
    STREAM_INTERVAL,
    WARM_UP_TOKENS,
    add_draft,
    choose_load_format,
    create_parser,
    is_scan,
    list_processors,
    make_prompt,
    parse_with_drafts,
    print_json,
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
    simulated = harness.simulate_acceptance(options.acceptance, options.drafts)
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
    try:
        await page_pool.open()
        await engine.open(page_pool)
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
    (engine,) = vllm.launch_engines(settings, options.model_dir, **build_overrides(options))
    launched = time.time() - process_start

    async def run() -> Facts:
        async with open_engine(engine, options.workers) as pages:
            await engine.generate(make_prompt(pages[0], 1))
            ready = round(time.time() - process_start, 1)
            stages = {"launched_s": launched, **measure_stages(began, engine.stage_ends.items())}
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


def measure_graphs(options: Any) -> dict[str, Any]:
    """Measure vLLM at its best with CUDA graphs of its encoder, which it does not have unless asked."""
    return _measure_stock(options, "stock_graphs", "stock", compilation_config={"cudagraph_mm_encoder": True})


def _measure_stock(options: Any, name: str, ban: str, **more: Any) -> dict[str, Any]:
    """Images are prepared by threads, answers are streamed in steps as large as ours. `more` are vLLM's arguments."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = {
        **_build_arguments(options, ban),
        "renderer_num_workers": min(options.workers, options.renderers),
        "stream_interval": STREAM_INTERVAL,
        **more,
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
    if "pass1" in options.what:
        rates = [await measure_rate(pages, options.pages, PAGE_TOKENS) for _ in range(options.rounds)]
        print_json(found={"pass1_500": {name: statistics.median(rates)}})
    if "crops" in options.what:
        await measure_rate(crops, min(options.sequences, options.crops), CROP_TOKENS, CROP_PROMPT)
        rates = [await measure_rate(crops, options.crops, CROP_TOKENS, CROP_PROMPT) for _ in range(options.rounds + 1)]
        print_json(found={"crops_per_s": {name: statistics.median(rates)}})
    if "decoder" in options.what:
        decoder = await measure_decoder(core, options, {name.removesuffix("_async"): NGRAM_BAN})
        print_json(found={"decoder_tokens_per_s": decoder})
    if "mix" in options.what:
        lengths = [page["tokens"] for page in read_mix(options.mix_pages)]
        print_json(found={"pass1_mix": {name: await measure_mix(ask_page, lengths, options.sequences)}})


STAGE_PAGES = 4


def main_encoder(arguments: Sequence[str]) -> None:
    """Benchmark the vision encoder alone, vLLM's and ours, on the same random weights, as JSON lines.

        python -m scripts.bench encoder --model-dir DIR [--sweep]

    Reports how much our output differs from vLLM's (relative), milliseconds a page for several numbers of pages, and
    milliseconds by part. Only the model is built; no engine runs. `--sweep` times the attention kernel's settings.
    """
    parser = create_parser("scripts.bench encoder", main_encoder.__doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args(arguments)
    import torch

    from scripts.bench import encoder as vision

    with vision.load_model(options.model_dir) as model, torch.inference_mode():
        batches = {"gundam": vision.make_batch(1), "small": vision.make_batch(1, 0)}
        differences = {mode: vision.compare_with_stock(model, batch) for mode, batch in batches.items()}
        print_json(alike={mode: round(difference, 5) for mode, difference in differences.items()})
        errors = vision.compare_with_float32(model)
        print_json(far_from_exact={name: round(error, 5) for name, error in errors.items()})
        for count in options.pages:
            batch = vision.make_batch(count)
            ours, stock = (partial(encode, model, batch) for encode in (vision.encode, vision.encode_stock))
            print_json(pages=count, twopass_ms=vision.measure_ms(ours) / count,
                       launched_ms=vision.measure_launch_ms(ours) / count,
                       stock_ms=vision.measure_ms(stock) / count)  # fmt: skip
        vision.print_parts(model, max(options.pages))
        if options.sweep:
            vision.print_sweep(model, max(options.pages))


def measure_encoder(options: Any) -> dict[str, Any]:
    """The suite's stage `encoder`: milliseconds a page, four pages together."""
    import torch

    from scripts.bench import encoder as vision

    with vision.load_model(options.model_dir) as model, torch.inference_mode():
        print_json(far=vision.compare_with_float32(model))
        batch = vision.make_batch(STAGE_PAGES)
        ours, stock = (partial(encode, model, batch) for encode in (vision.encode, vision.encode_stock))
        return {"encoder_ms": {
            "twopass": round(vision.measure_ms(ours) / STAGE_PAGES, 2),
            "stock": round(vision.measure_ms(stock) / STAGE_PAGES, 2),
        }}  # fmt: skip


STAGES = (
    "twopass", "warm", "encoder", "job", "stock_async", "stock_graphs", "stock_v2", "stock_generate", "transformers",
)  # fmt: skip
WHAT = ("pass1", "crops", "mix", "decoder")
LIMIT_S, LONG_FACTOR = 900.0, 3  # of one stage; some take longer
LONG_STAGES = ("job", "stock_async", "stock_graphs", "stock_v2")
RENDERERS = 8  # threads that prepare images for stock vLLM, which take 0.12 s of a core per page
JOB_OPTIONS = ("--jobs", "1", "2", "--windows", "32")
_MEASURES: Mapping[str, Callable[[Any], dict[str, Any]]] = {  # `job` is the command `jobs`
    "twopass": measure_cold, "warm": measure_warm, "encoder": measure_encoder,
    "stock_async": measure_async, "stock_graphs": measure_graphs, "stock_v2": measure_v2,
    "stock_generate": measure_generate, "transformers": measure_transformers,
}  # fmt: skip
# Options in the JSON.
RECORDED = (
    "sequences", "pages", "mix_pages", "scans", "crops", "rounds", "workers", "drafts", "acceptance", "starts",
)  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    options = parse_options(arguments)
    # As after Ctrl-C: the running stage is killed, too, or it would keep the GPU's memory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    if options.stage:
        print_json(found=_MEASURES[options.stage](options))
        return
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    environment, commit = harness.describe_machine(), options.commit or harness.read_commit()
    if difference := harness.find_difference(results.get("environment"), environment):
        sys.exit(f"{options.json} is of another machine, {difference}: name another file")
    results |= {"environment": environment, "commit": commit}
    asked = {name: getattr(options, name) for name in RECORDED}
    for stage in options.only or STAGES:
        if stage == "twopass":
            shutil.rmtree(_find_caches(options), ignore_errors=True)  # or its start would not be a cold one
        started = time.monotonic()
        runs: list[dict[str, Any]] = []
        for _ in range(options.starts if stage == "warm" else 1):
            runs.append(_run_stage(stage, options, arguments))
            merge(results, summarize_starts(runs) if stage == "warm" else runs[-1])
            how = {"commit": commit, "environment": environment, "asked": asked}
            merge(results, {"stages": {stage: {**how, "seconds": round(time.monotonic() - started)}}})
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(render_table(results))


def parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench", __doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--only", nargs="+", choices=STAGES, help="stages to run")
    parser.add_argument("--stage", choices=tuple(_MEASURES), help=argparse.SUPPRESS)
    parser.add_argument("--commit", help="what is measured, where there is no repository")
    parser.add_argument(
        "--what", nargs="+", choices=WHAT, default=WHAT, help="parts of twopass, stock_async, stock_graphs, stock_v2"
    )
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--renderers", type=int, default=RENDERERS, help="threads that prepare images for stock vLLM")
    longer = f"{LONG_FACTOR} times that for {', '.join(LONG_STAGES)}"
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help=f"limit of one stage; {longer}")
    parser.add_argument("--pages", type=int, default=1024)
    parser.add_argument("--mix-pages", type=int, default=1536)
    parser.add_argument("--scans", type=float, default=0.0, help="share of the mix's pages without text (default: 0)")
    parser.add_argument("--crops", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--starts", type=int, default=5, help="fresh processes of the stage warm")
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    options = parse_with_drafts(parser, arguments)
    if options.mix_pages < 2 * options.sequences:
        parser.error("--mix-pages: must be twice --sequences or more, or too few pages begin while the engine is full")
    return options


def _run_stage(stage: str, options: Any, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a stage in its own process. If it fails or reaches its limit, return what it had printed until then."""
    limit_s = options.limit_s * (LONG_FACTOR if stage in LONG_STAGES else 1)
    variables = {**ENVIRONMENT, **_locate_caches(options)}
    results: dict[str, Any] = {}
    with harness.start_alone(build_command(stage, options, arguments), variables, limit_s) as (lines, process):
        for line in lines:
            facts = json.loads(line) if line.startswith("{") else {}
            merge(results, facts.get("found", {}))
            print(line, end="", file=sys.stdout if facts else sys.stderr, flush=True)
    if process.returncode:
        print(f"{stage}: ended with {process.returncode}, after {limit_s:g} s at the latest", file=sys.stderr)
    return results


def build_command(stage: str, options: Any, arguments: Sequence[str]) -> list[str]:
    bench = [sys.executable, "-m", "scripts.bench"]
    model_dir = str(options.model_dir.absolute())
    if stage == "job":
        flags = {
            "--model-dir": model_dir, "--sequences": options.sequences, "--workers": options.workers,
            "--drafts": options.drafts, "--acceptance": options.acceptance,
        }  # fmt: skip
        return [
            *bench,
            "jobs",
            *(str(part) for flag, value in flags.items() if value is not None for part in (flag, value)),
            *JOB_OPTIONS,
        ]
    passed = [argument for argument in arguments if argument not in ("--only", *STAGES)]
    return [*bench, "all", "--stage", stage, *passed, "--model-dir", model_dir]  # the last value of a flag counts


def _find_caches(options: Any) -> Path:
    return Path(options.json.with_suffix(".caches")).absolute()


def _locate_caches(options: Any) -> dict[str, str]:
    """The environment variables that make all stages share their compiled kernels."""
    caches = _find_caches(options)
    return {"VLLM_CACHE_ROOT": str(caches / "vllm"), "TRITON_CACHE_DIR": str(caches / "triton")}


def summarize_starts(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The medians of several starts, the longest one as `warm_max`, and how many there were."""
    starts = [run for run in runs if "ready_s" in run]  # the others failed
    if not starts:
        return {}
    ready = [run["ready_s"]["warm"] for run in starts]
    stages = {
        stage: statistics.median(run["start_s"]["warm"][stage] for run in starts)
        for stage in starts[0]["start_s"]["warm"]
    }
    summary = {"warm": statistics.median(ready), "warm_max": max(ready), "warm_starts": len(ready)}
    return {"ready_s": summary, "start_s": {"warm": stages}}


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Add new values, at any depth; replace values that exist already."""
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


class Row(NamedTuple):
    """One line of the table: where its figures are in the JSON, and the goals for an H200."""

    title: str
    ours: str
    stock: str = ""
    at_least: float | None = None
    at_most: float | None = None
    times: float | None = None  # how many times as fast as stock


ROWS = (
    Row("pass 1, A4, 500 tokens, pages/s", "pass1_500.twopass", "pass1_500.stock_async", at_least=55, times=2),
    Row("pass 1, the mix, pages/s", "pass1_mix.twopass", "pass1_mix.stock_async", at_least=35, times=2),
    Row("whole jobs, the mix, pages/s", "job_mix.pages_per_s", at_least=25),
    Row("whole jobs against the engine alone", "job_mix.share_of_engine", at_least=0.9),
    Row("crops of 600², 60 tokens, a second", "crops_per_s.twopass", "crops_per_s.stock_async", at_least=450),
    Row(
        "decoder with the ban, 256 at once, tokens/s",
        "decoder_tokens_per_s.twopass",
        "decoder_tokens_per_s.stock",
        at_least=60000,
    ),
    Row("encoder, ms a page", "encoder_ms.twopass", "encoder_ms.stock", at_most=7),
    Row("process start to ready, warm, s", "ready_s.warm", at_most=15),
    Row("processor, the engine's process, ms a page", "engine_process_cpu_ms_per_page", at_most=5),
    Row("processor, jobs' process, ms a page", "job_mix.cpu_ms_per_page.main", at_most=25),
    Row("processor, the engine core, ms a page", "job_mix.cpu_ms_per_page.core", at_most=30),
    Row("a page alone, s", "job_mix.latency_s.1_pages", at_most=1.2),
    Row("19 pages alone, s", "job_mix.latency_s.19_pages", at_most=5),
)
HEADER = f"{'':44}{'vLLM':>10}{'twopass':>10}{'ratio':>7}  goal on an H200"


def render_table(results: dict[str, Any]) -> str:
    """How drafts were simulated, one line for each of ROWS, then all other figures under their names."""
    figures = dict(flatten_figures(results))
    in_rows = {name for row in ROWS for name in (row.ours, row.stock)}
    others = (f"{name:44}{value}" for name, value in figures.items() if name not in in_rows)
    return "\n".join((*_describe_drafts(results), HEADER, *(_render_row(row, figures) for row in ROWS), "", *others))


def _describe_drafts(results: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each stage of which vLLM simulated how many drafts are accepted."""
    for stage, facts in results.get("stages", {}).items():
        if acceptance := facts.get("asked", {}).get("acceptance"):
            drafts = facts["asked"]["drafts"]
            yield f"{stage}: at most {drafts} drafts; simulated: a step with four yields {acceptance:g} tokens"


def flatten_figures(results: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number under its dotted name, except how the stages were run."""
    for name, value in results.items():
        if isinstance(value, dict):
            yield from flatten_figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not prefix.startswith("stages."):
            yield prefix + name, value


def _render_row(row: Row, figures: dict[str, float]) -> str:
    ours, stock = figures.get(row.ours), figures.get(row.stock)
    ratio = (stock / ours if row.at_most else ours / stock) if ours and stock else None
    goals = (
        _render_goal("≥ {:,}", ours, row.at_least), _render_goal("≤ {:,}", ours, row.at_most, lower_is_better=True),
        _render_goal("≥ {:g} times", ratio, row.times),
    )  # fmt: skip
    cells = f"{_render_cell(stock):>10}{_render_cell(ours):>10}{_render_cell(ratio and round(ratio, 1)):>7}"
    return f"{row.title:44}{cells}  {'; '.join(filter(None, goals))}".rstrip()


def _render_cell(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _render_goal(text: str, value: float | None, goal: float | None, lower_is_better: bool = False) -> str:
    if goal is None:
        return ""
    missed = 0.0 if value is None else (value / goal - 1 if lower_is_better else 1 - value / goal)
    return text.format(goal) + (f", missed by {missed:.1%}" if missed > 0 else "")
