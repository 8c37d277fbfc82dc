"""Our SAM gives the features of vLLM's own, in a process where Triton's kernels are interpreted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.vllm import compare_sam


def test_features_equal_the_stock_models() -> None:
    """In float32, where any error in the kernel is far larger than rounding."""
    script = Path(__file__).with_name("compare_sam.py")
    process = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )

    assert process.returncode == 0, process.stderr
    differences = json.loads(process.stdout.splitlines()[-1])
    assert set(map(int, differences)) == set(compare_sam.SIDES)
    assert max(differences.values()) < 1e-5
