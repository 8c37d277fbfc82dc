"""Compiled code that is kept: on this machine, and for all workers of an endpoint as one object in a bucket.

It is fetched while vLLM is imported. Compiled code is executed, so it comes only from the place that ENGINE_CACHE
names, and with ENGINE_CACHE_KEY only if it is signed. A failure costs the start its compilation and nothing else.

    python -m twopass.engines.vllm.shared_cache   # fetches: what and where to is JSON on its standard input
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, BinaryIO

import structlog

from twopass import locations
from twopass.errors import Code, SourceError, TwopassError
from twopass.runtime import retry
from twopass.settings import Settings

FETCH_S = 10.0  # from the start of the fetch on; importing vLLM takes as long
WAIT_S = 3.0  # at least, after vLLM was imported
_MAX_BYTES = 256 << 20  # of the object; one of an H200 has 5 MB
_MAX_UNPACKED, _MAX_FILES = 4 << 30, 100_000
_LEVEL = 3  # 4.9 MB in 0.24 s; level 9 makes 3.4 MB in 0.5 s
_SKIPPED_FRAME = 0x184D2A50  # begins a frame that decompressors skip: here, the checksum and the signature
_FRAME_HEAD = struct.Struct("<II")  # this number, and the frame's size
_MAX_HEAD = 1024
_CONTENT_TYPE = "application/zstd"
_VLLM, _TRITON = "vllm", "triton"
_COMPLETE = "twopass-complete"  # a folder of markers
# What the fetching process needs to know of the settings.
_SETTINGS = (
    "engine_cache", "engine_cache_key", "bucket_endpoint_url", "bucket_access_key_id", "bucket_secret_access_key",
    "bucket_region",
)  # fmt: skip

log = structlog.get_logger()


class State(StrEnum):
    """Whether a start has compiled code."""

    FETCHED = "fetched"
    KEPT = "kept"  # by this machine, at an earlier start
    MISSING = "missing"
    REFUSED = "refused"  # damaged, or not signed with ENGINE_CACHE_KEY
    FAILED = "failed"

    @property
    def is_found(self) -> bool:
        return self in (State.FETCHED, State.KEPT)


@dataclass(frozen=True)
class Place:
    """The object's name, and what it contains: vLLM's folder, and of Triton's what was compiled for this chip."""

    name: str
    vllm: Path
    triton: Path
    chip: int | None = None

    @property
    def marker(self) -> Path:
        """A file that exists if the folders have all that the object has."""
        return self.vllm / _COMPLETE / self.name


class DamagedObject(Exception):
    """The object was not made by a worker with these settings, or did not arrive as it was made."""


class SharedCache:
    """Compiled code at one start of an engine. The object is made by the first worker that does not find it."""

    def __init__(self, settings: Settings, place: Place, limits_s: tuple[float, float] = (FETCH_S, WAIT_S)) -> None:
        """`limits_s`: from now on, and at least after `wait` was called."""
        self._settings, self._place, self._limits_s = settings, place, limits_s
        self._fetching: _FetchProcess | None = None
        self._began = time.monotonic()
        self._is_shared = bool(settings.engine_cache and locations.is_uri(settings.engine_cache))
        try:
            self.state = State.KEPT if place.marker.exists() else State.MISSING
            if self._is_shared and self.state is State.MISSING:
                self._fetching = _FetchProcess(settings, place)
        except OSError as error:  # no permission, no memory for another process
            self.state = State.FAILED
            log.warning("shared compiled code", state=self.state, object=place.name, reason=str(error))

    def wait(self) -> State:
        """Wait until the object is there or given up. Only the first call waits."""
        if fetching := self._fetching:
            self._fetching = None
            fetch_s, wait_s = self._limits_s
            self.state, reason = fetching.finish(max(fetch_s - (time.monotonic() - self._began), wait_s))
            seconds = round(time.monotonic() - self._began, 2)
            report = log.warning if self.state in (State.REFUSED, State.FAILED) else log.info
            report("shared compiled code", state=self.state, object=self._place.name, reason=reason, seconds=seconds)
        return self.state

    @property
    def lacks(self) -> Sequence[str]:
        """How `started` names a start without the shared code; empty for one that has it, or that needs none."""
        return () if self.state.is_found or not self._is_shared else (f"shared_code_{self.state}",)

    def abandon(self) -> None:
        """End a fetch that nobody waits for."""
        if self._fetching:
            self._fetching.kill()
            self._fetching = None

    async def share(self, is_complete: bool = False) -> None:
        """Store what this worker compiled, unless the object exists; if `is_complete`, in any case.

        One that was refused is replaced. It is called when the worker serves.
        """
        if self.state.is_found and not is_complete:
            return
        try:
            if self._is_shared:
                await self._upload(is_complete or self.state is State.REFUSED)
            _touch(self._place.marker)
        except (TwopassError, OSError) as error:
            log.warning("compiled code not kept", object=self._place.name, reason=str(error))

    async def _upload(self, is_replaced: bool) -> None:
        started = time.monotonic()
        data = await asyncio.to_thread(pack, self._place, _key_of(self._settings))
        if len(data) > _MAX_BYTES:
            log.warning("compiled code not shared", object=self._place.name, reason="it is too large", bytes=len(data))
            return
        result = await self._store(data, is_replaced)
        seconds = round(time.monotonic() - started, 2)
        log.info("compiled code shared", object=self._place.name, result=result, bytes=len(data), seconds=seconds)

    async def _store(self, data: bytes, is_replaced: bool) -> str:
        from twopass.storage.s3 import S3Store

        store = S3Store(self._settings.engine_cache or "", self._settings, None)
        try:
            if not is_replaced:
                return await store.create(self._place.name, data, _CONTENT_TYPE)
            await store.put(self._place.name, data, _CONTENT_TYPE)
            return "replaced"
        finally:
            await store.close()


# ---- the object's name --------------------------------------------------------------------------


# Arguments of vLLM that change no compiled code; all others may.
_IRRELEVANT = {"gpu_memory_utilization", "stream_interval", "shutdown_timeout", "disable_log_stats"}
# Variables of vLLM that change none either. It knows hundreds, and adds most of them to its own key.
_IRRELEVANT_VARIABLES = {
    "VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_ENABLE_STARTUP_PLAN",
    "VLLM_NO_USAGE_STATS", "VLLM_TRITON_JIT_WARMUP_NUM_THREADS",
}  # fmt: skip


def choose_name(label: str, arguments: Mapping[str, Any], folders: Mapping[str, Path], settings: Settings) -> str:
    """The object's name: `label`, which is GPU and versions, and a hash of what else changes compiled code.

    Hashed are vLLM's arguments with the path of the weights, its variables, the code of this engine, ENGINE_CACHE_KEY,
    and the folders, because Triton's files contain their paths.
    """
    facts = {
        "arguments": {name: value for name, value in arguments.items() if name not in _IRRELEVANT},
        "variables": {
            name: value
            for name, value in os.environ.items()
            if name.startswith("VLLM_") and name not in _IRRELEVANT_VARIABLES
        },
        "code": _hash_code(Path(__file__).parent),
        "folders": {name: str(folder) for name, folder in folders.items()},
    }
    text = json.dumps(facts, sort_keys=True, default=str).encode()
    return f"{label}-{_sign(_key_of(settings) or b'', text)[:16]}.tar.zst"


def _hash_code(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder)} ".encode() + file.read_bytes())
    return digest.hexdigest()


def _sign(key: bytes, *parts: bytes) -> str:
    return hmac.new(key, b"\0".join(parts), hashlib.sha256).hexdigest()


def _key_of(settings: Settings) -> bytes | None:
    return settings.engine_cache_key.get_secret_value().encode() if settings.engine_cache_key else None


# ---- fetching, in a process of its own: the engine may fork this one, which must have no threads ------------


class _FetchProcess:
    """A process that fetches the object, and its folder, which is deleted when the process has ended."""

    def __init__(self, settings: Settings, place: Place) -> None:
        place.vllm.parent.mkdir(parents=True, exist_ok=True)
        # Beside the folders, so that what was unpacked is only renamed.
        self._folder = tempfile.TemporaryDirectory(prefix=".fetch-", dir=place.vllm.parent, ignore_cleanup_errors=True)
        request = {
            "parent": os.getpid(),
            "settings": {name: _reveal(getattr(settings, name)) for name in _SETTINGS},
            "place": {"name": place.name, "vllm": str(place.vllm), "triton": str(place.triton)},
            "folder": self._folder.name,
        }
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request).encode())  # less than a pipe holds
        self._process.stdin.close()
        self._process.stdin = None

    def finish(self, timeout_s: float) -> tuple[State, str]:
        """Wait until it has ended, or end it; says what became of the object and why."""
        try:
            answer, _ = self._process.communicate(timeout=timeout_s)
            state, reason = json.loads(answer)
            return State(state), reason
        except subprocess.TimeoutExpired:
            return State.FAILED, "it did not arrive in time"
        except ValueError:
            return State.FAILED, f"the fetching process ended with exit code {self._process.returncode}"
        finally:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


def _reveal(value: Any) -> Any:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


def fetch(settings: Settings, place: Place, folder: Path) -> tuple[State, str]:
    """Fetch, check and unpack the object, by way of the folder; says what became of it and why."""
    file, unpacked = folder / "object", folder / "unpacked"
    try:
        asyncio.run(_download(settings, place, file))
        unpack(file, place, _key_of(settings), unpacked)
        _merge(unpacked / _VLLM, place.vllm)
        _merge(unpacked / _TRITON, place.triton)
        _touch(place.marker)
    except SourceError as error:
        if error.code is Code.SOURCE_NOT_FOUND:
            return State.MISSING, "no worker has stored it yet"
        return State.FAILED, error.message
    except DamagedObject as error:
        return State.REFUSED, str(error)
    except OSError as error:
        return State.FAILED, f"it could not be unpacked: {error.strerror or error}"
    return State.FETCHED, ""


async def _download(settings: Settings, place: Place, file: Path) -> None:
    from twopass.storage.s3 import S3Limits, S3Reader

    limits = S3Limits(connect_s=2.0, read_s=FETCH_S, call=retry.ONCE)
    reader = S3Reader(settings, None, replace(limits, request=replace(limits.request, attempts=2)))
    try:
        await reader.download(f"{(settings.engine_cache or '').rstrip('/')}/{place.name}", file, _MAX_BYTES)
    finally:
        reader.close()


def _touch(marker: Path) -> None:
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


def _merge(source: Path, target: Path) -> None:
    """Move files and folders into place; what is there already stays. A whole folder is moved at once."""
    if not source.exists():
        return
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)  # a rename, unless VLLM_CACHE_ROOT or TRITON_CACHE_DIR lead to another disk
    elif source.is_dir():
        for child in source.iterdir():
            _merge(child, target / child.name)


# ---- the object ---------------------------------------------------------------------------------


def pack(place: Place, key: bytes | None) -> bytes:
    """The object: a compressed archive, and before it a frame with its checksum and, with a key, its signature."""
    zstd = _import_zstd()
    buffer = io.BytesIO()
    with zstd.ZstdFile(buffer, "wb", level=_LEVEL) as compressed, tarfile.open(fileobj=compressed, mode="w|") as tar:
        for name, file in _list_files(place):
            try:
                tar.add(file, name, recursive=False)
            except FileNotFoundError:  # a temporary one
                continue
    payload = buffer.getvalue()
    signature = _sign(key, place.name.encode(), payload) if key else ""
    head = json.dumps({"sha256": hashlib.sha256(payload).hexdigest(), "hmac": signature}).encode()
    return _FRAME_HEAD.pack(_SKIPPED_FRAME, len(head)) + head + payload


def _import_zstd() -> ModuleType:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _list_files(place: Place) -> Iterator[tuple[str, Path]]:
    kernels = place.triton.iterdir() if place.triton.is_dir() else ()
    folders = [(_TRITON, folder) for folder in sorted(kernels) if _is_for(place.chip, folder)]
    for top, folder in [(_VLLM, place.vllm), *folders]:
        base = place.vllm if top == _VLLM else place.triton
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.is_symlink() and file.parent.name != _COMPLETE:
                yield f"{top}/{file.relative_to(base).as_posix()}", file


def _is_for(chip: int | None, folder: Path) -> bool:
    """Whether a kernel's folder is for this chip; those without a kernel, such as launchers, are for all."""
    for file in folder.glob("*.json"):
        if not file.name.startswith("__grp__"):
            try:
                return chip in (None, json.loads(file.read_text())["target"]["arch"])
            except (OSError, ValueError, KeyError, TypeError):
                return False
    return True


def unpack(file: Path, place: Place, key: bytes | None, target: Path) -> None:
    """Check the object and unpack it into the folder; raises DamagedObject and OSError."""
    zstd = _import_zstd()
    with file.open("rb") as packed:
        _check(packed, place, key)
        try:
            with zstd.ZstdFile(packed) as archive, tarfile.open(fileobj=archive, mode="r|") as tar:
                _extract(tar, target)
        except (tarfile.TarError, zstd.ZstdError, EOFError, ValueError) as error:
            raise DamagedObject(f"it is no archive of compiled code ({type(error).__name__})") from error


def _check(packed: BinaryIO, place: Place, key: bytes | None) -> None:
    """Compare checksum and signature with the rest of the file, at whose beginning it is left."""
    try:
        magic, size = _FRAME_HEAD.unpack(packed.read(_FRAME_HEAD.size))
        head = json.loads(packed.read(min(size, _MAX_HEAD)))
        checksum, signature = str(head["sha256"]), str(head["hmac"]).encode()
    except (struct.error, ValueError, KeyError, TypeError, RecursionError):
        raise DamagedObject("it does not begin with a checksum") from None
    start, payload = packed.tell(), packed.read()
    if magic != _SKIPPED_FRAME or hashlib.sha256(payload).hexdigest() != checksum:
        raise DamagedObject("its checksum differs")
    if key and not hmac.compare_digest(_sign(key, place.name.encode(), payload).encode(), signature):
        raise DamagedObject("it is not signed with ENGINE_CACHE_KEY")
    packed.seek(start)


def _extract(tar: tarfile.TarFile, target: Path) -> None:
    """Extract files into the two folders that there are; raises DamagedObject for anything else."""
    total = 0
    for count, member in enumerate(tar):
        parts, total = PurePosixPath(member.name).parts, total + member.size
        if not member.isreg() or len(parts) < 2 or parts[0] not in (_VLLM, _TRITON) or ".." in parts:
            raise DamagedObject(f"it contains {member.name[:100]!r}")
        if count >= _MAX_FILES or total > _MAX_UNPACKED:
            raise DamagedObject("it is too large")
        tar.extract(member, target, filter="data")


def main() -> None:
    from twopass.runtime.parent_death import end_with_parent

    request = json.load(sys.stdin)
    end_with_parent(request["parent"])
    paths = {name: Path(request["place"][name]) for name in (_VLLM, _TRITON)}
    place = Place(request["place"]["name"], paths[_VLLM], paths[_TRITON])
    print(json.dumps(fetch(Settings(**request["settings"]), place, Path(request["folder"]))))


if __name__ == "__main__":
    main()
