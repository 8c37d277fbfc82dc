"""worker.py: page workers import what pages need before the first one, and jobs may begin before the engine is open."""

from __future__ import annotations

import asyncio
import pkgutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from scripts.bench import harness, jobs, mix
from scripts.bench.latency import HostEngine
from tests.fakes.scripted import OpeningEngine, ScriptedEngine
from tests.fakes.waiting import wait_until
from twopass import pipeline
from twopass.errors import Code, EngineError
from twopass.families import registry
from twopass.job import EntryPoint, Job
from twopass.result import Result
from twopass.settings import EngineName, Settings
from twopass.telemetry.observer import CompositeObserver
from twopass.telemetry.progress import Progress, Tracker
from twopass.worker import EngineStart, Worker, list_preloads, open_worker

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


# ---- jobs that begin before the engine is open

MAX_WAIT_S = 120


class Stages(CompositeObserver):
    """Remembers the stages of pages, each at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        yield
        self.ended.append(name)


class Early:
    """A worker that yields before its engine is open, and a job that reads two pages of the sample."""

    def __init__(self, sample: Path, output: Path, failure: EngineError | None = None) -> None:
        self.may_open, self.stages = threading.Event(), Stages()
        self.engine = OpeningEngine(self.may_open.is_set, failure)
        self.progress: list[Progress] = []
        self._fields = {"source": str(sample), "output": str(output), "pages": "1-2"}

    def open(self) -> Any:
        settings = Settings(**SETTINGS)
        return open_worker(settings, self.stages, create_engine=lambda settings: self.engine, begins_early=True)

    def submit(self, worker: Worker, **fields: Any) -> Future[Result]:
        job = Job.parse({"id": "job", "input": {**self._fields, **fields}}, worker.settings, EntryPoint.LOCAL)
        return worker.submit(pipeline.run(job, worker, Tracker(self.progress.append)))

    def wait_until_rendered(self) -> None:
        wait_until(lambda: self.stages.ended.count("render") == 2)


@pytest.fixture
def early(sample: Path, tmp_path: Path) -> Early:
    return Early(sample, tmp_path)


def test_pages_are_rendered_while_the_engine_opens(early: Early) -> None:
    """They are read when it is open; until then no stage of reading begins, and no page counts as done."""
    with early.open() as worker:
        job = early.submit(worker)
        early.wait_until_rendered()
        before = [*early.engine.steps, *early.stages.ended]
        was_ready = worker.is_alive()
        early.may_open.set()
        result = job.result(MAX_WAIT_S)

        assert (was_ready, worker.is_alive()) == (False, True)
        assert worker.started["ready_s"] > 0

    assert before == ["opening", "fetch", "render", "render"]
    assert (result.status, result.documents[0].pages) == ("success", {"read": 2})
    assert early.engine.steps.index("open") < early.engine.steps.index("asked")
    assert [now.pages_done for now in early.progress if not now.percent] == [0] * 3
    assert result.timings["duration_s"] <= round(time.monotonic() - (worker.start.ended or 0), 3)


def test_an_engine_that_does_not_open_ends_the_jobs_with_its_error(early: Early) -> None:
    """Without a result, without a page that counts as unread, and the worker is closed."""
    early.engine = OpeningEngine(early.may_open.is_set, EngineError(Code.ENGINE_DEAD, "no GPU"))
    jobs: list[Future[Result]] = []

    with pytest.raises(EngineError, match="no GPU"), early.open() as worker:
        jobs.append(early.submit(worker))
        early.wait_until_rendered()
        early.may_open.set()
        jobs[0].result(MAX_WAIT_S)

    assert early.engine.steps == ["opening", "closed"]
    assert early.progress[-1].pages_total == 2 and not any(now.pages_done for now in early.progress)
    assert early.stages.ended == ["fetch", "render", "render"]


def test_whatever_ends_a_block_whose_engine_did_not_open_is_its_error(early: Early) -> None:
    """RunPod's SDK ends a local run by SystemExit; work that comes too late gets the error, too."""
    early.engine = OpeningEngine(lambda: True, EngineError(Code.ENGINE_DEAD, "no GPU"))

    with pytest.raises(EngineError, match="no GPU"), early.open() as worker:
        wait_until(lambda: worker.start.failure is not None)
        with pytest.raises(EngineError, match="no GPU"):
            worker.run(asyncio.sleep(MAX_WAIT_S))
        raise SystemExit(1)


def test_stored_pages_need_no_engine(early: Early, sample: Path, tmp_path: Path) -> None:
    """The job ends before the engine is open, and the end of the worker ends the start of the engine."""
    stopped = early.engine
    early.engine = OpeningEngine(lambda: True)
    with early.open() as worker:
        early.submit(worker).result(MAX_WAIT_S)
    early.engine = stopped

    with early.open() as worker:
        result = early.submit(worker, formats=["docjson", "chunks"]).result(MAX_WAIT_S)
        missing = early.submit(worker, source=str(tmp_path / "missing.pdf")).result(MAX_WAIT_S)

    assert (result.status, result.usage["pages_read_now"]) == ("success", 0)
    assert missing.documents[0].status == "failure"
    assert early.engine.steps == ["opening", "closed"]


def test_an_interrupt_ends_the_start(early: Early) -> None:
    """Ctrl-C while pages wait: their job is cancelled, and the engine is closed before the interrupt goes on."""
    jobs: list[Future[Result]] = []

    with pytest.raises(KeyboardInterrupt), early.open() as worker:
        jobs.append(early.submit(worker))
        early.wait_until_rendered()
        jobs[0].cancel()
        raise KeyboardInterrupt

    assert early.engine.steps == ["opening", "closed"]


async def test_the_engines_test_does_not_wait_for_all_pages() -> None:
    """While the engine opens, no more calls wait for page workers than there are; afterwards, as many as ever."""
    start, entered = EngineStart(page_workers=2), []
    start.task = asyncio.create_task(asyncio.sleep(MAX_WAIT_S))
    may_end = asyncio.Event()

    @asynccontextmanager
    async def rendering() -> AsyncIterator[None]:
        entered.append(len(entered))
        await may_end.wait()
        yield

    async def render() -> None:
        async with start.enter_in_turn(rendering()):
            await start.is_ready.wait()

    tasks = [asyncio.create_task(render()) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    early = len(entered)
    start.is_ready.set()
    tasks.append(asyncio.create_task(render()))
    await asyncio.sleep(0)
    late = len(entered)
    may_end.set()
    await asyncio.gather(*tasks)
    start.task.cancel()

    assert (early, late, len(entered)) == (2, 3, 6)


def test_the_seconds_of_a_deadline_begin_when_the_engine_is_ready(early: Early) -> None:
    """A job with one waits for the engine, as it would if the worker opened first."""
    with early.open() as worker:
        job = early.submit(worker, deadline_s=MAX_WAIT_S)
        wait_until(lambda: "opening" in early.engine.steps)
        worker.run(asyncio.sleep(0))
        before = [*early.stages.ended]
        early.may_open.set()
        result = job.result(MAX_WAIT_S)

    assert before == []
    assert result.status == "success"
