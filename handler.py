"""RunPod's entry point: settings, engine and workers once per process; a job in, its result out."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from typing import Any, NoReturn

import structlog

from twopass import pipeline
from twopass.cli import terminal
from twopass.document import Status
from twopass.engines import preflight
from twopass.errors import Code, EngineError, TwopassError
from twopass.job import Door, Job, Result, shown
from twopass.runtime.shutdown import AGAIN
from twopass.runtime.signal_handlers import heard_first
from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.telemetry.metrics import Metrics, served
from twopass.telemetry.observer import CompositeObserver, Observer
from twopass.telemetry.progress import Listener, Sender, Tracker
from twopass.telemetry.traces import Traces
from twopass.worker import Worker, open_worker

log = structlog.get_logger()

Answer = dict[str, Any]

SDK_DEFAULTS = {
    "RUNPOD_LOG_LEVEL": "INFO",  # its default, DEBUG, logs whole results: document text and presigned URLs
    "RUNPOD_SKIP_GPU_CHECK": "true",  # its check imports torch and leaves a CUDA context in this process
    "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",  # its network check needs the open internet
}


def main() -> None:
    settings = Settings()
    logs.set_up(settings)
    door = _door()
    for name, value in SDK_DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        if door is not Door.LOCAL:
            preflight.disk(settings)
        _serve(settings, door)
    except TwopassError as error:  # of a house that did not open: those of jobs are answered
        log.critical("worker refuses to serve", code=error.code, reason=error.message)
        if door is Door.SERVERLESS:
            _report_unfit(error)
        raise SystemExit(1) from None


def _serve(settings: Settings, door: Door) -> None:
    read: list[Result] = []
    with _opened(settings) as worker:
        import runpod  # takes seconds, and every worker but this process may already be warm

        @runpod.serverless.register_fitness_check  # type: ignore[untyped-decorator]
        def disk() -> None:
            preflight.disk(settings)

        @runpod.serverless.register_fitness_check  # type: ignore[untyped-decorator]
        def engine() -> None:  # driver, memory, weights and canary were looked at when it was opened
            if worker.engine.is_gone:
                raise EngineError(Code.ENGINE_DEAD, "the engine died as the worker started")

        hear_of_the_end = heard_first(worker.stop_soon)

        def concurrency(_: int) -> int:
            """Constant: the SDK stops taking jobs whenever it changes. Asked before jobs are taken."""
            hear_of_the_end()
            return settings.concurrency

        try:
            keep = read.append if door is Door.LOCAL else _forget
            handler = _handler(worker, door, keep, hear_of_the_end if door is Door.API else _nothing)
            runpod.serverless.start({"handler": handler, "concurrency_modifier": concurrency})
        finally:
            for result in read:  # after the SDK's own last lines
                terminal.what_lies_where(result)


@contextmanager
def _opened(settings: Settings) -> Iterator[Worker]:
    """The house, its work told to whoever is set to listen: metrics on a port, traces."""
    metrics = Metrics() if settings.metrics_port else None
    with ExitStack() as stack:
        observers: list[Observer] = [metrics] if metrics else []
        if settings.otel_exporter_otlp_endpoint:
            observers.append(stack.enter_context(closing(Traces())))
        worker = stack.enter_context(open_worker(settings, CompositeObserver(*observers)))
        if metrics:  # after the engine: it may fork, and a server is a thread
            metrics.window(worker.window)
            stack.enter_context(served(metrics, settings.metrics_port, worker.is_alive))
        yield worker


def _report_unfit(error: TwopassError) -> NoReturn:
    """Let the SDK tell RunPod why this worker does not serve: it runs its checks, and ends with one that fails."""
    import runpod

    def engine() -> None:  # the SDK reports its name and what it raises
        raise error

    runpod.serverless.register_fitness_check(engine)
    runpod.serverless.start({"handler": lambda job: {"error": str(error)}})
    raise SystemExit(1)


def _forget(result: Result) -> None:
    """A worker's results are RunPod's."""


def _door() -> Door:
    """In the SDK's own order; it takes abbreviated flags. Only its plain local run trusts the caller."""
    serves = any(argument.startswith("--rp_s") for argument in sys.argv[1:])
    if serves or os.environ.get("RUNPOD_REALTIME_PORT", "0") != "0":
        return Door.API
    return Door.SERVERLESS if os.environ.get("RUNPOD_WEBHOOK_GET_JOB") else Door.LOCAL


def _nothing() -> None:
    """A local run's signals are Python's own, and a worker's are heard of before its first job."""


def _handler(
    worker: Worker, door: Door, keep: Callable[[Result], None], first: Callable[[], None]
) -> Callable[[Answer], Awaitable[Answer]]:
    started = iter([dict(worker.started)])

    async def handler(job: Answer) -> Answer:
        """Always a dict RunPod understands; the program's one catch-all is here."""
        first()
        structlog.contextvars.bind_contextvars(job=job.get("id"))
        try:
            result = await answer(job, worker, door)
            result = result.model_copy(update={"started": next(started, None)})
            keep(result)
            return _replacing(worker, door, result.as_answer())
        except TwopassError as error:
            log.warning("job refused", code=error.code)
            worker.observer.refused(error.code)
            return _replacing(worker, door, {"error": str(error)[:1000]})
        except Exception:
            log.exception("job failed")
            worker.observer.refused(Code.INTERNAL)
            return {"error": f"{Code.INTERNAL}: the worker's log has the traceback under this job's id"}

    return handler


def _replacing(worker: Worker, door: Door, said: Answer) -> Answer:
    """The answer; of a worker whose engine is gone for good it asks for another worker, and fails if pages are left.

    Such a worker takes no job any more: refusing them one by one, it would empty the queue.
    """
    if not worker.engine.is_gone or door is not Door.SERVERLESS:
        return said
    signal.raise_signal(signal.SIGTERM)
    if "error" in said or said["status"] == Status.SUCCESS:
        return {**said, "refresh_worker": True}
    message = f"{Code.ENGINE_DEAD}: the engine is gone and the worker is replaced; {AGAIN}"
    return {"error": message, "detail": said, "refresh_worker": True}


async def answer(delivered: Answer, worker: Worker, door: Door) -> Result:
    """Read the job on the house's loop and tell its progress; raises TwopassError."""
    settings = worker.settings
    if worker.engine.is_gone:
        raise EngineError(Code.ENGINE_DEAD, "this worker's engine is gone and it is being replaced; send the job again")
    job = Job.parse(delivered, settings, door)
    progress = Tracker()
    async with AsyncExitStack() as stack:
        if door is Door.SERVERLESS:
            progress.listen(await stack.enter_async_context(_posts(delivered, settings)))
        if door is Door.LOCAL:
            progress.listen(stack.enter_context(terminal.one(", ".join(map(shown, job.sources))[:60])))
        stack.enter_context(worker.observer.job(job.id))
        result = await asyncio.wrap_future(worker.submit(pipeline.run(job, worker, progress)))
    worker.observer.ended(result)
    return result


@asynccontextmanager
async def _posts(delivered: Answer, settings: Settings) -> AsyncIterator[Listener]:
    """A listener that posts to RunPod in order, one post at a time, and never after the job's result."""
    from runpod.http_client import AsyncClientSession
    from runpod.serverless.modules import rp_http

    async with AsyncClientSession() as session:

        async def post(now: Answer) -> None:
            await rp_http.send_result(session, {"status": "IN_PROGRESS", "output": now}, delivered)

        async with Sender(post, settings.progress_interval_s, settings.progress_drain_s) as sender:
            yield sender.offer


if __name__ == "__main__":
    main()
