"""Measure starts of the engine on this machine's GPU: seconds until it is ready, of its first page, and of every stage.

    python -m scripts.bench starts --model-dir DIR [--json starts.json] [--rounds 3]
                                   [--kinds bare fresh shared warm restart uncompiled]

Each start is a fresh process. A round has each kind once, in this order:

    bare         nothing was compiled before
    fresh        kernels as in an image, compiled without a GPU; nothing in ENGINE_CACHE, where it stores what it adds
    shared       kernels as in an image; the rest is fetched from ENGINE_CACHE
    warm         with all that the last fresh start compiled
    restart      as warm; then its core is killed under 64 prompts of 2,000 tokens, when the fork server is ready
    uncompiled   as fresh, with TORCH_COMPILE=off

A fresh start comes first where a kind needs one that was not asked for. ENGINE_CACHE is in a loopback S3 server; the
folders of compiled code are beside the JSON file. Weights that DIR lacks are random, and take no time to load.

The first fresh start then reads a page in every mode, with every ban window, without a draft and with long ones, crops
of several sizes, and 600 pages at once. The command ends with 1 and names what was compiled after the first page of any
start: new folders in Triton's cache, and what vLLM's monitor reports of other compilers. Of Triton, the monitor reports
each kernel's first use, whether it is compiled or loaded: `first_used` in the JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from scripts.bench import harness, s3_server
from scripts.bench.harness import (
    CROP_PROMPT,
    CROP_TOKENS,
    DRAFT_TOKENS,
    ENVIRONMENT,
    STREAM_INTERVAL,
    create_parser,
    make_prompt,
    print_json,
    print_table,
)
from scripts.bench.suite import build_settings, open_engine, raise_descriptor_limit, read_process_start

LIMIT_S = 240.0  # of one start; the slowest takes half of it
FOLDERS = {  # of compiled code
    "VLLM_CACHE_ROOT": "vllm", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
}  # fmt: skip
CODE, IMAGE, FRESH = "code", "image", "fresh"  # these folders, and copies: as in an image, and after a fresh start
AFTER_KILL = "after the kill"
REPORT = re.compile(r"(\w+) (?:kernel )?JIT compilation during inference: (.+?)(?: \(.*\))?\. This causes")
TUNING = re.compile(r"Triton autotuning for function ([^\s,]+)")

Facts = dict[str, Any]


NO_SERVER = {"ENGINE_RESTARTS": "0"}  # a fork server would still import vLLM while the next start is measured


class Kind(NamedTuple):
    """What a start finds: copied folders, and whether ENGINE_CACHE has what the last fresh start stored."""

    folders: str | None = None
    is_shared: bool = False
    variables: Mapping[str, str] = NO_SERVER


KINDS: Mapping[str, Kind] = {
    "bare": Kind(), FRESH: Kind(IMAGE), "shared": Kind(IMAGE, is_shared=True), "warm": Kind(FRESH, is_shared=True),
    "restart": Kind(FRESH, is_shared=True, variables={}),
    "uncompiled": Kind(IMAGE, variables={**NO_SERVER, "TORCH_COMPILE": "off"}),
}  # fmt: skip


class Start(NamedTuple):
    """One of several; `prefix` is that of ENGINE_CACHE. If `is_checked`, it then reads all that jobs can ask."""

    number: int
    kind: str
    prefix: str
    is_checked: bool


def main(arguments: Sequence[str]) -> None:
    options = parse_options(arguments)
    if options.child:
        measure(options)
        return
    caches = options.json.with_suffix(".caches").absolute()
    results: Facts = {"image": _compile_for_image(caches), "environment": harness.describe_machine(), "runs": []}
    results["commit"] = options.commit or harness.read_commit()
    # As after Ctrl-C: the running start is killed, too, or it would keep the GPU's memory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with s3_server.start_server() as endpoint:
        for start in plan_starts(options.kinds, options.rounds):
            _lay_out(caches, KINDS[start.kind].folders)
            command, variables = build_command(start, options, arguments), list_variables(start, caches, endpoint)
            results["runs"].append(run_start(start, command, variables, options.limit_s))
            if start.kind == FRESH:
                _copy(caches / CODE, caches / FRESH)
            results["starts"] = summarize(results["runs"])
            options.json.write_text(json.dumps(results, indent=1) + "\n")  # after each: some commands are cut off
    print_table(build_table(results["starts"]), options.markdown)
    if problems := list_problems(results["runs"]):
        raise SystemExit("\n".join(problems))


def parse_options(arguments: Sequence[str]) -> Any:
    parser = create_parser("scripts.bench starts", __doc__)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--json", type=Path, default=Path("starts.json"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=tuple(KINDS))
    parser.add_argument("--commit", help="what is measured, where there is no repository")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--drafts", type=int, default=DRAFT_TOKENS, help="most draft tokens that a step verifies")
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="of each start")
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/log/")
    for flag in ("--child", "--checked", "--killed"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def plan_starts(kinds: Sequence[str], rounds: int) -> list[Start]:
    """All starts, in their order: round by round, so that what changes meanwhile changes all kinds."""
    order = [kind for _ in range(rounds) for kind in KINDS if kind in kinds]
    if FRESH not in order and any(KINDS[kind].is_shared for kind in order):
        order.insert(0, FRESH)
    starts: list[Start] = []
    stored = ""
    for number, kind in enumerate(order):
        prefix = stored if KINDS[kind].is_shared else f"start-{number}"
        starts.append(Start(number, kind, prefix, is_checked=kind == FRESH and not stored))
        stored = prefix if kind == FRESH else stored
    return starts


def _compile_for_image(caches: Path) -> Facts:
    """Compile the recorded kernels as an image's build does; the folders are copied because files contain paths."""
    from twopass.engines.gpus import detect_gpus  # here: a start's own imports count
    from twopass.engines.vllm import kernels

    gpus = detect_gpus()
    if not gpus.chip:
        raise SystemExit("starts: this machine has no GPU")
    _lay_out(caches, None)
    began = time.monotonic()
    command = [sys.executable, "-m", kernels.__name__, str(gpus.chip)]
    environment = {**os.environ, **locate_code(caches)}
    compiled = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    _copy(caches / CODE, caches / IMAGE)
    return {**json.loads(compiled.splitlines()[-1]), "seconds": round(time.monotonic() - began, 1)}


def locate_code(caches: Path) -> dict[str, str]:
    """The environment variables by which all compiled code is in folders of this benchmark."""
    return {variable: str(caches / CODE / name) for variable, name in FOLDERS.items()}


def list_variables(start: Start, caches: Path, endpoint: str) -> dict[str, str]:
    return {
        **ENVIRONMENT, **locate_code(caches), **KINDS[start.kind].variables,
        "ENGINE_CACHE": f"s3://{s3_server.BUCKET}/{start.prefix}/", "BUCKET_ENDPOINT_URL": endpoint,
        "BUCKET_ACCESS_KEY_ID": s3_server.ACCESS_KEY, "BUCKET_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
        "PYTHONUNBUFFERED": "1",  # or what a core prints about its kernels would be lost with it
    }  # fmt: skip


def _lay_out(caches: Path, folders: str | None) -> None:
    """Leave the folders of compiled code as they are copied, or empty."""
    shutil.rmtree(caches / CODE, ignore_errors=True)
    (caches / CODE).mkdir(parents=True)
    if folders:
        _copy(caches / folders, caches / CODE)


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def build_command(start: Start, options: Any, arguments: Sequence[str]) -> list[str]:
    flags = ["--child", *["--checked"] * start.is_checked, *["--killed"] * (start.kind == "restart")]
    model_dir = str(options.model_dir.absolute())  # the last value of a flag counts
    return [sys.executable, "-m", "scripts.bench", "starts", *arguments, "--model-dir", model_dir, *flags]


def run_start(start: Start, command: Sequence[str], variables: Mapping[str, str], limit_s: float) -> Facts:
    """Run one start in its own process, and return what it found until it ended or failed."""
    with harness.start_alone(command, variables, limit_s) as (lines, process):
        found = read_output(lines)
    return {"number": start.number, "kind": start.kind, **found, "exit_code": process.returncode}


def read_output(lines: Iterable[str]) -> Facts:
    """What a start printed: its own findings, and the kernels that vLLM or Triton named after the first of them."""
    found: Facts = {}
    first_used: list[str] = []
    compiled: list[str] = []
    for line in lines:
        is_finding = line.startswith('{"found"')
        print(line, end="", file=sys.stdout if is_finding else sys.stderr, flush=True)
        if is_finding:
            found |= json.loads(line)["found"]
        elif found and (report := REPORT.search(line)):
            (first_used if report[1] == "Triton" else compiled).append(report[2])
        elif found and (tuning := TUNING.search(line)):
            compiled.append(tuning[1])
    return {**found, "first_used": first_used, "compiled": [*found.get("compiled", ()), *compiled]}


def summarize(runs: Iterable[Facts]) -> dict[str, Facts]:
    """The median and the maximum of each figure, by kind; those since a core was killed are AFTER_KILL's."""
    found: dict[str, list[Mapping[str, float]]] = {}
    for run in runs:
        if not run["exit_code"]:
            found.setdefault(run["kind"], []).append(run["seconds"])
            if "restart" in run:
                found.setdefault(AFTER_KILL, []).append(run["restart"]["seconds"])
    return {kind: _summarize_kind(seconds) for kind, seconds in found.items()}


def _summarize_kind(starts: Sequence[Mapping[str, float]]) -> Facts:
    by_name = {name: [start.get(name, 0.0) for start in starts] for start in starts for name in start}
    return {
        "starts": len(starts),
        "median": {name: round(statistics.median(values), 2) for name, values in by_name.items()},
        "max": {name: max(values) for name, values in by_name.items()},
    }


def build_table(starts: Mapping[str, Facts]) -> Table:
    """The figures by kind, with the number of starts."""
    table = Table("median, maximum", *(f"{kind}, {facts['starts']}" for kind, facts in starts.items()))
    for name in dict.fromkeys(name for facts in starts.values() for name in facts["median"]):
        cells = (
            f"{facts['median'][name]:.1f}, {facts['max'][name]:.1f}" if name in facts["median"] else "–"
            for facts in starts.values()
        )
        table.add_row(name, *cells)
    return table


def list_problems(runs: Iterable[Facts]) -> list[str]:
    """What fails the command: starts that failed, answers that are missing, and what was compiled while serving."""
    problems: list[str] = []
    for run in runs:
        name = f"start {run['number']}, {run['kind']}"
        if run["exit_code"]:
            problems.append(f"{name}: ended with {run['exit_code']}; its output is above")
        if (answers := run.get("restart", {}).get("answers", KILLED_PROMPTS)) < KILLED_PROMPTS:
            problems.append(f"{name}: {answers} of {KILLED_PROMPTS} answers")
        if run["compiled"]:
            problems.append(f"{name}: compiled after the first page: {', '.join(run['compiled'])}")
    return problems


PAGES, PAGE_TOKENS = 600, 150
CROPS_AT_ONCE = (1, 3, 17, 200)
CROP_SIZES = ((64, 64), (600, 600), (1190, 300), (200, 1684), (1190, 1684))
NGRAM_WINDOWS = ((30, 90), (20, 50), (35, 128), (3, 10), (0, 90))  # usual, of other rungs, shortest, without a ban
DRAFT_WORDS = (0, 1, 3000)
KILLED_PROMPTS, KILLED_TOKENS, KILLED_AFTER_S = 64, 2000, 3.0
IMPORTS_S, STILL_S = 60.0, 1.5  # of the fork server, which has imported all when its processor time stands still


def measure(options: Any) -> None:
    """Start the engine, and print what was found. `checked`: it reads all that jobs can ask; `killed`: it restarts."""
    from twopass.engines.vllm.engine import launch_engines
    from twopass.telemetry import logs

    began = time.monotonic() - (time.time() - read_process_start())
    raise_descriptor_limit()
    settings = build_settings(options, STREAM_INTERVAL)
    logs.set_up(settings)
    ends = [("twopass_s", time.monotonic())]
    (engine,) = launch_engines(settings, options.model_dir)
    ends.append(("engine_s", time.monotonic()))
    asyncio.run(_run(engine, options, began, ends))


async def _run(engine: Any, options: Any, began: float, ends: list[tuple[str, float]]) -> None:
    from twopass.telemetry.stopwatch import measure_stages

    kernels = Path(os.environ["TRITON_CACHE_DIR"])
    async with open_engine(engine, options.workers) as pages:
        ready = time.monotonic()
        at_ready = list_kernels(kernels)
        await engine.generate(make_prompt(pages[0], 1))
        first_page_s = time.monotonic() - ready
        at_first_page = list_kernels(kernels)
        stages = measure_stages(began, [*engine.stage_ends.items(), *ends, ("open_s", ready)])
        print_json(found={
            "seconds": _round({"ready_s": ready - began, "first_page_s": first_page_s, **stages}),
            "slower": list(engine.fallbacks),
            "compiled_for_first_page": _name_new(at_ready, at_first_page),
        })  # fmt: skip
        await engine.after_ready()
        if options.checked:
            for prompts in list_prompts(pages, _list_modes(engine.family)):
                await asyncio.gather(*(engine.generate(prompt) for prompt in prompts))
        if options.killed:
            print_json(found={"restart": await _kill_core(engine, pages)})
        print_json(found={"compiled": _name_new(at_first_page, list_kernels(kernels))})


def list_kernels(folder: Path) -> dict[str, str]:
    """What Triton's cache has, by its folders: the names of kernels, and of launchers where this Triton makes any."""
    return {entry.name: _name_kernel(entry) for entry in folder.iterdir()} if folder.is_dir() else {}


def _name_kernel(folder: Path) -> str:
    """A kernel's files have its name; those of its group begin with __grp__."""
    names = sorted(file.name.partition(".")[0] for file in folder.iterdir() if not file.name.startswith("__grp__"))
    return names[0] if names else folder.name


def _name_new(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(name for folder, name in after.items() if folder not in before)


def _round(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in seconds.items()}


def _list_modes(family: str) -> Sequence[str]:
    from twopass.families.registry import get_family

    return sorted(get_family(family).modes - {"auto"})


def list_prompts(pages: Sequence[Any], modes: Sequence[str]) -> Iterator[Sequence[Any]]:
    """All that jobs can ask, each time the prompts that are sent at once."""
    prompt = make_prompt(pages[0], CROP_TOKENS)
    for mode in modes:
        yield [replace(prompt, mode=mode)]
    for ngram, window in NGRAM_WINDOWS:
        yield [replace(prompt, sampling=replace(prompt.sampling, ngram=ngram, window=window))]
    yield [replace(prompt, sampling=replace(prompt.sampling, temperature=0.7))]
    for count in DRAFT_WORDS:
        yield [replace(prompt, draft=" ".join(f"word{number}" for number in range(count)))]
    crops = [
        make_prompt(pages[0].crop(0, 0, *size), CROP_TOKENS, mode, CROP_PROMPT) for mode in modes for size in CROP_SIZES
    ]
    for count in CROPS_AT_ONCE:
        yield [crops[number % len(crops)] for number in range(count)]
    yield [make_prompt(pages[number % len(pages)], PAGE_TOKENS) for number in range(PAGES)]


async def _kill_core(engine: Any, pages: Sequence[Any]) -> dict[str, Any]:
    """Kill the core under load; the seconds count from then on."""
    from twopass.telemetry.stopwatch import measure_stages

    has_server = await _wait_for_fork_server()
    prompts = [make_prompt(pages[number % len(pages)], KILLED_TOKENS) for number in range(KILLED_PROMPTS)]
    answers = [asyncio.create_task(engine.generate(prompt)) for prompt in prompts]
    await asyncio.sleep(KILLED_AFTER_S)
    killed = time.monotonic()
    for process in engine.core.client.engine_core.resources.engine_manager.processes:
        process.kill()
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    first_s = time.monotonic() - killed
    complete = [answer.finish_reason == "length" for answer in await asyncio.gather(*answers)]
    all_s = time.monotonic() - killed
    stages = measure_stages(killed, (await engine.core.open()).items())
    seconds = {"first_answer_s": first_s, "all_answers_s": all_s, **stages}
    return {"seconds": _round(seconds), "answers": sum(complete), "fork_server": has_server}


async def _wait_for_fork_server() -> bool:
    """Wait until it has imported what a core needs; False if there is none, or it takes longer than IMPORTS_S."""
    import psutil

    until, used = time.monotonic() + IMPORTS_S, -1.0
    while time.monotonic() < until:
        await asyncio.sleep(STILL_S)
        children = psutil.Process().children()
        server = next((child for child in children if "multiprocessing.forkserver" in " ".join(child.cmdline())), None)
        before, used = used, sum(server.cpu_times()[:2]) if server else -1.0
        if server and used == before:
            return True
    return False
