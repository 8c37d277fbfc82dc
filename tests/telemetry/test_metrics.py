"""What an operator sees: metrics and health over HTTP, spans, page ids in the log, and files that name what exists."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
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

from tests import ROOT
from tests.fakes.reader import Reader
from twopass.document import Problem, Severity, Status
from twopass.engines import factory
from twopass.engines import gpus as engine_cards
from twopass.engines.cpu.engine import CpuEngine
from twopass.errors import Code
from twopass.job import DocumentResult, Result
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import nvml as gpu
from twopass.runtime.nvml import Card
from twopass.runtime.page_pool import PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.settings import Settings
from twopass.telemetry.metrics import Metrics, served
from twopass.telemetry.observer import CompositeObserver
from twopass.telemetry.traces import Traces
from twopass.worker import open_worker

HEALTH = [sys.executable, str(ROOT / "scripts" / "health.py")]


def scraped(metrics: Metrics) -> dict[str, float]:
    """Every sample as `name{label="value"}`, scraped over HTTP."""
    with served(metrics, 0, lambda: True) as port:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}"] = sample.value
    return samples


@pytest.fixture
def two(tmp_path: Path) -> Path:
    with pymupdf.open() as pdf:
        for number in (1, 2):
            pdf.new_page().insert_text((72, 90), f"{number} The meter of the pump was read on Monday.")
        pdf.save(tmp_path / "two.pdf")
    return tmp_path / "two.pdf"


def test_cards_are_told_by_their_numbers() -> None:
    """Bytes and a share, of every card."""
    told = scraped(Metrics(cards=lambda: [Card(0, 5 << 30, 24 << 30, 0.75), Card(1, 0, 24 << 30, 0.0)]))

    assert told["twopass_gpu_memory_used_bytes{gpu=0}"] == 5 << 30
    assert told["twopass_gpu_memory_total_bytes{gpu=1}"] == 24 << 30
    assert (told["twopass_gpu_utilisation_ratio{gpu=0}"], told["twopass_gpu_utilisation_ratio{gpu=1}"]) == (0.75, 0)


class Nvml(ModuleType):
    """pynvml over one card, or over a driver that does not answer."""

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

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=40)


@pytest.mark.parametrize(("answers", "told"), [(True, [Card(0, 1 << 30, 8 << 30, 0.4)]), (False, [])])
def test_a_driver_is_asked_and_left(monkeypatch: pytest.MonkeyPatch, answers: bool, told: list[Card]) -> None:
    """One without an answer has no cards, and nothing stays open."""
    nvml = Nvml(answers)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    assert gpu.cards() == told
    assert not nvml.is_open


@pytest.mark.parametrize(("visible", "number"), [("", 1), ("0", 1), ("GPU-5f3a,GPU-77aa", 2)])
def test_an_engine_is_told_of_the_cards_that_it_may_see(
    monkeypatch: pytest.MonkeyPatch, visible: str, number: int
) -> None:
    """By CUDA_VISIBLE_DEVICES, numbers or names; the CUDA that the driver speaks; none without a driver."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(True))
    told = engine_cards.cards()

    assert (told.number, told.cuda, told.name, told.driver) == (number, (13, 1), "NVIDIA H200", "580.1")
    assert (told.memory_gb, told.free_gb) == ((8 << 30) / 1e9, (7 << 30) / 1e9)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(False))
    assert engine_cards.cards() == engine_cards.Cards()


def test_a_result_is_counted() -> None:
    """Pages by state, problems by code, tokens, engine seconds, cost and the time in the queue."""
    metrics = Metrics()
    document = DocumentResult(source="a", status=Status.SUCCESS, pages={"read": 19, "blank": 1})
    usage = {"tokens_in": 900, "tokens_out": 500, "engine_s": 2.5, "cost": 0.01}
    problem = Problem(code=Code.LOOP, severity=Severity.WARNING, message="x")
    metrics.ended(
        Result(
            status=Status.SUCCESS,
            documents=(document,),
            problems=(problem,),
            timings={"queued_s": 4.0},
            usage=usage,
        )
    )
    metrics.refused(Code.INVALID_JOB)

    told = scraped(metrics)
    assert (told["twopass_pages_total{state=read}"], told["twopass_pages_total{state=blank}"]) == (19, 1)
    assert told["twopass_problems_total{code=LOOP,severity=warning}"] == 1
    assert told["twopass_problems_total{code=INVALID_JOB,severity=error}"] == 1
    assert (told["twopass_tokens_total{direction=in}"], told["twopass_tokens_total{direction=out}"]) == (900, 500)
    assert (told["twopass_engine_seconds_total{}"], told["twopass_cost_total{}"]) == (2.5, 0.01)
    assert (told["twopass_jobs_total{status=success}"], told["twopass_jobs_total{status=failure}"]) == (1, 1)
    assert told["twopass_queued_seconds_sum{}"] == 4.0


async def test_pages_and_stages_are_timed_while_they_are_read(
    page_pool: PagePool, buffers: PixelBufferPool, two: Path
) -> None:
    """Every stage of the flow has its seconds, every page read counts once, and nothing is left in the window."""
    metrics, window = Metrics(), PageSlots(3)
    metrics.window(window)

    result = await Reader(page_pool, buffers, CpuEngine(2), observer=metrics).run(
        source=str(two), output=f"{two.parent}/out"
    )
    metrics.ended(result)

    told = scraped(metrics)
    assert told["twopass_page_seconds_count{}"] == 2
    stages = {name for name in told if name.startswith("twopass_stage_seconds_count")}
    assert {re.search("stage=(.*)}", name)[1] for name in stages} >= {"fetch", "render", "pass1", "pass2", "assemble"}  # type: ignore[index]
    assert (told["twopass_pages_in_flight{}"], told["twopass_window_places{}"]) == (0, 3)


async def test_a_price_gives_the_cost_of_a_thousand_pages(
    page_pool: PagePool, buffers: PixelBufferPool, two: Path
) -> None:
    """Per document and for the job; a job that found everything read spent nothing."""
    reader = Reader(page_pool, buffers, CpuEngine(2), Settings(price_per_second=0.5))
    fields: Any = {"source": str(two), "output": f"{two.parent}/out"}

    first, again = await reader.run(**fields), await reader.run(**fields)

    usage = first.usage
    assert usage["cost"] == pytest.approx(0.5 * usage["engine_s"], rel=0.01)
    assert usage["cost_per_1000_pages"] == pytest.approx(500 * usage["cost"])
    assert first.documents[0].usage["cost_per_1000_pages"] == pytest.approx(usage["cost_per_1000_pages"])
    assert "cost_per_1000_pages" not in again.usage


async def test_spans_tell_of_the_job_its_pages_and_their_stages(
    page_pool: PagePool, buffers: PixelBufferPool, two: Path
) -> None:
    """A stage's span lies within its page's, a page's within the job's."""
    kept = InMemorySpanExporter()
    traces = Traces(lambda: kept)
    with traces.job("job-7"):
        await Reader(page_pool, buffers, CpuEngine(2), observer=CompositeObserver(traces)).run(
            source=str(two), inline=["markdown"]
        )
    traces.close()

    spans = kept.get_finished_spans()
    job = next(span for span in spans if span.name == "job")
    pages = {span.context.span_id: span for span in spans if span.name == "page"}
    assert job.attributes == {"twopass.job": "job-7"}
    assert sorted(page.attributes["twopass.page"] for page in pages.values()) == [1, 2]
    assert {span.parent.span_id for span in pages.values()} == {job.context.span_id}
    assert {span.parent.span_id for span in spans if span.name == "pass1"} == set(pages)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """Every event with what is bound to it."""
    kept: list[Any] = []

    def keep(_: Any, __: str, event: Any) -> Any:
        kept.append(dict(event))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield kept
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


class Telling(CpuEngine):
    """Says a word for every prompt."""

    async def generate(self, prompt: Any) -> Any:
        structlog.get_logger().info("asked", prompt=prompt.id)
        return await super().generate(prompt)


async def test_a_log_line_says_which_page_of_which_document_it_is_of(
    page_pool: PagePool, buffers: PixelBufferPool, two: Path, logged: list[Any]
) -> None:
    """Whatever logs below a page, the engine too, carries the page's number and the document's id."""
    result = await Reader(page_pool, buffers, Telling(2)).run(source=str(two), inline=["markdown"])

    asked = [event for event in logged if event["event"] == "asked"]
    assert sorted(event["page"] for event in asked) == [1, 2]
    assert {event["document"] for event in asked} == {result.documents[0].id}


def test_health_is_told_by_a_command() -> None:
    """0 and `ready` for a house that answers, 1 for one that does not and for none at all."""
    with open_worker(Settings(page_workers=1)) as warm, served(Metrics(), 0, warm.is_alive) as port:
        ready = subprocess.run([*HEALTH, f"http://127.0.0.1:{port}"], capture_output=True, text=True)
    with served(Metrics(), 0, lambda: False) as port:
        stuck = subprocess.run([*HEALTH, f"http://127.0.0.1:{port}"], capture_output=True, text=True)
    gone = subprocess.run([*HEALTH, f"http://127.0.0.1:{port}"], capture_output=True, text=True)

    assert (ready.returncode, ready.stdout) == (0, "ready\n")
    assert (stuck.returncode, stuck.stdout) == (1, "not ready\n")
    assert gone.returncode == 1 and "METRICS_PORT" in gone.stderr


def names_of_metrics() -> set[str]:
    """Everything that can be asked of a worker."""
    metrics = Metrics()
    told = {family.name for family in metrics.registry.collect()}
    parts = {f"{name}{end}" for name in told for end in ("", "_total", "_bucket", "_count", "_sum")}
    assert "twopass_pages_total" in parts and factory.NAMES
    return parts


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yaml"])
def test_the_operators_files_ask_for_metrics_that_exist(name: str) -> None:
    """A renamed metric would leave an empty panel, or an alert that never comes."""
    text = (ROOT / "monitoring" / name).read_text()
    asked = set(re.findall(r"twopass_\w+", text))

    assert len(asked) >= 6
    assert asked <= names_of_metrics()


def test_every_alert_says_what_to_do_and_every_panel_asks_something() -> None:
    """Both files are what Prometheus and Grafana read; codes and states that they name exist."""
    rules = yaml.safe_load((ROOT / "monitoring" / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((ROOT / "monitoring" / "dashboard.json").read_text())["panels"]
    codes = re.findall(r"code=~\"([A-Z_|]+)\"", json.dumps([rule["expr"] for rule in rules]).replace("\\", ""))

    assert all(rule["expr"] and rule["annotations"]["action"].endswith(".") for rule in rules)
    assert {"> 15", "> 0.05", "< 0.7", "> 0.92", "< 2"} <= {
        part for rule in rules for part in re.findall(r"[<>] [\d.]+", rule["expr"])
    }
    assert all(panel["targets"] for panel in panels) and len({panel["id"] for panel in panels}) == len(panels)
    assert {code for found in codes for code in found.split("|")} <= set(Code)
