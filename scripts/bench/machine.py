"""Describe what a benchmark runs on, for its JSON."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from scripts import ROOT

ADDITIONS = 20_000_000


def describe() -> dict[str, Any]:
    """GPU, cores and versions."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        gpu = "none"
    versions = {name: _find_version(name) for name in ("vllm", "torch", "triton", "transformers")}
    cores = len(os.sched_getaffinity(0))
    return {"gpu": gpu, "cores": cores, "python": sys.version.split()[0], "versions": versions}


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
