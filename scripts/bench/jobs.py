"""Benchmark whole jobs on this machine's GPU against the engine alone on the same requests: PDFs and artefacts on S3.

    python -m scripts.bench jobs --model-dir DIR [--acceptance 3] [--json bench.json]
                                 [--jobs 1 2 4] [--windows 8 32 128 512] [--ways pass2_all mode_auto]
    python -m scripts.bench jobs --model glm_ocr

The pages are those of docs/bench/mix.json, drawn with text, tables, formulas and photos. Random weights will do: the
engine generates as many tokens as the mix says, and its answer is replaced by a scripted one that fits the page, so
that pass 2 cuts out and asks about real crops. Models that read regions have the full-size layout detector in front,
whose findings are replaced, too, and are not decoded: random weights find ten times as many as there are. Crops that do
not fit on A4 are drawn smaller. The measurement lasts from when one and a half times as many pages have begun as may be
in flight until the last page has begun, for jobs and for the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
from rich.table import Table

from scripts.bench import families, harness, s3_server
from scripts.bench.harness import (
    A4,
    ENVIRONMENT,
    PAGE_BYTES,
    choose_load_format,
    create_parser,
    parse_with_drafts,
    print_json,
    print_table,
    read_mix,
    sample_memory,
    sample_usage,
)
from scripts.bench.latency import HostEngine
from scripts.bench.mix import (
    DocumentSet,
    ScriptedAnswerEngine,
    TokenMeter,
    upload_documents,
    write_documents,
)
from scripts.bench.suite import build_overrides
from twopass import pipeline
from twopass.engines.detector import placement
from twopass.engines.gpus import detect_gpus, divide
from twopass.engines.group import EngineGroup
from twopass.engines.interface import Engine, Prompt
from twopass.engines.vllm.engine import VllmEngine, launch_engines
from twopass.engines.vllm.images import TiledImages
from twopass.families import registry
from twopass.families.interface import FamilyOptions
from twopass.job import EntryPoint, Job
from twopass.models import MODELS
from twopass.pages.shared_pixels import Pixels
from twopass.result import Result
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.progress import Tracker
from twopass.telemetry.stopwatch import Stopwatch
from twopass.worker import SLOTS_PER_SEQUENCE, Worker, open_worker

LATENCY_PAGES, LATENCY_ROUNDS = (1, 19), 3  # pages of a document that is read alone
# what the model gets of an image: DRAW_VIEWS and SMALL_CROPS
INPUTS: Mapping[str, tuple[bool, bool]] = {
    "official": (False, False), "drawn": (True, False), "small_crops": (False, True), "both": (True, True),
}  # fmt: skip
WAYS: Mapping[str, Mapping[str, str]] = {"pass2_all": {"pass2": "all"}, "mode_auto": {"mode": "auto"}}  # job fields


class JobMixFacts:
    """What was found; every addition is printed at once, so that a run that is cut off loses nothing."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def add(self, **facts: Any) -> None:
        self.values.update(facts)
        print_json(found={"job_mix": self.values})

    def add_rate(self, name: str, pages_per_s: float) -> None:
        self.add(pages_per_s_by={**self.values["pages_per_s_by"], name: round(pages_per_s, 2)})


def main(arguments: Sequence[str]) -> None:
    options = parse_options(arguments)
    slots = round(SLOTS_PER_SEQUENCE * options.sequences)
    max_slots = max((slots, *options.windows))
    os.environ |= ENVIRONMENT

    model_dir = families.write_checkpoint(options.folder / options.model, options.model, options.model_dir)
    with s3_server.start_server() as endpoint:
        settings = Settings(
            engine="vllm", gpus=1, model=options.model, model_dir=model_dir, max_num_seqs=options.sequences,
            load_format=choose_load_format(model_dir),
            quantization=options.quantization, kv_cache_dtype=options.kv_cache_dtype, page_workers=options.workers,
            canary=False, log_level="WARNING", bucket_endpoint_url=endpoint, window=max_slots,
            bucket_access_key_id=s3_server.ACCESS_KEY, bucket_secret_access_key=s3_server.SECRET_KEY,
            window_bytes=max_slots * PAGE_BYTES, draft_tokens=options.drafts,
        )  # fmt: skip
        logs.set_up(settings)

        def create(settings: Settings) -> Engine:
            return create_engine(settings, options.folder, **build_overrides(options))

        with open_worker(settings, create_engine=create) as worker:
            usual = replace(worker, page_slots=PageSlots(slots))
            pages = read_mix(options.pages)
            facts = measure(
                usual, endpoint, pages, options.jobs, options.windows, options.ways, options.inputs, options.latency
            )
    print_json(found={"job_mix": facts})
    if options.json:
        results = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**results, "job_mix": facts}, indent=1, sort_keys=True) + "\n")


def create_engine(settings: Settings, folder: Path, **overrides: Any) -> Engine:
    """The engine of a benchmark, with the detector where its model needs one; its weights are written to `folder`."""
    assert settings.model_dir
    (engine,) = launch_engines(settings, settings.model_dir, **overrides)
    if not MODELS[settings.model].reads_regions:
        return engine
    weights = families.write_apart(folder / "detector")
    placed = placement.choose(settings, detect_gpus().memory_gb)
    return families.put_before(engine, weights, settings.model, placed)


def parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench jobs", __doc__)
    parser.add_argument("--model-dir", type=Path, help="the checkpoint of DeepSeek-OCR's shape, for models of pages")
    parser.add_argument("--model", choices=tuple(MODELS), default="deepseek_ocr")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/twopass-bench"), help="where checkpoints are written")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pages", type=int, default=1600)
    parser.add_argument("--jobs", type=int, nargs="*", default=[1], help="jobs at once, one number after the other")
    parser.add_argument(
        "--windows", type=int, nargs="*", default=[], help="pages in flight, one number after the other"
    )
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[], help="instead of pass2 auto in mode gundam")
    parser.add_argument("--inputs", nargs="*", choices=INPUTS, default=[], help="as one job, one after the other")
    parser.add_argument("--latency", type=int, nargs="*", default=LATENCY_PAGES, help="pages of documents read alone")
    parser.add_argument("--quantization")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    options = parse_with_drafts(parser, arguments)
    if not (options.model_dir or MODELS[options.model].reads_regions):
        parser.error("--model-dir: the checkpoint of DeepSeek-OCR's shape")
    if options.drafts and not MODELS[options.model].is_drafted:
        parser.error(f"--acceptance: {options.model} is decoded without drafts")
    max_slots = max((round(SLOTS_PER_SEQUENCE * options.sequences), *options.windows))
    if options.pages <= (least := warm_up_pages(max_slots)):
        parser.error(f"--pages: must be more than {least}, or the engine is never full")
    return options


def measure(
    worker: Worker, endpoint: str, pages: Sequence[Mapping[str, Any]], counts: Sequence[int],
    slot_counts: Sequence[int] = (), ways: Sequence[str] = (), inputs: Sequence[str] = (),
    latency_pages: Sequence[int] = LATENCY_PAGES, latency_rounds: int = LATENCY_ROUNDS,
) -> dict[str, Any]:  # fmt: skip
    """What was found: `pages_per_s`, `share_of_engine` and others are those of the first of `counts`, jobs at once.

    `slot_counts`: pages in flight, tried one after the other with five times as many pages, 48 at least, where there
    are so many. `ways`: keys of WAYS, and `inputs`: keys of INPUTS, each run as one job. `latency_pages`: documents of
    so many pages are read alone, `latency_rounds` times.
    """
    client = s3_server.connect(endpoint)
    documents = upload_documents(pages, client)
    facts = JobMixFacts()
    facts.add(
        pages=len(pages), s3_puts_per_s=round(s3_server.measure_puts_per_s(endpoint)),
        tokens_a_page=round(documents.tokens_per_page),
        first_pass_tokens=round(statistics.mean(page["tokens"] for page in pages)),
        prompts_a_page=round(documents.prompts_per_page, 2), latency_s={}, pages_per_s_by={},
    )  # fmt: skip
    for count in latency_pages:
        alone = upload_documents(pages[:count], client, f"few{count}", count)
        seconds, cpu_ms = _measure_latencies(worker, alone, latency_rounds)
        latency_s = {**facts.values["latency_s"], f"{count}_pages": seconds}
        facts.add(latency_s=latency_s, cpu_ms_per_page_by_stage=cpu_ms)
    if counts:
        _measure_jobs(worker, documents, counts, facts)
    for name in inputs:
        engine = worker.submit(run_jobs(_choose_input(worker, *INPUTS[name]), documents, 1)).result()
        facts.add_rate(f"input_{name}", engine.meter.tokens_per_s / documents.tokens_per_page)
    for slots in slot_counts:
        part = documents.take(max(5 * slots, 48))
        engine = worker.submit(run_jobs(replace(worker, page_slots=PageSlots(slots)), part, 1)).result()
        facts.add_rate(f"{slots}_in_flight", engine.meter.tokens_per_s / part.tokens_per_page)
    for way in ways:
        part = replace(documents, pass2_all="pass2" in WAYS[way])
        engine = worker.submit(run_jobs(worker, part, 1, **WAYS[way])).result()
        modes = dict(Counter(prompt.mode for prompt in engine.asked))
        print_json(way=way, prompts_a_page=part.prompts_per_page, modes=modes)
        facts.add_rate(way, engine.meter.tokens_per_s / part.tokens_per_page)
    return facts.values


def _measure_jobs(worker: Worker, documents: DocumentSet, counts: Sequence[int], facts: JobMixFacts) -> None:
    """Measure so many jobs at once, one count after the other, then the engine alone on the first count's requests."""
    tokens = documents.tokens_per_page
    first: ScriptedAnswerEngine | None = None
    with sample_usage() as usage:  # open for the engine alone, too: sampling takes CPU time
        for count in counts:
            engine = worker.submit(run_jobs(worker, documents, count)).result()
            speed = engine.meter.tokens_per_s
            resources = {"cpu_ms_per_page": engine.meter.cpu_ms(tokens), **usage.summarize(*engine.meter.period)}
            print_json(jobs=count, tokens_per_s=speed, pages_begun_per_s=engine.meter.pages_begun_per_s,
                       prompts=len(engine.asked), **resources)  # fmt: skip
            facts.add_rate(f"{count}_jobs", speed / tokens)
            if first is None:
                first = engine
                facts.add(pages_per_s=round(speed / tokens, 2), tokens_per_s=round(speed), **resources)
        assert first
        alone = worker.submit(run_engine_alone(worker, first.asked, documents)).result()
    facts.add(
        share_of_engine=round(first.meter.tokens_per_s / alone.tokens_per_s, 3),
        alone_tokens_per_s=round(alone.tokens_per_s), alone_cpu_ms_per_page=alone.cpu_ms(tokens),
    )  # fmt: skip


def _choose_input(worker: Worker, draw_views: bool, small_crops: bool) -> Worker:
    """The worker with other input for the model; the engine is the same, so `draw_views` stays set."""
    if isinstance(worker.engine, VllmEngine):
        images = worker.engine.images
        assert isinstance(images, TiledImages)
        worker.engine.images = replace(images, draw_views=draw_views)
    return replace(worker, family=registry.get_family(worker.engine.family, FamilyOptions(small_crops)))


def _measure_latencies(worker: Worker, documents: DocumentSet, rounds: int) -> tuple[float, dict[str, float]]:
    """The median seconds, and the medians of each stage's CPU milliseconds a page."""
    runs = [worker.submit(measure_latency(worker, documents)).result() for _ in range(rounds)]
    walls = [{name: stage["wall_s"] for name, stage in stages.items()} for _, stages in runs]
    print_json(pages=len(documents.pages), latency_s=[seconds for seconds, _ in runs], wall_s=walls)
    per_page = 1000 / len(documents.pages)
    cpu_ms = {
        name: round(statistics.median(stages[name]["cpu_s"] for _, stages in runs) * per_page, 1) for name in runs[0][1]
    }
    return round(statistics.median(seconds for seconds, _ in runs), 2), cpu_ms


_numbers = itertools.count()


def warm_up_pages(slots: int) -> int:
    """How many pages must have begun until the engine is surely full: half as many again as there are slots."""
    return round(1.5 * slots)


async def run_jobs(worker: Worker, documents: DocumentSet, count: int, **fields: str) -> ScriptedAnswerEngine:
    """Run the documents as so many jobs at once until the last page has begun; `fields` are added to each job."""
    engine = _script_engine(worker, documents)
    scripted = replace(worker, engine=engine)
    tasks = [
        asyncio.create_task(
            _run_job(_make_job(documents.uris[n::count], documents.output, scripted, **fields), scripted)
        )
        for n in range(count)
    ]
    await _wait_for_last_page(engine.meter, tasks)
    if engine.unknown:
        print_json(unknown=dict(engine.unknown.most_common(5)))
    return engine


async def run_engine_alone(worker: Worker, asked: Sequence[Prompt], documents: DocumentSet) -> TokenMeter:
    """Send the same requests in the same order to the engine, without the pipeline around it."""
    engine = _script_engine(worker, documents)
    async with _lend_noise_page(worker) as page:
        prompts = [replace(prompt, image=_crop_like(prompt.image, page), page=None) for prompt in asked]
        slots = asyncio.Semaphore(worker.page_slots.count)

        async def ask(prompt: Prompt) -> None:
            async with slots:
                await engine.generate(prompt)

        tasks = [asyncio.create_task(ask(prompt)) for prompt in prompts]
        await _wait_for_last_page(engine.meter, tasks)
    return engine.meter


async def measure_latency(worker: Worker, documents: DocumentSet) -> tuple[float, dict[str, dict[str, float]]]:
    """Run one job alone; return its seconds from start to result, and its `wall_s` and `cpu_s` by stage."""
    meter = TokenMeter(2, documents.asked_pages)
    scripted = replace(worker, engine=ScriptedAnswerEngine(worker.engine, documents.answers, meter))
    started = time.monotonic()
    (document,) = (await _run_job(_make_job(documents.uris, documents.output, scripted), scripted)).documents
    return time.monotonic() - started, document.timings["stages"]


def _script_engine(worker: Worker, documents: DocumentSet) -> ScriptedAnswerEngine:
    meter = TokenMeter(warm_up_pages(worker.page_slots.count), documents.asked_pages)
    return ScriptedAnswerEngine(worker.engine, documents.answers, meter)


def _make_job(uris: Sequence[str], output: str, worker: Worker, **fields: str) -> Job:
    name = f"job{next(_numbers)}"
    mode = "gundam" if "gundam" in worker.family.modes else "auto"  # readers have no modes
    job_input = {"sources": uris, "output": f"{output}/{name}/", "mode": mode, "resume": False, **fields}
    return Job.parse({"id": name, "input": job_input}, worker.settings, EntryPoint.LOCAL)


async def _run_job(job: Job, worker: Worker) -> Result:
    result = await pipeline.run(job, worker, Tracker())
    if result.status != "success":
        raise RuntimeError(f"{job.id}: {result.problems[:3]}")
    return result


async def _wait_for_last_page(meter: TokenMeter, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until the last page has begun, then cancel the tasks; raise what one of them raised."""
    last_page = asyncio.create_task(meter.last_page_begun.wait())
    while not last_page.done():
        if not tasks:
            last_page.cancel()
            raise RuntimeError(f"only {meter.begun} of {meter.pages} pages have begun, and no job is left")
        done, _ = await asyncio.wait((last_page, *tasks), return_when=asyncio.FIRST_COMPLETED)
        tasks = [task for task in tasks if not task.done()]
        for task in done:
            task.result()
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


@asynccontextmanager
async def _lend_noise_page(worker: Worker) -> AsyncIterator[Pixels]:
    width, height = A4
    async with worker.buffers.lend(width * height * 3) as buffer:
        noise = np.random.default_rng(2).integers(0, 256, width * height * 3, np.uint8)
        np.frombuffer(buffer.map(noise.nbytes), np.uint8)[:] = noise
        yield Pixels(width, height, buffer)


def _crop_like(image: Pixels, page: Pixels) -> Pixels:
    """A crop of the page that is as large as the image."""
    return page.crop(0, 0, min(image.width, page.width), min(image.height, page.height))


GPUS_LIMIT_S = 560.0  # of one count; its process group is killed then


def main_gpus(arguments: Sequence[str]) -> None:
    """Benchmark whole jobs with an engine on one GPU, on two and so on, or what one host process can feed without any.

        python -m scripts.bench gpus --model-dir DIR [--counts 1 2] [--sequences 256] [--acceptance 3] [--json FILE]
        python -m scripts.bench gpus --scripted [--counts 1 2] [--sequences 64] [--tokens-per-s 18000]

    The pages, their answers and the measurement are those of `jobs`; documents and artefacts are in a temporary
    folder, so no S3 is needed. Each count runs in a fresh process with its own worker. The number of pages grows with
    the count.

    With --scripted, engines do what vLLM's do on the host but for its client: page workers write every image into
    shared memory, answers arrive in pieces of 128 tokens and are checked for loops. Tokens cost no time, or as much as
    --tokens-per-s of each engine says. `host_limit_pages_per_s` is what the main process alone could do: one divided
    by its processor seconds for a page.
    """
    options = parse_gpus(arguments)
    if options.count:
        print_json(found=measure_gpus(options, options.count))
        return
    results = {str(count): _run_count(count, options, arguments) for count in options.counts}
    rates = {count: facts["pages_per_s"] for count, facts in results.items() if "pages_per_s" in facts}
    first = next(iter(rates.values()), None)
    ratios = {count: round(rate / first, 3) for count, rate in rates.items()} if first else {}
    print_json(pages_per_s=rates, ratio_to_first=ratios)
    if options.json:
        facts = {"by_count": results, "ratio_to_first": ratios}
        stored = json.loads(options.json.read_text()) if options.json.exists() else {}
        name = "gpus_scripted" if options.scripted else "gpus"
        options.json.write_text(json.dumps({**stored, name: facts}, indent=1, sort_keys=True) + "\n")
    if len(rates) < len(options.counts):
        raise SystemExit("gpus: a count failed or ran past --limit-s; its output is above")


def parse_gpus(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench gpus", main_gpus.__doc__)
    parser.add_argument("--model-dir", type=Path, help="required unless --scripted")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2], help="engines, one number after the other")
    parser.add_argument("--sequences", type=int, default=256, help="of each engine")
    parser.add_argument("--pages", type=int, help="for each engine; the default is 4.5 times its page slots")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="GPUs that share a model; a count is of engines")
    parser.add_argument("--jobs", type=int, default=1, help="at once")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scripted", action="store_true", help="engines without a GPU")
    parser.add_argument("--tokens-per-s", type=float, help="of each scripted engine; the default is without limit")
    parser.add_argument("--quantization")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    parser.add_argument("--limit-s", type=float, default=GPUS_LIMIT_S, help="of each count")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parse_with_drafts(parser, arguments)
    if not (options.model_dir or options.scripted):
        parser.error("--model-dir: name the folder of the model, or measure the host with --scripted")
    options.pages = options.pages or 3 * warm_up_pages(_count_slots(options.sequences, 1))
    if options.pages <= (least := warm_up_pages(_count_slots(options.sequences, 1))):
        parser.error(f"--pages: must be more than {least}, or the engines are never full")
    return options


def _count_slots(sequences: int, count: int) -> int:
    return round(SLOTS_PER_SEQUENCE * sequences * count)


def _run_count(count: int, options: Any, arguments: Sequence[str]) -> dict[str, Any]:
    """Measure one count in a fresh process, as `measure_gpus` does; what was found is empty if it fails."""
    command = [sys.executable, "-m", "scripts.bench", "gpus", *arguments, "--count", str(count)]
    found: dict[str, Any] = {}
    with harness.start_alone(command, ENVIRONMENT, options.limit_s) as (lines, _):
        for line in lines:
            print(line, end="", flush=True)
            found |= json.loads(line).get("found", {}) if line.startswith("{") else {}
    return found


def measure_gpus(options: Any, count: int) -> dict[str, Any]:
    """Pages a second of whole jobs on so many engines, and what the host and the GPUs did meanwhile."""
    settings = _build_settings(options, count)
    logs.set_up(settings)

    def create(settings: Settings) -> Engine:
        return _create_scripted(settings, options, count) if options.scripted else _create_engines(settings, options)

    with open_worker(settings, create_engine=create) as worker, tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        documents = write_documents(read_mix(options.pages * count), Path(folder))
        print_json(engines=count, started=dict(worker.started), documents_s=time.monotonic() - started)
        with sample_usage(count * settings.tensor_parallel_size) as usage:
            engine = worker.submit(run_jobs(worker, documents, options.jobs)).result()
        meter, tokens = engine.meter, documents.tokens_per_page
        cpu_ms = meter.cpu_ms(tokens)
        return {
            "engines": count, "sequences": options.sequences, "pages": len(documents.pages),
            "pages_per_s": round(meter.tokens_per_s / tokens, 2),
            "pages_begun_per_s": round(meter.pages_begun_per_s, 2), "tokens_per_s": round(meter.tokens_per_s),
            "seconds": round(meter.period[1] - meter.period[0], 1), "cpu_ms_per_page": cpu_ms,
            "host_limit_pages_per_s": round(1000 / cpu_ms["main"], 1), "cores": len(os.sched_getaffinity(0)),
            "started": dict(worker.started), **usage.summarize(*meter.period),
        }  # fmt: skip


def _build_settings(options: Any, count: int) -> Settings:
    slots = _count_slots(options.sequences, count)
    return Settings(
        engine="vllm", gpus="auto" if options.scripted else count * options.tensor_parallel,
        tensor_parallel_size=options.tensor_parallel, model_dir=options.model_dir,
        max_num_seqs=options.sequences, load_format=choose_load_format(options.model_dir or Path()),
        quantization=options.quantization, kv_cache_dtype=options.kv_cache_dtype, page_workers=options.workers,
        canary=False, log_level="WARNING", draft_tokens=options.drafts, window=slots, window_bytes=slots * PAGE_BYTES,
    )  # fmt: skip


def _create_engines(settings: Settings, options: Any) -> Engine:
    """As a worker does, but with simulated acceptance."""
    shares = divide(settings, detect_gpus())
    engines = launch_engines(
        settings, options.model_dir, shares if len(shares) > 1 else ((),), **build_overrides(options)
    )
    return EngineGroup(engines) if len(engines) > 1 else engines[0]


def _create_scripted(settings: Settings, options: Any, count: int) -> Engine:
    engines = [HostEngine(str(number), settings, options.tokens_per_s) for number in range(count)]
    return EngineGroup(engines) if count > 1 else engines[0]


STAGES = ("fetch", "render", "pass1", "pass2", "assemble", "upload")
SAMPLE_EVERY_S = 0.2
LINES_PER_PAGE = 40


class SoloStopwatch(Stopwatch):
    """Count the CPU time of this process, too; this is right only while one stage runs at a time."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.process_time()
        with super().stage(name):
            yield
            self._cpu[name] += time.process_time() - started


class SoloWorker(Worker):
    """A worker that reads one page at a time."""

    def stopwatch(self) -> Stopwatch:
        return SoloStopwatch(self.observer)


def main_stages(arguments: Sequence[str]) -> None:
    """Measure CPU time a page by stage of a job, with the engine of the environment; with --memory, peak memory, too.

        python -m scripts.bench stages [FILE_OR_FOLDER …] [--pages 1-4] [--memory]

    One page at a time and one page worker, so that the CPU time of this process belongs to the stage that is running.
    Peak memory is the proportional set size of this process and its page workers, sampled while 50 and 1,000 pages of
    text are read with the default settings.
    """
    parser = create_parser("scripts.bench stages", main_stages.__doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("samples/sample.pdf")])
    parser.add_argument("--pages", default="1-", help="pages of each document (default: all)")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/log/")
    options = parser.parse_args(arguments)
    files = [file for path in options.paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    print_table(measure_stages(files, options.pages), options.markdown)
    if options.memory:
        print_table(measure_memory(), options.markdown)


def measure_stages(files: Sequence[Path], pages: str) -> Table:
    table = Table("file", "pages", *(f"{stage} ms" for stage in STAGES), "all ms", title="CPU per page")
    settings = Settings(window=1, page_workers=1, log_level="ERROR")
    logs.set_up(settings)
    with open_worker(settings) as worker:
        solo = SoloWorker(**{field.name: getattr(worker, field.name) for field in fields(Worker)})
        for file in files:
            table.add_row(*_format_row(file, _read_file(file, pages, solo)))
    return table


def _format_row(file: Path, result: Result) -> list[str]:
    document = result.documents[0]
    count = sum(document.pages.values())
    if not count:
        return [file.name, "0", *("" for _ in STAGES), result.problems[0].code]
    stages = document.timings["stages"]
    milliseconds = [1000 * stages.get(stage, {"cpu_s": 0.0})["cpu_s"] / count for stage in STAGES]
    return [file.name, str(count), *(f"{ms:.1f}" for ms in milliseconds), f"{sum(milliseconds):.1f}"]


def _read_file(file: Path, pages: str, worker: Worker) -> Result:
    with tempfile.TemporaryDirectory() as output:
        job_input = {"source": str(file), "output": output, "pages": pages}
        job = Job.parse({"id": "bench", "input": job_input}, worker.settings, EntryPoint.LOCAL)
        return worker.submit(pipeline.run(job, worker, Tracker())).result()


def measure_memory() -> Table:
    table = Table("pages", "seconds", "peak MiB", title="peak memory")
    for count in (50, 1000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{count}.pdf"
            make_text_pdf(path, count)
            started = time.monotonic()
            with open_worker(Settings(log_level="ERROR")) as worker, sample_memory(SAMPLE_EVERY_S) as samples:
                _read_file(path, "1-", worker)
            table.add_row(str(count), f"{time.monotonic() - started:.1f}", f"{max(mib for _, mib in samples):.0f}")
    return table


def make_text_pdf(path: Path, count: int) -> None:
    """Write pages of forty lines that all differ, so that none is taken for a running header."""
    with pymupdf.open() as pdf:
        for page in range(count):
            lines = [
                f"Line {line} of page {page} tells of the {page * line % 977}th gauge by the river."
                for line in range(LINES_PER_PAGE)
            ]
            pdf.new_page().insert_text((72, 90), lines, fontsize=10)
        pdf.save(path)
