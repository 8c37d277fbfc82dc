"""Our SAM against vLLM's own, in a process where Triton's kernels are interpreted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.vllm import sam_alike


def test_features_equal_the_stock_models() -> None:
    """In float32: whatever the kernel leaves out, adds or puts elsewhere is far more than rounding."""
    script = Path(__file__).with_name("sam_alike.py")
    told = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )

    assert told.returncode == 0, told.stderr
    far = json.loads(told.stdout.splitlines()[-1])
    assert set(map(int, far)) == set(sam_alike.SIDES)
    assert max(far.values()) < 1e-5
