"""Benchmark each family of models on this machine's GPU, as JSON lines; every stage is a process of its own.

    python -m scripts.bench families --models glm_ocr paddleocr_vl --stages imports twopass detected stock
    python -m scripts.bench families --models deepseek_ocr2 unlimited_ocr --model-dir DIR [--acceptance 3]

Weights are random and the lengths of answers are forced, so that only times and counts are reported. Eight regions
count as a page: REGIONS says which. The stages of region readers:

    imports   whether everything that the others import is there
    twopass   our engine: seconds of its start, regions and pages a second
    detected  the same with the full-size layout detector in front, without decoding what it finds
    stock     vLLM without our plugin: AsyncLLM, images prepared by threads

and of families that read pages, A4 pages of two lengths: `pages` through our engine, with drafts where the model has
any and --acceptance is given, and `stock`.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scripts.bench.harness import (
    A4,
    BAN_ENVIRONMENT,
    DISTINCT_PAGES,
    DRAFT_TEXT,
    ENVIRONMENT,
    NGRAM_BAN,
    STREAM_INTERVAL,
    choose_load_format,
    create_parser,
    list_processors,
    parse_with_drafts,
    print_json,
)
from scripts.bench.suite import build_overrides, make_sampling, open_engine, raise_descriptor_limit
from twopass.engines.detector import process
from twopass.engines.detector.engine import REGIONS_AT_ONCE, DetectorFirstEngine
from twopass.engines.detector.placement import Placement
from twopass.engines.detector.process import ChildDetector, DetectorOptions
from twopass.engines.interface import Engine
from twopass.families.regions.reader import READERS
from twopass.families.registry import FAMILIES
from twopass.models import MODELS
from twopass.pages.shared_pixels import Pixels

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
READER_STAGES, PAGE_STAGES = ("imports", "twopass", "detected", "stock"), ("pages", "stock")
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
    from twopass.engines.detector import placement
    from twopass.engines.gpus import detect_gpus
    from twopass.settings import Settings

    weights = write_apart(options.folder / "detector", options.tiny)
    engine = _start_engine(options, model, _write_checkpoint(options, model))
    placed = placement.choose(Settings(model=model), detect_gpus().memory_gb)
    print_json(model=model, stage="detector", **placed._asdict())
    asyncio.run(_measure_regions(put_before(engine, weights, model, placed), options, model, "detected"))


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
    (engine,) = vllm.launch_engines(settings, folder, **more, **options.override)
    shown = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization", "attention_backend")
    arguments = {name: engine.core.arguments[name] for name in shown if name in engine.core.arguments}
    print_json(model=model, stage="launch", **arguments)
    return engine


def _write_checkpoint(options: Any, model: str) -> Path:
    return write_checkpoint(options.folder / model, model, options.model_dir, options.tiny)


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
        print_json(model=model, stage=stage, first_answer_s=time.time() - before,
                   start_s=sum(stages.values()), start_stages=stages)  # fmt: skip
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
    from twopass.engines.vllm.arguments import choose_attention

    gpus = detect_gpus()
    preset = MODELS[model].find_preset("auto", gpus.memory_gb)
    return {
        "model": str(_write_checkpoint(options, model)), "dtype": preset.dtype, "load_format": "dummy",
        "max_model_len": MODELS[model].context_factor * preset.context,
        "max_num_seqs": options.sequences or preset.sequences,
        "max_num_batched_tokens": options.batched_tokens or preset.batched_tokens,
        "gpu_memory_utilization": 0.3 if options.tiny else preset.memory, "enable_prefix_caching": False,
        "mm_processor_cache_gb": 0, "limit_mm_per_prompt": {"image": 1, "video": 0},
        **choose_attention(MODELS[model], gpus.count > 0),
        **({"mm_encoder_attn_backend": options.attention} if options.attention else {}), **options.override,
    }  # fmt: skip


def _draw_images(sizes: Sequence[tuple[int, int]]) -> list[Any]:
    """Pillow images of random pixels, by width and height."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for width, height in sizes]


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
    "pages": measure_pages,
}  # fmt: skip


DETECTOR_ROUNDS = 5


def main_detector(arguments: Sequence[str]) -> None:
    """Benchmark the layout detector, PP-DocLayoutV3 at its full size with random weights, as JSON lines.

        python -m scripts.bench detector --batches 1 8 64 --compiled

    Milliseconds a page to prepare the input, in the model, and to decode what it found. Random weights find 300
    candidates on a page of random pixels, which are ink everywhere: decoding a page of text takes a tenth. Without
    OpenCV it is left out. `--compiled` measures the compiled model after the eager one.
    """
    parser = create_parser("scripts.bench detector", main_detector.__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="the GPU if there is one, if absent")
    parser.add_argument("--rounds", type=int, default=DETECTOR_ROUNDS)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/twopass-bench/detector"))
    options = parser.parse_args(arguments)
    import torch

    from twopass.engines.detector import model

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    precision = "bfloat16" if device == "cuda" else "float32"
    weights = write_detector(options.folder)
    for compiled in (False, True) if options.compiled else (False,):
        detector = model.load(weights, device, precision, compiled)
        for batch in options.batches:
            _measure_detector(detector, batch, options.rounds, device=device, precision=precision, compiled=compiled)


class ModelOnlyDetector(ChildDetector):
    """Runs the model as the detector does, and answers with nothing.

    Decoding is left out, because random weights and pixels make it ten times as long as a page of text does.
    """

    async def detect(self, pages: Sequence[Pixels]) -> Sequence[str]:
        assert self._pool, "`open` comes first"
        return await self._pool.call(run_model, self._options, tuple(pages))


def run_model(options: DetectorOptions, pages: Sequence[Pixels]) -> list[str]:
    """Runs in the child."""
    process._load(options).run(pages)
    return ["{}"] * len(pages)


def write_detector(folder: Path, tiny: bool = False) -> Path:
    """Write random weights in the published shape; with `tiny`, in one that a CPU runs quickly."""
    import torch
    from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

    if not (folder / "config.json").exists():
        torch.manual_seed(1)
        small = {"num_queries": 20, "decoder_layers": 1} if tiny else {}
        PPDocLayoutV3ForObjectDetection(PPDocLayoutV3Config(num_labels=25, **small)).save_pretrained(folder)
    return folder


def write_apart(folder: Path, tiny: bool = False) -> Path:
    """Write the weights in a process of its own: PyTorch starts threads, after which an engine that is forked hangs."""
    with ProcessPoolExecutor(1) as child_process:
        return child_process.submit(write_detector, folder, tiny).result()


def put_before(reader: Engine, weights: Path, model: str, placed: Placement) -> DetectorFirstEngine:
    """The engine that whole jobs and families are measured with: the full detector, of which nothing is decoded."""
    front = ModelOnlyDetector(DetectorOptions(weights, placed.device, placed.precision))
    return DetectorFirstEngine(front, reader, model, placed.batch, "random", REGIONS_AT_ONCE)


def _measure_detector(detector: Any, batch: int, rounds: int, device: str, **facts: Any) -> None:
    import numpy as np
    import torch

    from twopass.engines.detector import decode, model

    width, height = A4
    rng = np.random.default_rng(1)
    noise = [rng.integers(0, 256, (height, width, 3), np.uint8).tobytes() for _ in range(min(batch, 4))]
    pages = [Pixels(width, height, data=noise[number % len(noise)]) for number in range(batch)]

    def finish() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def prepare() -> None:
        model.prepare(pages, device, next(detector._model.parameters()).dtype)
        finish()

    started = time.time()
    raw = detector.run(pages)  # compiles, and fills caches
    finish()
    first_s = time.time() - started
    prepare_ms, run_ms = _median_ms(prepare, rounds), _median_ms(lambda: detector.run(pages), rounds)
    decoding = {}
    if find_spec("cv2"):
        decode_ms = _median_ms(
            lambda: [decode.write_answer(one, page) for one, page in zip(raw, pages, strict=True)], 1
        )
        decoding["decode_ms_a_page"] = decode_ms / batch
    parameters = sum(weight.numel() for weight in detector._model.parameters())
    print_json(detector_batch=batch, device=device, **facts, parameters=parameters, first_s=first_s,
               prepare_ms_a_page=prepare_ms / batch, model_ms_a_page=(run_ms - prepare_ms) / batch,
               **decoding, batch_ms=run_ms,
               memory_mib=torch.cuda.max_memory_allocated() >> 20 if device == "cuda" else 0)  # fmt: skip


def _median_ms(work: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.time()
        work()
        seconds.append(time.time() - started)
    return 1000 * statistics.median(seconds)


GLM_TOKENS = {
    "<|endoftext|>": 59246, "[gMASK]": 59248, "<sop>": 59250, "<|system|>": 59252, "<|user|>": 59253,
    "<|assistant|>": 59254, "<|begin_of_image|>": 59256, "<|end_of_image|>": 59257, "<|begin_of_video|>": 59258,
    "<|end_of_video|>": 59259, "<|image|>": 59280, "<|video|>": 59281,
}  # fmt: skip
PADDLE_TOKENS = {
    "<unk>": 0, "<s>": 1, "</s>": 2, "<|begin_of_sentence|>": 100273, "<|IMAGE_PLACEHOLDER|>": 100295,
    "<|video_pad|>": 100296, "<|IMAGE_START|>": 101305, "<|IMAGE_END|>": 101306,
}  # fmt: skip
GLM_CHAT = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message.role }}|>\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% else %}<|begin_of_image|><|image|><|end_of_image|>{% endif %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
PADDLE_CHAT = (
    "<|begin_of_sentence|>{% for message in messages %}User: {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type != 'text' %}"
    "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{% endif %}{% endfor %}"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}Assistant:\n{% endif %}"
)
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]

Fields = Mapping[str, Any]


def write_glm_ocr(folder: Path, text: Fields | None = None, vision: Fields | None = None) -> Path:
    """zai-org/GLM-OCR; `text` and `vision` are fields that differ from the published ones."""
    config = {
        "architectures": ["GlmOcrForConditionalGeneration"], "model_type": "glm_ocr", "dtype": "bfloat16",
        "image_start_token_id": 59256, "image_end_token_id": 59257, "image_token_id": 59280,
        "video_start_token_id": 59258, "video_end_token_id": 59259, "video_token_id": 59281,
        "text_config": {
            "model_type": "glm_ocr_text", "pad_token_id": 59246, "eos_token_id": [59246, 59253], "vocab_size": 59392,
            "attention_bias": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1536,
            "intermediate_size": 4608, "max_position_embeddings": 131072, "num_attention_heads": 16,
            "num_hidden_layers": 16, "num_nextn_predict_layers": 1, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
            "dtype": "bfloat16", "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": [16, 24, 24], "partial_rotary_factor": 1.0,
                "rope_theta": 10000,
            },
            **(text or {}),
        },
        "vision_config": {
            "model_type": "glm_ocr_vision", "hidden_size": 1024, "depth": 24, "num_heads": 16, "attention_bias": True,
            "intermediate_size": 4096, "hidden_act": "silu", "image_size": 336, "patch_size": 14,
            "out_hidden_size": 1536, "rms_norm_eps": 1e-5, "spatial_merge_size": 2, "temporal_patch_size": 2,
            **(vision or {}),
        },
    }  # fmt: skip
    limits = {"shortest_edge": 12_544, "longest_edge": 9_633_792}
    image = _image_processor("Glm46V", limits, CLIP_MEAN, CLIP_STD, temporal_patch_size=2)
    _write_files(folder, config, image, GLM_CHAT)
    video = {**image, "video_processor_type": "Glm46VVideoProcessor"}
    _write(folder / "video_preprocessor_config.json", {k: v for k, v in video.items() if k != "image_processor_type"})
    _write(folder / "generation_config.json", {"do_sample": False, "eos_token_id": [59246, 59253]})
    _write_tokenizer(folder, GLM_TOKENS, 59392, {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})
    return folder


def write_paddleocr_vl(folder: Path, text: Fields | None = None, vision: Fields | None = None) -> Path:
    """PaddlePaddle/PaddleOCR-VL-1.5, whose configuration has the language model's fields at the top."""
    config = {
        "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl",
        "torch_dtype": "bfloat16", "image_token_id": 100295, "video_token_id": 100296,
        "vision_start_token_id": 101305, "vision_end_token_id": 101306, "vocab_size": 103424, "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000, "rope_scaling": {"mrope_section": [16, 24, 24], "rope_type": "default"},
        "use_bias": False, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        **(text or {}),
        "vision_config": {
            "model_type": "paddleocr_vl", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
            "num_attention_heads": 16, "num_channels": 3, "image_size": 384, "patch_size": 14,
            "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "spatial_merge_size": 2,
            **(vision or {}),
        },
    }  # fmt: skip
    limits = {"shortest_edge": 112_896, "longest_edge": 1_003_520}
    half = [0.5, 0.5, 0.5]
    _write_files(
        folder, config, _image_processor("PaddleOCRVL", limits, half, half, temporal_patch_size=1), PADDLE_CHAT
    )
    _write(folder / "generation_config.json", {"eos_token_id": 2, "pad_token_id": 0})
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>"}
    _write_tokenizer(folder, PADDLE_TOKENS, 103424, {**special, "image_token": "<|IMAGE_PLACEHOLDER|>"})
    return folder


WRITERS = {"glm_ocr": write_glm_ocr, "paddleocr_vl": write_paddleocr_vl}
# What differs in the configuration of DeepSeek-OCR.
_PAGE_CONFIGS: Mapping[str, Fields] = {
    "deepseek_ocr2": {"architectures": ["DeepseekOCR2ForCausalLM"], "projector_config": {"input_dim": 896}},
    "unlimited_ocr": {
        "architectures": ["UnlimitedOCRForCausalLM"],
        "model_type": "unlimited-ocr",
        "max_position_embeddings": 32768,
        "language_config": {"max_position_embeddings": 32768},
    },
}
_TINY_TEXT = {  # vLLM takes the width of GLM-OCR's merger, three times the hidden size, from `intermediate_size`
    "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 16384,
}  # fmt: skip
_MROPE = [4, 6, 6]  # of the 16 pairs of a head
TINY: Mapping[str, dict[str, Fields]] = {
    "glm_ocr": {
        "text": {
            **_TINY_TEXT,
            "num_nextn_predict_layers": 0,
            "rope_parameters": {
                "rope_type": "default", "mrope_section": _MROPE, "partial_rotary_factor": 1.0, "rope_theta": 10000,
            },
        },
        "vision": {"hidden_size": 64, "depth": 2, "num_heads": 2, "intermediate_size": 128, "out_hidden_size": 128},
    },
    "paddleocr_vl": {
        "text": {**_TINY_TEXT, "rope_scaling": {"mrope_section": _MROPE, "rope_type": "default"}},
        "vision": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
    },
}  # fmt: skip


def write_checkpoint(folder: Path, model: str, deepseek_ocr: Path | None = None, is_tiny: bool = False) -> Path:
    """The folder of a model, written if it is not there; one that reads pages is made from DeepSeek-OCR's."""
    if (folder / "config.json").exists():
        return folder
    if model in WRITERS:
        return WRITERS[model](folder, **(TINY[model] if is_tiny else {}))
    assert deepseek_ocr, "--model-dir: the checkpoint of DeepSeek-OCR's shape"
    if model not in _PAGE_CONFIGS:
        return deepseek_ocr
    folder.mkdir(parents=True, exist_ok=True)
    for path in deepseek_ocr.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    _write(
        folder / "config.json", _change(json.loads((deepseek_ocr / "config.json").read_text()), _PAGE_CONFIGS[model])
    )
    return folder


def _change(fields: Fields, changes: Fields) -> dict[str, Any]:
    """The fields with these values; of a group of fields, the others stay."""
    groups = {name: _change(fields[name], new) for name, new in changes.items() if isinstance(new, Mapping)}
    return {**fields, **changes, **groups}


def _image_processor(name: str, size: Fields, mean: Any, std: Any, temporal_patch_size: int) -> dict[str, Any]:
    return {
        "image_processor_type": f"{name}ImageProcessor", "processor_class": f"{name}Processor", "size": dict(size),
        "image_mean": mean, "image_std": std, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "patch_size": 14, "temporal_patch_size": temporal_patch_size, "merge_size": 2,
    }  # fmt: skip


def _write_files(folder: Path, config: Fields, image_processor: Fields, chat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "config.json", config)
    _write(folder / "preprocessor_config.json", image_processor)
    (folder / "chat_template.jinja").write_text(chat)


def _write(path: Path, value: Fields) -> None:
    path.write_text(json.dumps(value, indent=1))


def _write_tokenizer(folder: Path, special: Mapping[str, int], size: int, fields: Fields) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    taken = set(special.values())
    free = (number for number in range(size) if number not in taken)
    known = {**special, **dict(zip(sorted(pre_tokenizers.ByteLevel.alphabet()), free, strict=False))}
    known |= {f"w{number}": number for number in free}
    tokenizer = Tokenizer(BPE(vocab=known, merges=[], fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **fields}
    _write(folder / "tokenizer_config.json", settings)
