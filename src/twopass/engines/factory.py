"""Create the engine that the settings name.

Engine modules are imported inside the function: each brings heavy or optional libraries (vLLM, PyTorch, PyMuPDF,
httpx), and a process must load only those of the engine that it runs.
"""

from __future__ import annotations

from twopass.engines import weights
from twopass.engines.interface import Engine
from twopass.errors import Code, EngineError
from twopass.settings import Settings

ENGINE_NAMES = ("cpu", "vllm", "openai", "hf", "replay")


def create_engine(settings: Settings) -> Engine:
    """Return the engine of these settings, not yet open; raises EngineError if it is unknown or not installed."""
    if settings.engine == "cpu":
        from twopass.engines.cpu.engine import CpuEngine

        return CpuEngine(settings.engine_sequences or settings.page_worker_count)
    if settings.engine == "hf":
        from twopass.engines.hf.engine import HfEngine

        return HfEngine(settings.model, weights.find(settings), settings.dtype or "bfloat16")
    if settings.engine == "openai":
        from twopass.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(settings)
    if settings.engine == "replay":
        from twopass.engines.replay import ReplayEngine

        if settings.replay_dir is None:
            raise EngineError(Code.ENGINE_DEAD, "engine replay needs REPLAY_DIR, a folder of recorded checkpoints")
        return ReplayEngine.from_folder(settings.replay_dir)
    if settings.engine == "vllm":
        from twopass.engines.vllm.engine import VllmEngine

        return VllmEngine(settings, weights.find(settings))
    raise EngineError(Code.ENGINE_DEAD, f"unknown engine {settings.engine}; ENGINE is one of {', '.join(ENGINE_NAMES)}")
