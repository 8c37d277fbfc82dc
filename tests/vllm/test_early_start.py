"""A worker with the real vLLM, on the CPU, while its core loads: pages are rendered, and nothing is left of a start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pymupdf
import pytest

from tests.fakes.waiting import wait_until
from tests.vllm import tiny
from twopass import pipeline
from twopass.engines.interface import Engine
from twopass.engines.vllm.engine import launch_engines
from twopass.errors import EngineError
from twopass.job import EntryPoint, Job
from twopass.settings import Settings
from twopass.telemetry.observer import CompositeObserver
from twopass.telemetry.progress import Tracker
from twopass.worker import Worker, open_worker

MAX_WAIT_S = 600


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(
        engine="vllm", model_dir=tiny.write_checkpoint(tmp_path_factory.mktemp("tiny")), load_format="dummy",
        max_num_seqs=4, gpu_memory_utilization=0.3, engine_restarts=0, canary=False, page_workers=1,
    )  # fmt: skip


class Stages(CompositeObserver):
    """Remembers the stages that have ended, and whether the engine was ready then."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready: Callable[[], bool] = lambda: False
        self.ended: list[tuple[str, bool]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        yield
        self.ended.append((name, self.is_ready()))


@contextmanager
def start(settings: Settings, stages: Stages, **overrides: Any) -> Iterator[Worker]:
    def create_engine(settings: Settings) -> Engine:
        assert settings.model_dir
        overrides.setdefault("distributed_executor_backend", tiny.SINGLE_PROCESS)
        (engine,) = launch_engines(settings, settings.model_dir, **overrides)
        return engine

    with open_worker(settings, stages, create_engine, begins_early=True) as worker:
        stages.is_ready = worker.start.is_ready.is_set
        yield worker


def read(worker: Worker, folder: Path) -> Any:
    """The future of a job that reads one page."""
    with pymupdf.open() as pdf:
        pdf.new_page(width=200, height=200).draw_circle((100, 100), 60, fill=(0, 0, 1))
        pdf.save(folder / "page.pdf")
    fields = {"source": str(folder / "page.pdf"), "output": str(folder / "out"), "mode": "tiny"}
    job = Job.parse({"id": "job", "input": fields | {"sampling": {"max_tokens": 4}}}, worker.settings, EntryPoint.LOCAL)
    return worker.submit(pipeline.run(job, worker, Tracker()))


def list_processes() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_page_is_rendered_while_the_core_loads(settings: Settings, tmp_path: Path) -> None:
    """It is read when the core is ready. The stages of the start add up, whatever overlaps."""
    stages = Stages()
    with start(settings, stages) as worker:
        job = read(worker, tmp_path)
        result = job.result(MAX_WAIT_S)
        started = dict(worker.started)

    assert result.documents[0].usage["pages_read_now"] == 1
    assert ("render", False) in stages.ended and ("pass1", True) in stages.ended
    seconds = {name: value for name, value in started.items() if name.endswith("_s") and name != "ready_s"}
    assert {"engine_core_s", "engine_client_s", "workers_s", "canary_s"} <= set(seconds)
    assert sum(seconds.values()) == pytest.approx(started["ready_s"], abs=0.1)


def test_a_worker_that_closes_ends_a_core_that_loads(settings: Settings) -> None:
    """Its processes end with the block: the core, the page workers, and what reads the weights ahead."""
    before = list_processes()

    with start(settings, Stages()) as worker:
        during = list_processes() - before
        was_ready = worker.start.is_ready.is_set()
    wait_until(lambda: not list_processes() & during, MAX_WAIT_S)

    assert len(during) >= 2 and not was_ready


def test_a_core_that_cannot_load_ends_the_job(settings: Settings, tmp_path: Path) -> None:
    """With the engine's error, as if the job had come later, and without a page that counts as unread."""
    jobs = []

    with (
        pytest.raises(EngineError, match="vLLM did not start"),
        start(settings, Stages(), worker_cls="no.Such") as worker,
    ):
        jobs.append(read(worker, tmp_path))
        jobs[0].result(MAX_WAIT_S)

    assert not [*(tmp_path / "out").rglob("pages/*"), *(tmp_path / "out").rglob("document.*")]
