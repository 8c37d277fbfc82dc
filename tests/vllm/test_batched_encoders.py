"""Our SAM and CLIP give the features of vLLM's own, in a process where Triton's kernels are interpreted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import ModuleType

import pytest

from tests.vllm import compare_clip, compare_sam


@pytest.mark.parametrize("script", [compare_sam, compare_clip], ids=["sam", "clip"])
def test_features_equal_the_stock_models(script: ModuleType) -> None:
    """In float32, where any error in a kernel is far larger than rounding."""
    process = subprocess.run(
        [sys.executable, str(script.__file__)], env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True,
    )  # fmt: skip

    assert process.returncode == 0, process.stderr
    differences = json.loads(process.stdout.splitlines()[-1])
    assert set(map(int, differences)) == set(script.SIDES)
    assert max(differences.values()) < 1e-5
