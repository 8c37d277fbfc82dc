"""Query NVIDIA's driver for the machine's GPUs, their memory and their load.

It uses NVML instead of CUDA, which would leave a context in this process that a forked engine cannot use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class GpuStatus:
    """`used` and `total` memory in bytes; `busy` is the recent share of time in which the GPU worked, 0 to 1."""

    number: int
    used: int
    total: int
    busy: float


def query(question: Callable[[Any], T], default: T) -> T:
    """Call `question` with an initialised pynvml; returns `default` without a driver or if the driver fails."""
    try:
        import pynvml  # comes with vLLM; machines without a GPU do not have it
    except ImportError:
        return default
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return default


def list_gpus() -> list[GpuStatus]:
    return query(lambda nvml: [_query_status(nvml, number) for number in range(nvml.nvmlDeviceGetCount())], [])


def _query_status(nvml: Any, number: int) -> GpuStatus:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuStatus(number, memory.used, memory.total, nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
