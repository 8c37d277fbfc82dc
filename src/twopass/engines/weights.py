"""A model's name in, the folder of its weights out: baked, cached by RunPod, on the volume, or downloaded.

Says where it looked and what was wrong there. Knows files and names, no model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twopass.errors import Code, EngineError
from twopass.settings import Settings

BAKED = Path("/models")  # not below /runpod-volume: a volume that is mounted there hides what the image has
CACHE = Path("huggingface-cache/hub")  # on the volume: where RunPod puts an endpoint's Model
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
HEADER = 8  # bytes of a safetensors file that hold the length of its JSON header
LONGEST_HEADER = 100_000_000  # safetensors' own limit


@dataclass(frozen=True)
class Weights:
    """A repository of the hub at the revision that families, engines and images were made for."""

    repo: str
    revision: str

    @property
    def cached(self) -> Path:
        """Its folder in a hub cache."""
        return Path(f"models--{self.repo.replace('/', '--')}", "snapshots", self.revision)


MODELS = {
    "deepseek_ocr": Weights("deepseek-ai/DeepSeek-OCR", "9f30c71f441d010e5429c532364a86705536c53a"),
    "deepseek_ocr2": Weights("deepseek-ai/DeepSeek-OCR-2", "aaa02f3811945a91062062994c5c4a3f4c0af2b0"),
}


def find(settings: Settings, baked: Path = BAKED) -> Path:
    """The folder to load MODEL from, and no network from now on; raises EngineError."""
    wanted = named(settings.model)
    if settings.load_format == "dummy" and settings.model_dir:
        return settings.model_dir  # random weights need no more than a configuration
    looked = list(_places(settings, wanted, baked))
    folder = next((place for place in looked if not lacks(place)), None)
    if folder is None and settings.allow_download:
        folder = _downloaded(settings, wanted, looked[-1])
    if folder is None:
        raise EngineError(Code.WEIGHTS_MISSING, _told(settings.model, wanted, looked))
    os.environ.update(OFFLINE)  # before an engine imports what reads it
    return folder


def named(model: str) -> Weights:
    try:
        return MODELS[model]
    except KeyError:
        message = f"no model is called {model}; MODEL is one of: {', '.join(MODELS)}"
        raise EngineError(Code.WEIGHTS_MISSING, message) from None


def _places(settings: Settings, wanted: Weights, baked: Path) -> Iterator[Path]:
    """Where weights may lie, the nearest first; the last is where a download goes."""
    if settings.model_dir:
        yield settings.model_dir  # and nowhere else: who names a folder means it
        return
    yield baked / settings.model
    yield settings.volume / CACHE / wanted.cached
    if settings.volume.is_dir():
        yield settings.volume / "models" / settings.model


def _downloaded(settings: Settings, wanted: Weights, folder: Path) -> Path:
    from twopass.engines import hub

    hub.download(wanted.repo, wanted.revision, folder)
    return folder


def lacks(folder: Path) -> str | None:
    """What a folder lacks to be a model, None when it is whole."""
    if not folder.is_dir():
        return "is not there"
    if not (folder / "config.json").is_file():
        return "has no config.json"
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        return "has no tokenizer.json"
    if not (shards := _shards(folder)):
        return "has no .safetensors file"
    short = [name for name in shards if not _is_whole(folder / name)]
    return f"lacks {', '.join(short)}, or has it cut short" if short else None


def _shards(folder: Path) -> list[str]:
    """The files of weights: those that the index names, or that are there."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        return sorted(set(index["weight_map"].values()))
    except FileNotFoundError:
        return sorted(path.name for path in folder.glob("*.safetensors"))
    except (OSError, ValueError, KeyError, AttributeError):
        return ["model.safetensors.index.json"]


def _is_whole(path: Path) -> bool:
    """Whether the file is as long as its header says; a copy that broke off is not."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(HEADER), "little")
            header = json.loads(file.read(min(length, LONGEST_HEADER)))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return path.stat().st_size == HEADER + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _told(model: str, wanted: Weights, looked: list[Path]) -> str:
    found = "; ".join(f"{place} {lacks(place)}" for place in looked)
    return (
        f"no weights of {model} ({wanted.repo}@{wanted.revision[:12]}): {found}. Bake them with "
        f"scripts/download_weights.py, set the endpoint's Model to {wanted.repo}:{wanted.revision}, set MODEL_DIR, "
        "or ALLOW_DOWNLOAD=true"
    )
