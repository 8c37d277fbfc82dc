"""The worker's settings: the environment and twopass.toml, read once; names in both that are misspelt settings."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from twopass.errors import Code, InvalidSetting, suggest
from twopass.format_options import Furniture
from twopass.models import DEFAULT_MODEL, PRESET_NAMES, name_models

MEGABYTE = 1 << 20
MISSED_QUESTIONS = 4
_HIDDEN = "…"
MIN_LENGTH = 5  # shorter words are close to too many others: MODE to MODEL, TYPE to DTYPE
_LONG = 13  # letters from which a setting is recognised in spite of two errors; vLLM's WORKER_CLS is no WORKER_CALLS
# Variables of other programs. OTEL_ has many more than the one that is a setting here.
FOREIGN_PREFIXES = ("AWS_", "CUDA_", "HF_", "NVIDIA_", "OTEL_", "RUNPOD_", "VLLM_")
FOREIGN = frozenset({"LOGLEVEL"})  # PyTorch's
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/{1,2}(.*)", re.DOTALL)  # a Path keeps one slash of two

EngineName = Literal["cpu", "vllm", "openai", "hf", "replay"]


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _parse_gpus(value: object) -> Literal["auto"] | int:
    """`auto`, or a number from 1 as a number or text."""
    text = str(value).strip().lower()
    if text == "auto":
        return "auto"
    if text.isdecimal() and int(text):
        return int(text)
    raise ValueError("choose auto, or a number of GPUs from 1")


def redact_address(text: str) -> str:
    """The text without user, password and query, if it is an address; of one that is unclear, only its scheme.

    Unlike a job's sources, an address of a setting may be wrong in every way: with a password that has a `/` or a `#`,
    or without its scheme.
    """
    address = _SCHEME.fullmatch(text)
    if not address:
        return _HIDDEN if "@" in text else text
    scheme, rest = address.groups()
    try:
        parts = urlsplit(f"{scheme}://{rest}")
    except ValueError:
        return f"{scheme}://{_HIDDEN}"
    if "@" in rest and "@" not in parts.netloc:
        return f"{scheme}://{_HIDDEN}"
    hidden_user = f"{_HIDDEN}@" if "@" in parts.netloc else ""
    hidden_query = f"?{_HIDDEN}" if parts.query or parts.fragment else ""
    return f"{scheme}://{hidden_user}{parts.netloc.rpartition('@')[2]}{parts.path}{hidden_query}"


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"
    QUIET = "quiet"


class ModelSettings(BaseSettings):
    """The model and how it is run."""

    model: str = Field(
        default=DEFAULT_MODEL,
        description=f"{name_models(lambda model: True, 'or')}, for engines that run a model",
    )
    model_dir: Path | None = Field(default=None, description="folder of the weights; null: searched for")
    preset: str = Field(default="auto", description=f"{', '.join(PRESET_NAMES)} (GB of GPU memory), or auto")
    dtype: str | None = Field(default=None, description="bfloat16, float16 or float32; null: the preset's")
    max_model_len: int | None = Field(default=None, ge=1024, description="context length in tokens; null: the preset's")
    max_num_seqs: int | None = Field(
        default=None, ge=1, description="prompts at once in each engine; null: the preset's"
    )
    max_num_batched_tokens: int | None = Field(
        default=None, ge=2048, description="tokens per engine step; null: the preset's"
    )
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="share of GPU memory to use; null: the preset's"
    )
    kv_cache_dtype: str = Field(
        default="auto", description="auto or fp8: half the cache size, changes answers slightly"
    )
    quantization: str | None = Field(
        default=None, description="fp8: half the weights' size, changes answers slightly; null: the preset's"
    )
    gpus: Annotated[Literal["auto"] | int, BeforeValidator(_parse_gpus)] = Field(
        default="auto",
        description="engine vllm: GPUs to use, each with an engine; auto: all of the first one's kind",
    )
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that one model is split across")
    enforce_eager: bool | None = Field(
        default=None, description="disable CUDA graphs: slower, but starts sooner; null: the preset's"
    )
    torch_compile: Annotated[Literal["on", "off", "auto"], BeforeValidator(_lower)] = Field(
        default="on",
        description="compile the decoder; off: starts sooner without a cache, and may read more slowly; auto: only if "
        "ENGINE_CACHE has the code, which `twopass warm-up` stores",
    )
    block_size: int | None = Field(default=None, description="tokens per KV cache block; null: vLLM's default")
    engine_cache: str | None = Field(
        default=None,
        description="compiled code: a folder, or s3://bucket/prefix/, which workers share; null: vLLM's own folders",
    )
    engine_cache_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="a secret that signs the code in a bucket; null: not signed",
    )
    draw_views: bool = Field(
        default=False,
        description="render PDF pages at the size of the model's tiles; false: resize, as officially",
    )
    small_crops: bool = Field(
        default=False, description="read crops of up to 640 pixels with 100 instead of 256 vision tokens"
    )
    max_tiles: int | None = Field(
        default=None,
        ge=2,
        le=32,
        description=f"{name_models(lambda model: model.takes_max_tiles)}: most tiles of an image, which take memory "
        "and time; null: 12",
    )
    structure: Annotated[Literal["auto", "model", "detector", "fallback"], BeforeValidator(_lower)] = Field(
        default="auto",
        description="what finds a page's regions: model, detector, or fallback (the detector where the model fails); "
        f"auto: detector for {name_models(lambda model: model.reads_regions)}, else model",
    )
    detector_dir: Path | None = Field(
        default=None, description="folder of the layout detector's weights; null: searched for"
    )
    detector_device: Annotated[Literal["auto", "cpu", "cuda"], BeforeValidator(_lower)] = Field(
        default="auto", description="where the layout detector runs: cpu or cuda; auto: the GPU if there is one"
    )
    detector_compile: bool = Field(
        default=False,
        description="compile the layout detector: pays off after thousands of pages",
    )
    tessdata_dir: Path | None = Field(
        default=None,
        description="cpu engine: folder of Tesseract's language files; null: that of Debian's packages",
    )
    layer_text: bool = Field(
        default=False,
        description="take the words of regions from a complete text layer, not the model",
    )
    missed_questions: int = Field(
        default=MISSED_QUESTIONS,
        ge=0,
        description="most questions per page about text that the first reading missed",
    )
    load_format: str = Field(default="auto", description="dummy: random weights, for benchmarks without a model")
    stream_interval: int = Field(default=128, ge=1, description="tokens generated between two loop checks")
    draft_tokens: int | None = Field(
        default=None,
        ge=0,
        le=15,
        description="tokens of an answer, drafted from known text, that vLLM verifies in a step; half as many of each "
        f"if there are more than 64 answers; for {name_models(lambda model: model.is_drafted, by_title=True)}; 0 for "
        "none; null: 8 on H100 and H200, 0 on other GPUs",
    )
    logprobs: bool = Field(
        default=False, description="take confidence from token probabilities if nothing else gives one"
    )
    engine_restarts: int = Field(default=6, ge=0, description="restarts of each engine per hour")
    engine_start_s: float = Field(default=300.0, gt=0, description="time limit for restarting a dead engine")
    engine_silence_s: float = Field(
        default=120.0,
        gt=0,
        description="a busy engine that is silent for so long is restarted; longer if its steps are slow",
    )
    shutdown_timeout_s: int = Field(
        default=20, ge=0, description="time for the engine to finish its prompts at shutdown"
    )
    canary: Annotated[Literal["enforce"] | bool, BeforeValidator(_lower)] = Field(
        default=True,
        description="read known images at start; true: a misread one is a problem of every document, and ends the "
        "worker once `twopass accept` has passed; enforce: it always does",
    )
    canary_timeout_s: float = Field(
        default=300.0, gt=0, description="time limit for the canary, including a cold start"
    )

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, name: str) -> str:
        if name not in ("auto", *PRESET_NAMES):
            raise ValueError(f"unknown preset; choose auto, {', '.join(PRESET_NAMES)}")
        return name


class EngineSettings(BaseSettings):
    """What reads the pages. `OPENAI_…` are those of engine openai."""

    engine: Annotated[EngineName, BeforeValidator(_lower)] = Field(
        default="cpu", description="the engine: cpu, vllm, openai, hf or replay"
    )
    engine_sequences: int = Field(default=0, ge=0, description="prompts at once; 0: the engine's default")
    replay_dir: Path | None = Field(default=None, description="folder of recorded answers, for engine replay")
    allow_download: bool = Field(default=False, description="download missing weights from Hugging Face")
    openai_base_url: str | None = Field(default=None, description="the server's address; ends in /v1")
    openai_api_key: SecretStr | None = Field(default=None, description="the server's key; null: none")
    openai_model: str | None = Field(default=None, description="model name; null: the server's first")
    openai_family: str = Field(default=DEFAULT_MODEL, description="model family: prompts and parser")
    openai_timeout_s: float = Field(default=300.0, gt=0, description="longest wait for the next token")
    openai_tries: int = Field(default=8, ge=1, description="attempts per request while the server is busy")
    openai_plain: bool = Field(default=False, description="omit request fields that only vLLM accepts")
    openai_priority: bool = Field(
        default=False, description="send priorities; needs a server with --scheduling-policy priority"
    )
    openai_modes: bool = Field(
        default=False, description="send mode and max_crops; needs a server with twopass's vLLM plugin"
    )


class WorkerSettings(BaseSettings):
    """What a worker does at once, and its child processes."""

    concurrency: int = Field(default=4, ge=1, le=64, description="jobs that a worker runs at once")
    page_workers: int = Field(
        default=0, ge=0, description="child processes for rendering and other CPU work; 0: one per core"
    )
    worker_timeout_s: float = Field(
        default=120.0,
        gt=0,
        description="processor seconds of a page worker for one page, or to open a document",
    )
    worker_memory_bytes: int = Field(
        default=4096 * MEGABYTE,
        ge=512 * MEGABYTE,
        description="a page worker that takes more memory is killed",
    )
    worker_calls: int = Field(default=1000, ge=1, description="calls after which a page worker is replaced")
    window: int = Field(default=0, ge=0, description="most pages in flight; 0: 1.25 times the sequences of all engines")
    window_bytes: int = Field(
        default=0,
        ge=0,
        description="most bytes of pixels in flight; 0: 6 MB per page, at least 2 GiB",
    )


class SourceSettings(BaseSettings):
    """Which sources are read, and how large they may be."""

    max_source_bytes: int = Field(default=1024 * MEGABYTE, gt=0, description="larger sources are rejected")
    max_pages: int = Field(default=5000, gt=0, description="documents with more pages are rejected")
    max_page_pixels: int = Field(default=40_000_000, gt=0, description="larger pages are scaled down to this size")
    max_image_pixels: int = Field(
        default=250_000_000,
        gt=0,
        description="image files with more pixels are rejected unopened; 250 million take up to 1.7 GB of memory. "
        "WebP, JPEG 2000, AVIF and HEIC are read up to 150 million",
    )
    min_free_disk_bytes: int = Field(
        default=1024 * MEGABYTE, ge=0, description="a worker with less free disk does not serve"
    )
    fetch_timeout_s: float = Field(default=300.0, gt=0, description="time limit for fetching one source")
    allow_private_sources: bool = Field(
        default=False, description="allow https sources and S3 endpoints on private addresses"
    )
    allow_volume: bool = Field(default=False, description="allow /runpod-volume paths as source and output")
    volume: Path = Field(default=Path("/runpod-volume"), description="mount point of the network volume")
    allowed_dir: Path | None = Field(default=None, description="with --rp_serve_api: the only folder for local paths")


class StorageSettings(BaseSettings):
    """Where artefacts go."""

    bucket_endpoint_url: str | None = Field(default=None, description="S3 endpoint; null: AWS")
    bucket_access_key_id: str | None = Field(default=None, description="S3 key; null: the AWS credential chain")
    bucket_secret_access_key: SecretStr | None = Field(
        default=None, description="S3 secret; null: the AWS credential chain"
    )
    bucket_name: str | None = Field(default=None, description="default bucket for artefacts")
    bucket_region: str | None = Field(default=None, description="S3 region")
    bucket_prefix: str = Field(default="twopass", description="default prefix in the default bucket")
    output_dir: Path = Field(default=Path("output"), description="folder for artefacts of local runs")
    store_patience_s: float = Field(
        default=60.0, ge=0, description="time limit for retries of one call to a failing store"
    )
    multipart_bytes: int = Field(
        default=8 * MEGABYTE, ge=5 * MEGABYTE, description="larger objects are uploaded in parts"
    )


class JobSettings(BaseSettings):
    """Times and prices of a job."""

    deadline_s: float = Field(default=540.0, gt=0, description="soft deadline of jobs that set none")
    write_reserve_s: float = Field(default=30.0, ge=0, description="time after the deadline for writing what was read")
    shutdown_grace_s: float = Field(default=20.0, ge=0, description="time after SIGTERM for finishing pages in flight")
    progress_interval_s: float = Field(default=2.0, gt=0, description="time between two progress posts")
    progress_file_interval_s: float = Field(
        default=10.0, gt=0, description="time between two writes of progress.json, which cost money"
    )
    progress_drain_s: float = Field(
        default=3.0, gt=0, description="longest wait for the last progress post before the result"
    )
    furniture: Annotated[Furniture | None, BeforeValidator(_lower)] = Field(
        default=None,
        description="furniture of jobs that set none: auto, keep or omit; null: as in the existing document, else auto",
    )
    price_per_second: float | None = Field(
        default=None, ge=0, description="price of one GPU second; null: no cost in results"
    )


class ServeSettings(BaseSettings):
    """`twopass serve`."""

    serve_host: str = Field(default="127.0.0.1", description="the address to listen on; 0.0.0.0: all")
    port: int = Field(default=8000, ge=0, le=65535, description="the port; RunPod's load balancer sets it")
    serve_api_key: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="the key of requests; required unless SERVE_HOST is local",
    )
    serve_webhook_secret: SecretStr | None = Field(
        default=None, description="signs webhooks, `whsec_` and base64; null: jobs can name none"
    )
    serve_dir: Path = Field(default=Path("served"), description="folder of jobs, their documents and results")
    serve_connections: int = Field(
        default=64,
        ge=1,
        description="connections from one address",
    )
    serve_queue: int = Field(default=100, ge=0, description="jobs that may wait; more are refused")
    serve_retention_s: float = Field(default=604_800.0, gt=0, description="ended jobs are deleted after so long")


class TelemetrySettings(BaseSettings):
    """Metrics, traces and logs."""

    metrics_port: int = Field(default=0, ge=0, le=65535, description="port for Prometheus metrics and /health; 0: none")
    metrics_push_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Prometheus Pushgateway that gets the metrics every 15 seconds; null: none",
    )
    otel_exporter_otlp_endpoint: str | None = Field(
        default=None, description="OpenTelemetry endpoint for traces; null: none"
    )

    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = Field(
        default="INFO", description="DEBUG, INFO, WARNING or ERROR"
    )
    log_format: Annotated[LogFormat | None, BeforeValidator(_lower)] = Field(
        default=None,
        description="json: one object per line; text: for people; quiet: only errors and the summary of a local run; "
        "null: json on RunPod, else text",
    )
    runpod_endpoint_id: str | None = Field(
        default=None, description="set by RunPod; logs are then JSON unless LOG_FORMAT=text"
    )
    runpod_pod_id: str | None = Field(default=None, description="set by RunPod: this worker's id")


# The groups of settings: the tables of twopass.toml and of docs/configuration.md.
GROUPS: Mapping[str, type[BaseSettings]] = MappingProxyType(
    {
        "engine": EngineSettings,
        "model": ModelSettings,
        "worker": WorkerSettings,
        "sources": SourceSettings,
        "storage": StorageSettings,
        "jobs": JobSettings,
        "serve": ServeSettings,
        "telemetry": TelemetrySettings,
    }
)
CONFIG_FILE = "twopass.toml"
CONFIG_VARIABLE = "TWOPASS_CONFIG"  # names another file


def find_config_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that TWOPASS_CONFIG names, or else twopass.toml in the working directory; None without either."""
    if named := environment.get(CONFIG_VARIABLE):
        return Path(named)
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None


class _ConfigFile(TomlConfigSettingsSource):
    """The settings in a file, each as text, as a variable would hold it: `preset = 24` and `preset = "24"` are equal.

    `tables` is the file itself, for errors: here, what is no setting is left out.
    """

    def __init__(self, path: Path | None) -> None:
        self.tables: dict[str, Any] = {}
        super().__init__(Settings, path)

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        self.tables = super()._read_file(file_path)
        groups = [self.tables, *(self.tables[name] for name in GROUPS if isinstance(self.tables.get(name), dict))]
        values = {name.lower(): value for group in groups for name, value in group.items()}
        return {
            name: _to_text(value)
            for name, value in values.items()
            if isinstance(value, str | int | float) and value != ""
        }


def _to_text(value: str | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Settings(
    TelemetrySettings,
    ServeSettings,
    JobSettings,
    StorageSettings,
    SourceSettings,
    WorkerSettings,
    ModelSettings,
    EngineSettings,
):
    """Every setting of the worker. The environment variable is the field's name in capitals.

    A variable comes before twopass.toml. Names of engine settings are those of RunPod's vLLM worker.
    """

    # Empty variables count as unset: forms leave fields blank.
    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", case_sensitive=False, env_ignore_empty=True, hide_input_in_errors=True
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Addresses without secrets: this is shown where a log, a test or a debugger shows the settings."""
        for name, value in super().__repr_args__():
            if name == "bucket_access_key_id" and value:
                yield name, _HIDDEN
            elif isinstance(value, (str, Path)) and not isinstance(value, StrEnum):
                yield name, type(value)(redact_address(str(value)))
            else:
                yield name, value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _ConfigFile(find_config_file())

    @property
    def page_worker_count(self) -> int:
        return self.page_workers or len(os.sched_getaffinity(0))

    @property
    def writes_json_logs(self) -> bool:
        return self.log_format is LogFormat.JSON or (
            self.log_format is not LogFormat.TEXT and self.runpod_endpoint_id is not None
        )

    @property
    def default_output(self) -> str | None:
        """Where artefacts go if the job does not say; None without a default bucket."""
        return f"s3://{self.bucket_name}/{self.bucket_prefix.strip('/')}/" if self.bucket_name else None


def load_settings(**fixed: Any) -> Settings:
    """Read the settings from the environment and twopass.toml; `fixed` ones take precedence over both.

    Raises InvalidSetting, which names every wrong setting but not its value, which may be secret.
    """
    in_file = _read_config_file()
    try:
        return Settings(**fixed)
    except ValidationError as error:
        problems = [
            f"{_name_origin(str(problem['loc'][0]), in_file, fixed)}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False, include_context=False)
        ]
    advice = f"correct or unset {'it' if len(problems) == 1 else 'them'}"
    raise InvalidSetting(Code.INVALID_SETTING, f"{'; '.join(problems)}; {advice}")


def _read_config_file() -> Collection[str]:
    """The names of the settings in twopass.toml; raises InvalidSetting for a file that is not as it should be.

    Unlike the environment, it has no names of other programs: every unknown one is refused.
    """
    path = find_config_file()
    if path is None:
        return ()
    try:
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file")
        file = _ConfigFile(path)
    except (OSError, ValueError) as error:  # TOML and its encoding raise ValueError
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{path}: cannot be read ({reason}); correct it, or {CONFIG_VARIABLE} if that names it"
        raise InvalidSetting(Code.INVALID_SETTING, message) from None
    if problems := list(_find_wrong_names(file.tables)):
        raise InvalidSetting(Code.INVALID_SETTING, f"{path}: {'; '.join(problems)}")
    return frozenset(file.init_kwargs)


def _find_wrong_names(tables: Mapping[str, Any]) -> Iterator[str]:
    """Describe each name in a configuration file that is no setting, or is not in its group."""
    for name, value in tables.items():
        if not isinstance(value, dict):
            yield from _find_wrong_name(name, value, "", Settings)
        elif name in GROUPS:
            for inner, setting in value.items():
                yield from _find_wrong_name(inner, setting, f"[{name}] ", GROUPS[name])
        else:
            groups = [f"[{group}]" for group in GROUPS]
            advice = suggest(name, groups) or f"; known are {', '.join(groups)}"
            yield f"[{name}]: unknown group{advice}"


def _find_wrong_name(name: str, value: object, place: str, group: type[BaseSettings]) -> Iterator[str]:
    name = name.lower()
    if name not in Settings.model_fields:
        yield f"{place}{name}: unknown setting{suggest(name, [*Settings.model_fields])}"
    elif name not in group.model_fields:
        home = next(title for title, fields in GROUPS.items() if name in fields.model_fields)
        yield f"{place}{name}: belongs into [{home}]"
    elif not isinstance(value, str | int | float):
        yield f"{place}{name}: must be a text, a number, true or false"


def _name_origin(name: str, in_file: Collection[str], fixed: Mapping[str, Any]) -> str:
    """A wrong setting as its variable, or as its name in twopass.toml if the value comes from there."""
    is_variable = any(variable.lower() == name and value for variable, value in os.environ.items())
    is_from_file = name in in_file and name not in fixed and not is_variable
    return f"{find_config_file()}: {name}" if is_from_file else name.upper()


def find_misspelt(environment: Mapping[str, str] = os.environ) -> str | None:
    """Say which variables are probably misspelt settings, and what was meant; None if there are none.

    An empty variable counts as not set.
    """
    settings = [*(name.upper() for name in Settings.model_fields), CONFIG_VARIABLE]
    found = {name: _find_meant(name.upper(), settings) for name, value in sorted(environment.items()) if value}
    messages = [f"{name}: unknown setting; did you mean {meant}?" for name, meant in found.items() if meant]
    return " ".join(messages) or None


def _find_meant(name: str, settings: list[str]) -> str | None:
    is_known = name in settings or name in FOREIGN or name.startswith(FOREIGN_PREFIXES)
    return None if is_known else find_similar(name, settings)


def find_similar(name: str, choices: Iterable[str]) -> str | None:
    """The choice that a misspelt name is closest to; None if none is close.

    Close is one letter that is missing, added, wrong or swapped with the next one; two for a long choice.
    """
    from rapidfuzz.distance import OSA  # not at import: it would delay every start

    if len(name) < MIN_LENGTH:
        return None
    errors, closest = min((OSA.distance(name, choice), choice) for choice in choices)
    return closest if errors <= (2 if len(closest) >= _LONG else 1) else None
