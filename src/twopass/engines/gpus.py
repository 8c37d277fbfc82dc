"""Detect this machine's GPUs and the CUDA version that PyTorch requires, and divide the GPUs among engines."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twopass.errors import Code, InvalidSetting
from twopass.runtime import nvml
from twopass.settings import Settings


@dataclass(frozen=True)
class Gpu:
    """A visible GPU. `id` is its number or name in CUDA_VISIBLE_DEVICES, `name` its kind."""

    id: str
    name: str


@dataclass(frozen=True)
class GpuInfo:
    """The visible GPUs. Name, memory and compute capability are those of the first one.

    `memory_gb` is its total memory and `free_gb` what is free of it, in 10^9 bytes. `cuda_version` is the newest
    version that the driver supports.
    """

    count: int = 0
    memory_gb: float = 0.0
    free_gb: float = 0.0
    cuda_version: tuple[int, int] = (0, 0)
    name: str = ""
    driver: str = ""
    visible: tuple[Gpu, ...] = ()
    capability: tuple[int, int] = (0, 0)

    @property
    def chip(self) -> int | None:
        """Compute capability as compilers write it, such as 90; None without a GPU."""
        major, minor = self.capability
        return 10 * major + minor if self.count else None


def detect_gpus(ids: Sequence[str] = ()) -> GpuInfo:
    """Query NVML for these GPUs, or for all that CUDA_VISIBLE_DEVICES names.

    The result has a count of 0 if there is no driver or no NVML.
    """
    return nvml.query(lambda pynvml: _query_gpus(pynvml, ids), GpuInfo())


def _query_gpus(pynvml: Any, ids: Sequence[str]) -> GpuInfo:
    named = ids or [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    wanted = named or [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    handles = _get_handles(pynvml, wanted or ["0"])
    first, *_ = handles.values()
    memory = pynvml.nvmlDeviceGetMemoryInfo(first)
    number = pynvml.nvmlSystemGetCudaDriverVersion()  # 13000 is 13.0
    cuda_version = (number // 1000, number % 1000 // 10)
    gpus = tuple(Gpu(name, pynvml.nvmlDeviceGetName(handle)) for name, handle in handles.items())
    driver = pynvml.nvmlSystemGetDriverVersion()
    return GpuInfo(
        count=len(gpus),
        memory_gb=memory.total / 1e9,
        free_gb=memory.free / 1e9,
        cuda_version=cuda_version,
        name=gpus[0].name,
        driver=driver,
        visible=gpus,
        capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(first)),
    )


def divide(settings: Settings, found: GpuInfo) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each engine by id; one engine without any on a machine without GPUs.

    All are of the kind of the first one, because all engines have the same preset. Raises InvalidSetting if there are
    fewer than GPUS asks for.
    """
    if settings.preset == "cpu":
        return ((),)
    each, alike = settings.tensor_parallel_size, [gpu.id for gpu in found.visible if gpu.name == found.name]
    wanted = max(len(alike) // each, 1) * each if settings.gpus == "auto" else settings.gpus
    if settings.gpus != "auto" and wanted > len(alike):
        raise InvalidSetting(Code.INVALID_SETTING, _describe_lack(wanted, len(alike), found.count))
    return tuple(tuple(alike[first : first + each]) for first in range(0, wanted, each))


def _describe_lack(wanted: int, alike: int, count: int) -> str:
    others = f", besides {count - alike} of another kind" if count > alike else ""
    advice = "set auto or a smaller number, or choose a machine with more GPUs"
    return f"GPUS: {wanted} GPUs of one kind are required and {alike} were found{others}; {advice}"


def _get_handles(pynvml: Any, names: Sequence[str]) -> dict[str, Any]:
    """Look GPUs up by id. As in CUDA, those after a wrong id are ignored; raises NVMLError if the first is wrong."""
    handles: dict[str, Any] = {}
    for name in names:
        try:
            handles[name] = _get_handle(pynvml, name)
        except pynvml.NVMLError:
            if not handles:
                raise
            break
    return handles


def _get_handle(pynvml: Any, name: str) -> Any:
    """Look a GPU up by its index or UUID, as CUDA_VISIBLE_DEVICES names it; NVML itself ignores that variable."""
    return pynvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(name)


def get_required_cuda_version() -> tuple[int, int]:
    """The CUDA version that PyTorch was built for; (0, 0) without vLLM or with a CPU build of it.

    It is read from the installed files: importing both takes ten seconds, and the shared cache is fetched meanwhile.
    """
    torch = find_spec("torch")
    try:
        is_for_cpus = "cpu" in version("vllm")
    except PackageNotFoundError:  # a build for CPUs has another name
        return (0, 0)
    if is_for_cpus or not (torch and torch.origin):
        return (0, 0)
    built_for = re.search(r"^cuda\b[^=]*= *'(\d+)\.(\d+)", Path(torch.origin).with_name("version.py").read_text(), re.M)
    return (int(built_for[1]), int(built_for[2])) if built_for else (0, 0)
