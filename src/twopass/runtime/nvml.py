"""Query NVIDIA's driver about the machine's GPUs.

It uses NVML instead of CUDA, which would leave a context in this process that a forked engine cannot use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def query(question: Callable[[Any], T], default: T) -> T:
    """Call `question` with an initialised pynvml; returns `default` without a driver or if the driver fails."""
    try:
        import pynvml  # comes with vLLM; machines without a GPU do not have it
    except ImportError:
        return default
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return default
