"""A repository and revision of the Hugging Face hub in, a folder of files that are what the hub has out.

Each file is compared with what the hub says of it: sha256 of large ones, git's sha1 of the others. The sums
stay beside the files in checksums.json, written last. Knows nothing of models.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twopass.errors import Code, EngineError

CHECKSUMS = "checksums.json"
# Code is for the hf engine, the rest is what an engine reads; papers and pictures stay where they are.
WANTED = ("*.json", "*.safetensors", "*.py", "*.model", "*.txt", "*.jinja", "LICENSE*")
CHUNK = 1 << 20


@dataclass(frozen=True)
class Listed:
    """A file as the hub lists it; large files have a sha256, the others git's sha1 of a blob."""

    name: str
    sha1: str
    sha256: str | None


def download(repo: str, revision: str, folder: Path) -> None:
    """Into a folder that is whole or not there; raises EngineError."""
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        with _translated(repo, revision, folder):
            _fetch(repo, revision, partial)
            _record(repo, revision, partial, _listed(repo, revision))
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _fetch(repo: str, revision: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    folder.mkdir(parents=True)
    snapshot_download(repo, revision=revision, local_dir=folder, allow_patterns=list(WANTED))
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's notes


def _listed(repo: str, revision: str) -> dict[str, Listed]:
    from huggingface_hub import HfApi

    found = HfApi().model_info(repo, revision=revision, files_metadata=True).siblings or ()
    return {one.rfilename: Listed(one.rfilename, one.blob_id, one.lfs.sha256 if one.lfs else None) for one in found}


def _record(repo: str, revision: str, folder: Path, listed: Mapping[str, Listed]) -> None:
    """Compare every file with the hub's word for it, and keep the sums."""
    files = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        sums = sums_of(path)
        told = listed[name]
        if sums["sha256"] != told.sha256 if told.sha256 else sums["sha1"] != told.sha1:
            message = f"{repo}: {name} is not what the hub says it is; download it again"
            raise EngineError(Code.WEIGHTS_MISSING, message)
        files[name] = {"bytes": path.stat().st_size, "sha256": sums["sha256"]}
    told_all = {"repo": repo, "revision": revision, "files": files}
    (folder / CHECKSUMS).write_text(json.dumps(told_all, indent=1) + "\n")


def wrong(folder: Path) -> list[str]:
    """Files that are missing or are not what checksums.json says, without a network; raises EngineError without it."""
    try:
        told = json.loads((folder / CHECKSUMS).read_text())["files"]
    except (OSError, ValueError, KeyError):
        message = f"{folder} has no {CHECKSUMS}; download the weights with scripts/download_weights.py"
        raise EngineError(Code.WEIGHTS_MISSING, message) from None
    return [name for name, one in sorted(told.items()) if not _is(folder / name, one["sha256"])]


def revision(folder: Path) -> tuple[str, str]:
    """Repository and revision that checksums.json names; call `wrong` before, which raises without it."""
    told = json.loads((folder / CHECKSUMS).read_text())
    return told["repo"], told["revision"]


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and sums_of(path)["sha256"] == sha256


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sums_of(path: Path) -> dict[str, str]:
    """sha256 of the file and sha1 of it as a git blob, in one reading."""
    plain, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            plain.update(chunk)
            git.update(chunk)
    return {"sha256": plain.hexdigest(), "sha1": git.hexdigest()}


@contextmanager
def _translated(repo: str, revision: str, folder: Path) -> Iterator[None]:
    """Errors of the hub, of the way there and of the disk become ours."""
    try:
        import httpx
        from huggingface_hub import errors
    except ImportError as error:
        message = f"downloading needs {error.name}: pip install 'twopass[download]'"
        raise EngineError(Code.WEIGHTS_MISSING, message) from error
    try:
        yield
    except (httpx.HTTPError, errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        message = f"{repo}@{revision[:12]} cannot be downloaded into {folder}: {type(error).__name__}: {error}"
        raise EngineError(Code.WEIGHTS_MISSING, message) from error
