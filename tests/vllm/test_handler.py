"""handler.py with the vLLM engine and the unmodified RunPod SDK, from the command line to the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pymupdf

from tests import ROOT
from tests.vllm import tiny


def test_a_job_is_read_from_the_command_line(tmp_path: Path) -> None:
    """The model is random: the test is that it starts and gets prompts, and that each page has a state and a reason."""
    folder = tiny.write_checkpoint(tmp_path / "tiny")
    source = tmp_path / "page.pdf"
    with pymupdf.open() as pdf:
        pdf.new_page(width=200, height=200).draw_circle((100, 100), 60, fill=(0, 0, 1))
        pdf.save(source)
    job = {"source": str(source), "output": str(tmp_path / "out"), "mode": "tiny", "sampling": {"max_tokens": 4}}

    run = subprocess.run(
        [sys.executable, str(ROOT / "handler.py"), "--test_input", json.dumps({"input": job})],
        env={
            **os.environ, "ENGINE": "vllm", "MODEL_DIR": str(folder), "LOAD_FORMAT": "dummy", "CANARY": "false",
            "GPU_MEMORY_UTILIZATION": "0.3", "PAGE_WORKERS": "1",
        },
        capture_output=True, text=True, timeout=400, cwd=tmp_path,
    )  # fmt: skip

    assert run.returncode == 1, run.stderr[-3000:]  # no page was readable
    assert "TRUNCATED" in run.stderr
    (path,) = (tmp_path / "out").glob("*/document.json")
    document = json.loads(path.read_text())
    assert [attempt["finish_reason"] for attempt in document["pages"][0]["attempts"]] == ["length"] * 4
    assert (document["pages"][0]["state"], document["pages"][0]["reason"]) == ("failed", "TRUNCATED")
    assert document["run"]["options"]["engine"] == "vllm"
