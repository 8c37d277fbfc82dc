"""What a worker needs before it opens its engine: disk, driver, memory; each lack says what to do.

Weights are looked for by weights.py, in the same way. Knows settings and cards. Knows nothing of jobs, and nothing of
RunPod, which is told by handler.py.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable

from twopass.engine_settings import card_gb, preset
from twopass.engines.gpus import Cards, cuda_needed
from twopass.errors import Code, EngineError
from twopass.settings import Settings

ROUNDING = 1.06  # a card of 80 GB reports 79.6 or 85.9, by who counts


def disk(settings: Settings) -> None:
    """Sources lie in the temporary folder while they are read; raises EngineError."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < settings.min_free_disk_bytes:
        message = f"{free:,} bytes are free in {folder}, {settings.min_free_disk_bytes:,} are needed"
        raise EngineError(Code.STORE_UNAVAILABLE, f"{message}: give the endpoint a larger container disk")


def driver(settings: Settings, found: Cards, built_for: Callable[[], tuple[int, int]] = cuda_needed) -> None:
    """A GPU for each share of the model, and a driver that speaks PyTorch's CUDA; raises EngineError."""
    if settings.preset == "cpu" or (needed := built_for()) == (0, 0):
        return
    if found.number < settings.tensor_parallel_size:
        what = f"{settings.tensor_parallel_size} GPUs are asked for and {found.number} seen"
        advice = "choose GPUs for the endpoint, or another host: this one's driver may be broken"
        raise EngineError(Code.ENGINE_DEAD, f"{what}: {advice}; PRESET=cpu or ENGINE=cpu read without")
    if found.cuda < needed:
        spoken, wanted = (".".join(map(str, version)) for version in (found.cuda, needed))
        advice = f"allow the endpoint only CUDA versions from {wanted} on"
        raise EngineError(Code.ENGINE_DEAD, f"the driver speaks CUDA {spoken}, PyTorch here needs {wanted}: {advice}")


def memory(settings: Settings, found: Cards) -> None:
    """As much of the first GPU's memory as the preset says, and free; raises EngineError. Unknown presets pass."""
    if not found.number:
        return
    try:
        chosen, size = preset(settings.preset, found.memory_gb), card_gb(settings.preset)
    except KeyError:
        return
    if size > found.memory_gb * ROUNDING:
        message = f"preset {settings.preset} is for another card than one of {found.memory_gb:.0f} GB"
        raise EngineError(Code.ENGINE_MEMORY, f"{message}: leave PRESET auto, or choose a larger GPU")
    wanted = (settings.gpu_memory_utilization or chosen.memory) * found.memory_gb
    if found.free_gb < wanted:
        message = f"{wanted:.0f} GB of GPU memory are wanted and {found.free_gb:.0f} are free"
        raise EngineError(Code.ENGINE_MEMORY, f"{message}: end what holds the rest, or lower GPU_MEMORY_UTILIZATION")
