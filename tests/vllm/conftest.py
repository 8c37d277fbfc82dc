"""Fixtures of the suite that needs the real vLLM: run with `make test-vllm`, in a virtual environment of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vllm.short_encoders import sitecustomize  # acts in this process
from twopass.runtime import vendor_reports

_FOLDERS = [str(Path(sitecustomize.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
# One thread, because the suite runs in two processes. Thread binding fails in containers.
CPU_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1",
    "PYTHONPATH": os.pathsep.join(_FOLDERS),
}  # fmt: skip
# Set before torch is imported.
os.environ.update({**CPU_ENVIRONMENT, "HF_HUB_OFFLINE": "1", **vendor_reports.SWITCHES})


@pytest.fixture(autouse=True)
def bare_environment() -> None:
    """Keep the environment: vLLM and its child processes need the variables set above."""


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """DeepSeek-OCR-2 with random weights with which every part affects the output; written once for the session."""
    from tests.vllm import tiny_v2

    folder = tiny_v2.write_checkpoint(tmp_path_factory.mktemp("tiny_v2"))
    yield folder
    shutil.rmtree(folder)  # half a gigabyte, and pytest keeps the folders of the last three sessions
