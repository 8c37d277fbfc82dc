"""What the driver says of this machine's GPUs, asked through NVML.

Asking CUDA would leave a context in this process that a forked engine cannot use.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    try:
        from vllm.third_party import pynvml as nvml
    except ImportError:
        return Cards()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return Cards()
    try:
        first = nvml.nvmlDeviceGetHandleByIndex(0)
        memory = nvml.nvmlDeviceGetMemoryInfo(first)
        cuda = nvml.nvmlSystemGetCudaDriverVersion()  # 13000 is 13.0
        version = (cuda // 1000, cuda % 1000 // 10)
        name, driver = nvml.nvmlDeviceGetName(first), nvml.nvmlSystemGetDriverVersion()
        return Cards(nvml.nvmlDeviceGetCount(), memory.total / 1e9, memory.free / 1e9, version, name, driver)
    except nvml.NVMLError:
        return Cards()
    finally:
        nvml.nvmlShutdown()


def cuda_of_torch() -> tuple[int, int]:
    """The CUDA that this PyTorch was built for; (0, 0) without one."""
    try:
        import torch
    except ImportError:
        return (0, 0)
    major, _, minor = (torch.version.cuda or "0.0").partition(".")
    return int(major), int(minor)
