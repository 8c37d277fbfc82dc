"""What a worker under measurement takes: processor by kind of process, memory, and the GPU's load and memory.

Reads `nvidia-smi` and the process tree. Knows nothing of pages.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

CORE = "VLLM::"  # how vLLM calls the processes that are its own
SAMPLE_EVERY_S = 0.5
NVIDIA_SMI = (
    "nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--id=0",
    f"--loop-ms={SAMPLE_EVERY_S * 1000:.0f}",
)  # fmt: skip


def cpu_seconds() -> dict[str, float]:
    """Of this process (`main`), of vLLM's (`core`) and of all its other children (`workers`), those that ended too."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)  # page workers are replaced now and then
    spent = {"main": time.process_time(), "core": 0.0, "workers": gone.ru_utime + gone.ru_stime}
    for child in psutil.Process().children(recursive=True):
        try:
            title, times = " ".join(child.cmdline()), child.cpu_times()
        except psutil.Error:
            continue  # it ended just now
        if "bench_s3" not in title and "nvidia-smi" not in title:
            spent["core" if title.startswith(CORE) else "workers"] += times.user + times.system
    return spent


@dataclass
class Usage:
    """Samples with their times, on the monotonic clock."""

    gpu: list[tuple[float, float, float]]  # load in percent, MiB
    host: list[tuple[float, float]]  # MiB

    def between(self, since: float, until: float) -> dict[str, Any]:
        """The GPU's mean load while it lasted; peaks of memory until its end."""
        loads = [load for at, load, _ in self.gpu if since <= at <= until]
        gpu = [mib for at, _, mib in self.gpu if at <= until]
        host = [mib for at, mib in self.host if at <= until]
        told = {"gpu_busy_percent": round(statistics.mean(loads)), "gpu_peak_mib": round(max(gpu))} if loads else {}
        return {**told, "host_peak_mib": round(max(host))} if host else told


@contextmanager
def watched() -> Iterator[Usage]:
    """Samples while the context lasts; without an NVIDIA driver, of the host alone."""
    with host_sampled(SAMPLE_EVERY_S) as host, _gpu_sampled() as gpu:
        yield Usage(gpu, host)


@contextmanager
def host_sampled(every_s: float) -> Iterator[list[tuple[float, float]]]:
    """Times and MiB of this process and its children, what they share being counted once."""
    samples: list[tuple[float, float]] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(every_s):
            samples.append((time.monotonic(), _tree_pss() / 2**20))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


@contextmanager
def _gpu_sampled() -> Iterator[list[tuple[float, float, float]]]:
    samples: list[tuple[float, float, float]] = []
    try:
        child = subprocess.Popen(NVIDIA_SMI, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        yield samples
        return

    def sample() -> None:
        assert child.stdout
        for line in child.stdout:
            load, _, memory = line.partition(",")
            if load.strip().isdigit():  # not "[N/A]", of a card that is shared out
                samples.append((time.monotonic(), float(load), float(memory)))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        child.terminate()
        thread.join()


def _tree_pss() -> int:
    process = psutil.Process()
    total = 0
    for member in (process, *process.children(recursive=True)):
        try:
            total += member.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total
