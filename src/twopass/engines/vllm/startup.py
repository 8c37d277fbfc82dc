"""Make vLLM start sooner: compile caches that are kept, few CUDA graphs, and weights read ahead."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from twopass.engines.gpus import GpuInfo, detect_gpus
from twopass.engines.vllm.plugin import SWITCH

ENVIRONMENT = {
    SWITCH: "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",  # vLLM advises against more threads than cores, and page workers need the cores
}
MEMORY_PLAN = "VLLM_ENABLE_STARTUP_PLAN"
CACHE_KEY_PACKAGES = ("vllm", "torch", "triton", "transformers")
SMALL_GRAPHS, GRAPH_STEP = (1, 2, 4, 8, 16), 32  # batch sizes of the decoder's CUDA graphs; a step uses the next larger


def prepare_environment(caches: Path | None, gpu_ids: Sequence[str] = ()) -> GpuInfo:
    """Set vLLM's environment variables, before vLLM is imported; existing values are kept.

    Returns these GPUs, or all that are visible.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    gpus = detect_gpus(gpu_ids)
    if caches:
        folder = caches / cache_key(gpus)
        os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / "vllm"))
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return gpus


def choose_memory_plan(is_usual_share: bool) -> dict[str, str]:
    """The environment variable that lets a core reuse the measured size of its KV cache, if as much memory is free.

    vLLM does not record the share of the GPU's memory for which it measured, so only cores with the preset's share do.
    A variable that exists is kept.
    """
    return {} if MEMORY_PLAN in os.environ else {MEMORY_PLAN: str(int(is_usual_share))}


def cache_key(gpus: GpuInfo) -> str:
    """A folder name: code compiled for one chip or version fails or is slow on another.

    The driver is no part of it: neither Triton's hashes nor torch.compile's contain it, and hosts have many.
    """
    packages = (f"{name}{_installed_version(name)}" for name in CACHE_KEY_PACKAGES)
    parts = [gpus.name or "cpu", *packages]
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join(filter(None, parts)))


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def cuda_graph_config(sequences: int, drafts: int = 0) -> dict[str, Any]:
    """vLLM's compilation settings: CUDA graphs in few sizes, because capturing vLLM's own 51 and 35 sizes takes 11 s.

    Without drafts, a step that prefills a page has more tokens than any graph, so graphs are for decoding only. With
    drafts, a request may have any number of tokens in a step from one to 1 + `drafts`: graphs of any batch are needed,
    and a page alone is prefilled by one of them, too. Where vLLM's attention cannot have them (FlashAttention 2,
    FlashInfer), vLLM itself captures piecewise graphs for such batches.
    """
    sizes = {*SMALL_GRAPHS, *range(GRAPH_STEP, sequences, GRAPH_STEP), sequences}
    return {
        "cudagraph_mode": "FULL" if drafts else "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": sorted((1 + drafts) * size for size in sizes if size <= sequences),
    }


@contextmanager
def read_ahead(model: Path) -> Iterator[None]:
    """Read the weights into the page cache in another process while this one imports vLLM."""
    files = sorted(model.glob("*.safetensors"))
    reader = subprocess.Popen(["cat", *files], stdout=subprocess.DEVNULL) if files else None
    try:
        yield
    finally:
        if reader:
            reader.kill()
            reader.wait()
