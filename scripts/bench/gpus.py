"""Benchmark whole jobs with an engine on one GPU, on two and so on, or what one host process can feed without any GPU.

    python -m scripts.bench gpus --model-dir DIR [--counts 1 2] [--sequences 256] [--acceptance 3] [--json gpus.json]
    python -m scripts.bench gpus --scripted [--counts 1 2] [--sequences 64] [--tokens-per-s 18000]

The pages, their answers and the measurement are those of `jobs`; documents and artefacts are in a temporary folder, so
no S3 is needed. Each count runs in a fresh process with its own worker. The number of pages grows with the count.

With --scripted, engines do what vLLM's do on the host but for its client: page workers write every image into shared
memory, answers arrive in pieces of 128 tokens and are checked for loops. Tokens cost no time, or as much as
--tokens-per-s of each engine says. `host_limit_pages_per_s` is what the main process alone could do: one divided by its
processor seconds for a page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.bench import harness
from scripts.bench.harness import create_parser, parse_with_drafts, print_json
from scripts.bench.host_engine import HostEngine
from scripts.bench.job_runs import run_jobs, warm_up_pages
from scripts.bench.mix import write_documents
from scripts.bench.throughput import build_overrides
from scripts.bench.usage import sample_usage
from scripts.bench.workload import ENVIRONMENT, PAGE_BYTES, choose_load_format, read_mix
from twopass.engines.gpus import detect_gpus, divide
from twopass.engines.group import EngineGroup
from twopass.engines.interface import Engine
from twopass.engines.vllm.engine import start_engines
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.worker import SLOTS_PER_SEQUENCE, open_worker

LIMIT_S = 560.0  # of one count; its process group is killed then


def main(arguments: Sequence[str]) -> None:
    options = parse_options(arguments)
    if options.count:
        print_json(found=measure(options, options.count))
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


def parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench gpus", __doc__)
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
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="of each count")
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
    """Measure one count in a fresh process, as `measure` does; what was found is empty if it fails."""
    command = [sys.executable, "-m", "scripts.bench", "gpus", *arguments, "--count", str(count)]
    found: dict[str, Any] = {}
    with harness.start_alone(command, ENVIRONMENT, options.limit_s) as (lines, _):
        for line in lines:
            print(line, end="", flush=True)
            found |= json.loads(line).get("found", {}) if line.startswith("{") else {}
    return found


def measure(options: Any, count: int) -> dict[str, Any]:
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
    engines = start_engines(
        settings, options.model_dir, shares if len(shares) > 1 else ((),), **build_overrides(options)
    )
    return EngineGroup(engines) if len(engines) > 1 else engines[0]


def _create_scripted(settings: Settings, options: Any, count: int) -> Engine:
    engines = [HostEngine(str(number), settings, options.tokens_per_s) for number in range(count)]
    return EngineGroup(engines) if count > 1 else engines[0]
