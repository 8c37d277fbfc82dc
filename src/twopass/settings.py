"""The environment in, one frozen Settings out; read once, by the door that is used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from twopass.engine_settings import EngineSettings

MEGABYTE = 1 << 20


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class Settings(EngineSettings):
    """Every setting of the worker; an environment variable carries the field's name in capitals."""

    # An empty variable is a field somebody left blank in a form, and not a value.
    model_config = SettingsConfigDict(frozen=True, extra="ignore", case_sensitive=False, env_ignore_empty=True)

    engine: str = Field("cpu", description="what reads: cpu, vllm, openai, hf, replay")
    engine_sequences: int = Field(0, ge=0, description="prompts the engine works on at once; 0: what suits the engine")
    replay_dir: Path | None = Field(None, description="folder of recorded answers, for engine replay")
    allow_download: bool = Field(False, description="fetch weights that are nowhere from the Hugging Face hub")
    openai_base_url: str | None = Field(None, description="engine openai: the server's address; ends in /v1")
    openai_api_key: SecretStr | None = Field(None, description="engine openai: the server's key; null: none")
    openai_model: str | None = Field(None, description="engine openai: null: the first that the server lists")
    openai_family: str = Field("deepseek_ocr", description="engine openai: how to ask that model and read its answers")
    openai_timeout_s: float = Field(300.0, gt=0, description="engine openai: longest silence before and in an answer")
    openai_tries: int = Field(8, ge=1, description="engine openai: tries of a request that the server is too busy for")
    openai_plain: bool = Field(False, description="engine openai: leave out the fields that only vLLM knows")
    openai_priority: bool = Field(
        False, description="engine openai: send priorities; the server runs with --scheduling-policy priority"
    )
    openai_modes: bool = Field(
        False, description="engine openai: send mode and max_crops; the server runs with twopass's vLLM plugin"
    )

    concurrency: int = Field(4, ge=1, le=64, description="jobs one worker takes at once; they share the engine")
    page_workers: int = Field(0, ge=0, description="child processes for rendering and other CPU work; 0: one per core")
    worker_timeout_s: float = Field(120.0, gt=0, description="a page worker's call that runs longer is killed")
    worker_memory_bytes: int = Field(
        4096 * MEGABYTE, ge=512 * MEGABYTE, description="a page worker that takes more memory of its own is killed"
    )
    worker_calls: int = Field(1000, ge=1, description="calls after which a page worker is replaced by a fresh one")
    window: int = Field(0, ge=0, description="pages in flight; 0: 1.25 times the engine's sequences")
    window_bytes: int = Field(
        0,
        ge=0,
        description="bytes of page pixels in flight; 0: 6 MB for each page of the window, 2 GiB at least",
    )

    max_source_bytes: int = Field(1024 * MEGABYTE, gt=0, description="a larger source is refused")
    max_pages: int = Field(5000, gt=0, description="a document with more pages is refused")
    max_page_pixels: int = Field(40_000_000, gt=0, description="a larger page is scaled down to this")
    max_image_pixels: int = Field(250_000_000, gt=0, description="an image file with more pixels is refused unopened")
    min_free_disk_bytes: int = Field(1024 * MEGABYTE, ge=0, description="a worker with less disk refuses to serve")
    fetch_timeout_s: float = Field(300.0, gt=0, description="time for one source to arrive")
    allow_private_sources: bool = Field(False, description="allow https sources and job endpoints on private addresses")
    allow_volume: bool = Field(False, description="allow /runpod-volume paths as source and output")
    volume: Path = Field(Path("/runpod-volume"), description="where the network volume is mounted")
    allowed_dir: Path | None = Field(None, description="under --rp_serve_api, local paths only below this folder")

    bucket_endpoint_url: str | None = Field(None, description="S3 endpoint; null: AWS")
    bucket_access_key_id: str | None = Field(None, description="S3 key; null: the AWS chain")
    bucket_secret_access_key: SecretStr | None = Field(None, description="S3 secret; null: the AWS chain")
    bucket_name: str | None = Field(None, description="default bucket for artefacts")
    bucket_region: str | None = Field(None, description="S3 region")
    bucket_prefix: str = Field("twopass", description="default prefix in the default bucket")
    output_dir: Path = Field(Path("output"), description="folder for artefacts of local runs")
    store_patience_s: float = Field(60.0, ge=0, description="longest time for the tries of one call to a failing store")
    multipart_bytes: int = Field(8 * MEGABYTE, ge=5 * MEGABYTE, description="objects above this go up in parts")

    deadline_s: float = Field(540.0, gt=0, description="soft deadline of a job without its own")
    write_reserve_s: float = Field(30.0, ge=0, description="after the deadline: time to write what was read by then")
    shutdown_grace_s: float = Field(20.0, ge=0, description="after SIGTERM: time for pages under way to be finished")
    progress_interval_s: float = Field(2.0, gt=0, description="least time between two progress posts")
    progress_drain_s: float = Field(3.0, gt=0, description="longest wait for the last progress post before the result")
    price_per_second: float | None = Field(None, ge=0, description="price of one GPU second; null: no cost in results")

    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus metrics and /health on this port; 0: none")
    otel_exporter_otlp_endpoint: str | None = Field(None, description="where OpenTelemetry spans go; null: nowhere")

    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = Field(
        "INFO", description="DEBUG, INFO, WARNING or ERROR"
    )
    runpod_endpoint_id: str | None = Field(None, description="set by RunPod: logs go out as JSON")
    runpod_pod_id: str | None = Field(None, description="set by RunPod: this worker's id")

    @property
    def page_worker_count(self) -> int:
        """Page workers to start."""
        return self.page_workers or len(os.sched_getaffinity(0))

    @property
    def default_output(self) -> str | None:
        """Where artefacts go when the job does not say, None when nowhere."""
        return f"s3://{self.bucket_name}/{self.bucket_prefix.strip('/')}/" if self.bucket_name else None
