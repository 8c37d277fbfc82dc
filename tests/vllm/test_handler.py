"""handler.py with the vLLM engine and the unmodified RunPod SDK, from the command line to the result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pymupdf
import pytest

from tests import ROOT
from tests.fakes.children import find_children, has_ended, open_ends
from tests.fakes.isolation import isolate
from tests.fakes.queue import LoopbackQueue
from tests.vllm import tiny
from tests.vllm.conftest import CPU_ENVIRONMENT

WAIT_S = 600  # for a busy machine
HANDLER = [sys.executable, str(ROOT / "handler.py")]
CACHE = "home/.cache/vllm/"
MEETING = "scratch/vllm_dist_"


@dataclass(frozen=True)
class Run:
    """A command that has ended, its folder, what it asked the network for, and the files that it left elsewhere."""

    ended: subprocess.CompletedProcess[str]
    folder: Path
    destinations: set[str]
    files: list[str]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model with random weights."""
    model = tiny.write_checkpoint(tmp_path_factory.mktemp("model") / "tiny")
    return {
        **CPU_ENVIRONMENT, "ENGINE": "vllm", "MODEL_DIR": str(model), "LOAD_FORMAT": "dummy", "CANARY": "false",
        "GPU_MEMORY_UTILIZATION": "0.3", "PAGE_WORKERS": "1",
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nothing but our own code tells vLLM to report nothing."""
    folder = tmp_path_factory.mktemp("handler")
    source = folder / "page.pdf"
    with pymupdf.open() as pdf:
        pdf.new_page(width=200, height=200).draw_circle((100, 100), 60, fill=(0, 0, 1))
        pdf.save(source)
    job = {"source": str(source), "output": str(folder / "out"), "mode": "tiny", "sampling": {"max_tokens": 4}}
    with isolate(folder) as machine:
        ended = subprocess.run(
            [*HANDLER, "--test_input", json.dumps({"input": job})],
            env={**machine.environment, **settings},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=folder,
        )
        return Run(ended, folder, machine.list_destinations(), machine.list_files())


def test_a_job_is_read_from_the_command_line(run: Run) -> None:
    """It starts and gets prompts, and each page has a state and a reason."""
    assert run.ended.returncode == 1, run.ended.stderr[-3000:]  # no page was readable
    assert "TRUNCATED" in run.ended.stderr
    (path,) = (run.folder / "out").glob("*/document.json")
    document = json.loads(path.read_text())
    assert [attempt["finish_reason"] for attempt in document["pages"][0]["attempts"]] == ["length"] * 4
    assert (document["pages"][0]["state"], document["pages"][0]["reason"]) == ("failed", "TRUNCATED")
    assert document["run"]["options"]["engine"] == "vllm"


def test_the_engine_asks_nobody_and_leaves_only_its_cache(run: Run) -> None:
    """None of vLLM's processes connects to anything or looks up a name, and none writes an id."""
    assert run.destinations == set()
    # MEETING is where vLLM's processes find each other; it stays if a busy machine makes the core's end a kill.
    assert [name for name in run.files if not name.startswith((CACHE, MEETING))] == []
    assert {path.name for path in run.folder.iterdir()} == {"home", "out", "page.pdf", "scratch"}


def test_nothing_of_a_killed_worker_goes_on(settings: dict[str, str], tmp_path: Path) -> None:
    """After SIGKILL of the worker alone, its engine core ends, too, and with it what it has on the GPU."""
    with LoopbackQueue() as queue, queue.worker(HANDLER, cwd=tmp_path, env=settings) as worker:
        queue.wait_ping(timeout=WAIT_S)
        assert find_children("multiprocessing.forkserver", worker.pid)  # from which other cores would be forked
        ends = open_ends(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)

        left = [command for command, end in ends if not has_ended(end, 120)]

    for name in ("VLLM::EngineCore", "VLLM::Worker"):
        assert any(command.startswith(name) for command, _ in ends)
    assert left == []


def test_vllm_takes_its_switch() -> None:
    """vLLM reports from GPUs only, so its own answer is what can be tested here: no usage statistics."""
    from vllm.usage.usage_lib import is_usage_stats_enabled

    assert not is_usage_stats_enabled()
