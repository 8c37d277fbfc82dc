"""Check platform, disk, driver and GPU memory before the engine opens; each error says what to change.

weights.py checks the weights in the same way. handler.py reports a failed check to RunPod.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable

from twopass.engines.gpus import GpuInfo, get_required_cuda_version
from twopass.errors import Code, EngineError
from twopass.settings import Settings, find_preset, preset_memory_gb

MEMORY_TOLERANCE = 1.06  # an 80 GB card reports 79.6 or 85.9, depending on the unit


def check_platform(platform: str) -> None:
    """Require Linux, where page workers share memory and end with their parent; raises EngineError."""
    if platform != "linux":
        advice = "use a container, WSL on Windows, or an endpoint (twopass submit)"
        raise EngineError(Code.ENGINE_DEAD, f"twopass reads on Linux only, and this is {platform}: {advice}")


def check_disk(settings: Settings) -> None:
    """Require free space in the temporary folder, where sources are stored while they are read; raises EngineError."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < settings.min_free_disk_bytes:
        message = f"{free:,} bytes are free in {folder}, {settings.min_free_disk_bytes:,} are needed"
        raise EngineError(Code.STORE_UNAVAILABLE, f"{message}: give the endpoint a larger container disk")


def check_driver(
    settings: Settings, gpus: GpuInfo, required: Callable[[], tuple[int, int]] = get_required_cuda_version
) -> None:
    """Require a GPU for each tensor-parallel rank and a driver with PyTorch's CUDA version; raises EngineError."""
    if settings.preset == "cpu" or (needed := required()) == (0, 0):
        return
    if gpus.count < settings.tensor_parallel_size:
        problem = f"{settings.tensor_parallel_size} GPUs are required and {gpus.count} were found"
        advice = "choose GPUs for the endpoint, or another host: this one's driver may be broken"
        raise EngineError(Code.ENGINE_DEAD, f"{problem}: {advice}; PRESET=cpu or ENGINE=cpu need no GPU")
    if gpus.cuda_version < needed:
        supported, wanted = (".".join(map(str, version)) for version in (gpus.cuda_version, needed))
        problem = f"the driver supports CUDA {supported} and PyTorch requires {wanted}"
        advice = f"allow only CUDA {wanted} and newer for the endpoint"
        raise EngineError(Code.ENGINE_DEAD, f"{problem}: {advice}")


def check_memory(settings: Settings, gpus: GpuInfo) -> None:
    """Require the memory that the preset needs, free on the first GPU; raises EngineError. Unknown presets pass."""
    if not gpus.count:
        return
    try:
        chosen, size = find_preset(settings.preset, gpus.memory_gb, settings.model), preset_memory_gb(settings.preset)
    except KeyError:
        return
    if size > gpus.memory_gb * MEMORY_TOLERANCE:
        message = f"preset {settings.preset} does not fit a GPU of {gpus.memory_gb:.0f} GB"
        raise EngineError(Code.ENGINE_MEMORY, f"{message}: leave PRESET auto, or choose a larger GPU")
    wanted = (settings.gpu_memory_utilization or chosen.memory) * gpus.memory_gb
    if gpus.free_gb < wanted:
        message = f"{wanted:.0f} GB of GPU memory are needed and {gpus.free_gb:.0f} are free"
        advice = "stop the process that uses the rest, or lower GPU_MEMORY_UTILIZATION"
        raise EngineError(Code.ENGINE_MEMORY, f"{message}: {advice}")
