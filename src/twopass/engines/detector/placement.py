"""Where the layout detector runs, how many pages it reads at once, and the GPU memory that is left to it."""

from __future__ import annotations

from typing import NamedTuple

from twopass.engines import structure
from twopass.engines.detector.engine import BATCH
from twopass.models import Preset, Structure
from twopass.settings import Settings

# In 10^9 bytes of GPU memory, in bfloat16. A page of 800 x 800 takes 0.54 (H200: 0.6 for one page, 34.5 for 64, weights
# included), because Transformers keeps the masks of 300 queries for each of six decoder layers. FIXED_GB is estimated:
# 0.07 of weights, a CUDA context, workspaces of cuDNN and cuBLAS.
FIXED_GB, PAGE_GB = 1.0, 0.54
ROOM = 0.12  # of the GPU's memory: 3 pages at once on 24 GB, 15 on 80 GB, 29 on 141 GB
CPU_BATCH = 8  # pages: a batch of 64 would take minutes, and a page of a later job would wait for it


class Placement(NamedTuple):
    """`batch` is the number of pages at most; `reserved_gb` the GPU memory for them, 0 on the CPU."""

    device: str
    precision: str
    batch: int
    reserved_gb: float = 0.0


def choose(settings: Settings, memory_gb: float) -> Placement:
    """Choose by the settings and the memory of the first GPU, in 10^9 bytes; 0 without a GPU."""
    has_gpu = bool(memory_gb) and settings.preset != "cpu"
    if settings.detector_device == "cpu" or (settings.detector_device == "auto" and not has_gpu):
        return Placement("cpu", "float32", CPU_BATCH)
    batch = min(BATCH, max(1, int((ROOM * memory_gb - FIXED_GB) / PAGE_GB)))
    return Placement("cuda", "bfloat16", batch, FIXED_GB + PAGE_GB * batch)


def leave_room(preset: Preset, settings: Settings, memory_gb: float) -> Preset:
    """The preset with less memory for the reader's engine where a detector shares its GPU."""
    if not memory_gb or structure.choose(settings) is Structure.MODEL:
        return preset
    reserved = choose(settings, memory_gb).reserved_gb / memory_gb
    return preset._replace(memory=round(preset.memory - reserved, 3))
