"""The checks of `twopass doctor`: the checks of a worker's start, and others that would be noticed only later.

A check returns an outcome with a message, or raises TwopassError, which is a failure.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from twopass import worker
from twopass.engines import factory, gpus, preflight, structure
from twopass.errors import Code, EngineError, InvalidSetting, StoreError, advise_install
from twopass.models import Structure
from twopass.pages import tesseract
from twopass.runtime import scratch
from twopass.settings import Settings, find_config_file, find_misspelt, load_settings
from twopass.storage.s3_store import S3Store

IMPORT_S = 120.0  # limit for importing an engine's packages; vLLM takes 20 s on a cold disk
BUCKET_PATIENCE_S = 5.0  # for retries of one call: a person waits
PROBE_BYTES = 1 << 20
MIN_DESCRIPTORS = 4096  # the pixel buffers need 1,400 at 512 sequences; sockets and files need the rest
SHARED_MEMORY = Path("/dev/shm")
MIN_SHARED_BYTES = 1 << 30  # as in compose.gpu.yaml, for vLLM's processes
PACKAGES = {  # engine -> the packages that it imports, how they are installed
    "cpu": (("pymupdf", "pymupdf4llm", "onnxruntime", "rapidocr"), "install twopass again"),
    "openai": (("pymupdf", "httpx"), "install twopass again"),
    "hf": (preflight.ENGINE_PACKAGES["hf"][0], advise_install("hf")),
    "vllm": (("torch", *preflight.ENGINE_PACKAGES["vllm"][0]), "make gpu, or use the container image"),
    "replay": (("pymupdf",), "install twopass again"),
}
DETECTOR = "hf"  # the layout detector needs the same packages as this engine
COMMANDS = {  # what needs more than reading does -> how it is called, its extra, the extra's modules
    "serve": ("twopass serve", "serve", ("fastapi", "python_multipart", "uvicorn", "prometheus_client")),
    "handler": ("handler.py", "worker", ("runpod", "prometheus_client")),
}
OPTIONAL_PACKAGES = (  # module, extra, what it is for, the setting that needs it
    ("docling_core", "docling", "the format docling", None),
    ("yake", "keywords", "keywords", None),
    ("ray", "ray", "twopass submit --ray", None),
    ("opentelemetry.sdk", "otel", "traces", "otel_exporter_otlp_endpoint"),
    ("huggingface_hub", "download", "downloads of weights", "allow_download"),
)


class Outcome(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """What one check found, and for a warning or a failure what to do."""

    check: str
    outcome: Outcome
    message: str


Answer = tuple[Outcome, str]


def run(commands: Collection[str] = COMMANDS) -> Iterator[Finding]:
    """Run the checks in order, of the rows of COMMANDS only these.

    Wrong settings end them, because no worker starts with such settings.
    """
    try:
        settings = load_settings()
        worker.check_settings(settings)
        preflight.check_allowed_dir(settings)
    except InvalidSetting as error:
        yield Finding("settings", Outcome.FAILED, str(error))
        return
    skipped = [COMMANDS[name][0] for name in COMMANDS if name not in commands]
    for name, check in CHECKS.items():
        if name in skipped:
            continue
        try:
            yield Finding(name, *check(settings))
        except (InvalidSetting, EngineError, StoreError) as error:
            yield Finding(name, Outcome.FAILED, str(error))


def check_settings(settings: Settings) -> Answer:
    """The settings were checked when they were read; what remains are variables that are no settings."""
    if misspelt := find_misspelt():
        raise InvalidSetting(Code.INVALID_SETTING, misspelt)
    file = find_config_file()
    return Outcome.OK, f"read from the environment{f' and {file}' if file else ''}; they fit together"


def check_engine(settings: Settings) -> Answer:
    """Import the engine's packages in another process: that they are installed does not mean that they load."""
    names, advice = PACKAGES[settings.engine]
    if structure.choose(settings) is not Structure.MODEL:
        more_names, more_advice = PACKAGES[DETECTOR]
        names, advice = (*names, *more_names), f"{advice}; for the layout detector: {more_advice}"
    command = [sys.executable, "-c", f"import {', '.join(names)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=IMPORT_S)
    except subprocess.TimeoutExpired:
        return Outcome.FAILED, f"{settings.engine}: importing {', '.join(names)} takes more than {IMPORT_S:.0f} s"
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Outcome.FAILED, f"{settings.engine}: {reason}; {advice}"
    return Outcome.OK, f"{settings.engine}: {', '.join(names)}"


def check_gpu(settings: Settings) -> Answer:
    found, engines = gpus.detect_gpus(), ""
    if settings.engine == "vllm":
        shares = gpus.divide(settings, found)
        for share in shares:
            used = gpus.detect_gpus(share) if share else found
            preflight.check_driver(settings, used)
            preflight.check_memory(settings, used)
        engines = f"; {len(shares)} engines" if len(shares) > 1 else ""
    if found.count:
        cuda = ".".join(map(str, found.cuda_version))
        memory = f"{found.free_gb:.0f} of {found.memory_gb:.0f} GB free"
        return Outcome.OK, f"{found.count} x {found.name}, {memory}, driver {found.driver}, CUDA {cuda}{engines}"
    if settings.engine in ("vllm", "hf"):
        return Outcome.WARNING, f"none found; engine {settings.engine} is slow on a CPU: choose a machine with a GPU"
    return Outcome.OK, f"none found; engine {settings.engine} needs none"


def check_weights(settings: Settings) -> Answer:
    offline = settings.model_copy(update={"allow_download": False})
    try:
        folders = [str(folder) for folder in factory.find_weights(offline)]
    except EngineError as error:
        if not settings.allow_download:
            raise
        return Outcome.WARNING, f"downloaded at the first start: {error.message}"
    return Outcome.OK, f"complete: {', '.join(folders)}" if folders else f"engine {settings.engine} needs none"


def check_bucket(settings: Settings) -> Answer:
    if settings.default_output is None:
        return Outcome.OK, "BUCKET_NAME is not set: jobs name their output, local runs write to OUTPUT_DIR"
    patience = min(settings.store_patience_s, BUCKET_PATIENCE_S)
    hasty = settings.model_copy(update={"store_patience_s": patience})
    return asyncio.run(_try_bucket(S3Store(settings.default_output, hasty, None)))


async def _try_bucket(store: S3Store) -> Answer:
    """Do to an object of our own what jobs do to theirs: create, read, list, replace and delete it."""
    key, data, mime = f".twopass-doctor-{secrets.token_hex(4)}", secrets.token_bytes(8), "application/octet-stream"
    try:
        await store.prepare()
        await store.create(key, data, mime)
        stored = await store.get(key)
        if stored is None or stored.data != data:
            raise StoreError(Code.OUTPUT_DENIED, f"{store.uri}{key}: what was written cannot be read back")
        if key not in await store.keys(key):
            raise StoreError(Code.OUTPUT_DENIED, f"{store.uri}{key}: what was written is not listed")
        await store.replace(key, data, mime, stored.etag)
        try:
            await store.delete(key)
        except StoreError as error:
            return Outcome.WARNING, f"{key} cannot be deleted: {error.message}; allow s3:DeleteObject"
    finally:
        await store.close()
    if not store.conditional:
        risk = "two workers that read one document may overwrite each other's pages"
        return Outcome.WARNING, f"{store.uri} ignores conditional writes: {risk}; use a store with If-None-Match"
    return Outcome.OK, f"{store.uri}: write, read, list, delete and conditional write"


def check_port(settings: Settings) -> Answer:
    if not settings.metrics_port:
        return Outcome.OK, "METRICS_PORT is not set: no metrics and no /health"
    preflight.check_port("METRICS_PORT", settings.metrics_port)
    return Outcome.OK, f"METRICS_PORT: {settings.metrics_port} is free"


def check_scratch(settings: Settings) -> Answer:
    """Write to the temporary folder. If TMPDIR cannot be written, Python uses another folder without a message."""
    try:
        preflight.check_disk(settings)
        with scratch.open_folder() as folder:
            (folder / "probe").write_bytes(bytes(PROBE_BYTES))
    except OSError as error:
        message = f"temporary files cannot be written ({error.strerror}): free space, or set TMPDIR to another folder"
        raise StoreError(Code.STORE_UNAVAILABLE, message) from None
    used, wanted = tempfile.gettempdir(), os.environ.get("TMPDIR")
    if wanted and os.path.abspath(wanted) != used:
        return Outcome.WARNING, f"TMPDIR: {wanted} cannot be written, so that {used} is used; create it or free space"
    return Outcome.OK, f"{used}: {scratch.free_bytes():,} bytes free"


def check_descriptors(settings: Settings) -> Answer:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < MIN_DESCRIPTORS:
        advice = f"raise it to {MIN_DESCRIPTORS} or more, in a container with --ulimit nofile={MIN_DESCRIPTORS}"
        return Outcome.WARNING, f"at most {hard} (hard limit), too few for many pages at once; {advice}"
    return Outcome.OK, "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}"


def check_shared_memory(settings: Settings) -> Answer:
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    if settings.engine == "vllm" and free < MIN_SHARED_BYTES:
        advice = "run the container with --shm-size=1g"
        return Outcome.WARNING, f"{SHARED_MEMORY} has {free:,} bytes free, vLLM may need {MIN_SHARED_BYTES:,}; {advice}"
    return Outcome.OK, f"{SHARED_MEMORY}: {free:,} bytes free"


def check_command(name: str, settings: Settings) -> Answer:
    """Find the packages of a command that reading does without."""
    label, extra, modules = COMMANDS[name]
    if missing := [module for module in modules if not _is_installed(module)]:
        return Outcome.FAILED, f"needs {', '.join(missing)}: {advise_install(extra)}"
    return Outcome.OK, ", ".join(modules)


def check_optional_packages(
    settings: Settings, packages: Sequence[tuple[str, str, str, str | None]] = OPTIONAL_PACKAGES
) -> Answer:
    missing = [row for row in packages if not _is_installed(row[0])]
    uses, extras = ", ".join(use for _, _, use, _ in missing), ",".join(extra for _, extra, *_ in missing)
    advice = f"{uses}: {advise_install(extras)}" if missing else ""
    if needed := [setting.upper() for *_, setting in missing if setting and getattr(settings, setting)]:
        return Outcome.FAILED, f"{', '.join(needed)}: a package is missing; {advice}"
    return Outcome.OK, advice or "all installed"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around the module is missing
        return False


def check_languages(settings: Settings) -> Answer:
    if settings.engine != "cpu":
        return Outcome.OK, f"engine {settings.engine} needs no language files"
    folder = tesseract.find_folder(settings.tessdata_dir)
    languages = sorted(tesseract.list_languages(folder)) if folder else []
    if not languages:
        place = f"no language files in {folder}" if folder else "no folder of language files"
        advice = "for scans in Korean, Cyrillic and so on install for example tesseract-ocr-kor, or set TESSDATA_DIR"
        return Outcome.WARNING, f"{place}: scans in Latin, Chinese and Japanese are read; {advice}"
    return Outcome.OK, f"{folder}: {', '.join(languages)}"


CHECKS: dict[str, Callable[[Settings], Answer]] = {
    "settings": check_settings,
    "engine": check_engine,
    "GPU": check_gpu,
    "weights": check_weights,
    "bucket": check_bucket,
    "port": check_port,
    "temporary files": check_scratch,
    "file descriptors": check_descriptors,
    "shared memory": check_shared_memory,
    **{label: partial(check_command, name) for name, (label, *_) in COMMANDS.items()},
    "optional packages": check_optional_packages,
    "Tesseract languages": check_languages,
}
