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

import json
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.bench import detector, local_s3
from scripts.bench.harness import create_parser, parse_with_drafts, print_json
from scripts.bench.job_runs import measure_latency, run_engine_alone, run_jobs, warm_up_pages
from scripts.bench.mix import DocumentSet, upload_documents
from scripts.bench.scripted_engine import ScriptedAnswerEngine
from scripts.bench.throughput import build_overrides
from scripts.bench.usage import sample_usage
from scripts.bench.workload import ENVIRONMENT, PAGE_BYTES, choose_load_format, read_mix
from twopass.engines.detector import placement
from twopass.engines.gpus import detect_gpus
from twopass.engines.interface import Engine
from twopass.engines.vllm.engine import VllmEngine, start_engines
from twopass.engines.vllm.images import TiledImages
from twopass.families import registry
from twopass.families.interface import FamilyOptions
from twopass.models import MODELS
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.telemetry import logs
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
    from scripts.bench import reader_checkpoints  # needs a library that comes with vLLM

    model_dir = reader_checkpoints.write_checkpoint(options.folder / options.model, options.model, options.model_dir)
    with local_s3.start_server() as endpoint:
        settings = Settings(
            engine="vllm", gpus=1, model=options.model, model_dir=model_dir, max_num_seqs=options.sequences,
            load_format=choose_load_format(model_dir),
            quantization=options.quantization, kv_cache_dtype=options.kv_cache_dtype, page_workers=options.workers,
            canary=False, log_level="WARNING", bucket_endpoint_url=endpoint, window=max_slots,
            bucket_access_key_id=local_s3.ACCESS_KEY, bucket_secret_access_key=local_s3.SECRET_KEY,
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
    (engine,) = start_engines(settings, settings.model_dir, **overrides)
    if not MODELS[settings.model].reads_regions:
        return engine
    weights = detector.write_apart(folder / "detector")
    placed = placement.choose(settings, detect_gpus().memory_gb)
    return detector.put_before(engine, weights, settings.model, placed)


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
    client = local_s3.connect(endpoint)
    documents = upload_documents(pages, client)
    facts = JobMixFacts()
    facts.add(
        pages=len(pages), s3_puts_per_s=round(local_s3.measure_puts_per_s(endpoint)),
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
    print_json(pages=len(documents.pages), latency_s=[seconds for seconds, _ in runs])
    per_page = 1000 / len(documents.pages)
    cpu_ms = {
        name: round(statistics.median(stages[name]["cpu_s"] for _, stages in runs) * per_page, 1) for name in runs[0][1]
    }
    return round(statistics.median(seconds for seconds, _ in runs), 2), cpu_ms
