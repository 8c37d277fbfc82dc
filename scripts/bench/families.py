"""Benchmark each family of models on this machine's GPU, as JSON lines; every stage is a process of its own.

    python -m scripts.bench families --models glm_ocr paddleocr_vl --stages imports twopass detected stock server
    python -m scripts.bench families --models deepseek_ocr2 unlimited_ocr --model-dir DIR [--acceptance 3]

Weights are random and the lengths of answers are forced, so that only times and counts are reported. Eight regions
count as a page: REGIONS says which. The stages of region readers:

    imports   whether everything that the others import is there
    twopass   our engine: seconds of its start, regions and pages a second
    detected  the same with the full-size layout detector in front, without decoding what it finds
    stock     vLLM without our plugin: AsyncLLM, images prepared by threads
    server    the same as `vllm serve`, asked over HTTP with images as PNG

and of families that read pages, A4 pages of two lengths: `pages` through our engine, with drafts where the model has
any and --acceptance is given, and `stock`.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.bench.harness import create_parser, parse_with_drafts, print_json
from scripts.bench.throughput import build_overrides, make_sampling, open_engine, raise_descriptor_limit
from scripts.bench.workload import (
    A4,
    BAN_ENVIRONMENT,
    DISTINCT_PAGES,
    DRAFT_TEXT,
    ENVIRONMENT,
    NGRAM_BAN,
    STREAM_INTERVAL,
    choose_load_format,
    list_processors,
)
from twopass.families.regions.reader import READERS
from twopass.families.registry import FAMILIES
from twopass.models import MODELS

# Of an A4 page at 144 dpi: label, left, top, width and height in pixels. Text of 10 points has 13 pixels a line.
REGIONS = (
    ("text", 120, 90, 700, 60),
    ("text", 120, 180, 940, 220),
    ("text", 120, 420, 450, 300),
    ("text", 610, 420, 450, 300),
    ("table", 120, 760, 940, 420),
    ("text", 120, 1210, 940, 120),
    ("formula", 300, 1350, 500, 80),
    ("text", 120, 1450, 480, 160),
)
REGION_SIZES = [(width, height) for *_, width, height in REGIONS]
TOKENS = {"text": 120, "table": 400, "formula": 60}
PROMPTS = {
    model.name: {str(task): text for task, text in READERS[model.family].prompts.items()}
    for model in MODELS.values()
    if model.reads_regions
}
PAGE_PROMPTS = {
    model.name: FAMILIES[model.name].prompts["document"] for model in MODELS.values() if not model.reads_regions
}
PAGE_LENGTHS = (500, 1400)
UNLIMITED_BAN = (35, 128)  # n-gram and window of Unlimited-OCR's
READER_STAGES, PAGE_STAGES = ("imports", "twopass", "detected", "stock", "server"), ("pages", "stock")
WARM_UP_REGIONS = 64


def main(arguments: Sequence[str]) -> None:
    options = _parse_options(arguments)
    os.environ |= ENVIRONMENT
    pairs = [
        (model, stage)
        for model in options.models
        for stage in (PAGE_STAGES if model in PAGE_PROMPTS else READER_STAGES)
        if stage in options.stages
    ]
    if len(pairs) == 1:
        [(model, stage)] = pairs
        _STAGES[stage](options, model)
        return
    for model, stage in pairs:
        _run_alone(arguments, model, stage, options.timeout)


def _parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench families", __doc__)
    parser.add_argument("--models", nargs="+", choices=(*PROMPTS, *PAGE_PROMPTS), default=[*PROMPTS, *PAGE_PROMPTS])
    parser.add_argument("--stages", nargs="+", choices=tuple(_STAGES), default=list(_STAGES))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/twopass-bench"), help="where checkpoints are written")
    parser.add_argument("--model-dir", type=Path, help="checkpoint of DeepSeek-OCR's shape, for families of pages")
    parser.add_argument("--regions", type=int, default=512)
    parser.add_argument("--pages", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--sequences", type=int, help="prompts at once; the preset's if absent")
    parser.add_argument("--batched-tokens", type=int, help="tokens of a step; the preset's if absent")
    parser.add_argument(
        "--attention", help="attention of the vision encoder, such as TORCH_SDPA; vLLM's choice if absent"
    )
    parser.add_argument("--override", type=json.loads, default={}, help="arguments of vLLM's engine, as JSON")
    parser.add_argument("--concurrency", type=int, default=256, help="requests at once to `vllm serve`")
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    parser.add_argument("--timeout", type=float, default=240, help="seconds after which a stage is ended")
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the benchmark on a CPU")
    return parse_with_drafts(parser, arguments)


def _run_alone(arguments: Sequence[str], model: str, stage: str, timeout: float) -> None:
    """Run one stage in a process group of its own, which is killed when the time is over."""
    command = [sys.executable, "-m", "scripts.bench", "families", *arguments, "--models", model, "--stages", stage]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code: int | str = process.wait(timeout)
    except subprocess.TimeoutExpired:
        code = f"ended after {timeout:.0f} s"
    _kill_group(process)
    if code:
        print_json(model=model, stage=stage, failed=code)


def _kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process and what it started, engine cores included."""
    import signal
    from contextlib import suppress

    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check_imports(options: Any, model: str) -> None:
    """Import what the other stages need; report what is missing."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    modules = {
        "twopass": ["vllm.model_executor.models.glm_ocr", "vllm.model_executor.models.paddleocr_vl",
                    "vllm.v1.engine.async_llm", "twopass.engines.vllm.plugin.readers"],
        "detected": ["transformers.models.pp_doclayout_v3.modeling_pp_doclayout_v3"],
        "server": ["vllm.entrypoints.openai.api_server", "uvicorn", "httpx"],
    }  # fmt: skip
    missing = {stage: [problem for name in names if (problem := _try_import(name))] for stage, names in modules.items()}
    print_json(model=model, stage="imports", missing=missing)


def _try_import(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # a stub or a library that fails in any way
        return f"{name}: {type(error).__name__}: {error}"
    return ""


def measure_twopass(options: Any, model: str) -> None:
    engine = _start_engine(options, model, _write_checkpoint(options, model))
    asyncio.run(_measure_regions(engine, options, model, "twopass"))


def measure_detected(options: Any, model: str) -> None:
    from scripts.bench import detector
    from twopass.engines.detector import placement
    from twopass.engines.gpus import detect_gpus
    from twopass.settings import Settings

    weights = detector.write_apart(options.folder / "detector", options.tiny)
    engine = _start_engine(options, model, _write_checkpoint(options, model))
    placed = placement.choose(Settings(model=model), detect_gpus().memory_gb)
    print_json(model=model, stage="detector", **placed._asdict())
    asyncio.run(_measure_regions(detector.put_before(engine, weights, model, placed), options, model, "detected"))


def _start_engine(options: Any, model: str, folder: Path) -> Any:
    from twopass.engines.vllm import engine as vllm
    from twopass.settings import Settings

    has_drafts = MODELS[model].is_drafted and options.drafts > 0
    settings = Settings(
        engine="vllm", model=model, model_dir=folder, load_format=choose_load_format(folder),
        page_workers=options.workers,
        max_num_seqs=options.sequences, max_num_batched_tokens=options.batched_tokens,
        gpu_memory_utilization=0.3 if options.tiny else None, draft_tokens=options.drafts if has_drafts else 0,
    )  # fmt: skip
    raise_descriptor_limit()
    more = build_overrides(options) if has_drafts else {}
    more |= {"mm_encoder_attn_backend": options.attention} if options.attention else {}
    before = time.time()
    (engine,) = vllm.start_engines(settings, folder, **more, **options.override)
    shown = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization", "attention_backend")
    print_json(model=model, stage="start", seconds=time.time() - before,
               **{name: engine.core.arguments[name] for name in shown if name in engine.core.arguments})  # fmt: skip
    return engine


def _write_checkpoint(options: Any, model: str) -> Path:
    from scripts.bench import reader_checkpoints

    return reader_checkpoints.write_checkpoint(options.folder / model, model, options.model_dir, options.tiny)


async def _measure_regions(engine: Any, options: Any, model: str, stage: str) -> None:
    """Ask about all regions at once, after a page's with the page's detection where there is a detector."""
    from twopass.detection.region import DETECT
    from twopass.engines.interface import Prompt, Sampling
    from twopass.telemetry.stopwatch import measure_stages

    forced = Sampling(ngram=0, allowed_tokens=(), ignore_eos=True)
    async with open_engine(engine, options.workers) as pages:

        async def read_region(page: Any, number: int, tokens: int | None = None) -> Any:
            label, left, top, width, height = REGIONS[number % len(REGIONS)]
            sampling = replace(forced, max_tokens=tokens or TOKENS[label])
            crop = page.crop(left, top, left + width, top + height)
            return await engine.generate(Prompt(str(number), PROMPTS[model][label], crop, sampling=sampling))

        async def read_page(number: int) -> list[Any]:
            page = pages[number % DISTINCT_PAGES]
            if stage == "detected":
                await engine.generate(Prompt(f"page {number}", DETECT, page))
            return await asyncio.gather(*(read_region(page, region) for region in range(len(REGIONS))))

        before = time.time()
        await read_region(pages[0], 0, tokens=8)
        began = min(engine.stage_ends.values())
        stages = measure_stages(began, engine.stage_ends.items())
        print_json(model=model, stage=stage, first_answer_s=time.time() - before, start_stages=stages)
        await asyncio.gather(*(read_region(pages[0], n, 8) for n in range(WARM_UP_REGIONS)))
        for repeat in range(options.repeats):
            before, cpu = time.time(), time.process_time()
            answers = await asyncio.gather(*(read_page(number) for number in range(options.regions // len(REGIONS))))
            flat = [answer for page in answers for answer in page]
            _report(model, stage, repeat, len(flat), time.time() - before, sum(answer.tokens_out for answer in flat),
                    tokens_in=sum(answer.tokens_in for answer in flat),
                    not_full=sum(answer.finish_reason != "length" for answer in flat),
                    own_cpu_ms_a_region=1000 * (time.process_time() - cpu) / len(flat))  # fmt: skip


def _report(model: str, stage: str, repeat: int, count: int, seconds: float, tokens: int, **more: Any) -> None:
    print_json(model=model, stage=stage, repeat=repeat, regions=count, seconds=seconds, regions_per_s=count / seconds,
               pages_per_s=count / seconds / len(REGIONS), tokens_per_s=tokens / seconds, **more)  # fmt: skip


def measure_stock(options: Any, model: str) -> None:
    """vLLM without our plugin; its defaults but for what ours has too: seats, step size, no caches."""
    measure = _measure_stock_pages if model in PAGE_PROMPTS else _measure_stock_regions
    measure(options, model)


def _measure_stock_regions(options: Any, model: str) -> None:
    core = _start_stock(options, model, _stock_arguments(options, model))
    chats, images = MODELS[model].crop_input, _draw_images(REGION_SIZES)
    numbers = itertools.count()

    async def ask(number: int, tokens: int | None = None) -> int:
        label, *_ = REGIONS[number % len(REGIONS)]
        prompt = {
            "prompt": chats.format_prompt(PROMPTS[model][label]),
            "multi_modal_data": {"image": images[number % len(images)]},
        }
        return await _ask_stock(core, prompt, tokens or TOKENS[label], None, f"{next(numbers)}")

    async def run() -> None:
        try:
            await ask(0, 8)  # alone: otherwise all threads load a tokenizer at once
            await asyncio.gather(*(ask(number, 8) for number in range(WARM_UP_REGIONS)))
            for repeat in range(options.repeats):
                before = time.time()
                counts = await asyncio.gather(*(ask(number) for number in range(options.regions)))
                _report(model, "stock", repeat, len(counts), time.time() - before, sum(counts))
        finally:
            core.shutdown()

    asyncio.run(run())


def _start_stock(options: Any, model: str, arguments: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    os.environ["VLLM_PLUGINS"] = ""
    before = time.time()
    core = AsyncLLM.from_engine_args(AsyncEngineArgs(
        renderer_num_workers=min(options.workers, 14), disable_log_stats=True, **arguments,
    ))  # fmt: skip
    print_json(model=model, stage="stock start", seconds=time.time() - before)
    return core


async def _ask_stock(core: Any, prompt: Any, tokens: int, ban: Any, name: str) -> int:
    """How many tokens were generated."""
    [rendered] = await core.renderer.render_cmpl_async([prompt])
    count = 0
    async for output in core.generate(rendered, make_sampling(tokens, ban), name):
        count += len(output.outputs[0].token_ids)
    return count


def _stock_arguments(options: Any, model: str) -> dict[str, Any]:
    from twopass.engines.gpus import detect_gpus

    preset = MODELS[model].find_preset("auto", detect_gpus().memory_gb)
    return {
        "model": str(_write_checkpoint(options, model)), "dtype": preset.dtype, "load_format": "dummy",
        "max_model_len": MODELS[model].context_factor * preset.context,
        "max_num_seqs": options.sequences or preset.sequences,
        "max_num_batched_tokens": options.batched_tokens or preset.batched_tokens,
        "gpu_memory_utilization": 0.3 if options.tiny else preset.memory, "enable_prefix_caching": False,
        "mm_processor_cache_gb": 0, "limit_mm_per_prompt": {"image": 1, "video": 0},
        **({"mm_encoder_attn_backend": options.attention} if options.attention else {}), **options.override,
    }  # fmt: skip


def _draw_images(sizes: Sequence[tuple[int, int]]) -> list[Any]:
    """Pillow images of random pixels, by width and height."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for width, height in sizes]


def measure_server(options: Any, model: str) -> None:
    from scripts.bench import chat_server

    arguments = _stock_arguments(options, model)
    before = time.time()
    with chat_server.run(arguments, wait_s=options.timeout) as server:
        print_json(model=model, stage="server start", seconds=time.time() - before, running=server.is_ready,
                   **({} if server.is_ready else {"log": server.read_log_end()}))  # fmt: skip
        if not server.is_ready:
            return
        questions = [
            chat_server.Question(PROMPTS[model][label], image, TOKENS[label])
            for (label, *_), image in zip(REGIONS, _draw_images(REGION_SIZES), strict=True)
        ]
        asyncio.run(server.ask([replace(one, tokens=8) for one in questions] * 8, options.concurrency))
        for repeat in range(options.repeats):
            before = time.time()
            tokens = asyncio.run(server.ask(questions * (options.regions // len(questions)), options.concurrency))
            _report(model, "server", repeat, options.regions, time.time() - before, tokens,
                    concurrency=options.concurrency)  # fmt: skip


def measure_pages(options: Any, model: str) -> None:
    """A4 pages through our engine, with answers of a usual and of a long length."""
    engine = _start_engine(options, model, _write_checkpoint(options, model))
    asyncio.run(_measure_pages(engine, options, model))


async def _measure_pages(engine: Any, options: Any, model: str) -> None:
    from twopass.engines.interface import Prompt, Sampling

    usual = Sampling(ignore_eos=True, **_ban(model))
    async with open_engine(engine, options.workers) as pages:

        async def read(number: int, tokens: int) -> Any:
            page, sampling = pages[number % DISTINCT_PAGES], replace(usual, max_tokens=tokens)
            return await engine.generate(
                Prompt(str(number), PAGE_PROMPTS[model], page, mode="gundam", sampling=sampling, draft=DRAFT_TEXT)
            )

        async for tokens, answers, seconds in _time_pages(read, options.pages):
            _report_pages(model, "pages", tokens, seconds, [answer.tokens_out for answer in answers],
                          tokens_in=answers[0].tokens_in, drafts="speculative_config" in engine.core.arguments,
                          not_full=sum(answer.finish_reason != "length" for answer in answers))  # fmt: skip


async def _time_pages(
    read: Callable[[int, int], Awaitable[Any]], pages: int
) -> AsyncIterator[tuple[int, list[Any], float]]:
    """For each length, the answers to all pages at once and the seconds they took."""
    await asyncio.gather(*(read(number, 8) for number in range(min(64, pages))))
    for tokens in PAGE_LENGTHS:
        before = time.time()
        answers = await asyncio.gather(*(read(number, tokens) for number in range(pages)))
        yield tokens, answers, time.time() - before


def _report_pages(model: str, stage: str, tokens: int, seconds: float, generated: list[int], **more: Any) -> None:
    pages = len(generated)
    print_json(model=model, stage=stage, tokens=tokens, pages=pages, seconds=seconds, pages_per_s=pages / seconds,
               tokens_per_s=sum(generated) / seconds, **more)  # fmt: skip


def _ban(model: str) -> dict[str, Any]:
    """The n-gram ban of a model that reads pages, as fields of Sampling."""
    ngram, window = UNLIMITED_BAN
    return {"ngram": ngram, "window": window, "allowed_tokens": ()} if model == "unlimited_ocr" else {}


def _stock_ban(model: str) -> Mapping[str, Any]:
    """The same for vLLM's own logits processor."""
    return (
        dict(zip(("ngram_size", "window_size"), UNLIMITED_BAN, strict=True)) if model == "unlimited_ocr" else NGRAM_BAN
    )


def _measure_stock_pages(options: Any, model: str) -> None:
    """vLLM without our plugin, with its own n-gram ban, which its first model runner has."""
    os.environ |= BAN_ENVIRONMENT["stock"]
    more = {"logits_processors": list_processors("stock"), "stream_interval": STREAM_INTERVAL}
    arguments = {**_stock_arguments(options, model), **more}
    core = _start_stock(options, model, arguments)
    images, numbers = _draw_images([A4] * DISTINCT_PAGES), itertools.count()

    async def read(number: int, tokens: int) -> int:
        prompt = {"prompt": PAGE_PROMPTS[model], "multi_modal_data": {"image": images[number % DISTINCT_PAGES]}}
        return await _ask_stock(core, prompt, tokens, _stock_ban(model), f"{next(numbers)}")

    async def run() -> None:
        try:
            await read(0, 8)  # alone: otherwise all threads load a tokenizer at once
            async for tokens, generated, seconds in _time_pages(read, options.pages):
                _report_pages(model, "stock", tokens, seconds, generated)
        finally:
            core.shutdown()

    asyncio.run(run())


_STAGES: dict[str, Callable[[Any, str], None]] = {
    "imports": check_imports, "twopass": measure_twopass, "detected": measure_detected, "stock": measure_stock,
    "server": measure_server, "pages": measure_pages,
}  # fmt: skip
