"""What a core is started with, and what makes it start sooner: compile caches that are kept, weights read ahead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import structlog

from twopass import locations
from twopass.engines import preflight, weights
from twopass.engines.gpus import GpuInfo, detect_gpus
from twopass.engines.vllm import images, kernels, shared_cache
from twopass.engines.vllm.arguments import build_arguments, choose_drafts, choose_preset
from twopass.engines.vllm.plugin import STOCK_NGRAM_ENVIRONMENT, SWITCH, compatibility
from twopass.engines.vllm.shared_cache import Place, SharedCache
from twopass.errors import Code, EngineError
from twopass.models import find_model, name_models
from twopass.settings import Settings

ENVIRONMENT = {
    SWITCH: "1",
    **weights.OFFLINE_ENV,
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",  # vLLM advises against more threads than cores, and page workers need the cores
    "TRITON_STORE_BINARY_ONLY": "1",  # without the sources of its binaries, a third of the bytes, and the same keys
}
CACHE_VARIABLES = {  # the variable that names a folder, and its default
    "vllm": ("VLLM_CACHE_ROOT", "~/.cache/vllm"),
    "triton": ("TRITON_CACHE_DIR", "~/.triton/cache"),
}
MEMORY_PLAN = "VLLM_ENABLE_STARTUP_PLAN"
IMAGE_CACHES, OWN_CACHES = Path("/caches"), "~/.cache/twopass"  # in the image; elsewhere
CACHE_KEY_PACKAGES = ("vllm", "torch", "triton", "transformers")

log = structlog.get_logger()


@dataclass(frozen=True)
class CorePlan:
    """What a core is started with: vLLM's arguments, and environment variables that it alone gets.

    `gpus` are the ids of its GPUs, `name` is what messages call it. `fallbacks` are parts of the plugin instead of
    which vLLM's own code is used. `largest_image` are the tokens for which a step needs room. `cache` is being fetched
    if ENGINE_CACHE names a bucket.
    """

    arguments: Mapping[str, Any]
    variables: Mapping[str, str]
    gpus: str
    name: str
    fallbacks: tuple[str, ...]
    largest_image: int
    cache: SharedCache


def plan_core(settings: Settings, model: Path, gpu_ids: Sequence[str] = (), **overrides: Any) -> CorePlan:
    """Check that a core can start on these GPUs, by default all, and prepare this process; raises EngineError.

    `overrides` are arguments of vLLM's engine that no setting names.
    """
    preflight.check_engine(settings)
    gpus = prepare_environment(settings.engine_cache, gpu_ids)
    if settings.preset == "cpu":
        gpus = GpuInfo()  # vLLM for CPUs, on a machine that has a GPU
    changed = _find_changed_parts(settings.model, gpus.count > 0)
    if compatibility.BAN in changed:
        os.environ |= STOCK_NGRAM_ENVIRONMENT
    preflight.check_driver(settings, gpus)
    preflight.check_memory(settings, gpus)
    _check_attention(settings, gpus.memory_gb)
    drafts = choose_drafts(settings, gpus, changed)
    if settings.draft_tokens and not drafts:
        drafted = name_models(lambda model: model.is_drafted, "or", by_title=True)
        log.warning(f"DRAFT_TOKENS has no effect: drafts need a GPU and {drafted}")
    preset = choose_preset(settings, gpus.memory_gb)
    arguments = build_arguments(settings, model, preset, gpus.count > 0, drafts, changed) | overrides
    usual_share = find_model(settings.model).find_preset(settings.preset, gpus.memory_gb).memory
    used = ",".join(gpu_ids or [gpu.id for gpu in gpus.visible[: settings.tensor_parallel_size]])
    pinned = {"CUDA_VISIBLE_DEVICES": used, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpu_ids else {}
    cache = _open_cache(settings, gpus, arguments)
    return CorePlan(
        arguments,
        pinned | choose_memory_plan(arguments["gpu_memory_utilization"] == usual_share),
        gpus=used,
        name=f"the engine on GPU {used}" if gpu_ids else "the engine",
        fallbacks=tuple(f"own_{part}_of_vllm" for part in changed),
        largest_image=images.choose(settings).max_tokens,
        cache=cache,
    )


def _open_cache(settings: Settings, gpus: GpuInfo, arguments: Mapping[str, Any]) -> SharedCache:
    folders = {name: Path(os.path.expanduser(os.environ.get(*where))) for name, where in CACHE_VARIABLES.items()}
    name = shared_cache.choose_name(cache_key(gpus), arguments, folders, settings)
    return SharedCache(settings, Place(name, folders["vllm"], folders["triton"], gpus.chip))


def _find_changed_parts(model: str, has_gpu: bool) -> Collection[str]:
    """The parts of the plugin for which vLLM's own code is used: the installed vLLM is another one.

    The ban of V2 is one if the environment chooses vLLM's first model runner; a model without a ban needs none. Raises
    EngineError for a vLLM with which no engine is possible.
    """
    changed = dict(compatibility.find_changed_parts(model, has_gpu))
    if has_gpu and find_model(model).has_ngram_ban and STOCK_NGRAM_ENVIRONMENT.items() <= os.environ.items():
        changed.setdefault(compatibility.BAN, "the environment has VLLM_USE_V2_MODEL_RUNNER=0")
    if reasons := [changed[part] for part in compatibility.REQUIRED if part in changed]:
        advice = "use the container image or `make gpu`, which install the vLLM that twopass was tested with"
        raise EngineError(Code.ENGINE_DEAD, f"{'; '.join(reasons)}: {advice}")
    for part, reason in changed.items():
        log.warning("vLLM's own code is used", part=part, instead=compatibility.INSTEAD[part], reason=reason)
    return changed


def _check_attention(settings: Settings, memory_gb: float) -> None:
    """Raise EngineError where vLLM would answer nonsense: it frees cache that its attention on CPUs still reads."""
    if find_model(settings.model).has_windowed_attention and not memory_gb and settings.load_format != "dummy":
        message = f"{settings.model} needs a GPU: vLLM's attention for CPUs cannot limit what an answer sees of itself"
        raise EngineError(Code.ENGINE_DEAD, message)


def prepare_environment(caches: str | Path | None, gpu_ids: Sequence[str] = ()) -> GpuInfo:
    """Set vLLM's environment variables, before vLLM is imported; existing values are kept.

    Returns these GPUs, or all that are visible.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    gpus = detect_gpus(gpu_ids)
    if caches:
        folder = find_cache_folder(str(caches))
        os.environ.setdefault("VLLM_CACHE_ROOT", str(folder / cache_key(gpus) / "vllm"))
        os.environ.setdefault("TRITON_CACHE_DIR", str(kernel_folder(folder)))
    return gpus


def find_cache_folder(engine_cache: str | None) -> Path:
    """Where compiled code is on this machine: for a bucket, always at one place, because its files contain paths."""
    if engine_cache and not locations.is_uri(engine_cache):
        return Path(engine_cache)
    return IMAGE_CACHES if os.access(IMAGE_CACHES, os.W_OK) else Path(os.path.expanduser(OWN_CACHES))


def without_sharing(settings: Settings) -> Settings:
    """The settings with compiled code in the same folders, of which nothing is fetched or shared."""
    folder = str(find_cache_folder(settings.engine_cache)) if settings.engine_cache else None
    return settings.model_copy(update={"engine_cache": folder})


def kernel_folder(caches: Path) -> Path:
    """Triton's folder, for all GPUs and versions: its hashes contain them, and an image has kernels for several chips.

    Its files name each other by absolute paths, so that no file is found in a folder that was moved.
    """
    return caches / "all" / "triton"


def choose_memory_plan(is_usual_share: bool) -> dict[str, str]:
    """The environment variable that lets a core reuse the measured size of its KV cache, if as much memory is free.

    vLLM does not record the share of the GPU's memory for which it measured, so only cores with the preset's share do.
    A variable that exists is kept.
    """
    return {} if MEMORY_PLAN in os.environ else {MEMORY_PLAN: str(int(is_usual_share))}


def cache_key(gpus: GpuInfo) -> str:
    """A folder name: code compiled for one chip or version fails or is slow on another.

    The driver is no part of it: neither Triton's hashes nor torch.compile's contain it, and hosts have many.
    """
    packages = (f"{name}{_installed_version(name)}" for name in CACHE_KEY_PACKAGES)
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", "-".join([gpus.name or "cpu", *packages]))


def _installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def compile_kernels(settings: Settings, capabilities: Sequence[str] = ()) -> bool:
    """Compile the recorded kernels for these chips, by default this machine's; False if none could be compiled.

    It runs in a process that sees no GPU, on all cores. What fails costs a start only time.
    """
    gpus = prepare_environment(settings.engine_cache)
    own = [str(gpus.chip)] if gpus.chip and settings.preset != "cpu" else []
    if not (capabilities or own):
        return True
    command = [sys.executable, "-m", kernels.__name__, *(capabilities or own)]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0


@contextmanager
def read_ahead(model: Path) -> Iterator[None]:
    """Read the weights into the page cache in another process while this one imports vLLM."""
    files = sorted(model.glob("*.safetensors"))
    reader = subprocess.Popen(["cat", *files], stdout=subprocess.DEVNULL) if files else None
    try:
        yield
    finally:
        if reader:
            reader.kill()
            reader.wait()
