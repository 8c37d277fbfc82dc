"""Download a revision of a Hugging Face repository and verify every file.

Large files are compared with the hub's sha256, the others with git's sha1 of a blob. The sha256 of every file is
stored beside them in checksums.json, which is written last. Nothing here depends on a model.
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

from twopass.errors import Code, EngineError, advise_install
from twopass.runtime import vendor_reports

CHECKSUMS = "checksums.json"
OFFLINE = "HF_HUB_OFFLINE"  # a variable that the hub's library reads when it is imported; the image sets it
LOCAL_METADATA = Path(".cache", "huggingface", "download")  # of the hub's library, below a local folder
# The hf engine needs the code, every engine the rest; papers and images are not downloaded.
FILE_PATTERNS = ("*.json", "*.safetensors", "*.py", "*.model", "*.txt", "*.jinja", "LICENSE*")
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class _HubFile:
    """A file in the hub's listing: git's sha1 of the blob, and for large files a sha256."""

    name: str
    sha1: str
    sha256: str | None


def download(repo: str, revision: str, folder: Path) -> None:
    """Download into `folder`, which is then complete or absent; raises EngineError."""
    vendor_reports.switch_off()  # before the hub's library is imported
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        with _go_online(), _translate_errors(repo, revision, folder):
            _fetch(repo, revision, partial)
            _verify_and_record(repo, revision, partial, _list_hub_files(repo, revision))
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _fetch(repo: str, revision: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    folder.mkdir(parents=True)
    snapshot_download(repo, revision=revision, local_dir=folder, allow_patterns=list(FILE_PATTERNS))
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's download metadata


def _list_hub_files(repo: str, revision: str) -> dict[str, _HubFile]:
    from huggingface_hub import HfApi

    siblings = HfApi().model_info(repo, revision=revision, files_metadata=True).siblings or ()
    files = (_HubFile(file.rfilename, file.blob_id, file.lfs.sha256 if file.lfs else None) for file in siblings)
    return {file.name: file for file in files}


def _verify_and_record(repo: str, revision: str, folder: Path, listed: Mapping[str, _HubFile]) -> None:
    """Compare every file with the hub's listing and write checksums.json; raises EngineError at a difference."""
    files = {}
    for path in _list_files(folder):
        name = path.relative_to(folder).as_posix()
        actual, expected = compute_checksums(path), listed[name]
        if actual["sha256"] != expected.sha256 if expected.sha256 else actual["sha1"] != expected.sha1:
            message = f"{repo}: {name} differs from the hub's checksum; download it again"
            raise EngineError(Code.WEIGHTS_MISSING, message)
        files[name] = {"bytes": path.stat().st_size, "sha256": actual["sha256"]}
    record = {"repo": repo, "revision": revision, "files": files}
    (folder / CHECKSUMS).write_text(json.dumps(record, indent=1) + "\n")


def find_corrupt_files(folder: Path) -> list[str]:
    """The files that are missing or differ from checksums.json, which must exist; raises EngineError.

    It needs no network.
    """
    try:
        files = json.loads((folder / CHECKSUMS).read_text())["files"]
    except (OSError, ValueError, KeyError):
        message = f"{folder} has no {CHECKSUMS}; download the weights with `twopass download-weights`"
        raise EngineError(Code.WEIGHTS_MISSING, message) from None
    return [name for name, file in sorted(files.items()) if not _has_checksum(folder / name, file["sha256"])]


@dataclass(frozen=True)
class Verification:
    """The revision that a folder's files belong to, the files that are missing or differ, and how many there are."""

    revision: str
    corrupt: tuple[str, ...]
    count: int


def verify(folder: Path) -> Verification | None:
    """Compare every file with its known checksum; None if none is known. Needs no network; raises EngineError.

    Checksums are known from checksums.json, in the hub's cache, whose links lead to files named by checksum, and in a
    folder of `hf download --local-dir`, where the hub's library keeps a revision and a checksum for each file.
    """
    if (folder / CHECKSUMS).is_file():
        corrupt = tuple(find_corrupt_files(folder))
        record = json.loads((folder / CHECKSUMS).read_text())
        return Verification(str(record.get("revision")), corrupt, len(record["files"]))
    if (folder / LOCAL_METADATA).is_dir():
        return _verify_local_folder(folder)
    return _verify_snapshot(folder) if folder.parent.name == "snapshots" else None


def _verify_snapshot(folder: Path) -> Verification | None:
    """Verify the links of a snapshot in the hub's cache; copies without links have no known checksum."""
    links = sorted(path for path in folder.rglob("*") if path.is_symlink())
    corrupt = tuple(
        link.relative_to(folder).as_posix()
        for link in links
        if not _has_any_checksum(link, os.path.basename(os.path.realpath(link)))
    )
    return Verification(folder.name, corrupt, len(links)) if links else None


def _verify_local_folder(folder: Path) -> Verification | None:
    """Verify a folder whose metadata files have a revision and a checksum in their first two lines."""
    records = sorted((folder / LOCAL_METADATA).rglob("*.metadata"))
    revisions, corrupt = set(), []
    for record in records:
        name = record.relative_to(folder / LOCAL_METADATA).as_posix().removesuffix(".metadata")
        revision, checksum, *_ = [*record.read_text().splitlines(), "", ""]
        revisions.add(revision)
        if not _has_any_checksum(folder / name, checksum):
            corrupt.append(name)
    return Verification(" and ".join(sorted(revisions)), tuple(corrupt), len(records)) if records else None


def read_revision(folder: Path) -> tuple[str, str]:
    """Repository and revision from checksums.json, which must exist; `find_corrupt_files` checks that."""
    record = json.loads((folder / CHECKSUMS).read_text())
    return record["repo"], record["revision"]


def find_revision(folder: Path) -> str | None:
    """The revision that checksums.json or the place in the hub's cache names; None if neither does.

    No file is verified.
    """
    try:
        return str(json.loads((folder / CHECKSUMS).read_text())["revision"])
    except (OSError, ValueError, KeyError, TypeError):
        return folder.name if folder.parent.name == "snapshots" else None


def _has_checksum(path: Path, sha256: str) -> bool:
    return path.is_file() and compute_checksums(path)["sha256"] == sha256


def _has_any_checksum(path: Path, checksum: str) -> bool:
    """Whether the file has this sha256 or, as small files on the hub, this sha1 of git's blob."""
    return path.is_file() and checksum in compute_checksums(path).values()


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def compute_checksums(path: Path) -> dict[str, str]:
    """The file's sha256 and its sha1 as a git blob, reading it once."""
    plain, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            plain.update(chunk)
            git.update(chunk)
    return {"sha256": plain.hexdigest(), "sha1": git.hexdigest()}


@contextmanager
def _go_online() -> Iterator[None]:
    """Let the hub's library use the network: only callers that are allowed to download call `download`."""
    before = os.environ.pop(OFFLINE, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[OFFLINE] = before


@contextmanager
def _translate_errors(repo: str, revision: str, folder: Path) -> Iterator[None]:
    """Turn errors of the hub, the network and the disk into EngineError."""
    try:
        import httpx2  # of huggingface_hub 2
        from huggingface_hub import errors
    except ImportError as error:
        message = f"downloading needs {error.name}: {advise_install('download')}"
        raise EngineError(Code.WEIGHTS_MISSING, message) from error
    try:
        yield
    except (httpx2.HTTPError, errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        message = f"{repo}@{revision[:12]} cannot be downloaded into {folder}: {type(error).__name__}: {error}"
        raise EngineError(Code.WEIGHTS_MISSING, message) from error
