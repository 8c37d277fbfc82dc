"""Switch off what libraries report to their vendors, and the ids that they write for it."""

from __future__ import annotations

import os

# Each library reads its variable when it is loaded, so all are set before, here and in every child process.
# SECURITY.md says what each would report.
SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime; its function comes too late: an id is written by the import
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub, and transformers, which asks it
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",  # what several libraries agreed on; vLLM and huggingface_hub are among them
}


def switch_off() -> None:
    """Set the variables in this process, whatever they were before."""
    os.environ.update(SWITCHES)
