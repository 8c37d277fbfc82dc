"""Where the layout detector runs, how many pages it reads at once, and the GPU memory that is left to it."""

from __future__ import annotations

from typing import NamedTuple

from twopass.detection.structure import Structure
from twopass.engines import structure
from twopass.engines.detector.engine import BATCH
from twopass.settings import Preset, Settings

# In 10^9 bytes of GPU memory, in bfloat16. Estimated from the model's shapes, not measured. Fixed: 33.2 million
# weights are 0.07, a CUDA context 0.5, workspaces of cuDNN and cuBLAS 0.4. A page of 800 x 800: Transformers keeps the
# masks of 300 queries at 200 x 200 for each of six decoder layers and stacks them, 0.144 twice; the other 0.11 are
# activations, mostly of the first layers, which have 64 channels at 400 x 400. A batch of 64 pages would take 26.6.
FIXED_GB, PAGE_GB = 1.0, 0.4
ROOM = 0.12  # of the GPU's memory: 4 pages at once on 24 GB, 21 on 80 GB, 39 on 141 GB
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
    """Return the preset with less memory for the reader's engine where a detector shares its GPU."""
    if not memory_gb or structure.choose(settings) is Structure.MODEL:
        return preset
    reserved = choose(settings, memory_gb).reserved_gb / memory_gb
    return preset._replace(memory=round(preset.memory - reserved, 3))
