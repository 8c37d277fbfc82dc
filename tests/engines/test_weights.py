"""Where weights are looked for, what is wrong with a folder, and how they come from a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.fakes import hub as fake
from tests.fakes.hub import Hub
from twopass.engines import weights
from twopass.engines.weights import MODELS
from twopass.errors import Code, EngineError
from twopass.families import registry
from twopass.settings import Settings

WANTED = MODELS["deepseek_ocr"]
HUB_SETTINGS = {
    "HF_HOME": "/nonexistent",  # nobody's token or cache
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
}


@pytest.mark.parametrize("model", MODELS)
def test_prompts_are_written_for_the_weights_that_are_loaded(model: str) -> None:
    """One revision in the document's identity, in the cache and in the image."""
    assert registry.named(model).revision == MODELS[model].revision


def tensors(size: int = 8) -> bytes:
    """A safetensors file of one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "__metadata__": {}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


FILES = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    "model-1.safetensors": tensors(4000),
    "model-2.safetensors": tensors(),
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    ).encode(),
    "assets/paper.pdf": b"%PDF",
}


def folder(path: Path, **changed: bytes | None) -> Path:
    """A whole model, but for the files that are changed or None; `__` stands for a dot."""
    for name, data in {**FILES, **{name.replace("__", "."): data for name, data in changed.items()}}.items():
        if data is not None:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    return path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "volume").mkdir()
    return Settings(volume=tmp_path / "volume")


def find(settings: Settings, tmp_path: Path) -> Path:
    return weights.find(settings, tmp_path / "baked")


def test_weights_are_found_nearest_first(settings: Settings, tmp_path: Path) -> None:
    """On the volume; before that in RunPod's cache; before that in the image. Then the network is off."""
    places = [
        tmp_path / "volume/models/deepseek_ocr",
        tmp_path / "volume/huggingface-cache/hub/models--deepseek-ai--DeepSeek-OCR/snapshots" / WANTED.revision,
        tmp_path / "baked/deepseek_ocr",
    ]
    found = []
    for place in places:
        folder(place)
        found.append(find(settings, tmp_path))

    assert found == places
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"


def test_a_folder_that_is_named_is_the_only_one(settings: Settings, tmp_path: Path) -> None:
    """A typing error in MODEL_DIR does not load something else."""
    folder(tmp_path / "baked/deepseek_ocr")
    own = folder(tmp_path / "own")

    assert find(settings.model_copy(update={"model_dir": own}), tmp_path) == own
    with pytest.raises(EngineError, match="typo is not there"):
        find(settings.model_copy(update={"model_dir": tmp_path / "typo"}), tmp_path)


def test_weights_that_are_nowhere_are_told_of(settings: Settings, tmp_path: Path) -> None:
    """Every place, what it lacks, and what can be done."""
    folder(tmp_path / "baked/deepseek_ocr", **{"model-2__safetensors": None})

    with pytest.raises(EngineError) as caught:
        find(settings, tmp_path)

    assert caught.value.code is Code.WEIGHTS_MISSING
    for word in ("lacks model-2.safetensors", "huggingface-cache", "volume/models", "MODEL_DIR", "ALLOW_DOWNLOAD"):
        assert word in caught.value.message


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"config__json": None}, "has no config.json"),
        ({"tokenizer__json": None}, "has no tokenizer.json"),
        ({"model-1__safetensors": None}, "lacks model-1.safetensors, or has it cut short"),
        ({"model-1__safetensors": tensors(4000)[:-1]}, "lacks model-1.safetensors, or has it cut short"),
        ({"model-1__safetensors": b""}, "lacks model-1.safetensors, or has it cut short"),
        ({"model-1__safetensors": b"<html>not found</html>"}, "lacks model-1.safetensors, or has it cut short"),
        ({"model__safetensors__index__json": b"{"}, "lacks model.safetensors.index.json, or has it cut short"),
        ({"model__safetensors__index__json": None, "model-1__safetensors": None, "model-2__safetensors": None},
         "has no .safetensors file"),
        ({"model__safetensors__index__json": None}, None),
        ({"tokenizer__json": None, "tokenizer__model": b"sentencepiece"}, None),
    ],
)  # fmt: skip
def test_a_folder_says_what_it_lacks(tmp_path: Path, changed: dict[str, Any], told: str | None) -> None:
    """By the file's name, a copy that broke off included."""
    assert weights.lacks(folder(tmp_path, **changed)) == told


def test_a_link_into_nothing_is_no_file(tmp_path: Path) -> None:
    """A hub cache is links to blobs, and some copies keep only the links."""
    folder(tmp_path, **{"model-2__safetensors": None})
    (tmp_path / "model-2.safetensors").symlink_to(tmp_path / "blobs" / "gone")

    assert weights.lacks(tmp_path) == "lacks model-2.safetensors, or has it cut short"


def test_an_unknown_model_is_told_by_name(settings: Settings) -> None:
    """With the names that there are."""
    with pytest.raises(EngineError, match="no model is called gpt; MODEL is one of: deepseek_ocr, deepseek_ocr2"):
        weights.find(settings.model_copy(update={"model": "gpt"}))


# ---- from a hub ---------------------------------------------------------------------------------


@pytest.fixture
def hub() -> Iterator[Hub]:
    with fake.running(Hub(WANTED.repo, WANTED.revision, dict(FILES))) as hub:
        yield hub


def script(hub: Hub, *args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """scripts/download_weights.py, which reads the hub's address as it is imported."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/download_weights.py"), *map(str, args)],
        env={**os.environ, **HUB_SETTINGS, "HF_ENDPOINT": hub.url, **environment},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_weights_are_downloaded_and_verified(hub: Hub, tmp_path: Path) -> None:
    """At the pinned revision, what an engine needs and no more, and the sums beside it; --verify needs no hub."""
    target = tmp_path / "models" / "deepseek_ocr"
    done = script(hub, "deepseek_ocr", target)

    assert done.returncode == 0, done.stderr
    assert weights.lacks(target) is None
    told = json.loads((target / "checksums.json").read_text())
    assert (told["repo"], told["revision"]) == (WANTED.repo, WANTED.revision)
    assert (
        set(told["files"])
        == set(FILES) - {"assets/paper.pdf"}
        == {path.name for path in target.iterdir()} - {"checksums.json"}
    )
    hub.asked.clear()
    assert script(hub, "deepseek_ocr", target, "--verify").returncode == 0
    (target / "model-1.safetensors").write_bytes(tensors(4000)[:-1] + b"x")
    (target / "config.json").unlink()
    spoilt = script(hub, "deepseek_ocr", target, "--verify")
    assert (spoilt.returncode, spoilt.stdout) == (1, "wrong: config.json\nwrong: model-1.safetensors\n")
    assert not hub.asked


@pytest.mark.parametrize("name", ["model-1.safetensors", "config.json"])
def test_a_file_that_is_not_the_hubs_is_refused(hub: Hub, tmp_path: Path, name: str) -> None:
    """Large or small, and nothing of it stays."""
    hub.spoilt.add(name)
    done = script(hub, "deepseek_ocr", tmp_path / "models")

    assert done.returncode == 1
    assert name in done.stderr
    assert "WEIGHTS_MISSING" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_hub_without_the_repository_is_told(tmp_path: Path) -> None:
    """Wrong revision, gated or gone: one line, no traceback."""
    with fake.running(Hub("somebody/else", WANTED.revision, dict(FILES))) as hub:
        done = script(hub, "deepseek_ocr", tmp_path / "models")

    assert done.returncode == 1
    assert done.stderr.startswith("WEIGHTS_MISSING: deepseek-ai/DeepSeek-OCR@9f30c71f441d cannot be downloaded")
    assert not list(tmp_path.iterdir())


def test_a_download_that_is_allowed_goes_to_the_volume(hub: Hub, tmp_path: Path) -> None:
    """Where the next worker finds it; a broken one that lay there is replaced."""
    place = folder(tmp_path / "volume/models/deepseek_ocr", **{"model-1__safetensors": b""})
    code = f"""
from pathlib import Path
from twopass.engines import weights
from twopass.settings import Settings
print(weights.find(Settings(volume=Path({str(tmp_path / "volume")!r}), allow_download=True), Path("/nowhere")))
"""
    environment = {**os.environ, **HUB_SETTINGS, "HF_ENDPOINT": hub.url}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)

    assert done.stdout.strip() == str(place), done.stderr
    assert weights.lacks(place) is None


def test_without_checksums_nothing_is_verified(hub: Hub, tmp_path: Path) -> None:
    """A folder from elsewhere is told what it lacks."""
    done = script(hub, "deepseek_ocr", folder(tmp_path), "--verify")

    assert done.returncode == 1
    assert "has no checksums.json" in done.stderr
