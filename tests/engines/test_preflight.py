"""The checks before a worker serves, against scripted GPUs, and how a failed check reaches RunPod."""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.fakes.queue import LoopbackQueue
from twopass.engines import factory, preflight
from twopass.engines.gpus import GpuInfo
from twopass.errors import Code, EngineError, InvalidSetting
from twopass.settings import Settings

H200 = GpuInfo(1, 150.0, 149.0, (13, 0))
CUDA = (13, 0)


def catch_error(check: Any, settings: Settings, *args: Any) -> str:
    with pytest.raises(EngineError) as caught:
        check(settings, *args)
    return str(caught.value)


def test_another_platform_than_linux_is_an_error() -> None:
    """The message names the platform and what to use instead."""
    message = catch_error(preflight.check_platform, "darwin")

    assert message.startswith(f"{Code.PLATFORM}: ") and "this is darwin" in message and "container" in message
    preflight.check_platform("linux")


@pytest.mark.parametrize(
    ("fields", "gpus", "expected"),
    [
        (
            {"engine": "vllm"},
            GpuInfo(),
            "engine vllm needs an NVIDIA GPU, and none was found, and vllm, which is not installed: make gpu; "
            "ENGINE=cpu needs neither",
        ),
        ({"engine": "vllm"}, H200, "engine vllm needs vllm, which is not installed: make gpu"),
        ({"engine": "vllm", "preset": "cpu"}, GpuInfo(), "engine vllm needs vllm, which is not installed: make gpu"),
        (
            {"engine": "hf"},
            GpuInfo(),
            "engine hf needs torch and transformers, which are not installed: python -m pip install '.[hf]'",
        ),
    ],
)
def test_a_machine_without_the_engines_packages_is_an_error(
    fields: dict[str, Any], gpus: GpuInfo, expected: str
) -> None:
    """The message names the packages with the command that installs them, and the GPU where one is missing, too."""
    message = catch_error(preflight.check_engine, Settings(**fields), lambda name: None, lambda: gpus)

    assert message == f"{Code.PLATFORM}: {expected}"


def test_an_installed_engine_without_its_gpu_is_an_error_of_the_driver() -> None:
    """A PyTorch with CUDA on a machine without a GPU: probably the host's driver is broken."""
    message = catch_error(
        preflight.check_engine, Settings(engine="vllm"), lambda name: True, lambda: GpuInfo(), lambda: CUDA
    )

    assert message.startswith(f"{Code.ENGINE_DEAD}: 1 GPUs are required and 0 were found")


@pytest.mark.parametrize("engine", ["cpu", "openai", "replay"])
def test_engines_without_packages_of_their_own_need_no_gpu(engine: str) -> None:
    """Nothing is looked for."""
    preflight.check_engine(Settings(engine=engine), lambda name: None, lambda: GpuInfo())


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_the_machine_is_checked_before_the_weights(tmp_path: Path) -> None:
    """Who chose ENGINE=vllm on a laptop is not told first to download the weights."""
    with pytest.raises(EngineError, match="PLATFORM: engine vllm needs"):
        factory.create_engine(Settings(engine="vllm", model_dir=tmp_path / "missing"))


def test_too_little_disk_space_is_an_error() -> None:
    """A worker without room for its sources stops and asks for a larger container disk."""
    message = catch_error(preflight.check_disk, Settings(min_free_disk_bytes=1 << 60))

    assert message.startswith(Code.STORE_UNAVAILABLE) and "larger container disk" in message
    preflight.check_disk(Settings(min_free_disk_bytes=1))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (GpuInfo(), "1 GPUs are required and 0 were found"),
        (GpuInfo(1, 150.0, 149.0, (12, 8)), "the driver supports CUDA 12.8 and PyTorch requires 13.0"),
    ],
)
def test_an_unsuitable_driver_is_an_error(gpus: GpuInfo, expected: str) -> None:
    """A missing GPU or an old driver is reported with advice before vLLM fails on it."""
    message = catch_error(preflight.check_driver, Settings(), gpus, lambda: CUDA)

    assert message.startswith(Code.ENGINE_DEAD) and expected in message


def test_a_model_over_two_gpus_needs_two() -> None:
    """Tensor parallelism over two ranks is refused on a machine with one GPU."""
    message = catch_error(preflight.check_driver, Settings(tensor_parallel_size=2), H200, lambda: CUDA)

    assert "2 GPUs are required and 1 were found" in message


@pytest.mark.parametrize(
    ("preset", "gpus", "required"),
    [
        ("auto", H200, CUDA),
        ("auto", GpuInfo(1, 25.8, 25.0, (13, 1)), CUDA),
        ("rtx4090", GpuInfo(1, 25.8, 25.0, (13, 1)), CUDA),
        ("auto", GpuInfo(), (0, 0)),  # a PyTorch without CUDA runs on the CPU
        ("cpu", GpuInfo(), CUDA),
    ],
)
def test_a_suitable_machine_passes(preset: str, gpus: GpuInfo, required: tuple[int, int]) -> None:
    """Neither the driver check nor the memory check raises for a machine that fits the preset."""
    preflight.check_driver(Settings(preset=preset), gpus, lambda: required)
    preflight.check_memory(Settings(preset=preset), gpus)


@pytest.mark.parametrize(
    ("fields", "gpus", "expected"),
    [
        ({"preset": "80"}, GpuInfo(1, 25.8, 25.0, CUDA), "preset 80 does not fit a GPU of 26 GB"),
        ({}, GpuInfo(1, 150.0, 40.0, CUDA), "132 GB of GPU memory are needed and 40 are free"),
        ({"gpu_memory_utilization": 0.5}, GpuInfo(1, 100.0, 40.0, CUDA), "50 GB of GPU memory are needed"),
    ],
)
def test_too_little_gpu_memory_is_an_error(fields: dict[str, Any], gpus: GpuInfo, expected: str) -> None:
    """A GPU that is too small for its preset is refused, and so is one whose memory another process uses."""
    message = catch_error(preflight.check_memory, Settings(**fields), gpus)

    assert message.startswith(Code.ENGINE_MEMORY) and expected in message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"engine": "openai"}, "OPENAI_BASE_URL: engine openai needs the server's address"),
        ({"engine": "openai", "openai_base_url": "localhost:8000"}, "OPENAI_BASE_URL: localhost:8000 is not a valid"),
        ({"engine": "replay"}, "REPLAY_DIR: engine replay needs a folder"),
        ({"engine": "replay", "replay_dir": "/missing"}, "REPLAY_DIR: /missing is not a folder"),
        ({"engine": "hf", "model": "glm_ocr"}, "MODEL: engine hf cannot run glm_ocr"),
        ({"tessdata_dir": "/missing"}, "TESSDATA_DIR: /missing is not a folder"),
        ({"bucket_endpoint_url": "http://[::1"}, "BUCKET_ENDPOINT_URL: not a valid address"),
        ({"bucket_endpoint_url": "localhost:9000"}, "BUCKET_ENDPOINT_URL: not a valid address"),
        *(
            ({"engine_cache": place}, "cannot hold compiled code; name a folder, or a prefix")
            for place in ("s3://bucket", "s3://bucket/", "s3:///prefix", "https://host/prefix", "gs://bucket/prefix")
        ),
        ({"bucket_endpoint_url": "https://s3.host:port"}, "BUCKET_ENDPOINT_URL: not a valid address"),
        ({"bucket_secret_access_key": "secret"}, "BUCKET_ACCESS_KEY_ID: missing"),
    ],
)
def test_settings_that_do_not_fit_together_are_named(fields: dict[str, Any], expected: str) -> None:
    """Each is an invalid setting, found without opening anything; the value of a key is not shown."""
    with pytest.raises(InvalidSetting) as caught:
        preflight.check_settings(Settings(**fields))

    assert expected in caught.value.message and "secret" not in caught.value.message.replace("SECRET", "")


def test_usual_settings_fit_together(tmp_path: Path) -> None:
    """The defaults, a server, recorded answers and a bucket with keys are accepted."""
    keys = {"bucket_access_key_id": "a", "bucket_secret_access_key": "b", "bucket_endpoint_url": "http://s3:9000"}
    for fields in (
        {},
        {"engine": "openai", "openai_base_url": "http://localhost:8000/v1"},
        {"engine": "replay", "replay_dir": tmp_path},
        {"tessdata_dir": tmp_path, "allowed_dir": tmp_path, **keys},
    ):
        preflight.check_settings(Settings(**fields))


def test_a_port_in_use_is_an_invalid_setting() -> None:
    """The message names the setting and the port; a free port passes."""
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InvalidSetting, match=f"METRICS_PORT: port {port} cannot be opened .Address already"):
            preflight.check_port("METRICS_PORT", port)

    preflight.check_port("METRICS_PORT", 0)


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"MIN_FREE_DISK_BYTES": str(1 << 60)}, Code.STORE_UNAVAILABLE),
        ({"CONCURRENCY": "plenty"}, Code.INVALID_SETTING),
        ({"ENGINE": "hf", "MODEL_DIR": "/nowhere"}, Code.WEIGHTS_MISSING if find_spec("torch") else Code.PLATFORM),
    ],
)
def test_a_failed_check_is_reported_to_runpod(env: dict[str, str], code: Code) -> None:
    """The SDK reports the worker as unhealthy with our error code; the process exits and takes no job."""
    with LoopbackQueue() as queue:
        job = queue.put({"input": {"source": "s3://bucket/a.pdf"}})
        with queue.worker([sys.executable, ROOT / "handler.py"], cwd=ROOT, env=env) as worker:
            exit_code = worker.wait(180)
        (report,) = [ping.query for ping in queue.pings if ping.query.get("status") == "unhealthy"]

        assert exit_code == 1
        assert report["check"] == "engine" and code in report["reason"]
        assert not any(job in take.job_ids for take in queue.takes)
        assert "Traceback" not in worker.log
