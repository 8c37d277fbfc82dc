"""Check platform, settings, ports, disk, driver and GPU memory before the engine opens; errors say what to change.

weights.py checks the weights in the same way. handler.py reports a failed check to RunPod, and `twopass doctor` runs
the checks without a worker.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from twopass import locations
from twopass.engines import structure
from twopass.engines.gpus import GpuInfo, detect_gpus, get_required_cuda_version
from twopass.errors import Code, EngineError, InvalidSetting, install_command
from twopass.models import find_model, preset_memory_gb
from twopass.settings import Settings, redact_address

ENGINE_PACKAGES: Mapping[str, tuple[tuple[str, ...], str]] = {  # engine -> packages beyond twopass's own, their command
    "hf": (("torch", "transformers"), install_command("hf")),
    "vllm": (("vllm",), "make gpu"),
}
MEMORY_TOLERANCE = 1.06  # an 80 GB card reports 79.6 or 85.9, depending on the unit


def check_platform(platform: str) -> None:
    """Require Linux, where page workers share memory and end with their parent; raises EngineError."""
    if platform != "linux":
        advice = "use a container, WSL on Windows, or an endpoint (twopass submit)"
        raise EngineError(Code.PLATFORM, f"twopass reads on Linux only, and this is {platform}: {advice}")


def check_engine(
    settings: Settings,
    is_installed: Callable[[str], object] = find_spec,
    find_gpus: Callable[[], GpuInfo] = detect_gpus,
    required: Callable[[], tuple[int, int]] = get_required_cuda_version,
) -> None:
    """Require the engine's packages and, for vLLM, a GPU; raises EngineError.

    It comes before the weights are looked for: nobody should download gigabytes for a machine that cannot run them.
    """
    needs_gpu = settings.engine == "vllm" and settings.preset != "cpu"
    found = find_gpus() if needs_gpu else GpuInfo()
    lacks_gpu = needs_gpu and not found.count
    packages, command = ENGINE_PACKAGES.get(settings.engine, ((), ""))
    if missing := [name for name in packages if not is_installed(name)]:
        verb = "is" if len(missing) == 1 else "are"
        needed, advice = f"{' and '.join(missing)}, which {verb} not installed: {command}", ""
        if lacks_gpu:
            needed, advice = f"an NVIDIA GPU, and none was found, and {needed}", "; ENGINE=cpu needs neither"
        raise EngineError(Code.PLATFORM, f"engine {settings.engine} needs {needed}{advice}")
    if lacks_gpu:
        check_driver(settings, found, required)


def check_settings(settings: Settings) -> None:
    """Require settings that fit together, and what the engine cannot do without; raises InvalidSetting."""
    structure.choose(settings)
    if problem := _find_engine_problem(settings) or _find_store_problem(settings):
        raise InvalidSetting(Code.INVALID_SETTING, problem)


def _find_engine_problem(settings: Settings) -> str | None:
    address, recorded, languages = settings.openai_base_url, settings.replay_dir, settings.tessdata_dir
    if settings.engine == "openai" and not (address and _is_http(address)):
        wrong = "engine openai needs the server's address"
        wrong = f"{redact_address(address)} is not a valid address" if address else wrong
        return f"OPENAI_BASE_URL: {wrong}; write it like http://localhost:8000/v1"
    if settings.engine == "replay" and not (recorded and recorded.is_dir()):
        wrong = f"{recorded} is not a folder" if recorded else "engine replay needs a folder"
        return f"REPLAY_DIR: {wrong}; name one with recorded checkpoints"
    if settings.gpus != "auto" and settings.gpus % settings.tensor_parallel_size:
        return f"GPUS: {settings.gpus} is no multiple of TENSOR_PARALLEL_SIZE={settings.tensor_parallel_size}"
    if settings.engine == "hf" and not find_model(settings.model).hf:
        return f"MODEL: engine hf cannot run {settings.model}: set ENGINE=vllm or openai"
    if settings.engine == "cpu" and languages and not languages.is_dir():
        return f"TESSDATA_DIR: {languages} is not a folder; name the one with Tesseract's language files"
    return None


def _find_store_problem(settings: Settings) -> str | None:
    if (cache := settings.engine_cache) and locations.is_uri(cache) and not _is_prefix(cache):
        advice = "name a folder, or a prefix of its own in a bucket, such as s3://bucket/engine-cache/"
        return f"ENGINE_CACHE: {locations.redact(cache)} cannot hold compiled code; {advice}"
    if settings.bucket_endpoint_url and not _is_http(settings.bucket_endpoint_url):
        return "BUCKET_ENDPOINT_URL: not a valid address; write it like https://s3.host"
    keys = {name: getattr(settings, name.lower()) for name in ("BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY")}
    missing = [name for name, key in keys.items() if not key]
    if len(missing) == 1:
        return f"{missing[0]}: missing, but {next(name for name in keys if name not in missing)} is set; set both"
    return None


def _is_prefix(place: str) -> bool:
    """Whether this is a prefix in a bucket; a whole bucket is none, because jobs may not write below it."""
    bucket, prefix = locations.split_bucket(place)
    return locations.find_scheme(place) is locations.S3 and bool(bucket and prefix.strip("/"))


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that are not closed
        return False


def check_allowed_dir(settings: Settings) -> None:
    """Require that ALLOWED_DIR, if it is set, is a folder; raises InvalidSetting."""
    if settings.allowed_dir and not settings.allowed_dir.is_dir():
        message = f"ALLOWED_DIR: {settings.allowed_dir} is not a folder; create or mount it, or name another one"
        raise InvalidSetting(Code.INVALID_SETTING, message)


def check_port(setting: str, port: int, host: str = "") -> None:
    """Require that a port can be opened; raises InvalidSetting. `setting` is the variable or argument it comes from."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        reason = (error.strerror or "").partition(" (")[0]  # without the address that `socket` adds
        message = f"{setting}: port {port} cannot be opened ({reason}); choose another one"
        raise InvalidSetting(Code.INVALID_SETTING, f"{message}, or end the program that uses it") from None


def check_disk(settings: Settings) -> None:
    """Require free space in the temporary folder, where sources are stored while they are read; raises EngineError."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < settings.min_free_disk_bytes:
        message = f"{free:,} bytes are free in {folder}, {settings.min_free_disk_bytes:,} are needed"
        raise EngineError(Code.STORE_UNAVAILABLE, f"{message}: give the endpoint a larger container disk")


def check_driver(
    settings: Settings, gpus: GpuInfo, required: Callable[[], tuple[int, int]] = get_required_cuda_version
) -> None:
    """Require a GPU for each tensor-parallel rank and a driver with PyTorch's CUDA version; raises EngineError."""
    if settings.preset == "cpu" or (needed := required()) == (0, 0):
        return
    if gpus.count < settings.tensor_parallel_size:
        problem = f"{settings.tensor_parallel_size} GPUs are required and {gpus.count} were found"
        advice = "choose GPUs for the endpoint, or another host: this one's driver may be broken"
        raise EngineError(Code.ENGINE_DEAD, f"{problem}: {advice}; PRESET=cpu or ENGINE=cpu need no GPU")
    if gpus.cuda_version < needed:
        supported, wanted = (".".join(map(str, version)) for version in (gpus.cuda_version, needed))
        problem = f"the driver supports CUDA {supported} and PyTorch requires {wanted}"
        advice = f"allow only CUDA {wanted} and newer for the endpoint"
        raise EngineError(Code.ENGINE_DEAD, f"{problem}: {advice}")


def check_memory(settings: Settings, gpus: GpuInfo) -> None:
    """Require the memory that the preset needs, free on the first GPU; raises EngineError."""
    if not gpus.count:
        return
    if preset_memory_gb(settings.preset) > gpus.memory_gb * MEMORY_TOLERANCE:
        message = f"preset {settings.preset} does not fit a GPU of {gpus.memory_gb:.0f} GB"
        raise EngineError(Code.ENGINE_MEMORY, f"{message}: leave PRESET auto, or choose a larger GPU")
    chosen = find_model(settings.model).find_preset(settings.preset, gpus.memory_gb)
    wanted = (settings.gpu_memory_utilization or chosen.memory) * gpus.memory_gb
    if gpus.free_gb < wanted:
        place = f" on GPU {gpus.visible[0].id}" if gpus.visible else ""
        message = f"{wanted:.0f} GB of GPU memory are needed and {gpus.free_gb:.0f} are free{place}"
        advice = "stop the process that uses the rest, lower GPU_MEMORY_UTILIZATION, or leave the GPU out with GPUS"
        raise EngineError(Code.ENGINE_MEMORY, f"{message}: {advice}")
