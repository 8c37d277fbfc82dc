"""Describe what a benchmark runs on, for its JSON."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from scripts import ROOT

ADDITIONS, SPEED_TOLERANCE = 20_000_000, 0.15  # the core's thread and imports follow the speed of Python


def describe() -> dict[str, Any]:
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
