"""worker.py: page workers import what pages need before the first one."""

from __future__ import annotations

import pkgutil
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

import pytest

from scripts.bench import harness, jobs, mix
from scripts.bench.latency import HostEngine
from tests.fakes.scripted import ScriptedEngine
from twopass import pipeline
from twopass.families import registry
from twopass.job import EntryPoint, Job
from twopass.settings import EngineName, Settings
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, list_preloads, open_worker

LIST_MODULES = "list(__import__('sys').modules)"
SETTINGS = {"page_workers": 1, "canary": False, "log_level": "ERROR"}


def list_modules(worker: Worker) -> set[str]:
    """The modules of the worker's only page worker."""
    return set(worker.run(worker.page_pool.call(eval, LIST_MODULES)))


def wait_until_warm(worker: Worker) -> set[str]:
    """The modules of the page worker when it has imported everything."""
    ends = time.monotonic() + 300
    *_, last = list_preloads(worker.engine.kind, worker.family)
    while last not in (modules := list_modules(worker)):
        assert time.monotonic() < ends, f"not imported: {last}"
        time.sleep(0.2)
    return modules


def read_sample(worker: Worker, sample: Path, output: Path) -> None:
    fields = {"source": str(sample), "output": str(output), "pages": "1"}
    job = Job.parse({"id": "job", "input": fields}, worker.settings, EntryPoint.LOCAL)
    assert worker.run(pipeline.run(job, worker, Tracker())).status == "success"


def test_the_first_page_of_a_model_imports_nothing(tmp_path: Path) -> None:
    """Rendering, views, answers, crops and keywords find their libraries imported, and no layout model is loaded."""
    settings = Settings(**SETTINGS, engine="vllm", max_num_seqs=2)
    page = max(harness.read_mix(20), key=lambda page: len({kind for kind, *_ in page["crops"]}))
    documents = mix.write_documents([page], tmp_path)

    with open_worker(settings, create_engine=lambda settings: HostEngine("0", settings)) as worker:
        before = wait_until_warm(worker)
        worker.run(jobs.measure_latency(worker, documents))
        after = list_modules(worker)

    assert sorted(after - before) == []
    assert {"pymupdf", "onnxruntime"} <= before and "pymupdf4llm" not in after


def test_the_first_page_of_the_cpu_engine_imports_nothing(sample: Path, tmp_path: Path) -> None:
    """A page with a text layer finds its libraries and the layout model loaded."""
    with open_worker(Settings(**SETTINGS)) as worker:
        before = wait_until_warm(worker)
        read_sample(worker, sample, tmp_path)
        after = list_modules(worker)

    assert sorted(after - before) == []


def test_what_killed_processes_left_is_deleted_without_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first line of a log names no worker that was killed: whoever reads it may have started none before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "twopass-left.scratch").mkdir()

    engine = ScriptedEngine("layout", lambda prompt: "")
    with open_worker(Settings(**SETTINGS | {"log_level": "INFO"}), create_engine=lambda settings: engine):
        pass

    assert not (tmp_path / "twopass-left.scratch").exists()
    assert "deleted temporary files that earlier processes left behind" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("engine", get_args(EngineName))
def test_every_name_can_be_imported(engine: str) -> None:
    """A module that is renamed is not left out silently; functions are named as such."""
    names = list_preloads(engine, registry.get_family("deepseek_ocr"))
    loaded: list[Any] = [pkgutil.resolve_name(name) for name in names]

    assert [callable(value) for value in loaded] == [":" in name for name in names]
