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
    stock_async     stock vLLM at its best; stock_generate: as most people run it; stock_v2: without an n-gram ban
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
    campaign        a campaign of many documents, simulated; S3 requests of a job
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scripts.bench import encoder, harness, throughput
from scripts.bench.harness import create_parser, parse_with_drafts, print_json
from scripts.bench.workload import ENVIRONMENT

STAGES = ("twopass", "warm", "encoder", "job", "stock_async", "stock_v2", "stock_generate", "transformers")
WHAT = ("pass1", "crops", "mix", "decoder")
LIMIT_S, LONG_STAGES, LONG_FACTOR = 900.0, ("job", "stock_async", "stock_v2"), 3  # of one stage; some take longer
RENDERERS = 8  # threads that prepare images for stock vLLM, which take 0.12 s of a core per page
JOB_OPTIONS = ("--jobs", "1", "2", "4", "--windows", "8", "32", "128", "512", "--ways", "pass2_all", "mode_auto")
_MEASURES: Mapping[str, Callable[[Any], dict[str, Any]]] = {  # `job` is the command `jobs`
    "twopass": throughput.measure_cold, "warm": throughput.measure_warm, "encoder": encoder.measure_stage,
    "stock_async": throughput.measure_async, "stock_v2": throughput.measure_v2,
    "stock_generate": throughput.measure_generate, "transformers": throughput.measure_transformers,
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
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT, help="parts of the stage twopass")
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
    if options.mix_pages <= options.sequences:
        parser.error("--mix-pages: must be more than --sequences, or the engine is never full")
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
    Row("pass 1, A4, 500 tokens, pages/s", "pass1_500.twopass", "pass1_500.stock_async", at_least=45, times=2),
    Row("pass 1, the mix, pages/s", "pass1_mix.twopass", "pass1_mix.stock_async", at_least=30, times=2),
    Row("whole jobs, the mix, pages/s", "job_mix.pages_per_s", at_least=20),
    Row("whole jobs against the engine alone", "job_mix.share_of_engine", at_least=0.9),
    Row("crops of 600², 60 tokens, a second", "crops_per_s.twopass", "crops_per_s.stock_async", at_least=400),
    Row(
        "decoder with the ban, 256 at once, tokens/s",
        "decoder_tokens_per_s.twopass",
        "decoder_tokens_per_s.stock",
        at_least=45000,
    ),
    Row("encoder, ms a page", "encoder_ms.twopass", "encoder_ms.stock", at_most=8),
    Row("process start to ready, warm, s", "ready_s.warm", at_most=15),
    Row("processor, the engine's process, ms a page", "engine_process_cpu_ms_per_page", at_most=5),
    Row("processor, jobs' process, ms a page", "job_mix.cpu_ms_per_page.main", at_most=25),
    Row("processor, the engine core, ms a page", "job_mix.cpu_ms_per_page.core", at_most=40),
    Row("a page alone, s", "job_mix.latency_s.1_pages", at_most=2.5),
    Row("19 pages alone, s", "job_mix.latency_s.19_pages", at_most=8),
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
            yield f"{stage}: {facts['asked']['drafts']} drafts; simulated: a decoder step yields {acceptance:g} tokens"


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
