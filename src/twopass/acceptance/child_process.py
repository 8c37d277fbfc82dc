"""Run a module of this package in a process of its own: `python -m MODULE IN OUT`, both files in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twopass.errors import Code, EngineError

SHOWN = 1500  # characters of the log's end in the error message


def run(
    module: str, job: Mapping[str, Any], folder: Path, environment: Mapping[str, str], name: str,
    limit_s: float | None = None,
) -> Any:  # fmt: skip
    """What the module writes about the job; `folder` is for both files, `name` for messages.

    Raises EngineError if the process fails, or takes longer than `limit_s`.
    """
    source, target = folder / "in.json", folder / "out.json"
    source.write_text(json.dumps(job))
    command = [sys.executable, "-m", module, str(source), str(target)]
    try:
        ended = subprocess.run(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        message = f"{name} did not answer within {limit_s} s; the GPU may hang: start again"
        raise EngineError(Code.ENGINE_DEAD, message) from None
    if ended.returncode:
        message = f"{name} ended with {ended.returncode}: {' '.join(ended.stdout.split())[-SHOWN:]}"
        raise EngineError(Code.ENGINE_DEAD, message)
    return json.loads(target.read_text())
