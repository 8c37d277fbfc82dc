"""Create the engine that the settings name.

Engine modules are imported inside functions: each brings heavy or optional libraries (vLLM, PyTorch, PyMuPDF,
httpx), and a process must load only those of the engine that it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twopass.detection.structure import Structure
from twopass.engines import gpus, hub, preflight, structure, weights
from twopass.engines.interface import Engine
from twopass.pages import tesseract
from twopass.settings import Settings


def create_engine(settings: Settings) -> Engine:
    """Return the engine of these settings, not yet open.

    Raises InvalidSetting for settings that do not fit together, and EngineError for an engine that is not installed.
    """
    preflight.check_settings(settings)
    preflight.check_engine(settings)
    if structure.choose(settings) is Structure.MODEL:
        return create_reader(settings)
    folder = weights.find_detector(settings)  # first: the reader may take a minute to start
    return put_detector_first(create_reader(settings), settings, folder)


def put_detector_first(
    reader: Engine, settings: Settings, folder: Path, detect_gpus: Callable[[], gpus.GpuInfo] = gpus.detect_gpus
) -> Engine:
    """Return the reader with the layout detector of this folder in front of it."""
    from twopass.engines.detector import placement
    from twopass.engines.detector.engine import REGIONS_AT_ONCE, DetectorFirstEngine
    from twopass.engines.detector.process import ChildDetector, DetectorOptions

    device, precision, batch, _ = placement.choose(settings, detect_gpus().memory_gb)
    options = DetectorOptions(folder, device, precision, settings.detector_compile)
    name = f"{weights.DETECTOR}@{(hub.find_revision(folder) or 'unknown')[:12]}+{precision}"
    prompts = REGIONS_AT_ONCE if structure.choose(settings) is Structure.DETECTOR else 1
    return DetectorFirstEngine(ChildDetector(options), reader, reader.family, batch, name, prompts)


def create_reader(settings: Settings) -> Engine:
    """Return the engine without a layout detector, not yet open; raises EngineError. The settings were checked."""
    if settings.engine == "cpu":
        from twopass.engines.cpu.engine import CpuEngine

        sequences = settings.engine_sequences or settings.page_worker_count
        return CpuEngine(sequences, tesseract.find_folder(settings.tessdata_dir))
    if settings.engine == "hf":
        from twopass.engines.hf.engine import HfEngine

        return HfEngine(settings.model, weights.find(settings), settings.dtype or "bfloat16")
    if settings.engine == "openai":
        from twopass.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(settings)
    if settings.engine == "replay":
        from twopass.engines.replay import ReplayEngine

        assert settings.replay_dir, "preflight requires it"
        return ReplayEngine.from_folder(settings.replay_dir)
    return _create_vllm_engine(settings, weights.find(settings))


def _create_vllm_engine(settings: Settings, model: Path) -> Engine:
    """Start an engine on every GPU, or on all that TENSOR_PARALLEL_SIZE asks for."""
    from twopass.engines.group import EngineGroup
    from twopass.engines.vllm.engine import VllmEngine
    from twopass.engines.vllm.parallel_start import start_engines

    shares = gpus.divide(settings, gpus.detect_gpus())
    return EngineGroup(start_engines(settings, model, shares)) if len(shares) > 1 else VllmEngine(settings, model)
