"""The `twopass doctor` command: the checks of a worker's start, and others that would be noticed only later.

A check returns a level with a message, or raises TwopassError, which is a failure.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
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
from typing import Annotated

import typer

from twopass.cli import health, options
from twopass.cli.exit_codes import Exit
from twopass.engines import gpus, preflight, structure
from twopass.errors import Code, EngineError, InvalidSetting, StoreError, advise_install
from twopass.models import Structure
from twopass.runtime import scratch
from twopass.settings import Settings, find_config_file, find_misspelt, load_settings
from twopass.storage.s3 import S3Store

_IMPORT_S = 120.0  # limit for importing an engine's packages; vLLM takes 20 s on a cold disk
_BUCKET_PATIENCE_S = 5.0  # for retries of one call: a person waits
_START_STAGE = re.compile(r'^twopass_start_seconds\{stage="(\w+)"\} (\S+)$', re.MULTILINE)
_PROBE_BYTES = 1 << 20
_MIN_DESCRIPTORS = 4096  # the pixel buffers need 1,400 at 512 sequences; sockets and files need the rest
_SHARED_MEMORY = Path("/dev/shm")
_MIN_SHARED_BYTES = 1 << 30  # as in compose.gpu.yaml, for vLLM's processes
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
_OPTIONAL_PACKAGES = (  # module, extra, what it is for, the setting that needs it
    ("docling_core", "docling", "the format docling", None),
    ("yake", "keywords", "keywords", None),
    ("mcp", "mcp", "twopass mcp", None),
    ("ray", "ray", "twopass submit --ray", None),
    ("opentelemetry.sdk", "otel", "traces", "otel_exporter_otlp_endpoint"),
    ("huggingface_hub", "download", "downloads of weights", "allow_download"),
)


def command(
    commands: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="What is to run here: read, serve or handler; default: all of them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON, one list of objects.")] = False,
    config: options.Config = None,
) -> None:
    """Check whether a worker could start with these settings on this machine.

    Checks settings, packages, GPU, weights, bucket, port, disk, limits and language files, and prints a line for each:
    ok, warning or failed, with what to do. `twopass doctor read` leaves out what only `twopass serve` and handler.py
    need. Nothing is started or downloaded; small objects are written to the bucket and deleted. `twopass health` asks
    a worker that runs.
    """
    from twopass.storage import error_mapping

    known = ("read", *COMMANDS)
    for name in commands or ():
        options.parse_choice(known)(name)
    error_mapping.silence_loggers()
    findings = []
    for finding in run_checks(commands or known):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{finding.outcome:<8} {finding.check:<19} {finding.message}")
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], ensure_ascii=False, indent=1))
    has_failed = any(finding.outcome is Level.FAILED for finding in findings)
    raise typer.Exit(Exit.FAILED if has_failed else Exit.SUCCESS)


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class _Finding:
    """What one check found, and for a warning or a failure what to do."""

    check: str
    outcome: Level
    message: str


Answer = tuple[Level, str]


def run_checks(commands: Collection[str]) -> Iterator[_Finding]:
    """Run the checks in order, of the rows of COMMANDS only these.

    Wrong settings end them, because no worker starts with such settings.
    """
    from twopass import worker

    try:
        settings = load_settings()
        worker.check_settings(settings)
        preflight.check_allowed_dir(settings)
    except InvalidSetting as error:
        yield _Finding("settings", Level.FAILED, str(error))
        return
    skipped = [COMMANDS[name][0] for name in COMMANDS if name not in commands]
    for name, check in CHECKS.items():
        if name in skipped:
            continue
        try:
            yield _Finding(name, *check(settings))
        except (InvalidSetting, EngineError, StoreError) as error:
            yield _Finding(name, Level.FAILED, str(error))


def _check_settings(settings: Settings) -> Answer:
    """The settings were checked when they were read; what remains are variables that are no settings."""
    if misspelt := find_misspelt():
        raise InvalidSetting(Code.INVALID_SETTING, misspelt)
    file = find_config_file()
    return Level.OK, f"read from the environment{f' and {file}' if file else ''}; they fit together"


def _check_engine(settings: Settings) -> Answer:
    """Import the engine's packages in another process: that they are installed does not mean that they load."""
    names, advice = PACKAGES[settings.engine]
    if structure.choose(settings) is not Structure.MODEL:
        more_names, more_advice = PACKAGES[DETECTOR]
        names, advice = (*names, *more_names), f"{advice}; for the layout detector: {more_advice}"
    command = [sys.executable, "-c", f"import {', '.join(names)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_IMPORT_S)
    except subprocess.TimeoutExpired:
        return Level.FAILED, f"{settings.engine}: importing {', '.join(names)} takes more than {_IMPORT_S:.0f} s"
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Level.FAILED, f"{settings.engine}: {reason}; {advice}"
    return Level.OK, f"{settings.engine}: {', '.join(names)}"


def _check_gpu(settings: Settings) -> Answer:
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
        return Level.OK, f"{found.count} x {found.name}, {memory}, driver {found.driver}, CUDA {cuda}{engines}"
    if settings.engine in ("vllm", "hf"):
        return Level.WARNING, f"none found; engine {settings.engine} is slow on a CPU: choose a machine with a GPU"
    return Level.OK, f"none found; engine {settings.engine} needs none"


def _check_weights(settings: Settings) -> Answer:
    from twopass.engines import factory

    offline = settings.model_copy(update={"allow_download": False})
    try:
        folders = [str(folder) for folder in factory.find_weights(offline)]
    except EngineError as error:
        if not settings.allow_download:
            raise
        return Level.WARNING, f"downloaded at the first start: {error.message}"
    return Level.OK, f"complete: {', '.join(folders)}" if folders else f"engine {settings.engine} needs none"


def _check_acceptance(settings: Settings) -> Answer:
    """What a worker does that misreads the test images."""
    from twopass.engines import accepted

    if settings.engine in ("cpu", "replay") or settings.load_format == "dummy":
        return Level.OK, "engine runs no model with real weights"
    if found := accepted.find(settings.model_copy(update={"allow_download": False})):
        return Level.OK, f"passed with these weights and versions: {found}; a worker that misreads does not serve"
    if settings.canary == "enforce":
        return Level.OK, "CANARY=enforce: a worker that misreads the test images does not serve"
    advice = "run it, or set CANARY=enforce"
    return Level.WARNING, f"not passed yet with these weights and versions: a worker that misreads serves; {advice}"


def _check_bucket(settings: Settings) -> Answer:
    if settings.default_output is None:
        return Level.OK, "BUCKET_NAME is not set: jobs name their output, local runs write to OUTPUT_DIR"
    patience = min(settings.store_patience_s, _BUCKET_PATIENCE_S)
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
            return Level.WARNING, f"{key} cannot be deleted: {error.message}; allow s3:DeleteObject"
    finally:
        await store.close()
    if not store.conditional:
        risk = "two workers that read one document may overwrite each other's pages"
        return Level.WARNING, f"{store.uri} ignores conditional writes: {risk}; use a store with If-None-Match"
    return Level.OK, f"{store.uri}: write, read, list, delete and conditional write"


def _check_port(settings: Settings) -> Answer:
    if not settings.metrics_port:
        return Level.OK, "METRICS_PORT is not set: no metrics and no /health"
    preflight.check_port("METRICS_PORT", settings.metrics_port)
    return Level.OK, f"METRICS_PORT: {settings.metrics_port} is free"


def _check_scratch(settings: Settings) -> Answer:
    """Write to the temporary folder. If TMPDIR cannot be written, Python uses another folder without a message."""
    try:
        preflight.check_disk(settings)
        with scratch.open_folder() as folder:
            (folder / "probe").write_bytes(bytes(_PROBE_BYTES))
    except OSError as error:
        message = f"temporary files cannot be written ({error.strerror}): free space, or set TMPDIR to another folder"
        raise StoreError(Code.STORE_UNAVAILABLE, message) from None
    used, wanted = tempfile.gettempdir(), os.environ.get("TMPDIR")
    if wanted and os.path.abspath(wanted) != used:
        return Level.WARNING, f"TMPDIR: {wanted} cannot be written, so that {used} is used; create it or free space"
    return Level.OK, f"{used}: {scratch.free_bytes():,} bytes free"


def _check_descriptors(settings: Settings) -> Answer:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _MIN_DESCRIPTORS:
        advice = f"raise it to {_MIN_DESCRIPTORS} or more, in a container with --ulimit nofile={_MIN_DESCRIPTORS}"
        return Level.WARNING, f"at most {hard} (hard limit), too few for many pages at once; {advice}"
    return Level.OK, "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}"


def _check_shared_memory(settings: Settings) -> Answer:
    free = shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else 0
    if settings.engine == "vllm" and free < _MIN_SHARED_BYTES:
        advice = "run the container with --shm-size=1g"
        return Level.WARNING, f"{_SHARED_MEMORY} has {free:,} bytes free, vLLM may need {_MIN_SHARED_BYTES:,}; {advice}"
    return Level.OK, f"{_SHARED_MEMORY}: {free:,} bytes free"


def _check_command(name: str, settings: Settings) -> Answer:
    """Find the packages of a command that reading does without."""
    label, extra, modules = COMMANDS[name]
    if missing := [module for module in modules if not _is_installed(module)]:
        return Level.FAILED, f"needs {', '.join(missing)}: {advise_install(extra)}"
    return Level.OK, ", ".join(modules)


def check_optional_packages(
    settings: Settings, packages: Sequence[tuple[str, str, str, str | None]] = _OPTIONAL_PACKAGES
) -> Answer:
    missing = [row for row in packages if not _is_installed(row[0])]
    uses, extras = ", ".join(use for _, _, use, _ in missing), ",".join(extra for _, extra, *_ in missing)
    advice = f"{uses}: {advise_install(extras)}" if missing else ""
    if needed := [setting.upper() for *_, setting in missing if setting and getattr(settings, setting)]:
        return Level.FAILED, f"{', '.join(needed)}: a package is missing; {advice}"
    return Level.OK, advice or "all installed"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around the module is missing
        return False


def _check_languages(settings: Settings) -> Answer:
    if settings.engine != "cpu":
        return Level.OK, f"engine {settings.engine} needs no language files"
    from twopass.pages import tesseract

    folder = tesseract.find_folder(settings.tessdata_dir)
    languages = sorted(tesseract.list_languages(folder)) if folder else []
    if not languages:
        place = f"no language files in {folder}" if folder else "no folder of language files"
        advice = "for scans in Korean, Cyrillic and so on install for example tesseract-ocr-kor, or set TESSDATA_DIR"
        return Level.WARNING, f"{place}: scans in Latin, Chinese and Japanese are read; {advice}"
    return Level.OK, f"{folder}: {', '.join(languages)}"


def _describe_worker(settings: Settings) -> Answer:
    """Where the start of the worker that runs here went, if one does: it serves its metrics on METRICS_PORT."""
    if not settings.metrics_port:
        return Level.OK, "METRICS_PORT is not set: the log of a worker says how long each stage of its start took"
    text = health.read_metrics(f"http://localhost:{settings.metrics_port}")
    if text is None:
        return Level.OK, "none answers on METRICS_PORT; while one runs, this says how long each stage of its start took"
    stages = {name: float(value) for name, value in _START_STAGE.findall(text)}
    if not stages:
        return Level.OK, "it does not report its start"
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages.items())
    return Level.OK, f"ready {sum(stages.values()):.1f} s after its process began: {parts}"


CHECKS: dict[str, Callable[[Settings], Answer]] = {
    "settings": _check_settings,
    "engine": _check_engine,
    "GPU": _check_gpu,
    "weights": _check_weights,
    "twopass accept": _check_acceptance,
    "bucket": _check_bucket,
    "port": _check_port,
    "temporary files": _check_scratch,
    "file descriptors": _check_descriptors,
    "shared memory": _check_shared_memory,
    **{label: partial(_check_command, name) for name, (label, *_) in COMMANDS.items()},
    "optional packages": check_optional_packages,
    "Tesseract languages": _check_languages,
    "worker": _describe_worker,
}
