"""Find the folder of a model's weights: in the image, in RunPod's model cache, on the volume, or downloaded.

If none is usable, the error lists every folder that was tried and what is wrong with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from twopass.engines import hub
from twopass.errors import Code, EngineError
from twopass.models import DETECTOR, DETECTOR_WEIGHTS, MODELS, TOKENIZERS, Weights, find_model
from twopass.settings import Settings

BAKED_MODELS = Path("/models")  # not below /runpod-volume: a volume mounted there would hide the image's files
HUB_CACHE = Path("huggingface-cache/hub")  # below the volume: where RunPod stores the endpoint's Model
OFFLINE_ENV = {hub.OFFLINE: "1", "TRANSFORMERS_OFFLINE": "1"}
HEADER_BYTES = 8  # a safetensors file starts with the length of its JSON header
MAX_HEADER_BYTES = 100_000_000  # safetensors' own limit


def find(settings: Settings, baked: Path = BAKED_MODELS) -> Path:
    """Find the folder to load MODEL from, and switch the hub libraries to offline mode; raises EngineError."""
    wanted = find_model(settings.model).weights
    if settings.load_format == "dummy" and settings.model_dir:
        return settings.model_dir  # random weights need only a configuration
    return _find(settings, settings.model, wanted, settings.model_dir, baked)


def find_detector(settings: Settings, baked: Path = BAKED_MODELS) -> Path:
    """Find the folder to load the layout detector from, as MODEL's; raises EngineError."""
    return _find(settings, DETECTOR, DETECTOR_WEIGHTS, settings.detector_dir, baked)


def _find(settings: Settings, name: str, wanted: Weights, own: Path | None, baked: Path) -> Path:
    candidates = list(_list_candidate_folders(settings.volume, name, wanted, own, baked))
    needed = wanted.preprocessing
    folder = next((candidate for candidate in candidates if not describe_defect(candidate, needed)), None)
    if folder is None and settings.allow_download:
        folder = candidates[-1]
        hub.download(wanted.repo, wanted.revision, folder)
    if folder is None:
        raise EngineError(Code.WEIGHTS_MISSING, _format_not_found_message(name, wanted, candidates, baked))
    os.environ.update(OFFLINE_ENV)  # before an engine imports the libraries that read these variables
    return folder


def _list_candidate_folders(volume: Path, name: str, wanted: Weights, own: Path | None, baked: Path) -> Iterator[Path]:
    """Yield the folders that may hold the weights, in order of preference; a download goes into the last one."""
    if own:
        yield own  # and no other: a wrong MODEL_DIR must not load different weights
        return
    yield baked / name
    yield volume / HUB_CACHE / wanted.cache_path
    if volume.is_dir():
        yield volume / "models" / name


def describe_defect(folder: Path, preprocessing: tuple[str, ...] = TOKENIZERS) -> str | None:
    """Say what a folder lacks to be a complete model, as the end of a sentence; None if it is complete.

    One of the files in `preprocessing` must be there.
    """
    if not folder.is_dir():
        return "does not exist"
    if not (folder / "config.json").is_file():
        return "has no config.json"
    if not any((folder / name).is_file() for name in preprocessing):
        return f"has no {preprocessing[0]}"
    if not (shards := _list_shards(folder)):
        return "has no .safetensors file"
    incomplete = [name for name in shards if not _is_complete(folder / name)]
    return f"has missing or incomplete files: {', '.join(incomplete)}" if incomplete else None


def _list_shards(folder: Path) -> list[str]:
    """The names of the weight files: those in the index, or without an index those in the folder."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        return sorted(set(index["weight_map"].values()))
    except FileNotFoundError:
        return sorted(path.name for path in folder.glob("*.safetensors"))
    except (OSError, ValueError, KeyError, AttributeError):
        return ["model.safetensors.index.json"]


def _is_complete(path: Path) -> bool:
    """Whether the file is as long as its header says; an interrupted copy is shorter."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(HEADER_BYTES), "little")
            header = json.loads(file.read(min(length, MAX_HEADER_BYTES)))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return path.stat().st_size == HEADER_BYTES + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _format_not_found_message(name: str, wanted: Weights, candidates: list[Path], baked: Path) -> str:
    defects = "; ".join(f"{folder} {describe_defect(folder, wanted.preprocessing)}" for folder in candidates)
    advice = f"set the endpoint's Model to {wanted.repo}:{wanted.revision}, set MODEL_DIR"
    if name == DETECTOR:  # an endpoint has one Model
        advice = "set DETECTOR_DIR"
    elif held := [model for model in MODELS if not describe_defect(baked / model)]:
        advice = f"set MODEL={' or '.join(held)}, which this image holds, {advice}"
    return (
        f"no weights of {name} ({wanted.repo}@{wanted.revision[:12]}): {defects}. Build them into the image with "
        f"`twopass download-weights`, {advice}, or ALLOW_DOWNLOAD=true"
    )
