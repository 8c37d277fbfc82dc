"""The state of an engine, as metrics and health report it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStatus:
    """`gpus` names the engine's GPUs as CUDA_VISIBLE_DEVICES does, and is empty without one.

    `prompts` counts what is in it, `restarts` how often it was started again. It is not ready while it starts again,
    and when it is gone.
    """

    gpus: str
    sequences: int
    prompts: int = 0
    restarts: int = 0
    is_ready: bool = True
