"""Create the engine that the settings name.

Engine modules are imported inside functions: each brings heavy or optional libraries (vLLM, PyTorch, PyMuPDF,
httpx), and a process must load only those of the engine that it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from twopass.engines import gpus, hub, preflight, structure, weights
from twopass.engines.interface import Engine, Identity
from twopass.errors import TwopassError
from twopass.models import DETECTOR, Structure
from twopass.pages import tesseract
from twopass.settings import Settings

HF_DTYPE = "bfloat16"  # unless DTYPE is set


def create_engine(settings: Settings) -> Engine:
    """The engine of these settings, not yet open. Those of vLLM load their model meanwhile, in processes of their own.

    Raises InvalidSetting for settings that do not fit together, and EngineError for an engine that is not installed.
    """
    preflight.check_settings(settings)
    preflight.check_engine(settings)
    if structure.choose(settings) is Structure.MODEL:
        return create_reader(settings)
    *_, folder = find_weights(settings)  # first: a reader that was launched would have to be ended again
    return put_detector_first(create_reader(settings), settings, folder)


def find_weights(settings: Settings) -> list[Path]:
    """The folders of the model and of the layout detector, as far as these settings need them.

    Raises EngineError for the first that is missing: the user chose the model, and the detector comes with it.
    """
    folders = [weights.find(settings)] if settings.engine in ("vllm", "hf") else []
    if structure.choose(settings) is not Structure.MODEL:
        folders.append(weights.find_detector(settings))
    return folders


def put_detector_first(
    reader: Engine, settings: Settings, folder: Path, detect_gpus: Callable[[], gpus.GpuInfo] = gpus.detect_gpus
) -> Engine:
    """The reader with the layout detector of this folder in front of it."""
    from twopass.engines.detector import placement
    from twopass.engines.detector.engine import REGIONS_AT_ONCE, DetectorFirstEngine
    from twopass.engines.detector.process import ChildDetector, DetectorOptions

    device, precision, batch, _ = placement.choose(settings, detect_gpus().memory_gb)
    options = DetectorOptions(folder, device, precision, settings.detector_compile)
    name = _name_detector(folder, precision)
    prompts = REGIONS_AT_ONCE if structure.choose(settings) is Structure.DETECTOR else 1
    return DetectorFirstEngine(ChildDetector(options), reader, reader.family, batch, name, prompts)


def _name_detector(folder: Path, precision: str) -> str:
    return f"{DETECTOR}@{(hub.find_revision(folder) or 'unknown')[:12]}+{precision}"


async def identify(settings: Settings) -> Identity | None:
    """What documents would record of the engine of these settings, without starting it; None if that fails.

    A server of models is asked for its model, unless OPENAI_MODEL names it.
    """
    try:
        preflight.check_settings(settings)
        reader = await _identify_reader(settings)
        if structure.choose(settings) is Structure.MODEL:
            return reader
        from twopass.engines.detector import placement

        folder = weights.find_detector(settings.model_copy(update={"allow_download": False}))
        precision = placement.choose(settings, gpus.detect_gpus().memory_gb).precision
        return replace(reader, detector=_name_detector(folder, precision))
    except TwopassError:
        return None


async def _identify_reader(settings: Settings) -> Identity:
    if settings.engine == "hf":
        return Identity("hf", settings.dtype or HF_DTYPE, settings.model)
    if settings.engine == "vllm":
        from twopass.engines.vllm.arguments import predict_precision

        first, *_ = gpus.divide(settings, gpus.detect_gpus())
        return Identity("vllm", predict_precision(settings, gpus.detect_gpus(first)), settings.model)
    if settings.engine == "openai":
        from twopass.engines.openai.engine import OpenAIEngine

        precision = await OpenAIEngine(settings.model_copy(update={"openai_tries": 1})).find_precision()
        return Identity("openai", precision, settings.openai_family)
    reader = create_reader(settings)  # the others start nothing before they are opened
    return Identity(reader.kind, reader.precision, reader.family)


def create_reader(settings: Settings) -> Engine:
    """The engine without a layout detector, not yet open; raises EngineError. The settings were checked."""
    if settings.engine == "cpu":
        from twopass.engines.cpu.engine import CpuEngine

        sequences = settings.engine_sequences or settings.page_worker_count
        return CpuEngine(sequences, tesseract.find_folder(settings.tessdata_dir))
    if settings.engine == "hf":
        from twopass.engines.hf.engine import HfEngine

        return HfEngine(settings.model, weights.find(settings), settings.dtype or HF_DTYPE)
    if settings.engine == "openai":
        from twopass.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(settings)
    if settings.engine == "replay":
        from twopass.engines.replay import ReplayEngine

        assert settings.replay_dir, "preflight requires it"
        return ReplayEngine.from_folder(settings.replay_dir)
    return _create_vllm_engine(settings, weights.find(settings))


def _create_vllm_engine(settings: Settings, model: Path) -> Engine:
    """Launch an engine on every GPU, or on all that TENSOR_PARALLEL_SIZE asks for."""
    from twopass.engines.group import EngineGroup
    from twopass.engines.vllm.engine import launch_engines

    shares = gpus.divide(settings, gpus.detect_gpus())
    if len(shares) > 1:
        return EngineGroup(launch_engines(settings, model, shares))
    (engine,) = launch_engines(settings, model)
    return engine
