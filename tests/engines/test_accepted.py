"""The record that `twopass accept` has passed holds for the same weights and versions only, wherever it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines.test_weights import FILES, make_safetensors, write_model
from twopass.cli import doctor
from twopass.engines import accepted
from twopass.settings import Settings


def make_settings(tmp_path: Path, **fields: Any) -> Settings:
    write_model(tmp_path / "model")
    folders = {"model_dir": tmp_path / "model", "engine_cache": str(tmp_path / "cache"), "volume": tmp_path / "volume"}
    return Settings(**{"engine": "vllm", **folders, **fields})


def test_a_record_is_found_by_the_same_weights_and_versions(tmp_path: Path) -> None:
    """Also in another place, as where another image has them."""
    settings = make_settings(tmp_path)
    moved = settings.model_copy(update={"model_dir": write_model(tmp_path / "other")})
    before = accepted.find(settings)

    written = accepted.record(settings)

    assert before is None
    assert [path.parent for path in written] == [tmp_path / "model", tmp_path / "cache"]
    assert accepted.find(settings) == written[0]
    assert accepted.find(moved) == written[1]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model-1.safetensors"])
def test_a_record_is_not_that_of_other_weights(tmp_path: Path, name: str) -> None:
    """One byte in the middle of a small file is enough, even if its length is the same."""
    settings = make_settings(tmp_path)
    accepted.record(settings)
    data = bytearray(FILES[name])
    data[-2] += 1

    (tmp_path / "model" / name).write_bytes(data)

    assert accepted.find(settings) is None


@pytest.mark.parametrize("changed", [{"engine": "hf"}, {"engine": "cpu"}])
def test_a_record_is_not_that_of_another_engine(tmp_path: Path, changed: dict[str, str]) -> None:
    """Another one runs other code; one that runs no model has no record."""
    accepted.record(make_settings(tmp_path))

    assert accepted.find(make_settings(tmp_path, **changed)) is None


@pytest.mark.parametrize("changed", [{"quantization": "fp8"}, {"dtype": "float16"}, {"preset": "8"}], ids=str)
def test_a_record_is_not_that_of_another_arithmetic(tmp_path: Path, changed: dict[str, str]) -> None:
    """8-bit weights answer otherwise, also where a preset chooses them; how many prompts run at once does not count."""
    accepted.record(make_settings(tmp_path))

    assert accepted.find(make_settings(tmp_path, **changed)) is None
    assert accepted.find(make_settings(tmp_path, max_num_seqs=2))


def test_a_record_is_not_that_of_another_detector(tmp_path: Path) -> None:
    """A reader sees only what the detector finds."""
    detector = write_model(tmp_path / "detector")
    (detector / "preprocessor_config.json").write_text("{}")
    settings = make_settings(tmp_path, structure="detector", detector_dir=detector)
    accepted.record(settings)
    before = accepted.find(settings)

    (detector / "config.json").write_bytes(FILES["config.json"] + b" ")

    assert before and accepted.find(settings) is None


def test_a_record_has_no_secrets(tmp_path: Path) -> None:
    """The address of a server may have a password; a volume is shared."""
    settings = make_settings(
        tmp_path, engine="openai", openai_base_url="https://user:secret@server/v1", openai_model="m"
    )

    (written,) = accepted.record(settings)

    assert "server/v1" in written.read_text()
    assert "secret" not in written.read_text()


def test_an_upgrade_needs_a_record_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of both images may share a volume: each finds its own record there, and the other's is kept."""
    (tmp_path / "volume").mkdir()
    settings = make_settings(tmp_path)
    (*_, old) = accepted.record(settings)
    monkeypatch.syspath_prepend(install(tmp_path / "packages", "vllm", "99.0"))

    after, (*_, new) = accepted.find(settings), accepted.record(settings)

    assert after is None
    assert old.parent == new.parent == tmp_path / "volume"
    assert old.is_file() and accepted.find(settings) and old != new


def install(folder: Path, name: str, version: str) -> Path:
    """Put a package's metadata where Python finds it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def test_weights_that_cannot_be_written_are_recorded_in_the_cache(tmp_path: Path) -> None:
    """As weights in an image; a folder is in the place of the file, because root may write everywhere."""
    settings = make_settings(tmp_path)
    first, second = accepted.record(settings)
    first.unlink()
    first.mkdir()

    assert accepted.record(settings) == [second]
    assert accepted.find(settings) == second


def test_a_server_is_named_by_address_and_model(tmp_path: Path) -> None:
    """Its weights are not here."""
    settings = Settings(
        engine="openai", openai_base_url="http://127.0.0.1:1/v1", engine_cache=str(tmp_path), volume=tmp_path / "none"
    )
    (written,) = accepted.record(settings)

    assert accepted.find(settings) == written
    assert accepted.find(settings.model_copy(update={"openai_model": "other"})) is None


def test_doctor_says_what_a_worker_does_that_misreads(tmp_path: Path) -> None:
    """Before `twopass accept` has passed, with CANARY=enforce, and after."""
    check, settings = doctor.CHECKS["twopass accept"], make_settings(tmp_path)
    before, enforced = check(settings), check(make_settings(tmp_path, canary="enforce"))
    accepted.record(settings)
    after = check(settings)

    assert [level for level, _ in (before, enforced, after)] == ["warning", "ok", "ok"]
    assert "CANARY=enforce" in before[1] and "passed with these weights" in after[1]


def test_a_large_file_is_sampled(tmp_path: Path) -> None:
    """A change in any of its parts is found, without reading all of it."""
    settings = make_settings(tmp_path)
    data = bytearray(make_safetensors(4 << 20))
    path = tmp_path / "model" / "model-2.safetensors"
    path.write_bytes(data)
    accepted.record(settings)
    data[(3 << 20) + 1000] = 1
    path.write_bytes(data)

    assert accepted.find(settings) is None
