"""Nothing in, the machine's NVIDIA cards with their memory and load out; none where there is no driver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """Bytes of memory, and the share of the last moment in which the card was busy, 0 to 1."""

    number: int
    used: int
    total: int
    busy: float


def cards() -> list[Card]:
    try:
        import pynvml  # comes with vLLM; a machine without a GPU does without
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        try:
            return [_card(number) for number in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return []


def _card(number: int) -> Card:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Card(number, memory.used, memory.total, pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
