"""Stage (a), files: they are compared with the checksums that are known, from a download or the hub's cache."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from twopass.acceptance import model_files
from twopass.acceptance.checks import CheckOutcome
from twopass.engines import hub
from twopass.errors import TwopassError
from twopass.models import WEIGHTS

MODEL = "deepseek_ocr"
PINNED = WEIGHTS[MODEL]
FILES = {
    "config.json": b"{}", "tokenizer.json": b"{ }", "tokenizer_config.json": b"{  }", "model.safetensors": b"weights"
}  # fmt: skip


def write_download(folder: Path, revision: str = PINNED.revision) -> Path:
    """A folder as `twopass download-weights` leaves it."""
    files = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()}
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    (folder / hub.CHECKSUMS).write_text(json.dumps({"repo": PINNED.repo, "revision": revision, "files": files}))
    return folder


def write_cache(folder: Path) -> Path:
    """A snapshot in the hub's cache: links to files named by checksum, sha256 for large ones, else git's sha1."""
    snapshot, blobs = folder / "snapshots" / PINNED.revision, folder / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name, data in FILES.items():
        git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        blob = blobs / (hashlib.sha256(data).hexdigest() if name.endswith("safetensors") else git)
        blob.write_bytes(data)
        (snapshot / name).symlink_to(blob)
    return snapshot


def write_local_folder(folder: Path) -> Path:
    """A folder of `hf download --local-dir`: each file's revision and checksum are in a file of metadata."""
    metadata = folder / hub.LOCAL_METADATA
    metadata.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
        checksum = hub.compute_checksums(folder / name)["sha256" if name.endswith("safetensors") else "sha1"]
        (metadata / f"{name}.metadata").write_text(f"{PINNED.revision}\n{checksum}\n1700000000.0\n")
    return folder


WRITE = [write_download, write_cache, write_local_folder]


def judge(folder: Path) -> dict[str, CheckOutcome]:
    return {check.name: check.outcome for check in model_files.check_files(MODEL, folder)}


@pytest.mark.parametrize("write", WRITE)
def test_good_files_pass(tmp_path: Path, write: object) -> None:
    """Both revision and files are checked, without a network."""
    assert callable(write)
    assert judge(write(tmp_path)) == dict.fromkeys(("files", "revision", "checksums"), CheckOutcome.PASSED)


@pytest.mark.parametrize("write", WRITE)
def test_a_changed_file_fails(tmp_path: Path, write: object) -> None:
    """One flipped byte is enough; the check names the file."""
    assert callable(write)
    folder = write(tmp_path)
    (folder / "model.safetensors").write_bytes(b"weightz")

    *_, checksums = model_files.check_files(MODEL, folder)

    assert (checksums.outcome, checksums.value) == (CheckOutcome.FAILED, "model.safetensors")
    assert "twopass download-weights" in checksums.meaning


@pytest.mark.parametrize("write", WRITE)
def test_a_missing_file_fails(tmp_path: Path, write: object) -> None:
    """Without tokenizer_config.json, Transformers chooses a tokenizer by itself."""
    assert callable(write)
    folder = write(tmp_path)
    (folder / "tokenizer_config.json").unlink()

    files, *_ = model_files.check_files(MODEL, folder)

    assert (files.outcome, files.value) == (CheckOutcome.FAILED, "missing: tokenizer_config.json")


def test_a_link_without_its_file_fails(tmp_path: Path) -> None:
    """As an interrupted copy of the hub's cache leaves it."""
    snapshot = write_cache(tmp_path)
    (snapshot / "model.safetensors").resolve().unlink()

    *_, checksums = model_files.check_files(MODEL, snapshot)

    assert (checksums.outcome, checksums.value) == (CheckOutcome.FAILED, "model.safetensors")


def test_a_link_in_a_ring_fails(tmp_path: Path) -> None:
    """A link that leads back to itself is a file that is missing, and ends no check."""
    snapshot = write_cache(tmp_path)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("model.safetensors")

    *_, checksums = model_files.check_files(MODEL, snapshot)

    assert (checksums.outcome, checksums.value) == (CheckOutcome.FAILED, "model.safetensors")


def test_another_revision_fails(tmp_path: Path) -> None:
    """Its files may be sound, but prompts and parsers were written for the pinned one."""
    assert judge(write_download(tmp_path, "0" * 40))["revision"] is CheckOutcome.FAILED


def test_files_without_known_checksums_are_not_judged(tmp_path: Path) -> None:
    """Copies of a folder have none, nor has a snapshot without links. The reason says how to get some."""
    for folder in (tmp_path / "copied", tmp_path / "snapshots" / PINNED.revision):
        folder.mkdir(parents=True)
        for name, data in FILES.items():
            (folder / name).write_bytes(data)

        _, check = model_files.check_files(MODEL, folder)

        assert (check.outcome, "twopass download-weights" in check.meaning) == (CheckOutcome.NOT_RUN, True)


def test_unreadable_checksums_are_reported(tmp_path: Path) -> None:
    """The error says how to make them again."""
    (write_download(tmp_path) / hub.CHECKSUMS).write_text("{")

    with pytest.raises(TwopassError, match="download-weights"):
        model_files.check_files(MODEL, tmp_path)
