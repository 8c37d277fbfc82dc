"""Measure what a worker uses: CPU time by kind of process, memory, and the GPU's load and memory.

    python -m scripts.bench.usage PID SECONDS   prints the time and the MiB of a process and its children, every SECONDS

Memory is added up in a process of its own: it takes 0.2 s of a core for a worker with fourteen page workers, which must
not count as the worker's. `nvidia-smi` is sampled, too. Peaks shorter than the time between two samples may be missed.
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

from scripts import ROOT

VLLM_TITLE = "VLLM::"  # how the command lines of vLLM's own processes begin
EXCLUDED = ("scripts.bench.s3_server", "nvidia-smi", "scripts.bench.usage")  # the measurement's own processes
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

    with _read_lines((sys.executable, "-m", "scripts.bench.usage", str(os.getpid()), str(every_s)), add):
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
    pid, every_s = int(sys.argv[1]), float(sys.argv[2])
    with suppress(psutil.NoSuchProcess):  # it has ended, and so does this
        while True:
            print(time.monotonic(), _add_up_memory(pid) / 2**20, flush=True)
            time.sleep(every_s)


if __name__ == "__main__":
    main()
