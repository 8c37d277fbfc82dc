"""A question in, what NVIDIA's driver answers out; the machine's cards with their memory and load.

NVML is asked and not CUDA, which would leave a context in this process that a forked engine cannot use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Card:
    """Bytes of memory, and the share of the last moment in which the card was busy, 0 to 1."""

    number: int
    used: int
    total: int
    busy: float


def asked(question: Callable[[Any], T], otherwise: T) -> T:
    """The question's answer, given an open NVML; `otherwise` where there is no driver, or it does not answer."""
    try:
        import pynvml  # comes with vLLM; a machine without a GPU does without
    except ImportError:
        return otherwise
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return otherwise


def cards() -> list[Card]:
    return asked(lambda nvml: [_card(nvml, number) for number in range(nvml.nvmlDeviceGetCount())], [])


def _card(nvml: Any, number: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Card(number, memory.used, memory.total, nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
