"""What all benchmarks share: options, what they print, the machine, and a process for each measurement."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT
from scripts.bench.workload import DRAFT_TOKENS


def create_parser(module: str, description: str | None) -> ArgumentParser:
    """A parser for `python -m MODULE`, whose help shows the description as it is written."""
    return ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=RawDescriptionHelpFormatter
    )


def parse_with_drafts(parser: ArgumentParser, arguments: Sequence[str]) -> Any:
    """Parse the arguments, with the options of drafts; `drafts` is 0 without --acceptance.

    Random weights accept almost no draft, so that an engine with drafts is measured with simulated acceptance only.
    """
    parser.add_argument(
        "--acceptance", type=float,
        help="decode speculatively: tokens that a step yields on average, simulated by vLLM (default: no drafts)",
    )  # fmt: skip
    parser.add_argument(
        "--drafts",
        type=int,
        default=DRAFT_TOKENS,
        help="draft tokens that are verified at each step, with --acceptance",
    )
    options = parser.parse_args(arguments)
    if options.acceptance is None:
        options.drafts = 0
    elif options.drafts < 1:
        parser.error("--acceptance: needs --drafts of at least 1")
    return options


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


ADDITIONS, SPEED_TOLERANCE = 20_000_000, 0.15  # the core's thread and imports follow the speed of Python


def describe_machine() -> dict[str, Any]:
    """GPU, cores, seconds of Python's speed, versions."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        gpu = "none"
    versions = {name: _find_version(name) for name in ("vllm", "torch", "triton", "transformers")}
    cores = len(os.sched_getaffinity(0))
    return {
        "gpu": gpu, "cores": cores, "python": sys.version.split()[0], "python_s": round(measure_python(), 2),
        "versions": versions,
    }  # fmt: skip


def find_difference(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str | None:
    """Why results of these two environments must not be in one file; None if they may, or there are none before."""
    if not before:
        return None
    for name in ("gpu", "cores", "versions"):
        if before[name] != now[name]:
            return f"{name}: {before[name]}, now {now[name]}"
    seconds = before.get("python_s", now["python_s"])
    is_similar = abs(now["python_s"] / seconds - 1) <= SPEED_TOLERANCE
    return None if is_similar else f"python_s: {seconds}, now {now['python_s']}"


def read_commit() -> str:
    """The short hash of HEAD; empty where there is no repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def measure_python() -> float:
    """Seconds that Python takes for ADDITIONS: machines with the same GPU differ by a factor of two."""
    began, total = time.perf_counter(), 0
    for number in range(ADDITIONS):
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
