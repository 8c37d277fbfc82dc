"""Prometheus metrics of jobs, pages and stages: served with /health on METRICS_PORT, or pushed to a Pushgateway.

A worker pushes them where Prometheus cannot reach it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server

import structlog

from twopass.errors import Code, EngineError, advise_install
from twopass.result import AuditSum, Result
from twopass.runtime import nvml
from twopass.runtime.engine_status import EngineStatus
from twopass.runtime.page_slots import PageSlots

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

_STAGE_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_PAGE_S = (0.3, 1, 2, 4, 8, 15, 30, 60, 120)
_JOB_S = (1, 3, 10, 30, 100, 300, 600, 1800)
_PUSH_INTERVAL_S = 15.0  # Prometheus' usual interval between two scrapes
_PUSH_TIMEOUT_S = 5.0  # also the longest delay of a shutdown

log = structlog.get_logger()


@dataclass(frozen=True)
class GpuStatus:
    """`used` and `total` memory in bytes; `busy` is the recent share of time in which the GPU worked, 0 to 1."""

    number: int
    used: int
    total: int
    busy: float


def list_gpus() -> list[GpuStatus]:
    return nvml.query(lambda driver: [_query_status(driver, n) for n in range(driver.nvmlDeviceGetCount())], [])


def _query_status(driver: Any, number: int) -> GpuStatus:
    handle = driver.nvmlDeviceGetHandleByIndex(number)
    memory = driver.nvmlDeviceGetMemoryInfo(handle)
    return GpuStatus(number, memory.used, memory.total, driver.nvmlDeviceGetUtilizationRates(handle).gpu / 100)


class Metrics:
    """An observer that counts; one worker's metrics in a registry of their own."""

    def __init__(
        self, registry: CollectorRegistry | None = None, list_gpus: Callable[[], Sequence[GpuStatus]] = list_gpus
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as error:
            message = f"METRICS_PORT or METRICS_PUSH_URL is set and {error.name} is missing: {advise_install('worker')}"
            raise EngineError(Code.PLATFORM, message) from error

        self.registry = registry or CollectorRegistry()
        own: Any = {"registry": self.registry}
        self._jobs = Counter("twopass_jobs", "Jobs ended", ["status"], **own)
        self._documents = Counter("twopass_documents", "Documents ended", ["status"], **own)
        self._pages = Counter("twopass_pages", "Pages ended", ["state"], **own)
        self._problems = Counter("twopass_problems", "Problems", ["code", "severity"], **own)
        self._findings = Counter("twopass_findings", "Findings of the audit", ["kind", "loss"], **own)
        self._words = Counter("twopass_words", "Words of audited pages", ["what"], **own)
        self._tokens = Counter("twopass_tokens", "Tokens of pages read now", ["direction"], **own)
        self._engine = Counter("twopass_engine_seconds", "Seconds of the engine", **own)
        self._cost = Counter("twopass_cost", "Cost where PRICE_PER_SECOND is set", **own)
        self._job_s = Histogram("twopass_job_seconds", "Seconds of a job on the worker", buckets=_JOB_S, **own)
        self._queued_s = Histogram("twopass_queued_seconds", "Seconds in RunPod's queue", buckets=_JOB_S, **own)
        self._page_s = Histogram("twopass_page_seconds", "Seconds a page is in flight", buckets=_PAGE_S, **own)
        self._stage_s = Histogram("twopass_stage_seconds", "Seconds of a stage", ["stage"], buckets=_STAGE_S, **own)
        self._running = Gauge("twopass_jobs_running", "Jobs on the worker", **own)
        self._in_flight = Gauge("twopass_pages_in_flight", "Pages in flight", **own)
        self._waiting = Gauge("twopass_pages_waiting", "Pages waiting for a page slot", **own)
        self._slots = Gauge("twopass_window_places", "Page slots", **own)
        self._start_s = Gauge("twopass_start_seconds", "Seconds of a stage of the start", ["stage"], **own)
        self._slower = Gauge("twopass_slower", "What is slower than it could be", ["reason"], **own)
        self.registry.register(_GpuCollector(list_gpus))
        self._engines = _EngineCollector()
        self.registry.register(self._engines)

    def observe_slots(self, page_slots: PageSlots) -> None:
        """Report the page slots at every scrape."""
        self._slots.set(page_slots.count)
        self._in_flight.set_function(lambda: page_slots.in_flight)
        self._waiting.set_function(lambda: page_slots.waiting)

    def observe_engines(self, list_engines: Callable[[], Sequence[EngineStatus]]) -> None:
        """Report the state of each engine at every scrape."""
        self._engines.list_engines = list_engines

    def observe_start(self, started: Mapping[str, float]) -> None:
        """Report the stages of the worker's start, which add up to the time until it was ready."""
        for name, value in started.items():
            if name.endswith("_s") and name != "ready_s":
                self._start_s.labels(name.removesuffix("_s")).set(value)
            elif name not in ("ready_s", "engines"):
                self._slower.labels(name).set(value)

    @contextmanager
    def job(self, job_id: str) -> Iterator[None]:
        with self._running.track_inprogress(), self._job_s.time():
            yield

    @contextmanager
    def page(self, number: int) -> Iterator[None]:
        started = time.monotonic()
        yield  # a page that ends with an exception is not counted
        self._page_s.observe(time.monotonic() - started)

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self._stage_s.labels(name).time()

    def job_ended(self, result: Result) -> None:
        self._jobs.labels(result.status).inc()
        for document in result.documents:
            self._documents.labels(document.status).inc()
            for state, count in document.pages.items():
                self._pages.labels(state).inc(count)
        for problem in result.problems:
            self._problems.labels(problem.code, problem.severity).inc()
        self._count_audit(result.audit or AuditSum())
        self._tokens.labels("in").inc(result.usage.get("tokens_in", 0))
        self._tokens.labels("out").inc(result.usage.get("tokens_out", 0))
        self._engine.inc(result.usage.get("engine_s", 0))
        self._cost.inc(result.usage.get("cost", 0))
        if (queued := result.timings.get("queued_s")) is not None:
            self._queued_s.observe(queued)

    def _count_audit(self, audit: AuditSum) -> None:
        for kind, found in audit.findings.items():
            self._findings.labels(kind, str(kind in audit.losses).lower()).inc(found.count)
        self._words.labels("seen").inc(audit.words_seen)
        self._words.labels("read").inc(audit.words_read)
        self._words.labels("left_out").inc(audit.words_left_out)

    def job_refused(self, code: Code) -> None:
        self._jobs.labels("failure").inc()
        self._problems.labels(code, "error").inc()


class _GpuCollector:
    """GPU memory and utilisation, read at every scrape."""

    def __init__(self, list_gpus: Callable[[], Sequence[GpuStatus]]) -> None:
        self._list_gpus = list_gpus

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import GaugeMetricFamily

        families = {
            "used": GaugeMetricFamily("twopass_gpu_memory_used_bytes", "GPU memory in use", labels=["gpu"]),
            "total": GaugeMetricFamily("twopass_gpu_memory_total_bytes", "GPU memory", labels=["gpu"]),
            "busy": GaugeMetricFamily("twopass_gpu_utilisation_ratio", "Share of time in use, 0 to 1", labels=["gpu"]),
        }
        for gpu in self._list_gpus():
            for field, family in families.items():
                family.add_metric([str(gpu.number)], getattr(gpu, field))
        return families.values()


class _EngineCollector:
    """The state of each engine, read at every scrape."""

    def __init__(self) -> None:
        self.list_engines: Callable[[], Sequence[EngineStatus]] = lambda: ()

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        own: Any = {"labels": ["gpu"]}
        prompts = GaugeMetricFamily("twopass_engine_prompts", "Prompts in the engine", **own)
        sequences = GaugeMetricFamily("twopass_engine_sequences", "Prompts that the engine processes at once", **own)
        ready = GaugeMetricFamily("twopass_engine_ready", "Whether the engine runs, 0 or 1", **own)
        restarts = CounterMetricFamily("twopass_engine_restarts", "Restarts of the engine", **own)
        for engine in self.list_engines():
            prompts.add_metric([engine.gpus], engine.prompts)
            sequences.add_metric([engine.gpus], engine.sequences)
            ready.add_metric([engine.gpus], engine.is_ready)
            restarts.add_metric([engine.gpus], engine.restarts)
        return prompts, sequences, ready, restarts


@contextmanager
def serve(
    metrics: Metrics, port: int, is_alive: Callable[[], bool], describe: Callable[[], str] = lambda: ""
) -> Iterator[int]:
    """Serve `/metrics` and `/health` while the context lasts; yields the port, which the system chooses for 0.

    `/health` adds what `describe` returns.
    """
    from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

    metrics_app = make_wsgi_app(metrics.registry)

    def answer(environ: Any, start_response: Any) -> Any:
        if environ.get("PATH_INFO") != "/health":
            return metrics_app(environ, start_response)
        healthy = is_alive()
        start_response("200 OK" if healthy else "503 Service Unavailable", [("Content-Type", "text/plain")])
        state = ", ".join(filter(None, ("ready" if healthy else "not ready", describe())))
        return [f"{state}\n".encode()]

    with make_server("", port, answer, ThreadingWSGIServer, handler_class=_SilentHandler) as server:
        thread = threading.Thread(target=server.serve_forever, name="twopass-metrics", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


@contextmanager
def push(
    registry: CollectorRegistry, gateway: str, worker: str, interval_s: float = _PUSH_INTERVAL_S
) -> Iterator[None]:
    """Push all metrics at this interval while the context lasts, and once more at its end.

    `gateway` is an address, which may have a user and a password: http://user:password@host:9091. Metrics are grouped
    by `job="twopass"` and `instance=worker`. If the gateway does not take them, that is logged once, and the worker
    goes on.
    """
    ended = threading.Event()

    def push_until_the_end() -> None:
        succeeded = True
        while not ended.wait(interval_s):
            succeeded = _push_once(registry, gateway, worker, is_logged=succeeded)
        _push_once(registry, gateway, worker, is_logged=succeeded)

    thread = threading.Thread(target=push_until_the_end, name="twopass-metrics-push", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _push_once(registry: CollectorRegistry, gateway: str, worker: str, *, is_logged: bool) -> bool:
    """Whether the gateway took the metrics; a failure is logged if `is_logged`."""
    from prometheus_client import push_to_gateway

    try:
        address, handler = _split_credentials(gateway)
        key = {"instance": worker}
        push_to_gateway(address, "twopass", registry, grouping_key=key, timeout=_PUSH_TIMEOUT_S, handler=handler)
    except (OSError, HTTPException, ValueError) as error:  # no connection, no answer in time, an error, a wrong address
        if is_logged:  # a wrong address is quoted by its error, perhaps with a part of the password
            reason = str(error)[:200] if isinstance(error, OSError) else type(error).__name__
            log.warning("the gateway does not take metrics", setting="METRICS_PUSH_URL", reason=reason)
        return False
    return True


def _split_credentials(gateway: str) -> tuple[str, Callable[..., Any]]:
    """The address without user and password, and the client's handler that sends them in a header.

    Python's HTTP client would take them for a part of the host's name.
    """
    from prometheus_client.exposition import basic_auth_handler, default_handler

    parts = urlsplit(gateway)
    credentials, _, host = parts.netloc.rpartition("@")
    if not credentials:
        return gateway, default_handler
    user, _, password = credentials.partition(":")
    handler = partial(basic_auth_handler, username=unquote(user), password=unquote(password))
    return urlunsplit(parts._replace(netloc=host)), handler
