"""Tests of Triton kernels without a GPU, in Triton's interpreter: run by `make test-vllm`, in processes of their own.

vLLM must not find Triton where it runs an engine on a CPU, so these tests start no engine.
"""

from __future__ import annotations

import os

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined


@pytest.fixture(autouse=True)
def bare_environment() -> None:
    """Keep the environment: a kernel is defined at its first use."""
