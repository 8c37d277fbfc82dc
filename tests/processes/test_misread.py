"""A model that misreads the test images before `twopass accept` has passed: it serves, and nothing is a success."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes import openai_server
from tests.fakes.queue import LoopbackQueue, Outcome
from tests.processes.test_handler import build_pdf

HANDLER = [sys.executable, str(ROOT / "handler.py")]


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The settings of a model that answers the same nonsense to every prompt."""
    async with openai_server.serve(openai_server.OpenAIServer("1 1 1 and so on and so on before")) as server:
        yield {
            "ENGINE": "openai", "OPENAI_BASE_URL": server.url, "PAGE_WORKERS": "1", "HOME": str(tmp_path),
            "ENGINE_CACHE": str(tmp_path / "cache"),
        }  # fmt: skip


def run_job(settings: dict[str, str]) -> Outcome:
    source = "data:application/pdf;base64," + base64.b64encode(build_pdf(1)).decode()
    with LoopbackQueue(hold_s=2) as queue, queue.worker(HANDLER, cwd=ROOT, env=settings):
        return queue.wait(queue.put({"input": {"source": source}}), 120)


async def test_a_worker_of_the_unmodified_sdk_serves_with_a_problem(model: dict[str, str]) -> None:
    """Its fitness checks pass, and the result of the job says why nobody should trust it."""
    outcome = await asyncio.to_thread(run_job, model)

    assert outcome.status == "COMPLETED"
    assert outcome.output["documents"][0]["canary"] == "misread"
    assert outcome.output["status"] != "success"
    assert "CANARY" in {problem["code"] for problem in outcome.output["problems"]}


@pytest.mark.parametrize("canary", ["true", "enforce"])
async def test_read_says_what_became_of_the_test_images(canary: str, model: dict[str, str], tmp_path: Path) -> None:
    """In the result of the documents; with CANARY=enforce nothing is read."""
    (tmp_path / "a.pdf").write_bytes(build_pdf(1))
    command = [sys.executable, "-m", "twopass.cli", "read", "a.pdf", "--output", "out"]
    settings = {**model, "PATH": os.environ["PATH"], "CANARY": canary}
    ran = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120
    )

    assert (ran.returncode == 0) == (canary == "true")  # read in part
    assert "CANARY" in ran.stdout + ran.stderr
    assert bool(list((tmp_path / "out").rglob("document.json"))) == (canary == "true")
