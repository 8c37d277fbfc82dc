"""What all benchmarks share: options, what they print, the machine, what an engine is asked, and what a worker uses.

    python -m scripts.bench.harness PID SECONDS     time and MiB of a process and its children, every SECONDS

Memory is added up in a process of its own: it takes 0.2 s of a core for a worker with fourteen page workers, which must
not count as the worker's. `nvidia-smi` is sampled, too. Peaks shorter than the time between two samples may be missed.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from scripts import ROOT
from twopass.engines.vllm.plugin import DRAFT_TEXTS, NGRAM_V2, STOCK_NGRAM, STOCK_NGRAM_ENVIRONMENT, drafts


def create_parser(module: str, description: str | None) -> ArgumentParser:
    """A parser for `python -m MODULE`, whose help shows the description as it is written."""
    return ArgumentParser(
        prog=f"python -m {module}",
        description=inspect.cleandoc(description or ""),
        formatter_class=RawDescriptionHelpFormatter,
    )


def parse_with_drafts(parser: ArgumentParser, arguments: Sequence[str]) -> Any:
    """Parse the arguments, with the options of drafts; `drafts` is 0 without --acceptance.

    Random weights accept almost no draft, so that an engine with drafts is measured with simulated acceptance only.
    """
    parser.add_argument(
        "--acceptance", type=float,
        help="decode speculatively: tokens that a step with four drafts yields on average, simulated by vLLM; up "
        "to eight yield more (default: no drafts)",
    )  # fmt: skip
    parser.add_argument(
        "--drafts",
        type=int,
        default=DRAFT_TOKENS,
        help="most draft tokens that a step verifies, with --acceptance",
    )
    options = parser.parse_args(arguments)
    if options.acceptance is None:
        options.drafts = 0
    elif options.drafts < 1:
        parser.error("--acceptance: needs --drafts of at least 1")
    elif not 1 <= options.acceptance <= _find_most_acceptance():
        parser.error(f"--acceptance: from 1 to {_find_most_acceptance()}")
    return options


def _find_most_acceptance() -> float:
    """Tokens that a step with four drafts yields if the first is always right, and the others in proportion."""
    yielded = _read_yields(4)
    return math.floor(10 * (1 + (yielded[4] - 1) / (yielded[1] - 1))) / 10


def _read_yields(drafts: int) -> Sequence[float]:
    """Tokens that a step with none to so many drafts yields on born-digital pages, in docs/bench/acceptance.json."""
    group = json.loads(ACCEPTANCE_FILE.read_text())["acceptance"]["groups"]["born-digital page"]
    counted = {0: 1.0, **{int(count): rate for count, rate in group["tokens_per_step"]["right"].items()}}
    return [float(value) for value in np.interp(range(drafts + 1), list(counted), list(counted.values()))]


def simulate_acceptance(tokens: float, drafts: int) -> dict[str, Any]:
    """vLLM's configuration in which a step with four drafts yields so many tokens, and others in proportion.

    The proportions are those of born-digital pages. vLLM's own calibration would let the first drafts always be right,
    and those after them never.
    """
    factor = (tokens - 1) / (_read_yields(4)[4] - 1)
    rates = [factor * (after - before) for before, after in pairwise(_read_yields(drafts))]
    return {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [round(rate, 4) for rate in rates],
    }


def print_json(**facts: Any) -> None:
    """Print one line; floats have three decimals."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()}
    print(json.dumps(rounded), flush=True)


def print_table(table: Table, as_markdown: bool) -> None:
    """Print a table for the terminal, or its rows for docs/log/."""
    if not as_markdown:
        Console(width=160).print(table)
        return
    columns: list[list[Any]] = [list(column.cells) for column in table.columns]
    print("| " + " | ".join(str(column.header) for column in table.columns) + " |")
    print("|" + "---|" * len(columns))
    for row in zip(*columns, strict=True):
        print("| " + " | ".join(row) + " |")
    print()  # or the next table would be rows of this one


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux makes one up at each start
ADDITIONS, PYTHON_ROUNDS = 20_000_000, 4
SPEED_TOLERANCE = 0.15  # the core's thread and imports follow the speed of Python


def describe_machine() -> dict[str, Any]:
    """GPU, cores, seconds of Python's speed, versions, and which start of which machine this is."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        gpu = "none"
    versions = {name: _find_version(name) for name in ("vllm", "torch", "triton", "transformers")}
    cores = len(os.sched_getaffinity(0))
    return {
        "gpu": gpu, "cores": cores, "python": sys.version.split()[0], "python_s": round(measure_python(), 2),
        "versions": versions, "boot": BOOT_ID.read_text().strip() if BOOT_ID.exists() else "",
    }  # fmt: skip


def find_difference(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str | None:
    """Why results of these two environments must not be in one file; None if they may, or there are none before."""
    if not before:
        return None
    for name in ("gpu", "cores", "versions"):
        if before[name] != now[name]:
            return f"{name}: {before[name]}, now {now[name]}"
    seconds = before.get("python_s", now["python_s"])
    is_same = bool(now["boot"]) and before.get("boot") == now["boot"]
    is_similar = abs(now["python_s"] / seconds - 1) <= SPEED_TOLERANCE
    return None if is_same or is_similar else f"python_s: {seconds}, now {now['python_s']}"


def read_commit() -> str:
    """The short hash of HEAD; empty where there is no repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def measure_python() -> float:
    """Seconds that Python takes for ADDITIONS, at best: machines with the same GPU differ by a factor of two.

    On one machine it took 0.73 to 1.07 s within minutes.
    """
    return PYTHON_ROUNDS * min(_time_additions(ADDITIONS // PYTHON_ROUNDS) for _ in range(PYTHON_ROUNDS))


def _time_additions(count: int) -> float:
    began, total = time.perf_counter(), 0
    for number in range(count):
        total += number
    return time.perf_counter() - began


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


@contextmanager
def start_alone(
    command: Sequence[str], variables: Mapping[str, str], limit_s: float
) -> Iterator[tuple[Iterator[str], subprocess.Popen[str]]]:
    """Yield the lines that it prints, and the process, which has ended when the context is left.

    It gets `variables` in addition to the environment, and is killed after `limit_s`.
    """
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **variables}
    )
    # The whole group: vLLM's core is a process of its own and would keep the GPU's memory.
    timer = threading.Timer(limit_s, os.killpg, (child.pid, signal.SIGKILL))
    timer.start()
    assert child.stdout
    try:
        with child.stdout:
            yield child.stdout, child
        child.wait()
    except BaseException:  # Ctrl-C included: a process group of its own does not receive it
        os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        timer.cancel()


MIX_FILE, ACCEPTANCE_FILE = (ROOT / "docs" / "bench" / name for name in ("mix.json", "acceptance.json"))
A4 = (1190, 1684)  # pixels at 144 dpi
PAGE_BYTES = (A4[0] + 2) * (A4[1] + 2) * 3  # of a page buffer, as steps/render.py asks for them
DISTINCT_PAGES = 4  # so many different images are used again and again
PAGE_PROMPT = "<image>\n<|grounding|>Convert the document to markdown."
PROMPT_TOKENS = 938  # of an A4 page in gundam mode
PAGE_TOKENS = 500
CROP_PROMPT = "<image>\nFree OCR."
CROP_SIDE, CROP_TOKENS = 600, 60
WARM_UP_TOKENS = 60  # of each of as many pages as there are sequences, before anything is measured
DRAFT_TOKENS = 8  # what the engine verifies at most by default on an H200
STREAM_INTERVAL = 128  # tokens between two outputs of a streamed answer; the default of the setting STREAM_INTERVAL
NGRAM_BAN = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]}
BANS = {"none": (), "ours": (NGRAM_V2,), "stock": (STOCK_NGRAM,)}  # logits processors
BAN_ENVIRONMENT = {"stock": STOCK_NGRAM_ENVIRONMENT}
# What stands for a page's text: as long as an answer. Which words it has does not matter where acceptance is simulated.
DRAFT_TEXT = " ".join(f"word{number}" for number in range(300))
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}


def read_mix(count: int) -> list[dict[str, Any]]:
    """So many pages of docs/bench/mix.json, which starts over where it has fewer."""
    mix = json.loads(MIX_FILE.read_text())
    return [mix[number % len(mix)] for number in range(count)]


def is_scan(number: int, share: float) -> bool:
    """Whether page `number` is one of this share of pages that have no text to draft from, evenly spread."""
    return int((number + 1) * share) > int(number * share)


def list_processors(ban: str, has_drafts: bool = False) -> list[str]:
    """vLLM's `logits_processors`, with what keeps the texts that are drafted from."""
    return [*BANS[ban], DRAFT_TEXTS] if has_drafts else [*BANS[ban]]


def add_draft(ngram_ban: dict[str, Any]) -> dict[str, Any]:
    """A request's extra arguments: the ban and a text of PAGE_TOKENS tokens to draft from."""
    return {**ngram_ban, drafts.DRAFT: drafts.pack(range(1000, 1000 + PAGE_TOKENS))}


def choose_load_format(model_dir: Path) -> str:
    """Load weights where the folder has any; use random weights otherwise."""
    return "auto" if any(model_dir.glob("*.safetensors")) else "dummy"


def make_prompt(
    pixels: Any, tokens: int, mode: str = "gundam", text: str = PAGE_PROMPT, draft: str = DRAFT_TEXT, **more: Any
) -> Any:
    """A prompt with an answer of so many tokens, for twopass's engine."""
    from twopass.engines.interface import Prompt, Sampling

    sampling = Sampling(max_tokens=tokens, ignore_eos=True)
    return Prompt("p", text, pixels, mode=mode, sampling=sampling, draft=draft, **more)


VLLM_TITLE = "VLLM::"  # how the command lines of vLLM's own processes begin
EXCLUDED = ("scripts.bench.s3_server", "nvidia-smi", "scripts.bench.harness")  # the measurement's own processes
GPU_EVERY_S, MEMORY_EVERY_S = 0.5, 2.0
NVIDIA_SMI = (
    "nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits",
    f"--loop-ms={GPU_EVERY_S * 1000:.0f}",
)  # fmt: skip


def read_cpu_seconds() -> dict[str, float]:
    """CPU seconds of this process (`main`), of vLLM's (`core`) and of all other children (`workers`).

    Children that have ended count as workers: page workers are replaced now and then.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = {"main": time.process_time(), "core": 0.0, "workers": ended.ru_utime + ended.ru_stime}
    for child in _find_processes(os.getpid())[1:]:
        try:
            title, times = _read_title(child), child.cpu_times()
        except psutil.Error:
            continue  # it has just ended
        seconds["core" if title.startswith(VLLM_TITLE) else "workers"] += times.user + times.system
    return seconds


@dataclass
class Usage:
    """Samples, each with its time on the monotonic clock and, of several GPUs, of one GPU."""

    gpu: list[tuple[float, float, float]]  # time, load in percent, MiB
    host: list[tuple[float, float]]  # time, MiB

    def summarize(self, since: float, until: float) -> dict[str, Any]:
        """The mean load of the GPUs between two times, and the peaks of memory until the second."""
        loads = [load for at, load, _ in self.gpu if since <= at <= until]
        gpu = [mib for at, _, mib in self.gpu if at <= until]
        host = [mib for at, mib in self.host if at <= until]
        summary = {"gpu_busy_percent": round(statistics.mean(loads)), "gpu_peak_mib": round(max(gpu))} if loads else {}
        return {**summary, "host_peak_mib": round(max(host))} if host else summary


@contextmanager
def sample_usage(gpus: int = 1) -> Iterator[Usage]:
    """Sample while the context is open; without an NVIDIA driver, only the host. The first `gpus` GPUs are sampled."""
    with sample_memory(MEMORY_EVERY_S) as host, _sample_gpus(gpus) as gpu:
        yield Usage(gpu, host)


@contextmanager
def sample_memory(every_s: float) -> Iterator[list[tuple[float, float]]]:
    """Sample the MiB of this process and its children; shared memory counts once."""
    samples: list[tuple[float, float]] = []

    def add(line: str) -> None:
        at, mib = map(float, line.split())
        samples.append((at, mib))

    with _read_lines((sys.executable, "-m", "scripts.bench.harness", str(os.getpid()), str(every_s)), add):
        yield samples


@contextmanager
def _sample_gpus(count: int) -> Iterator[list[tuple[float, float, float]]]:
    samples: list[tuple[float, float, float]] = []

    def add(line: str) -> None:
        load, _, memory = line.partition(",")
        if load.strip().isdigit():  # a partitioned GPU reports "[N/A]"
            samples.append((time.monotonic(), float(load), float(memory)))

    if not shutil.which(NVIDIA_SMI[0]):
        yield samples
        return
    with _read_lines((*NVIDIA_SMI, f"--id={','.join(map(str, range(count)))}"), add):
        yield samples


@contextmanager
def _read_lines(command: Sequence[str], handle: Callable[[str], None]) -> Iterator[None]:
    """Run a command while the context is open, and pass each of its lines on, in a thread."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:

        def read() -> None:
            assert child.stdout
            for line in child.stdout:
                if line.endswith("\n"):  # the last one may be cut off
                    handle(line)

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            child.terminate()
            thread.join()


def _find_processes(pid: int) -> list[psutil.Process]:
    """The process and all that it has started, except EXCLUDED."""
    process = psutil.Process(pid)
    return [process, *(child for child in process.children(recursive=True) if not _is_excluded(child))]


def _is_excluded(process: psutil.Process) -> bool:
    try:
        return any(name in _read_title(process) for name in EXCLUDED)
    except psutil.Error:
        return True


def _read_title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def _add_up_memory(pid: int) -> int:
    """The bytes (proportional set size) of the process and its children."""
    total = 0
    for process in _find_processes(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue  # it has just ended
    return total


def main() -> None:
    """Print the time and the MiB of a process and its children, every so many seconds."""
    pid, every_s = int(sys.argv[1]), float(sys.argv[2])
    with suppress(psutil.NoSuchProcess):  # it has ended, and so does this
        while True:
            print(time.monotonic(), _add_up_memory(pid) / 2**20, flush=True)
            time.sleep(every_s)


if __name__ == "__main__":
    main()
