"""Where weights are found, what makes a folder unusable, and how weights are downloaded from a hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fakes import hub as fake_hub
from tests.fakes.hub import Hub
from twopass.cli.app import app
from twopass.engines import hub as hub_module
from twopass.engines import weights
from twopass.errors import Code, EngineError, InvalidSetting
from twopass.models import DETECTOR, DETECTOR_WEIGHTS, WEIGHTS
from twopass.settings import Settings

WANTED = WEIGHTS["deepseek_ocr"]


def make_safetensors(size: int = 8) -> bytes:
    """Return a safetensors file with one tensor of `size` bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "__metadata__": {}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


FILES = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    "model-1.safetensors": make_safetensors(4000),
    "model-2.safetensors": make_safetensors(),
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    ).encode(),
    "assets/paper.pdf": b"%PDF",
}


def write_model(path: Path, **changed: bytes | None) -> Path:
    """Write a complete model folder, with files replaced, or left out if None; `__` in a name stands for a dot."""
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


def test_weights_are_searched_in_order(settings: Settings, tmp_path: Path) -> None:
    """The image comes before RunPod's cache, and that before the volume; afterwards the hub libraries are offline."""
    places = [
        tmp_path / "volume/models/deepseek_ocr",
        tmp_path / "volume/huggingface-cache/hub/models--deepseek-ai--DeepSeek-OCR/snapshots" / WANTED.revision,
        tmp_path / "baked/deepseek_ocr",
    ]
    found = []
    for place in places:
        write_model(place)
        found.append(find(settings, tmp_path))

    assert found == places
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"


def test_model_dir_is_the_only_folder_searched(settings: Settings, tmp_path: Path) -> None:
    """A typing error in MODEL_DIR is an error and does not load other weights."""
    write_model(tmp_path / "baked/deepseek_ocr")
    own = write_model(tmp_path / "own")

    assert find(settings.model_copy(update={"model_dir": own}), tmp_path) == own
    with pytest.raises(EngineError, match="typo does not exist"):
        find(settings.model_copy(update={"model_dir": tmp_path / "typo"}), tmp_path)


def test_missing_weights_are_explained(settings: Settings, tmp_path: Path) -> None:
    """The error lists every folder that was tried, what it lacks, and what to change."""
    write_model(tmp_path / "baked/deepseek_ocr", **{"model-2__safetensors": None})

    with pytest.raises(EngineError) as caught:
        find(settings, tmp_path)

    assert caught.value.code is Code.WEIGHTS_MISSING
    for word in ("files: model-2.safetensors", "huggingface-cache", "volume/models", "MODEL_DIR", "ALLOW_DOWNLOAD"):
        assert word in caught.value.message


def test_a_model_that_the_image_does_not_hold_is_refused_with_what_to_do(settings: Settings, tmp_path: Path) -> None:
    """The error names the one that it holds, and the ways to another one. A detector is no answer to that."""
    write_model(tmp_path / "baked/deepseek_ocr")

    with pytest.raises(EngineError) as caught:
        find(settings.model_copy(update={"model": "glm_ocr"}), tmp_path)
    with pytest.raises(EngineError) as of_detector:
        weights.find_detector(settings, tmp_path / "baked")

    assert caught.value.code is Code.WEIGHTS_MISSING
    assert "set MODEL=deepseek_ocr, which this image holds" in caught.value.message
    for word in ("the endpoint's Model to zai-org/GLM-OCR:", "MODEL_DIR", "ALLOW_DOWNLOAD"):
        assert word in caught.value.message
    assert "set DETECTOR_DIR" in of_detector.value.message and "this image holds" not in of_detector.value.message


@pytest.mark.parametrize(
    ("changed", "defect"),
    [
        ({"config__json": None}, "has no config.json"),
        ({"tokenizer__json": None}, "has no tokenizer.json"),
        ({"model-1__safetensors": None}, "has missing or incomplete files: model-1.safetensors"),
        ({"model-1__safetensors": make_safetensors(4000)[:-1]}, "has missing or incomplete files: model-1.safetensors"),
        ({"model-1__safetensors": b""}, "has missing or incomplete files: model-1.safetensors"),
        ({"model-1__safetensors": b"<html>not found</html>"}, "has missing or incomplete files: model-1.safetensors"),
        ({"model__safetensors__index__json": b"{"}, "has missing or incomplete files: model.safetensors.index.json"),
        ({"model__safetensors__index__json": None, "model-1__safetensors": None, "model-2__safetensors": None},
         "has no .safetensors file"),
        ({"model__safetensors__index__json": None}, None),
        ({"tokenizer__json": None, "tokenizer__model": b"sentencepiece"}, None),
    ],
)  # fmt: skip
def test_a_defective_folder_is_described(tmp_path: Path, changed: dict[str, Any], defect: str | None) -> None:
    """The description names the missing or incomplete file; an interrupted copy counts as incomplete."""
    assert weights.describe_defect(write_model(tmp_path, **changed)) == defect


def test_a_broken_link_is_a_missing_file(tmp_path: Path) -> None:
    """A hub cache holds links to blobs, and some copies of it keep only the links."""
    write_model(tmp_path, **{"model-2__safetensors": None})
    (tmp_path / "model-2.safetensors").symlink_to(tmp_path / "blobs" / "gone")

    assert weights.describe_defect(tmp_path) == "has missing or incomplete files: model-2.safetensors"


DETECTOR_FILES = {**FILES, "preprocessor_config.json": b"{}"}
DETECTOR_FILES.pop("tokenizer.json")


def write_detector(path: Path, **changed: bytes | None) -> Path:
    """Write a complete folder of the layout detector, with files replaced, or left out if None."""
    return write_model(path, tokenizer__json=None, **{"preprocessor_config__json": b"{}", **changed})


def test_the_detector_is_searched_like_the_model(settings: Settings, tmp_path: Path) -> None:
    """The image comes before the hub's cache, and that before the volume; DETECTOR_DIR is the only folder if set."""
    places = [
        tmp_path / "volume/models/pp_doclayout_v3",
        tmp_path / "volume" / weights.HUB_CACHE / DETECTOR_WEIGHTS.cache_path,
        tmp_path / "baked/pp_doclayout_v3",
        tmp_path / "own",
    ]
    found = []
    for place in places:
        own = place if place.name == "own" else None
        write_detector(place)
        found.append(weights.find_detector(settings.model_copy(update={"detector_dir": own}), tmp_path / "baked"))

    assert found == places


def test_a_detector_has_no_tokenizer(settings: Settings, tmp_path: Path) -> None:
    """Its folder is complete without one, but not without the configuration of its preprocessing."""
    complete, lacking = write_detector(tmp_path / "a"), write_detector(tmp_path / "b", preprocessor_config__json=None)

    assert weights.describe_defect(complete, DETECTOR_WEIGHTS.preprocessing) is None
    with pytest.raises(EngineError, match=r"b has no preprocessor_config\.json.* DETECTOR_DIR") as caught:
        weights.find_detector(settings.model_copy(update={"detector_dir": lacking}))
    assert caught.value.code is Code.WEIGHTS_MISSING


def test_every_revision_is_a_full_commit_with_a_licence() -> None:
    """A branch or a shortened hash could name other weights tomorrow, and a licence decides who may use them."""
    for pinned in WEIGHTS.values():
        assert re.fullmatch(r"[0-9a-f]{40}", pinned.revision)
        assert pinned.licence in ("MIT", "Apache-2.0")


def test_an_unknown_model_is_an_error(settings: Settings) -> None:
    """The error lists the models that exist."""
    with pytest.raises(InvalidSetting, match="unknown model gpt; MODEL is one of: deepseek_ocr, deepseek_ocr2"):
        weights.find(settings.model_copy(update={"model": "gpt"}))


# ---- downloads ----------------------------------------------------------------------------------


@pytest.fixture
def hub() -> Iterator[Hub]:
    with fake_hub.serve(Hub(WANTED.repo, WANTED.revision, dict(FILES))) as hub:
        yield hub


def download_weights(hub: Hub, *args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process: huggingface_hub reads the hub's address at import."""
    return subprocess.run(
        [sys.executable, "-m", "twopass.cli", "download-weights", *map(str, args)],
        env={**os.environ, **fake_hub.CLIENT_SETTINGS, "HF_ENDPOINT": hub.url, **environment},
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip


def test_weights_are_downloaded_and_verified(hub: Hub, tmp_path: Path) -> None:
    """The pinned revision is downloaded, with checksums and without papers; --verify needs no network."""
    target = tmp_path / "models" / "deepseek_ocr"
    done = download_weights(hub, "deepseek_ocr", target)

    assert done.returncode == 0, done.stderr
    assert weights.describe_defect(target) is None
    record = json.loads((target / "checksums.json").read_text())
    assert (record["repo"], record["revision"]) == (WANTED.repo, WANTED.revision)
    assert (
        set(record["files"])
        == set(FILES) - {"assets/paper.pdf"}
        == {path.name for path in target.iterdir()} - {"checksums.json"}
    )
    hub.requests.clear()
    assert download_weights(hub, "deepseek_ocr", target, "--verify").returncode == 0
    (target / "model-1.safetensors").write_bytes(make_safetensors(4000)[:-1] + b"x")
    (target / "config.json").unlink()
    corrupt = download_weights(hub, "deepseek_ocr", target, "--verify")
    assert (corrupt.returncode, corrupt.stdout) == (1, "wrong: config.json\nwrong: model-1.safetensors\n")
    assert not hub.requests


@pytest.mark.parametrize("name", ["model-1.safetensors", "config.json"])
def test_a_corrupt_download_is_refused(hub: Hub, tmp_path: Path, name: str) -> None:
    """A large or small file that differs from the hub's checksum fails the download, which leaves nothing behind."""
    hub.corrupted.add(name)
    done = download_weights(hub, "deepseek_ocr", tmp_path / "models")

    assert done.returncode == 1
    assert name in done.stderr
    assert "WEIGHTS_MISSING" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_repository_is_one_line_of_error(tmp_path: Path) -> None:
    """A repository that is gone or gated, or a wrong revision, is reported without a traceback."""
    with fake_hub.serve(Hub("somebody/else", WANTED.revision, dict(FILES))) as hub:
        done = download_weights(hub, "deepseek_ocr", tmp_path / "models")

    assert done.returncode == 1
    assert done.stderr.startswith("WEIGHTS_MISSING: deepseek-ai/DeepSeek-OCR@9f30c71f441d cannot be downloaded")
    assert not list(tmp_path.iterdir())


def test_allow_download_writes_to_the_volume(hub: Hub, tmp_path: Path) -> None:
    """The next worker finds the weights there; an incomplete copy is replaced, also in the image, which is offline."""
    place = write_model(tmp_path / "volume/models/deepseek_ocr", **{"model-1__safetensors": b""})
    code = f"""
from pathlib import Path
from twopass.engines import hub as hub_module
from twopass.engines import weights
from twopass.settings import Settings
print(weights.find(Settings(volume=Path({str(tmp_path / "volume")!r}), allow_download=True), Path("/nowhere")))
"""
    environment = {**os.environ, **fake_hub.CLIENT_SETTINGS, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=180)

    assert done.stdout.strip() == str(place), done.stderr
    assert weights.describe_defect(place) is None
    assert [path for path in hub.requests if WANTED.repo not in path] == []  # the library's telemetry asks for more


@pytest.fixture
def glm_hub() -> Iterator[Hub]:
    """A hub with GLM-OCR and the layout detector."""
    model, detector = WEIGHTS["glm_ocr"], DETECTOR_WEIGHTS
    other = Hub(detector.repo, detector.revision, DETECTOR_FILES)
    with fake_hub.serve(Hub(model.repo, model.revision, dict(FILES), others=(other,))) as hub:
        yield hub


def test_a_model_that_reads_regions_comes_with_its_detector(glm_hub: Hub, tmp_path: Path) -> None:
    """Both are downloaded side by side, where a worker finds them, with their licences; --verify covers both."""
    done = download_weights(glm_hub, "glm_ocr", tmp_path / "glm_ocr")
    verify = partial(CliRunner().invoke, app, ["download-weights", "glm_ocr", str(tmp_path / "glm_ocr"), "--verify"])
    verified = verify()
    (tmp_path / DETECTOR / "config.json").unlink()
    corrupt = verify()

    assert (done.returncode, verified.exit_code, corrupt.exit_code) == (0, 0, 1), done.stderr
    settings = Settings(model="glm_ocr", volume=tmp_path)
    assert weights.find(settings, tmp_path) == tmp_path / "glm_ocr"
    assert done.stdout.splitlines() == [
        f"zai-org/GLM-OCR@{WEIGHTS['glm_ocr'].revision} -> {tmp_path / 'glm_ocr'}; licence: MIT",
        f"{DETECTOR_WEIGHTS.repo}@{DETECTOR_WEIGHTS.revision} -> {tmp_path / DETECTOR}; licence: Apache-2.0",
    ]
    assert corrupt.stdout.splitlines()[-1] == "wrong: config.json"


def test_the_detector_is_downloaded_for_any_structure_that_needs_it(hub: Hub, tmp_path: Path) -> None:
    """DeepSeek-OCR comes alone by default, and with the detector for STRUCTURE=fallback."""
    detector = DETECTOR_WEIGHTS
    alone = download_weights(hub, "deepseek_ocr", tmp_path / "a" / "deepseek_ocr")
    hub.others = (Hub(detector.repo, detector.revision, DETECTOR_FILES),)
    both = download_weights(hub, "deepseek_ocr", tmp_path / "b" / "deepseek_ocr", "--structure", "fallback")

    assert (alone.returncode, both.returncode) == (0, 0), both.stderr
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["deepseek_ocr"]
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"deepseek_ocr", DETECTOR}


def test_a_revision_is_known_from_the_record_or_the_cache(tmp_path: Path) -> None:
    """Documents name the revision that was loaded; a folder that says nothing of it has none."""
    snapshot, plain, recorded = tmp_path / "snapshots" / "abc", tmp_path / "plain", tmp_path / "recorded"
    for folder in (snapshot, plain, recorded):
        folder.mkdir(parents=True)
    (recorded / "checksums.json").write_text(json.dumps({"revision": "def"}))

    assert [hub_module.find_revision(folder) for folder in (snapshot, plain, recorded)] == ["abc", None, "def"]


def test_verify_needs_checksums(hub: Hub, tmp_path: Path) -> None:
    """A folder that another tool downloaded has no checksums.json, and --verify says so."""
    done = download_weights(hub, "deepseek_ocr", write_model(tmp_path), "--verify")

    assert done.returncode == 1
    assert "has no checksums.json" in done.stderr
