"""What the driver says of this machine's GPUs, as an engine that starts on them needs it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from twopass.runtime import nvml as gpu


@dataclass(frozen=True)
class Cards:
    """Name and memory, in 10^9 bytes, are the first card's; `cuda` is the newest that the driver speaks."""

    number: int = 0
    memory_gb: float = 0.0
    free_gb: float = 0.0
    cuda: tuple[int, int] = (0, 0)
    name: str = ""
    driver: str = ""


def cards() -> Cards:
    """None of them where there is no driver, or no NVML."""
    return gpu.asked(_cards, Cards())


def _cards(nvml: Any) -> Cards:
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    first = _handle(nvml, visible[0] if visible else "0")
    memory = nvml.nvmlDeviceGetMemoryInfo(first)
    cuda = nvml.nvmlSystemGetCudaDriverVersion()  # 13000 is 13.0
    version = (cuda // 1000, cuda % 1000 // 10)
    name, driver = nvml.nvmlDeviceGetName(first), nvml.nvmlSystemGetDriverVersion()
    number = len(visible) or nvml.nvmlDeviceGetCount()
    return Cards(number, memory.total / 1e9, memory.free / 1e9, version, name, driver)


def _handle(nvml: Any, name: str) -> Any:
    """By number or identifier; NVML itself knows nothing of CUDA_VISIBLE_DEVICES."""
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)


def cuda_needed() -> tuple[int, int]:
    """The CUDA that this PyTorch was built for; (0, 0) where vLLM was built for a processor, or there is none."""
    try:
        import torch
        from vllm.platforms import current_platform
    except ImportError:
        return (0, 0)
    if current_platform.is_cpu():
        return (0, 0)
    major, _, minor = (torch.version.cuda or "0.0").partition(".")
    return int(major), int(minor)
