#!/usr/bin/env python3
"""What a worker under measurement takes: processor by kind of process, memory, and the GPU's load and memory.

    python scripts/bench_usage.py PID SECONDS        prints the time and the MiB of a process and its children

Reads `nvidia-smi` and the process tree, each in a process of its own: adding up memory takes 0.2 s of a processor for a
worker with fourteen page workers, which are not the worker's. Peaks shorter than two samples may be missed. Knows
nothing of pages.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

CORE = "VLLM::"  # how vLLM calls the processes that are its own
ASIDE = ("bench_s3", "nvidia-smi", "bench_usage")  # what measures, and what stands for the world outside
SAMPLE_EVERY_S, MEMORY_EVERY_S = 0.5, 2.0
NVIDIA_SMI = (
    "nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--id=0",
    f"--loop-ms={SAMPLE_EVERY_S * 1000:.0f}",
)  # fmt: skip


def cpu_seconds() -> dict[str, float]:
    """Of this process (`main`), of vLLM's (`core`) and of all its other children (`workers`), those that ended too."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)  # page workers are replaced now and then
    spent = {"main": time.process_time(), "core": 0.0, "workers": gone.ru_utime + gone.ru_stime}
    for child in _members(os.getpid())[1:]:
        try:
            title, times = _title(child), child.cpu_times()
        except psutil.Error:
            continue  # it ended just now
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
    with host_sampled(MEMORY_EVERY_S) as host, _gpu_sampled() as gpu:
        yield Usage(gpu, host)


@contextmanager
def host_sampled(every_s: float) -> Iterator[list[tuple[float, float]]]:
    """Times and MiB of this process and its children, what they share being counted once."""
    samples: list[tuple[float, float]] = []

    def heard(line: str) -> None:
        at, mib = map(float, line.split())
        samples.append((at, mib))

    with _told((sys.executable, __file__, str(os.getpid()), str(every_s)), heard):
        yield samples


@contextmanager
def _gpu_sampled() -> Iterator[list[tuple[float, float, float]]]:
    samples: list[tuple[float, float, float]] = []

    def heard(line: str) -> None:
        load, _, memory = line.partition(",")
        if load.strip().isdigit():  # not "[N/A]", of a card that is shared out
            samples.append((time.monotonic(), float(load), float(memory)))

    if not shutil.which(NVIDIA_SMI[0]):
        yield samples
        return
    with _told(NVIDIA_SMI, heard):
        yield samples


@contextmanager
def _told(command: Sequence[str], heard: Callable[[str], None]) -> Iterator[None]:
    """Each line of a command, which is ended with the context."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:

        def listen() -> None:
            assert child.stdout
            for line in child.stdout:
                heard(line)

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield
        finally:
            child.terminate()
            thread.join()


def _members(pid: int) -> list[psutil.Process]:
    """The process and what it has started, but for what is ASIDE."""
    process = psutil.Process(pid)
    return [process, *(one for one in process.children(recursive=True) if not _is_aside(one))]


def _is_aside(process: psutil.Process) -> bool:
    try:
        return any(name in _title(process) for name in ASIDE)
    except psutil.Error:
        return True


def _title(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def _pss(pid: int) -> int:
    """Bytes of the process and its children."""
    total = 0
    for member in _members(pid):
        try:
            total += member.memory_full_info().pss
        except psutil.Error:
            continue  # it ended just now
    return total


def main() -> None:
    pid, every_s = int(sys.argv[1]), float(sys.argv[2])
    with suppress(psutil.NoSuchProcess):  # it has ended
        while True:
            print(time.monotonic(), _pss(pid) / 2**20, flush=True)
            time.sleep(every_s)


if __name__ == "__main__":
    main()
