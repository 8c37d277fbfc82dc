"""Detect this machine's GPUs and the CUDA version that PyTorch requires."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from twopass.runtime import nvml


@dataclass(frozen=True)
class GpuInfo:
    """The visible GPUs. Name and memory are those of the first one.

    `memory_gb` is its total memory and `free_gb` what is free of it, in 10^9 bytes. `cuda_version` is the newest
    version that the driver supports.
    """

    count: int = 0
    memory_gb: float = 0.0
    free_gb: float = 0.0
    cuda_version: tuple[int, int] = (0, 0)
    name: str = ""
    driver: str = ""


def detect_gpus() -> GpuInfo:
    """Query NVML; the result has a count of 0 if there is no driver or no NVML."""
    return nvml.query(_query_gpus, GpuInfo())


def _query_gpus(pynvml: Any) -> GpuInfo:
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    first = _get_handle(pynvml, visible[0] if visible else "0")
    memory = pynvml.nvmlDeviceGetMemoryInfo(first)
    number = pynvml.nvmlSystemGetCudaDriverVersion()  # 13000 is 13.0
    cuda_version = (number // 1000, number % 1000 // 10)
    name, driver = pynvml.nvmlDeviceGetName(first), pynvml.nvmlSystemGetDriverVersion()
    count = len(visible) or pynvml.nvmlDeviceGetCount()
    return GpuInfo(count, memory.total / 1e9, memory.free / 1e9, cuda_version, name, driver)


def _get_handle(pynvml: Any, name: str) -> Any:
    """Look a GPU up by its index or UUID, as CUDA_VISIBLE_DEVICES names it; NVML itself ignores that variable."""
    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)


def get_required_cuda_version() -> tuple[int, int]:
    """Return the CUDA version that PyTorch was built for; (0, 0) without vLLM or with a CPU build of it."""
    try:
        import torch
        from vllm.platforms import current_platform
    except ImportError:
        return (0, 0)
    if current_platform.is_cpu():
        return (0, 0)
    major, _, minor = (torch.version.cuda or "0.0").partition(".")
    return int(major), int(minor)
