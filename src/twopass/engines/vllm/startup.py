"""What makes vLLM start sooner: where its caches lie, which graphs it records, weights that are read ahead.

Knows nothing of prompts.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from twopass.engines.gpus import Cards, cards

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",  # more threads than cores: vLLM's own advice, and page workers want the cores
    "VLLM_ENABLE_STARTUP_PLAN": "1",  # the cache's size as measured before, where as much memory is free
}
BUILT_WITH = ("vllm", "torch", "triton", "transformers")
SMALL, STEP = (1, 2, 4, 8, 16), 32  # sizes of the decoder's graphs; a step takes the next larger one


def set_up(caches: Path | None) -> Cards:
    """The environment, before anybody imports vLLM; what is there already stays. The GPUs that were found."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    found = cards()
    if caches:
        folder = caches / key(found)
        os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / "vllm"))
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return found


def key(found: Cards) -> str:
    """A folder's name: code compiled for one chip, driver or version does not run, or not well, on another."""
    parts = [found.name or "cpu", found.driver, *(f"{name}{_version(name)}" for name in BUILT_WITH)]
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join(filter(None, parts)))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def graphs(sequences: int) -> dict[str, Any]:
    """vLLM's compilation settings: graphs for decoding alone, in few sizes.

    A step that takes a page in has more tokens than any graph; vLLM's own 51 and 35 sizes take 11 s to record.
    """
    sizes = {*SMALL, *range(STEP, sequences, STEP), sequences}
    return {
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": sorted(size for size in sizes if size <= sequences),
    }


@contextmanager
def read_ahead(model: Path) -> Iterator[None]:
    """Weights come into the page cache by another process while this one imports."""
    files = sorted(model.glob("*.safetensors"))
    reader = subprocess.Popen(["cat", *files], stdout=subprocess.DEVNULL) if files else None
    try:
        yield
    finally:
        if reader:
            reader.kill()
            reader.wait()
