"""handler.py with the vLLM engine behind the unmodified SDK, from the command line to the result."""

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
    """The model is random: what counts is that it starts, is asked, and that every page has an end and a reason."""
    folder = tiny.checkpoint(tmp_path / "tiny")
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

    assert run.returncode == 1, run.stderr[-3000:]  # nothing usable was read
    assert "TRUNCATED" in run.stderr
    (path,) = (tmp_path / "out").glob("*/document.json")
    read = json.loads(path.read_text())
    assert [attempt["finish_reason"] for attempt in read["pages"][0]["attempts"]] == ["length"] * 4
    assert (read["pages"][0]["state"], read["pages"][0]["reason"]) == ("failed", "TRUNCATED")
    assert read["run"]["options"]["engine"] == "vllm"
