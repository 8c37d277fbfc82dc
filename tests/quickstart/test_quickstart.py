"""docs/quickstart.md as a newcomer types it: every command of its three sections, in a folder like a fresh clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes import s3
from tests.fakes.platform import Platform, QueueBackend
from tests.fakes.ports import reserve_port
from tests.fakes.queue import LoopbackQueue

PAGE = (ROOT / "docs" / "quickstart.md").read_text()
CHECKOUT = ("handler.py", "src")
PROGRAMS = {"python": "", "twopass": " -m twopass.cli"}  # in .venv/bin -> what Python runs for them


def commands_below(heading: str) -> list[str]:
    """The shell commands below a heading of the page."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert section
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", section[1], re.M | re.S) for line in block.splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a fresh clone has after `make demo`: the checkout's files and .venv."""
    folder = tmp_path_factory.mktemp("clone")
    for name in CHECKOUT:
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "samples", folder / "samples")  # a link would point outside ALLOWED_DIR
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name, module in PROGRAMS.items():
        program = folder / ".venv" / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
        program.chmod(0o755)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "200", "PAGE_WORKERS": "1", **more}


def run_line(line: str, clone: Path, **more: str) -> str:
    """Run the line, which must succeed, and return what it prints."""
    ran = subprocess.run(
        ["bash", "-c", line], cwd=clone, env=environment(clone, **more), capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, f"{line}\n{ran.stderr}"
    return ran.stdout + ran.stderr


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_laptop_section(clone: Path) -> None:
    """A folder and a single job are read; artefacts and the summary are where the page says."""
    folder, job = commands_below("A laptop")

    run_line(folder, clone)
    run_line(job, clone)

    assert json.loads((clone / "output" / "batch_summary.json").read_text())["success"] == 1
    assert len(list((clone / "output").glob("sample-*/manifest.json"))) == 2  # all pages, and the first two


@pytest.fixture
def service(clone: Path) -> Iterator[tuple[str, str]]:
    """Run the server's line on free ports; yields the ports of its API and its metrics."""
    (line,) = (line for line in commands_below("A service") if "--rp_serve_api" in line)
    api, metrics = str(reserve_port()), str(reserve_port())
    line = "exec env " + line.replace("8000", api).replace("9400", metrics)
    with subprocess.Popen(
        ["bash", "-c", line],
        cwd=clone,
        env=environment(clone),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        yield api, metrics
        server.terminate()


def test_the_service_section(clone: Path, service: tuple[str, str]) -> None:
    """The service reports its health and reads one job sent by curl and a folder sent by `twopass submit`."""
    api, metrics = service
    health, curl, submit = (
        line.replace("8000", api).replace("9400", metrics)
        for line in commands_below("A service")
        if "--rp_serve" not in line
    )
    deadline = time.monotonic() + 120
    while subprocess.run(["bash", "-c", health], cwd=clone, env=environment(clone), capture_output=True).returncode:
        assert time.monotonic() < deadline, "the service did not come up"
        time.sleep(0.5)
    while not is_listening(int(api)):  # the engine is warm; the SDK's server comes after it
        assert time.monotonic() < deadline, "the local API did not come up"
        time.sleep(0.1)

    answer = json.loads(run_line(curl, clone))
    run_line(submit, clone)
    samples = run_line(f"curl -s http://localhost:{metrics}/metrics", clone)

    assert 'twopass_jobs_total{status="success"} 2.0' in samples
    assert 'twopass_pages_total{state="read"}' in samples
    assert "markdown" in answer["output"]["documents"][0]["inline"]
    assert json.loads((clone / "submitted" / "submit_summary.json").read_text())["success"] == 1


def test_the_runpod_section_with_three_workers_behind_a_queue(clone: Path) -> None:
    """With three worker processes of the unmodified SDK, documents are counted, sliced, read and saved."""
    keys, estimate, send = commands_below("RunPod")
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3.moto_server())
        stack.enter_context(s3.client(endpoint, "bucket"))
        access = s3.worker_keys(endpoint)
        queue = stack.enter_context(LoopbackQueue())
        handler = [sys.executable, str(ROOT / "handler.py")]
        for _ in range(3):
            stack.enter_context(queue.worker(handler, cwd=ROOT, env={**access, "PAGE_WORKERS": "1"}))
        url = stack.enter_context(Platform(QueueBackend(queue)).serve())
        assert set(re.findall(r"(\w+)=", keys)) == {"RUNPOD_API_KEY", *access}

        printed = run_line(estimate, clone)
        run_line(f"rm -rf submitted; {send.replace('ENDPOINT_ID', url)}", clone, RUNPOD_API_KEY="secret-key", **access)

    summary = json.loads((clone / "submitted" / "submit_summary.json").read_text())
    row = summary["documents"][0]
    assert '"pages": 12' in printed and '"dollars"' in printed
    assert (row["status"], row["jobs"]) == ("success", 4)
    assert (clone / "submitted" / row["id"] / "document.md").stat().st_size > 1000
