"""What one worker process owns: the engine, the model family, the page pool and the page slots.

Everything runs on one event loop in its own thread, because RunPod's SDK runs jobs on a loop that does not exist yet
when the engine starts.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import structlog

from twopass.document import Canary
from twopass.engines import factory, preflight
from twopass.engines.interface import Engine
from twopass.families import registry
from twopass.families.interface import Family, FamilyOptions
from twopass.models import resolve_structure
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.runtime import confinement, gc_tuning, loop_thread, scratch, task_group, vendor_reports
from twopass.runtime.page_pool import IMPORT_MUPDF, PagePool
from twopass.runtime.page_slots import PageSlots
from twopass.runtime.shutdown import Shutdown
from twopass.settings import Settings
from twopass.steps import canary
from twopass.telemetry.metrics import Metrics, push, serve
from twopass.telemetry.observer import CompositeObserver, Observer
from twopass.telemetry.stopwatch import Stopwatch, measure_stages
from twopass.telemetry.traces import Traces

log = structlog.get_logger()

T = TypeVar("T")
SLOTS_PER_SEQUENCE = 1.25  # page slots per sequence of the engine: some pages render or wait while others are read
_MIN_SLOTS = 2
_HEALTH_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 60.0  # for an engine whose GPU hangs; vLLM's own shutdown is limited by SHUTDOWN_TIMEOUT_S
_PAGE_BYTES = 6 << 20  # an A4 page at 144 dpi
_MIN_BUFFER_BYTES = 2 << 30  # with few slots: room for a few very large pages
_MAX_DESCRIPTORS = 1 << 16  # the pixel buffers need 1,400 at 512 sequences; many systems start with 1,024

# What page workers import before their first call, so that the first pages of a job need not wait for it: modules, or
# functions as `module:function`.
_ENGINE_PRELOADS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("twopass.engines.cpu.layout_regions:load_layout_model", "twopass.engines.cpu.page"),
    "openai": (IMPORT_MUPDF, "twopass.engines.openai.request"),
    "vllm": (IMPORT_MUPDF, "twopass.engines.vllm.images"),
}
_FETCHING = ("twopass.steps.fetch", "twopass.steps.render", "PIL.ImageOps", "encodings.raw_unicode_escape")
_READING = (
    "twopass.steps.pass1", "twopass.steps.missed_text", "numpy.ma", "twopass.pages.ocr:load_recogniser",
    "twopass.steps.enrich", "yake", "twopass.steps.document_folder", "PIL.Image:preinit", "twopass.steps.pass2",
    "twopass.steps.picture_text", "PIL.WebPImagePlugin",
)  # fmt: skip


class EngineStart:
    """How the engine is opened: what is known of it afterwards, and what waits for it. It changes on the worker's loop.

    `canary` is how it read the test images; `seconds` are those of each stage and in total, what is slower than it
    could be, and the number of several engines; `ended` is when it was ready, as time.monotonic() counts.
    """

    def __init__(self, canary: Canary | None = None, page_workers: int = 1) -> None:
        """Without a task, it was opened before."""
        self.canary = canary
        self.seconds: Mapping[str, float] = {}
        self.ended: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.has_page_workers, self.is_ready = asyncio.Event(), asyncio.Event()  # a failed start leaves them unset
        self._turns = asyncio.Semaphore(page_workers)

    @property
    def failure(self) -> BaseException | None:
        """Why the engine did not open, if that is known by now."""
        task = self.task
        return task.exception() if task and task.done() and not task.cancelled() else None

    @property
    def goes_on(self) -> bool:
        return self.task is not None and not self.is_ready.is_set()

    @asynccontextmanager
    async def enter_in_turn(self, rendering: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Render. While the engine opens, no more at once than there are page workers: its test would wait for all."""
        async with AsyncExitStack() as stack:
            async with self._turns if self.goes_on else nullcontext():
                rendered = await stack.enter_async_context(rendering)
            yield rendered

    async def raise_failure(self) -> None:
        """Return when the engine is ready; raises the error of a failed start."""
        if self.task:
            await asyncio.wait([self.task])
            self.task.result()


@dataclass(frozen=True)
class Worker:
    """What all jobs of a worker share. Its coroutines run on `loop`."""

    settings: Settings
    engine: Engine
    family: Family
    page_pool: PagePool
    buffers: PixelBufferPool
    page_slots: PageSlots
    loop: asyncio.AbstractEventLoop
    observer: Observer = field(default_factory=CompositeObserver)
    start: EngineStart = field(default_factory=EngineStart)
    shutdown: Shutdown = field(default_factory=Shutdown)
    checked_outputs: dict[str, bool] = field(default_factory=dict)  # see storage/outputs.py
    # which of so many pages is read first: random, so that workers that begin a document together begin apart
    pick_start: Callable[[int], int] = secrets.randbelow

    @property
    def canary(self) -> Canary | None:
        return self.start.canary

    @property
    def started(self) -> Mapping[str, float]:
        """The seconds of the start; empty before its end."""
        return self.start.seconds

    def stopwatch(self) -> Stopwatch:
        """It does not count what was done while the engine opened."""
        return Stopwatch(self.observer, lambda: self.start.ended)

    async def wait_until_ready(self) -> bool:
        """Wait for the engine; returns whether that was necessary. If it does not open, `guard` ends who waits."""
        return self.start.goes_on and await self.start.is_ready.wait()

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work, and end it with the engine's error if the engine does not open."""
        async with task_group.open_group() as group:
            failing = group.create_task(self.start.raise_failure())
            result = await work
            failing.cancel()
        return result

    def is_alive(self) -> bool:
        """Whether the engine was opened and the loop responds in time. Call it from any thread but the loop's own."""
        if self.start.goes_on:
            return False
        responded = threading.Event()
        self.loop.call_soon_threadsafe(responded.set)
        return responded.wait(_HEALTH_TIMEOUT_S)

    def describe_engines(self) -> str:
        """What /health adds: how many of several engines run, such as `1 of 2 engines`, and a misread canary."""
        statuses = self.engine.statuses
        running = f"{sum(status.is_ready for status in statuses)} of {len(statuses)} engines"
        notes = [running] if len(statuses) > 1 else []
        return ", ".join([*notes, *(["canary misread"] if self.canary is Canary.MISREAD else [])])

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run on the worker's loop, guarded; cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(self.guard(work), self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the worker's loop, guarded, and wait; an interrupt cancels the work and waits until it has ended."""
        return loop_thread.run(self.guard(work), self.loop)

    def stop_soon(self) -> None:
        """Start no more pages. Called by a signal handler, which must not log: a lock may be held under it."""
        self.loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        log.warning("shutting down: no more pages are started", grace_s=self.settings.shutdown_grace_s)
        self.shutdown.begin(self.settings.shutdown_grace_s)


def check_settings(settings: Settings) -> None:
    """Require settings that fit together, before anything is started; raises InvalidSetting."""
    preflight.check_settings(settings)
    if settings.engine == "openai":
        registry.get_family(settings.openai_family, named_by="OPENAI_FAMILY")


@contextmanager
def open_worker(
    settings: Settings,
    observer: Observer | None = None,
    create_engine: Callable[[Settings], Engine] | None = None,
    preload_main: Callable[[], object] = lambda: None,
    begins_early: bool = False,
) -> Iterator[Worker]:
    """Open a warm worker, on the main thread before the SDK starts.

    `preload_main` runs on this thread while the event loop's thread waits for the engine and tests it. With
    `begins_early`, yield as soon as there are page workers: jobs fetch and render until the engine is ready. If it does
    not open, they are cancelled; if the block ends before, so does the start.
    Raises InvalidSetting, and EngineError, also for a failed canary.
    """
    preflight.check_platform(sys.platform)
    vendor_reports.switch_off()  # before an engine imports its libraries
    _raise_descriptor_limit()
    if removed := scratch.remove_orphans():
        log.info("deleted temporary files that earlier processes left behind", folders=removed)
    began, stages = time.monotonic() - _process_age_s(), [("imports_s", time.monotonic())]
    # The engine first, because it may fork, and threads do not survive a fork.
    engine = (create_engine or factory.create_engine)(settings)
    stages.append(("engine_s", time.monotonic()))
    with gc_tuning.collect_less_often(), loop_thread.open_loop() as loop:
        try:
            worker = _build_worker(settings, engine, loop, observer or CompositeObserver())
        except BaseException:
            loop_thread.run(engine.close(), loop)
            raise
        start = worker.start
        # A server of models names its model when it is asked, and ids of documents contain the name.
        awaited = start.has_page_workers if begins_early and engine.kind != "openai" else start.is_ready
        try:
            loop_thread.run(_begin_start(worker, began, stages), loop)
            preload_main()  # not before: the engine may fork, and no import may have started threads by then
            worker.run(awaited.wait())
            yield worker
        except (Exception, SystemExit):
            if start.failure:  # whatever became of that in what was cancelled
                raise start.failure from None
            raise
        finally:
            loop_thread.run(_close(worker), loop)
            for pool in (worker.buffers, *engine.buffer_pools):
                pool.close()


def _build_worker(settings: Settings, engine: Engine, loop: asyncio.AbstractEventLoop, observer: Observer) -> Worker:
    family = choose_family(settings, engine.family)
    pages = (engine.sequences or settings.page_worker_count) / engine.prompts_per_page
    default_slots = round(SLOTS_PER_SEQUENCE * pages)
    slots = settings.window or max(_MIN_SLOTS, default_slots)
    page_slots = PageSlots(slots, max_slow=settings.page_worker_count)
    budget = settings.window_bytes or max(_MIN_BUFFER_BYTES, slots * _PAGE_BYTES)
    buffers = PixelBufferPool(page_slots.max_in_flight, budget)
    page_pool = PagePool(
        settings.page_worker_count,
        buffers,
        settings.worker_timeout_s,
        more_buffers=engine.buffer_pools,
        memory_bytes=settings.worker_memory_bytes,
        calls=settings.worker_calls,
        preload=list_preloads(engine.kind, family),
    )
    start = EngineStart(page_workers=settings.page_worker_count)
    return Worker(settings, engine, family, page_pool, buffers, page_slots, loop, observer, start)


def list_preloads(engine_kind: str, family: Family) -> tuple[str, ...]:
    """What page workers import for an engine of this kind and this family, in the order in which calls need it.

    The first one is loaded before any call.
    """
    engine = _ENGINE_PRELOADS.get(engine_kind, (IMPORT_MUPDF,))
    return (engine[0], *_FETCHING, *engine[1:], type(family).__module__, *_READING)


def hide_memory(settings: Settings) -> None:
    """Hide this process's credentials from page workers, where the kernel does not confine these themselves."""
    if settings.engine != "vllm":  # its engine cores open the buffers of this process below /proc
        confinement.hide_memory()


@contextmanager
def open_monitored_worker(
    settings: Settings, preload_main: Callable[[], object] = lambda: None, begins_early: bool = False
) -> Iterator[Worker]:
    """Open a worker with the observers that the settings ask for: metrics on a port or pushed, traces."""
    hide_memory(settings)
    metrics = Metrics() if settings.metrics_port or settings.metrics_push_url else None
    with ExitStack() as stack:
        observers: list[Observer] = [metrics] if metrics else []
        if settings.otel_exporter_otlp_endpoint:
            observers.append(stack.enter_context(closing(Traces())))
        opening = open_worker(settings, CompositeObserver(*observers), None, preload_main, begins_early)
        worker = stack.enter_context(opening)
        if metrics:  # after the engine, which may fork: the server is a thread
            metrics.observe_slots(worker.page_slots)
            metrics.observe_engines(lambda: worker.engine.statuses)
            if settings.metrics_port:
                stack.enter_context(serve(metrics, settings.metrics_port, worker.is_alive, worker.describe_engines))
            if settings.metrics_push_url:
                name = settings.runpod_pod_id or socket.gethostname()
                stack.enter_context(push(metrics.registry, settings.metrics_push_url, name))
        stack.callback(worker.submit(_finish_start(worker, metrics)).cancel)
        yield worker


def choose_family(settings: Settings, name: str) -> Family:
    """The family of an engine, with the settings that change its prompts and how its answers are parsed."""
    finds_regions = resolve_structure(settings.structure, name)
    options = FamilyOptions(settings.small_crops, settings.max_tiles, finds_regions, settings.layer_text)
    return registry.get_family(name, options)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MAX_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _begin_start(worker: Worker, began: float, stages: list[tuple[str, float]]) -> None:
    worker.start.task = asyncio.create_task(_open(worker, began, stages))


async def _open(worker: Worker, began: float, stages: list[tuple[str, float]]) -> None:
    start = worker.start
    await worker.page_pool.open()
    stages.append(("workers_s", time.monotonic()))
    start.has_page_workers.set()
    await worker.engine.open(worker.page_pool)
    stages.append(("engine_s", time.monotonic()))
    start.canary = await canary.check(worker.engine, worker.family, worker.page_pool, worker.settings)
    start.ended = time.monotonic()
    start.seconds = _describe_start(worker.engine, began, [*stages, ("canary_s", start.ended)])
    log.info("worker ready", **start.seconds)
    start.is_ready.set()


async def _finish_start(worker: Worker, metrics: Metrics | None) -> None:
    await worker.wait_until_ready()
    if metrics:
        metrics.observe_start(worker.started)
    try:
        await worker.engine.after_ready()
    except Exception:  # whatever fails here: the worker serves without it
        log.exception("what could wait until the worker serves was not done")


def _describe_start(engine: Engine, began: float, ends: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Seconds of each stage, which add up to `ready_s`; then what is slower than it could be, and how many engines.

    An engine in processes of its own starts while page workers do: such seconds count for the stage that ended first.
    """
    own = [(f"engine_{name}", end) for name, end in engine.stage_ends.items()]
    seconds = measure_stages(began, [*own, *ends])
    more = {"ready_s": sum(seconds.values()), **dict.fromkeys(engine.fallbacks, 1)}
    if engine.members:
        more["engines"] = len(engine.members)
    return {name: round(value, 2) for name, value in {**seconds, **more}.items()}


def _process_age_s() -> float:
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


async def _close(worker: Worker) -> None:
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            if task := worker.start.task:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await worker.engine.close()
    except TimeoutError:
        log.error("the engine did not close in time", timeout_s=_CLOSE_TIMEOUT_S)
    await worker.page_pool.close()
