"""What an operator sees: metrics and health over HTTP, pushed metrics, spans, ids in the log, and monitoring files."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pymupdf
import pytest
import structlog
import yaml
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tests import ROOT
from tests.fakes.reader import Reader
from tests.fakes.scripted import ScriptedEngine
from twopass.document import Canary, Problem, Severity, Status
from twopass.engines import gpus
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.result import AuditSum, DocumentResult, FindingSum, Result
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.telemetry.metrics import GpuStatus, Metrics, list_gpus, push, serve
from twopass.telemetry.observer import CompositeObserver
from twopass.telemetry.stopwatch import Stopwatch, measure_stages
from twopass.telemetry.traces import Traces
from twopass.worker import EngineStart, open_worker

HEALTH = [sys.executable, "-m", "twopass.cli", "health"]
WAIT_S = 30


def scrape(metrics: Metrics) -> dict[str, float]:
    """All samples as `name{label=value}`, scraped over HTTP."""
    with serve(metrics, 0, lambda: True) as port:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}"] = sample.value
    return samples


@pytest.fixture
def two_pages(tmp_path: Path) -> Path:
    with pymupdf.open() as pdf:
        for number in (1, 2):
            pdf.new_page().insert_text((72, 90), f"{number} The meter of the pump was read on Monday.")
        pdf.save(tmp_path / "two.pdf")
    return tmp_path / "two.pdf"


def test_gpus_are_reported_by_number() -> None:
    """Memory in bytes and utilisation as a share, for every GPU."""
    samples = scrape(Metrics(list_gpus=lambda: [GpuStatus(0, 5 << 30, 24 << 30, 0.75), GpuStatus(1, 0, 24 << 30, 0.0)]))

    assert samples["twopass_gpu_memory_used_bytes{gpu=0}"] == 5 << 30
    assert samples["twopass_gpu_memory_total_bytes{gpu=1}"] == 24 << 30
    assert [samples[f"twopass_gpu_utilisation_ratio{{gpu={number}}}"] for number in (0, 1)] == [0.75, 0]


ENGINES = [EngineStatus("0", 256, prompts=12), EngineStatus("1", 128, restarts=2, is_ready=False)]


def test_engines_are_reported_by_gpu() -> None:
    """Each GPU's engine has its prompts, its room, its restarts, and whether it runs, as they are now."""
    metrics = Metrics()
    metrics.observe_engines(lambda: ENGINES)

    samples = scrape(metrics)

    assert [samples[f"twopass_engine_prompts{{gpu={gpu}}}"] for gpu in (0, 1)] == [12, 0]
    assert [samples[f"twopass_engine_sequences{{gpu={gpu}}}"] for gpu in (0, 1)] == [256, 128]
    assert [samples[f"twopass_engine_restarts_total{{gpu={gpu}}}"] for gpu in (0, 1)] == [0, 2]
    assert [samples[f"twopass_engine_ready{{gpu={gpu}}}"] for gpu in (0, 1)] == [1, 0]


def test_the_stages_of_the_start_add_up() -> None:
    """A stage begins where the one before it ended, whatever process measured it, so that no second is left out."""
    ends = [("imports_s", 13.0), ("engine_s", 14.0), ("engine_weights_s", 17.5), ("engine_s", 19.0), ("early_s", 9.0)]

    stages = measure_stages(10.0, ends)

    assert stages == {"early_s": 0.0, "imports_s": 3.0, "engine_s": 2.5, "engine_weights_s": 3.5}
    assert sum(stages.values()) == 9.0


def test_seconds_before_the_engine_is_ready_are_not_those_of_a_page() -> None:
    """A page that waited for it, and its document, count from when it was ready."""
    ready: list[float] = []
    watch = Stopwatch(begin=lambda: ready[0] if ready else None)

    with watch.page(1):
        before = watch.seconds
        ready.append(time.monotonic())
    most = time.monotonic() - ready[0]
    after = watch.seconds

    assert before > 0
    assert watch.page_p95 is not None and watch.page_p95 <= round(most, 3)
    assert after <= time.monotonic() - ready[0]


class StagedEngine(ReplayEngine):
    """An engine whose process has reported a stage, and which lacks something."""

    def __init__(self) -> None:
        super().__init__({})
        self.stage_ends = {"weights_s": time.monotonic()}
        self.fallbacks = ("shared_code_missing",)


def test_a_worker_reports_its_start_in_stages() -> None:
    """The stages are in the metrics as in `started`, where they add up to the time since the process began."""
    with open_worker(Settings(page_workers=1, canary=False), create_engine=lambda settings: StagedEngine()) as worker:
        started = dict(worker.started)
    metrics = Metrics()
    metrics.observe_start(started)
    samples = scrape(metrics)

    stages = {name: value for name, value in started.items() if name.endswith("_s") and name != "ready_s"}
    assert list(stages) == ["imports_s", "engine_weights_s", "engine_s", "workers_s", "canary_s"]
    assert sum(stages.values()) == pytest.approx(started["ready_s"], abs=0.05)
    shown = {name.removesuffix("_s"): value for name, value in stages.items()}
    assert {name: samples[f"twopass_start_seconds{{stage={name}}}"] for name in shown} == shown
    assert samples["twopass_slower{reason=shared_code_missing}"] == 1


class SeveralEngines(ReplayEngine):
    """An engine that consists of two, one of which does not run."""

    def __init__(self) -> None:
        super().__init__({})
        self.members = (ReplayEngine({}), ReplayEngine({}))
        self.statuses = ENGINES


def test_a_worker_says_how_many_of_its_engines_run() -> None:
    """In /health, and at its start how many there are; a worker with one engine says neither."""
    with (
        open_worker(Settings(page_workers=1, canary=False), create_engine=lambda settings: SeveralEngines()) as worker,
        serve(Metrics(), 0, worker.is_alive, worker.describe_engines) as port,
    ):
        answer = httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)

    assert (answer.status_code, answer.text) == (200, "ready, 1 of 2 engines\n")
    assert worker.started["engines"] == 2


def test_a_worker_says_that_it_misread_the_canary() -> None:
    """In /health, behind the engines: it serves all the same."""
    with open_worker(Settings(page_workers=1, canary=False), create_engine=lambda settings: SeveralEngines()) as worker:
        described = replace(worker, start=EngineStart(Canary.MISREAD)).describe_engines()

    assert described == "1 of 2 engines, canary misread"


class FakeNvml(ModuleType):
    """pynvml with one GPU, which has several names, or with a driver that does not answer."""

    class NVMLError(Exception): ...

    def __init__(self, answers: bool) -> None:
        super().__init__("pynvml")
        self.is_open, self._answers = False, answers

    def nvmlInit(self) -> None:
        if not self._answers:
            raise self.NVMLError
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:
        if number:
            raise self.NVMLError
        return f"card {number}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        assert self.is_open and handle == "card 0"
        return SimpleNamespace(used=1 << 30, total=8 << 30, free=7 << 30)

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        return "card 0"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13010

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> list[int]:
        return [9, 0]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=40)


@pytest.mark.parametrize(("answers", "expected"), [(True, [GpuStatus(0, 1 << 30, 8 << 30, 0.4)]), (False, [])])
def test_the_driver_is_closed_after_each_query(
    monkeypatch: pytest.MonkeyPatch, answers: bool, expected: list[GpuStatus]
) -> None:
    """A driver that does not answer lists no GPUs, and nothing stays open."""
    fake = FakeNvml(answers)
    monkeypatch.setitem(sys.modules, "pynvml", fake)

    assert list_gpus() == expected
    assert not fake.is_open


@pytest.mark.parametrize(
    ("visible", "number"), [("", 1), ("0", 1), ("GPU-5f3a,GPU-77aa", 2), ("0,7", 1), ("0,7,GPU-77aa", 1)]
)
def test_only_visible_gpus_are_detected(monkeypatch: pytest.MonkeyPatch, visible: str, number: int) -> None:
    """CUDA_VISIBLE_DEVICES limits the GPUs by number or name, until the first that does not exist, as in CUDA.

    Without a driver there is none.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(True))
    info = gpus.detect_gpus()

    assert (info.count, info.cuda_version, info.name, info.driver) == (number, (13, 1), "NVIDIA H200", "580.1")
    assert info.capability == (9, 0)
    assert (info.memory_gb, info.free_gb) == ((8 << 30) / 1e9, (7 << 30) / 1e9)
    assert [gpu.id for gpu in info.visible] == (visible or "0").split(",")[:number]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(False))
    assert gpus.detect_gpus() == gpus.GpuInfo()


def test_a_result_is_counted() -> None:
    """A result adds to the counts of pages by state, problems by code, findings by kind, words, tokens, costs."""
    metrics = Metrics()
    document = DocumentResult(source="a", status=Status.SUCCESS, pages={"read": 19, "blank": 1})
    usage = {"tokens_in": 900, "tokens_out": 500, "engine_s": 2.5, "cost": 0.01}
    problem = Problem(code=Code.LOOP, severity=Severity.WARNING, message="x")
    findings = {"region_unread": FindingSum(count=2, pages="3,7")}
    metrics.job_ended(
        Result(
            status=Status.SUCCESS,
            documents=(document,),
            problems=(problem,),
            audit=AuditSum(pages=20, words_seen=800, words_read=790, findings=findings),
            timings={"queued_s": 4.0},
            usage=usage,
        )
    )
    metrics.job_refused(Code.INVALID_JOB)

    samples = scrape(metrics)
    assert (samples["twopass_pages_total{state=read}"], samples["twopass_pages_total{state=blank}"]) == (19, 1)
    assert samples["twopass_problems_total{code=LOOP,severity=warning}"] == 1
    assert samples["twopass_problems_total{code=INVALID_JOB,severity=error}"] == 1
    assert (samples["twopass_tokens_total{direction=in}"], samples["twopass_tokens_total{direction=out}"]) == (900, 500)
    assert (samples["twopass_engine_seconds_total{}"], samples["twopass_cost_total{}"]) == (2.5, 0.01)
    assert (samples["twopass_jobs_total{status=success}"], samples["twopass_jobs_total{status=failure}"]) == (1, 1)
    assert samples["twopass_queued_seconds_sum{}"] == 4.0
    assert samples["twopass_findings_total{kind=region_unread,loss=true}"] == 2
    assert (samples["twopass_words_total{what=seen}"], samples["twopass_words_total{what=read}"]) == (800, 790)


async def test_pages_and_stages_are_timed(page_pool: PagePool, buffers: PixelBufferPool, two_pages: Path) -> None:
    """Every stage has its seconds, every page that was read counts once, and no page stays in flight."""
    metrics, page_slots = Metrics(), PageSlots(3)
    metrics.observe_slots(page_slots)

    result = await Reader(page_pool, buffers, CpuEngine(2), observer=metrics, dpi=72).run(
        source=str(two_pages), output=f"{two_pages.parent}/out"
    )
    metrics.job_ended(result)

    samples = scrape(metrics)
    assert samples["twopass_page_seconds_count{}"] == 2
    stages = {name for name in samples if name.startswith("twopass_stage_seconds_count")}
    assert {re.search("stage=(.*)}", name)[1] for name in stages} >= {"fetch", "render", "pass1", "pass2", "assemble"}  # type: ignore[index]
    assert (samples["twopass_pages_in_flight{}"], samples["twopass_window_places{}"]) == (0, 3)


async def test_a_price_yields_the_cost_of_a_thousand_pages(
    page_pool: PagePool, buffers: PixelBufferPool, two_pages: Path
) -> None:
    """Document and job have the cost of 1,000 pages; a job that found everything stored has none."""
    reader = Reader(page_pool, buffers, CpuEngine(2), Settings(price_per_second=0.5), dpi=72)
    fields: Any = {"source": str(two_pages), "output": f"{two_pages.parent}/out"}

    first, again = await reader.run(**fields), await reader.run(**fields)

    usage = first.usage
    assert usage["cost"] == pytest.approx(0.5 * usage["engine_s"], rel=0.01)
    assert usage["cost_per_1000_pages"] == pytest.approx(500 * usage["cost"])
    assert first.documents[0].usage["cost_per_1000_pages"] == pytest.approx(usage["cost_per_1000_pages"])
    assert "cost_per_1000_pages" not in again.usage


async def test_spans_are_nested_by_job_page_and_stage(
    page_pool: PagePool, buffers: PixelBufferPool, two_pages: Path
) -> None:
    """The span of a stage is a child of its page's, and that of a page a child of the job's."""
    exporter = InMemorySpanExporter()
    traces = Traces(lambda: exporter)
    with traces.job("job-7"):
        await Reader(page_pool, buffers, CpuEngine(2), observer=CompositeObserver(traces), dpi=72).run(
            source=str(two_pages), inline=["markdown"]
        )
    traces.close()

    spans = exporter.get_finished_spans()
    job = next(span for span in spans if span.name == "job")
    pages = {span.context.span_id: span for span in spans if span.name == "page"}
    assert job.attributes == {"twopass.job": "job-7"}
    assert sorted(page.attributes["twopass.page"] for page in pages.values()) == [1, 2]
    assert {span.parent.span_id for span in pages.values()} == {job.context.span_id}
    assert {span.parent.span_id for span in spans if span.name == "pass1"} == set(pages)


@pytest.fixture
def log_events() -> Iterator[list[Any]]:
    """Every log event with its bound context."""
    kept: list[Any] = []

    def keep(_: Any, __: str, event: Any) -> Any:
        kept.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield kept
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


class LoggingEngine(CpuEngine):
    """Logs an event for every prompt."""

    async def generate(self, prompt: Any) -> Any:
        structlog.get_logger().info("prompt received", prompt=prompt.id)
        return await super().generate(prompt)


async def test_log_lines_name_page_and_document(
    page_pool: PagePool, buffers: PixelBufferPool, two_pages: Path, log_events: list[Any]
) -> None:
    """Every event of a page, the engine's too, has the page's number and the document's id."""
    result = await Reader(page_pool, buffers, LoggingEngine(2), dpi=72).run(source=str(two_pages), inline=["markdown"])

    requests = [event for event in log_events if event["event"] == "prompt received"]
    assert sorted(event["page"] for event in requests) == [1, 2]
    assert {event["document"] for event in requests} == {result.documents[0].id}


def test_the_health_command_reports_a_worker() -> None:
    """The command prints `ready` and exits with 0 for a live worker, and exits with 1 for a dead one or for none."""
    engine = ScriptedEngine("layout", lambda prompt: "")
    settings = Settings(page_workers=1)
    with (
        open_worker(settings, create_engine=lambda settings: engine) as worker,
        serve(Metrics(), 0, worker.is_alive) as port,
    ):
        ready = subprocess.run([*HEALTH, f"http://127.0.0.1:{port}"], capture_output=True, text=True)
    with serve(Metrics(), 0, lambda: False) as port:
        stuck = subprocess.run([*HEALTH, f"http://127.0.0.1:{port}"], capture_output=True, text=True)
    gone = subprocess.run([*HEALTH, f"http://127.0.0.1:{port}"], capture_output=True, text=True)

    assert (ready.returncode, ready.stdout) == (0, "ready\n")
    assert (stuck.returncode, stuck.stdout) == (1, "not ready\n")
    assert gone.returncode == 1 and "METRICS_PORT" in gone.stderr


def sample_names() -> set[str]:
    """The name of every sample that a worker exports."""
    metrics = Metrics()
    families = {family.name for family in metrics.registry.collect()}
    names = {f"{name}{end}" for name in families for end in ("", "_total", "_bucket", "_count", "_sum")}
    assert "twopass_pages_total" in names
    return names


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yaml"])
def test_monitoring_files_use_existing_metrics(name: str) -> None:
    """A renamed metric would leave an empty panel, or an alert that never fires."""
    text = (ROOT / "monitoring" / name).read_text()
    used = set(re.findall(r"twopass_\w+", text))

    assert len(used) >= 6
    assert used <= sample_names()


def test_alerts_and_panels_are_complete() -> None:
    """Every alert says what to do, every panel has a query, and the codes that they name exist."""
    rules = yaml.safe_load((ROOT / "monitoring" / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((ROOT / "monitoring" / "dashboard.json").read_text())["panels"]
    codes = re.findall(r"code=~\"([A-Z_|]+)\"", json.dumps([rule["expr"] for rule in rules]).replace("\\", ""))

    assert all(rule["expr"] and rule["annotations"]["action"].endswith(".") for rule in rules)
    assert {"> 15", "> 0.05", "< 0.7", "> 0.92", "< 2"} <= {
        part for rule in rules for part in re.findall(r"[<>] [\d.]+", rule["expr"])
    }
    assert all(panel["targets"] for panel in panels) and len({panel["id"] for panel in panels}) == len(panels)
    assert {code for names in codes for code in names.split("|")} <= set(Code)


class Gateway(ThreadingHTTPServer):
    """Keeps the last metrics of each group, as a Pushgateway does, or answers every push with an error."""

    def __init__(self, *, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Push)
        self.status = status
        self.groups: dict[str, str] = {}
        self.credentials: set[str | None] = set()
        self.pushes = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Push(BaseHTTPRequestHandler):
    server: Gateway

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.groups[self.path] = body
        self.server.credentials.add(self.headers["Authorization"])
        self.send_response(self.server.status)
        self.end_headers()
        self.server.pushes.release()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


@contextmanager
def open_gateway(status: int = 200) -> Iterator[Gateway]:
    with Gateway(status=status) as gateway:
        thread = threading.Thread(target=gateway.serve_forever, daemon=True)
        thread.start()
        yield gateway
        gateway.shutdown()
        thread.join()


def test_metrics_are_pushed_while_the_worker_runs_and_at_its_end() -> None:
    """The group is the worker's, and what was counted after the last interval is not lost."""
    metrics = Metrics()
    with open_gateway() as gateway, push(metrics.registry, gateway.url, "worker-1", interval_s=0.05):
        assert gateway.pushes.acquire(timeout=WAIT_S)
        metrics.job_refused(Code.INVALID_JOB)

    assert list(gateway.groups) == ["/metrics/job/twopass/instance/worker-1"]
    [body] = gateway.groups.values()
    assert 'twopass_problems_total{code="INVALID_JOB",severity="error"} 1.0' in body


def test_the_user_and_password_of_the_address_are_sent() -> None:
    """A gateway behind a proxy gets basic authentication; the address has special characters percent-encoded."""
    with open_gateway() as gateway:
        address = f"http://worker:p%40ss@127.0.0.1:{gateway.server_port}"
        with push(Metrics().registry, address, "worker-1", interval_s=60):
            pass

    assert list(gateway.groups) == ["/metrics/job/twopass/instance/worker-1"]
    assert gateway.credentials == {f"Basic {base64.b64encode(b'worker:p@ss').decode()}"}


def test_a_wrong_address_is_logged() -> None:
    """An address that no client can use does not end the worker."""
    with capture_logs() as events, push(Metrics().registry, "http://gateway:port", "worker-1", interval_s=60):
        pass

    assert [event["setting"] for event in events] == ["METRICS_PUSH_URL"]


def test_a_wrong_address_is_logged_without_its_password() -> None:
    """A password with a character that should be encoded makes the address wrong, and is not in the message."""
    with capture_logs() as events, push(Metrics().registry, "http://user:hun#ter2@gateway", "worker-1", interval_s=60):
        pass

    assert [event["setting"] for event in events] == ["METRICS_PUSH_URL"]
    assert "hun" not in str(events)


def test_a_failing_gateway_is_logged_once() -> None:
    """Errors of the gateway name the setting, do not end the worker, and do not fill the log."""
    structlog.reset_defaults()
    with (
        open_gateway(status=500) as gateway,
        capture_logs() as events,
        push(Metrics().registry, gateway.url, "worker-1", interval_s=0.01),
    ):
        for _ in range(3):
            assert gateway.pushes.acquire(timeout=WAIT_S)

    assert [event["setting"] for event in events] == ["METRICS_PUSH_URL"]
    assert "500" in events[0]["reason"]


def test_a_gateway_that_cannot_be_reached_is_logged() -> None:
    """The worker ends without waiting for a gateway that is not there."""
    with open_gateway() as gateway:
        url = gateway.url

    with capture_logs() as events, push(Metrics().registry, url, "worker-1", interval_s=60):
        pass

    assert [event["event"] for event in events] == ["the gateway does not take metrics"]
