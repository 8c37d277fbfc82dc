"""Fixtures of the suite of model families: run with `make test-families`, in the virtual environment of test-vllm."""

from __future__ import annotations

from tests.vllm.conftest import bare_environment as bare_environment  # importing it sets vLLM's environment
