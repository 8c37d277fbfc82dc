#!/usr/bin/env python3
"""vLLM as it comes and twopass on this machine's GPU, side by side: one table, and one JSON file.

    make gpu
    .venv/bin/python scripts/bench.py --model-dir DIR [--json bench.json] [--only STAGE …]

DIR has config.json and the tokenizer's files of deepseek-ai/DeepSeek-OCR (a megabyte); weights are random where it
has none, and always in `encoder` and `transformers`. Lengths are forced (500 tokens a page, or docs/bench/mix.json),
the n-gram ban is 30/90 on both sides, experts are chosen evenly. Every stage is a process of its own with a fresh
engine; what it measured is merged into the file, beside how it was asked. All stages take most of an hour on an H200;
a slower GPU wants fewer --pages and --mix-pages or a higher --limit-s:

    twopass         the engine as jobs use it: pages, crops, the mix, the decoder alone; the start with empty caches
    warm            the start again, with the caches that `twopass` left
    encoder         the vision encoder alone, vLLM's and ours
    job             whole jobs: PDFs from an S3, artefacts to it (scripts/bench_job.py)
    stock_async     vLLM as it comes, at its best; stock_generate: as most people run it
    transformers    page by page in Transformers (DeepSeek-OCR-2, whose class it has)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bench_engine
from bench_engine import A4, INTERVAL, PAGES, PROMPT, load_format, tell

ROOT = Path(__file__).parents[1]
MIX = ROOT / "docs" / "bench" / "mix.json"
STAGES = ("twopass", "warm", "encoder", "job", "stock_async", "stock_generate", "transformers")
FREE = "<image>\nFree OCR."
WHAT = ("pass1", "crops", "mix", "decoder")
Facts = dict[str, Any]


class Row(NamedTuple):
    """A line of the table: where its figures stand in the JSON, and the goal for an H200."""

    title: str
    ours: str
    stock: str = ""
    at_least: float | None = None
    at_most: float | None = None
    times: float | None = None


LIMIT_S, JOBS_TAKE = 900.0, 3  # of one stage; so many times as long for `job`
RENDERERS = 8  # threads that prepare pictures for vLLM as it comes, 0.12 s of a core each
JOBS = ("--jobs", "1", "2", "4", "--windows", "8", "32", "128", "512", "--ways", "pass2_all", "mode_auto")
TOKENS, CROP_TOKENS, CROP = 500, 60, 600
DECODED = 256  # sequences of the decoder alone, at most
SLOWLY = 3  # pages, in Transformers
BAN = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}
ROWS = (
    Row("pass 1, A4, 500 tokens, pages/s", "pass1_500.twopass", "pass1_500.stock_async", at_least=27, times=2),
    Row("pass 1, the mix, pages/s", "pass1_mix.twopass", "pass1_mix.stock_async", times=2),
    Row("whole jobs, the mix, pages/s", "job_mix.pages_per_s", at_least=10),
    Row("whole jobs against the engine alone", "job_mix.share_of_engine", at_least=0.9),
    Row("crops of 600², 60 tokens, a second", "crops_per_s.twopass", "crops_per_s.stock_async", at_least=300),
    Row(
        "decoder with the ban, 256 at once, tokens/s",
        "decoder_tokens_per_s.twopass",
        "decoder_tokens_per_s.stock",
        at_least=22500,
    ),
    Row("encoder, ms a page", "encoder_ms.twopass", "encoder_ms.stock", at_most=12),
    Row("process start to ready, warm, s", "ready_s.warm", at_most=20),
    Row("processor, the engine's process, ms a page", "engine_process_cpu_ms_per_page", at_most=5),
    Row("processor, jobs' process, ms a page", "job_mix.cpu_ms_per_page.main", at_most=25),
)
HEAD = f"{'':44}{'vLLM':>10}{'twopass':>10}{'ratio':>7}  goal on an H200"


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # as Ctrl-C: with the stage, which holds the GPU
    options = _options()
    if options.stage:
        stages: dict[str, Callable[[Any], Facts]] = {
            "twopass": _twopass, "warm": _warm, "encoder": _encoder, "stock_async": _stock_async,
            "stock_generate": _stock_generate, "transformers": _transformers,
        }  # fmt: skip
        tell(found=stages[options.stage](options))
        return
    found: Facts = json.loads(options.json.read_text()) if options.json.exists() else {}
    commit = options.commit or _commit()
    found |= {"environment": _environment(), "commit": commit}
    asked = {name: getattr(options, name) for name in ("sequences", "pages", "mix_pages", "crops", "rounds", "workers")}
    for stage in options.only or STAGES:
        if stage == "twopass":
            shutil.rmtree(_caches(options), ignore_errors=True)  # or its start would not be a cold one
        before = time.monotonic()
        merge(found, _run(stage, options))
        seconds = round(time.monotonic() - before)
        merge(found, {"stages": {stage: {"commit": commit, "seconds": seconds, "asked": asked}}})
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(table(found))


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--only", nargs="+", choices=STAGES)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--commit", help="of what is measured, where there is no repository")
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT, help="of the stage twopass")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--renderers", type=int, default=RENDERERS, help="threads, for vLLM as it comes")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help=f"of one stage; {JOBS_TAKE} times that for job")
    parser.add_argument("--pages", type=int, default=1024)
    parser.add_argument("--mix-pages", type=int, default=1536)
    parser.add_argument("--crops", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    options = parser.parse_args()
    if options.mix_pages <= options.sequences:
        parser.error("--mix-pages: more than --sequences, or no moment has all seats taken")
    return options


def _run(stage: str, options: Any) -> Facts:
    """A stage in a process of its own; one that fails or takes too long gives what it had found until then."""
    child = subprocess.Popen(
        _command(stage, options), env={**os.environ, **ENVIRONMENT, **_kept(options)},
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    limit_s = options.limit_s * (JOBS_TAKE if stage == "job" else 1)
    alarm = threading.Timer(limit_s, os.killpg, (child.pid, signal.SIGKILL))  # with its core, or the GPU stays full
    alarm.start()
    found: Facts = {}
    assert child.stdout
    try:
        with child.stdout:
            for line in child.stdout:
                told = json.loads(line) if line.startswith("{") else {}
                merge(found, told.get("found", {}))
                print(line, end="", file=sys.stdout if told else sys.stderr, flush=True)
    except BaseException:  # Ctrl-C too: a group of its own does not hear it
        os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        alarm.cancel()
    if child.wait():
        print(f"{stage}: ended with {child.returncode}, after {limit_s:g} s at the latest", file=sys.stderr)
    return found


def _caches(options: Any) -> Path:
    return Path(options.json.with_suffix(".caches")).absolute()


def _kept(options: Any) -> dict[str, str]:
    """Where all stages keep what they compiled."""
    caches = _caches(options)
    return {"VLLM_CACHE_ROOT": str(caches / "vllm"), "TRITON_CACHE_DIR": str(caches / "triton")}


def _command(stage: str, options: Any) -> list[str]:
    if stage == "job":
        told = {"--model-dir": options.model_dir, "--sequences": options.sequences, "--workers": options.page_pool}
        flags = [str(part) for pair in told.items() for part in pair]
        return [sys.executable, str(Path(__file__).with_name("bench_job.py")), *flags, *JOBS]
    passed = [arg for arg in sys.argv[1:] if arg not in ("--only", *STAGES)]
    return [sys.executable, __file__, "--stage", stage, *passed]


def merge(into: Facts, more: Facts) -> None:
    """What is new beside what is there, however deep; of what is there already, the new."""
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


def table(found: Facts) -> str:
    """Both sides, their ratio, the goal and by how much it is missed; below it, all other figures by their names."""
    figures = dict(_figures(found))
    told = {name for row in ROWS for name in (row.ours, row.stock)}
    others = (f"{name:44}{value}" for name, value in figures.items() if name not in told)
    return "\n".join((HEAD, *(_line(row, figures) for row in ROWS), "", *others))


def _figures(found: Facts, before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _figures(value, f"{before}{name}.")
        elif isinstance(value, int | float) and not before.startswith("stages."):
            yield before + name, value


def _line(row: Row, figures: dict[str, float]) -> str:
    ours, stock = figures.get(row.ours), figures.get(row.stock)
    ratio = (stock / ours if row.at_most else ours / stock) if ours and stock else None
    goals = (
        _goal("≥ {:,}", ours, row.at_least), _goal("≤ {:,}", ours, row.at_most, downwards=True),
        _goal("≥ {:g} times", ratio, row.times),
    )  # fmt: skip
    cells = f"{_cell(stock):>10}{_cell(ours):>10}{_cell(ratio and round(ratio, 1)):>7}"
    return f"{row.title:44}{cells}  {'; '.join(filter(None, goals))}".rstrip()


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _goal(told: str, value: float | None, goal: float | None, downwards: bool = False) -> str:
    if goal is None:
        return ""
    missed = 0.0 if value is None else (value / goal - 1 if downwards else 1 - value / goal)
    return told.format(goal) + (f", missed by {missed:.1%}" if missed > 0 else "")


def _environment() -> Facts:
    told = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(told, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        gpu = "none"
    return {"gpu": gpu, "cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0],
            "versions": {name: _version(name) for name in ("vllm", "torch", "triton", "transformers")}}  # fmt: skip


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def _commit() -> str:
    told = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return told.stdout.strip()


def _mix(options: Any) -> list[int]:
    lengths = [page["tokens"] for page in json.loads(MIX.read_text())]
    return [lengths[n % len(lengths)] for n in range(options.mix_pages)]


def _per_s(count: int, before: float) -> float:
    return round(count / (time.time() - before), 2)


# twopass


def _twopass(options: Any) -> Facts:
    """All of it on one engine; the start is `cold` where caches were empty."""
    return _started(options, _measured)


def _warm(options: Any) -> Facts:
    """The start alone, with the caches that `twopass` left."""
    return _started(options, _nothing_more)


def _started(options: Any, then: Callable[[Any, Any], Awaitable[Facts]]) -> Facts:
    from twopass.engines.vllm import engine as vllm

    options.interval = INTERVAL
    since = bench_engine._process_start()
    options.engine = vllm.VllmEngine(bench_engine._settings(options), options.model_dir)
    constructed = time.time() - since

    async def run() -> Facts:
        async with bench_engine._opened(options) as engine:
            await engine.generate(_prompt(options.shown[0], 1))
            kind, ready = options.stage.replace("twopass", "cold"), round(time.time() - since, 1)
            stages = {"constructed_s": constructed, **engine.started}
            start = {kind: {name: round(seconds, 1) for name, seconds in stages.items()}}
            tell(found={"ready_s": {kind: ready}, "start_s": start})
            return {"ready_s": {kind: ready}, "start_s": start, **await then(engine, options)}

    return asyncio.run(run())


async def _nothing_more(engine: Any, options: Any) -> Facts:
    return {}


async def _measured(engine: Any, options: Any) -> Facts:
    asked = {"pass1": _pass1, "crops": _crops, "mix": _pages_mixed, "decoder": _tokens}
    found: Facts = {}
    await _rate(engine, [_prompt(options.shown[n % PAGES], 60) for n in range(options.sequences)])
    for what in options.what:
        found |= await asked[what](engine, options)
        tell(found=found)
    return found


async def _pass1(engine: Any, options: Any) -> Facts:
    """Pages of a fixed length, and what they take of this process."""
    prompts = [_prompt(options.shown[n % PAGES], TOKENS) for n in range(options.pages)]
    cpu = time.process_time()
    rates = [await _rate(engine, prompts) for _ in range(options.rounds)]
    cpu = 1000 * (time.process_time() - cpu) / (options.rounds * options.pages)
    tell(pass1_500=rates)
    return {"pass1_500": {"twopass": statistics.median(rates)}, "engine_process_cpu_ms_per_page": round(cpu, 2)}


async def _crops(engine: Any, options: Any) -> Facts:
    shown = [page.crop(0, 0, CROP, CROP) for page in options.shown]
    prompts = [_prompt(shown[n % PAGES], CROP_TOKENS, "small", FREE) for n in range(options.crops)]
    await _rate(engine, prompts[: options.sequences])
    rates = [await _rate(engine, prompts) for _ in range(options.rounds + 1)]
    tell(crops=rates)
    return {"crops_per_s": {"twopass": statistics.median(rates)}}


async def _pages_mixed(engine: Any, options: Any) -> Facts:
    def mixed(number: int, tokens: int) -> AsyncIterator[int]:
        return _told(engine, options.shown[number % PAGES], tokens)

    return {"pass1_mix": {"twopass": await mix_per_s(mixed, _mix(options), options)}}


async def _tokens(engine: Any, options: Any) -> Facts:
    return {"decoder_tokens_per_s": await _decoder(engine._core, options, {"twopass": BAN, "no_ban": None})}


async def _rate(engine: Any, prompts: list[Any]) -> float:
    before = time.time()
    await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))
    return _per_s(len(prompts), before)


def _prompt(pixels: Any, tokens: int, mode: str = "gundam", text: str = PROMPT, **more: Any) -> Any:
    from twopass.engines.interface import Prompt, Sampling

    return Prompt("p", text, pixels, mode=mode, sampling=Sampling(max_tokens=tokens, ignore_eos=True), **more)


async def _told(engine: Any, pixels: Any, tokens: int) -> AsyncIterator[int]:
    """Tokens so far of one answer, as the engine tells of them."""
    told: asyncio.Queue[int] = asyncio.Queue()
    looks = iter(range(1, tokens + 1, INTERVAL))

    def watch(text: str) -> bool:
        told.put_nowait(next(looks, tokens))
        return False

    asked = asyncio.create_task(engine.generate(_prompt(pixels, tokens, watch=watch)))
    asked.add_done_callback(lambda _: told.put_nowait(tokens))
    try:
        while (so_far := await told.get()) < tokens:
            yield so_far
        yield tokens
    finally:
        asked.cancel()
        await asyncio.wait([asked])


async def mix_per_s(ask: Callable[[int, int], AsyncIterator[int]], lengths: list[int], options: Any) -> float:
    """Pages a second while all seats are taken: tokens made then, over the mean page's.

    From when the first seats are filled until the last page has begun: the long tail of a few pages, which a service
    never has, is left out and ended.
    """
    begun, made, marks = 0, 0, list[tuple[float, int]]()
    over = asyncio.Event()

    async def page(number: int, tokens: int) -> None:
        nonlocal begun, made
        before = 0
        async for so_far in ask(number, tokens):
            begun += before == 0
            made += so_far - before
            before = so_far
            if begun in (options.sequences, len(lengths)) and len(marks) < 1 + (begun == len(lengths)):
                marks.append((time.time(), made))
                if begun == len(lengths):
                    over.set()

    asked = [asyncio.create_task(page(number, tokens)) for number, tokens in enumerate(lengths)]
    ended = asyncio.create_task(over.wait())
    failed = asyncio.gather(*asked)  # done before that only where one of them fails
    await asyncio.wait((ended, failed), return_when=asyncio.FIRST_COMPLETED)
    if not over.is_set():
        await failed
    failed.cancel()
    await asyncio.wait(asked)
    (since, first), (until, last) = marks
    tell(mix_tokens_per_s=(last - first) / (until - since), seconds=until - since)
    return round((last - first) / (until - since) / statistics.mean(lengths), 2)


async def _decoder(core: Any, options: Any, bans: dict[str, Any]) -> Facts:
    """Tokens a second without pictures, one kind of request after the other, round by round."""
    rng, seats = np.random.default_rng(1), min(options.sequences, DECODED)

    async def one(name: str, ban: Any) -> None:
        told = {"type": "token", "prompt_token_ids": rng.integers(5, 100_000, bench_engine.PROMPT_TOKENS).tolist()}
        async for _ in core.generate(told, _params(TOKENS, ban), name):
            pass

    speeds: dict[str, list[float]] = {name: [] for name in bans}
    for number in range(options.rounds):
        for name, ban in bans.items():
            before = time.time()
            await asyncio.gather(*(one(f"{name}-{number}-{n}", ban) for n in range(seats)))
            speeds[name].append(round(seats * TOKENS / (time.time() - before)))
    tell(decoder=speeds)
    return {name: max(some) for name, some in speeds.items()}


def _params(tokens: int, ban: Any) -> Any:
    from vllm.sampling_params import RequestOutputKind

    from vllm import SamplingParams

    return SamplingParams(
        temperature=0, max_tokens=tokens, ignore_eos=True, skip_special_tokens=False, extra_args=ban,
        output_kind=RequestOutputKind.DELTA,
    )  # fmt: skip


def _encoder(options: Any) -> Facts:
    import torch

    import bench_encoder

    with bench_encoder.loaded(options.model_dir) as model, torch.inference_mode():
        tell(far=bench_encoder.far_from_exact(model))
        count = 4
        told = bench_encoder.pages(count)
        return {"encoder_ms": {
            "twopass": round(bench_encoder.ms(lambda: bench_encoder.ours(model, told)) / count, 2),
            "stock": round(bench_encoder.ms(lambda: bench_encoder.stock(model, told)) / count, 2),
        }}  # fmt: skip


# vLLM as it comes


def _stock_arguments(options: Any) -> Facts:
    os.environ["VLLM_PLUGINS"] = ""  # without ours
    return {
        "model": str(options.model_dir), "dtype": "bfloat16", "load_format": load_format(options.model_dir),
        "max_model_len": 8192,
        "max_num_seqs": options.sequences, "max_num_batched_tokens": 8192, "enable_prefix_caching": False,
        "mm_processor_cache_gb": 0, "limit_mm_per_prompt": {"image": 1}, "disable_log_stats": True,
        "logits_processors": bench_engine.BANS["stock"],
    }  # fmt: skip


def _images(width: int, height: int) -> list[Any]:
    from PIL import Image

    rng = np.random.default_rng(1)
    return [Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)) for _ in range(PAGES)]


def _stock_generate(options: Any) -> Facts:
    from vllm import LLM

    llm = LLM(**_stock_arguments(options))
    images = _images(*A4)

    def rate(count: int, tokens: int) -> float:
        prompts = [{"prompt": PROMPT, "multi_modal_data": {"image": images[n % PAGES]}} for n in range(count)]
        before = time.time()
        llm.generate(prompts, _params(tokens, BAN), use_tqdm=False)
        return _per_s(count, before)

    rate(16, 8)
    return {"pass1_500": {"stock_generate": rate(options.pages // 2, TOKENS)}}


def _stock_async(options: Any) -> Facts:
    """vLLM's best: pictures prepared by threads, past the event loop; answers in as large steps as ours."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    told = {
        **_stock_arguments(options),
        "renderer_num_workers": min(options.page_pool, options.renderers),
        "stream_interval": INTERVAL,
    }
    core = AsyncLLM.from_engine_args(AsyncEngineArgs(**told))

    async def run() -> Facts:
        try:
            return await _stock_measured(core, options)
        finally:
            core.shutdown()  # on the loop, as engines/vllm.py does

    return asyncio.run(run())


async def _stock_measured(core: Any, options: Any) -> Facts:
    pages, crops, names = _images(*A4), _images(CROP, CROP), iter(map(str, range(10**6)))

    async def told(image: Any, tokens: int, text: str = PROMPT) -> AsyncIterator[int]:
        (rendered,) = await core.renderer.render_cmpl_async([{"prompt": text, "multi_modal_data": {"image": image}}])
        so_far = 0
        async for output in core.generate(rendered, _params(tokens, BAN), next(names)):
            so_far += len(output.outputs[0].token_ids)
            yield so_far

    async def rate(images: list[Any], count: int, tokens: int, text: str = PROMPT) -> float:
        async def one(number: int) -> None:
            async for _ in told(images[number % PAGES], tokens, text):
                pass

        before = time.time()
        await asyncio.gather(*(one(number) for number in range(count)))
        return _per_s(count, before)

    def mixed(number: int, tokens: int) -> AsyncIterator[int]:
        return told(pages[number % PAGES], tokens)

    await rate(pages, 1, 8)  # alone, or every thread loads a tokenizer at the same moment, for minutes
    await rate(pages, min(64, options.pages), 8)
    tell(found={"pass1_500": {"stock_async": await rate(pages, options.pages, TOKENS)}})
    await rate(crops, min(64, options.crops), 8, FREE)
    tell(found={"crops_per_s": {"stock_async": await rate(crops, options.crops // 2, CROP_TOKENS, FREE)}})
    tell(found={"decoder_tokens_per_s": await _decoder(core, options, {"stock": BAN})})
    tell(found={"pass1_mix": {"stock_async": await mix_per_s(mixed, _mix(options), options)}})
    return {}


# Transformers


def _transformers(options: Any) -> Facts:
    """One page after the other, in the class that Transformers has of its own; random weights of the full size."""
    import torch
    import transformers

    from twopass.engines.hf import models
    from twopass.engines.interface import Prompt, Sampling
    from twopass.pages.shared_pixels import Pixels

    width, height = A4
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    torch.set_default_dtype(dtype)
    with torch.device(models.device()):
        model = transformers.DeepseekOcr2ForConditionalGeneration(models.native_config(options.model_dir))
    torch.set_default_dtype(torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model_dir, local_files_only=True)
    native = models.Native(model.eval(), tokenizer, transformers.DeepseekOcr2ImageProcessorPil())

    def tokens(image: Any, most: int) -> int:
        pixels = Pixels(width, height, held=image.tobytes())
        prompt = Prompt("p", PROMPT, pixels, mode="gundam", sampling=Sampling(max_tokens=most))
        return native.answer(prompt, lambda: False).tokens_out

    images = _images(width, height)
    tokens(images[0], 8)
    before = time.time()
    made = sum(tokens(images[n % PAGES], TOKENS) for n in range(SLOWLY))
    seconds = time.time() - before
    tell(transformers_tokens=made, seconds=seconds)
    return {"pass1_500": {"transformers": round(made / TOKENS / seconds, 3)}}


if __name__ == "__main__":
    main()
