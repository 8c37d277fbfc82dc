"""RunPod's entry point: opens the worker once per process and answers jobs."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any, NoReturn

import structlog

from twopass import locations, pipeline
from twopass.cli import handler_arguments, options
from twopass.cli.reporters import BarState, Figures, Reporter, create_reporter
from twopass.document import Problem, Severity, Status
from twopass.engines import preflight
from twopass.errors import Code, EngineError, TwopassError, advise_install
from twopass.job import EntryPoint, Job
from twopass.result import Result
from twopass.runtime import parent_death
from twopass.runtime.shutdown import SEND_AGAIN, chain_signal_handlers
from twopass.settings import Settings, find_misspelt, load_settings
from twopass.storage import s3
from twopass.telemetry import logs
from twopass.telemetry.progress import Listener, Sender, Tracker
from twopass.worker import Worker, check_settings, open_monitored_worker

log = structlog.get_logger()

JsonObject = dict[str, Any]

SDK = "runpod"
SDK_DEFAULTS = {
    "RUNPOD_LOG_CAPTURE": "off",  # SDK 2.0 would return the worker's output to callers of a job that fails
    "RUNPOD_SKIP_GPU_CHECK": "true",  # its check imports torch and leaves a CUDA context in this process
    "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",  # its network check needs the open internet
}
SDK_LOG_LEVEL = "INFO"  # its default, DEBUG, logs whole results: document text and presigned URLs
LOCAL_SDK_LOG_LEVEL = "WARN"  # at INFO, it prints the whole result of a local run; we print what people need


def main() -> None:
    # Until the settings are read, the log needs only this one, which decides its format.
    logs.set_up(Settings.model_construct(runpod_endpoint_id=os.environ.get("RUNPOD_ENDPOINT_ID")))
    entry_point = EntryPoint.SERVERLESS if os.environ.get("RUNPOD_WEBHOOK_GET_JOB") else EntryPoint.LOCAL
    try:
        settings = load_settings()
        logs.set_up(settings)
        check_settings(settings)
        _check_sdk()
        arguments = handler_arguments.parse(sys.argv[1:], os.environ)
        entry_point = arguments.entry_point
        if entry_point is EntryPoint.LOCAL:
            settings = options.log_only_errors(settings)
            logs.set_up(settings)
        arguments.check(settings)
        if entry_point is not EntryPoint.LOCAL:
            preflight.check_disk(settings)
        _serve(settings, entry_point)
    except TwopassError as error:  # the worker could not be opened; errors of jobs are answered in the handler
        log.critical("worker cannot serve", code=error.code, reason=error.message)
        if entry_point is EntryPoint.SERVERLESS and find_spec(SDK):
            _report_unfit(error)
        raise SystemExit(1) from None


def _check_sdk() -> None:
    """Require RunPod's SDK before an engine is opened; raises EngineError."""
    if find_spec(SDK) is None:
        raise EngineError(Code.PLATFORM, f"handler.py needs {SDK}: {advise_install('worker')}")


def _serve(settings: Settings, entry_point: EntryPoint) -> None:
    results: list[Result] = []
    misspelt = find_misspelt()
    if misspelt:  # no reason to refuse: an endpoint that serves must not be stopped by a variable without effect
        log.warning("misspelt settings", code=Code.INVALID_SETTING, reason=misspelt)
    reporter, started = create_reporter(settings), time.monotonic()
    # A job of the queue is left to workers that are ready, until this one is.
    is_local = entry_point is EntryPoint.LOCAL
    with open_monitored_worker(settings, lambda: _preload(entry_point), begins_early=is_local) as worker:
        runpod = _import_sdk(entry_point)

        @runpod.serverless.register_fitness_check  # type: ignore[untyped-decorator]
        def disk() -> None:
            preflight.check_disk(settings)

        @runpod.serverless.register_fitness_check  # type: ignore[untyped-decorator]
        def engine() -> None:  # driver, memory, weights and canary were checked when it was opened
            if worker.engine.is_gone:
                raise EngineError(Code.ENGINE_DEAD, "the engine died while the worker started")

        install_handlers = chain_signal_handlers(worker.stop_soon)

        def concurrency(_: int) -> int:
            """A constant, because the SDK stops taking jobs while it changes.

            The SDK calls this after installing its own signal handlers and before it takes jobs.
            """
            install_handlers()
            return settings.concurrency

        try:
            keep = results.append if is_local else _discard_result
            before_job = install_handlers if entry_point is EntryPoint.API else _do_nothing
            handler = _create_handler(worker, entry_point, reporter, keep, before_job, misspelt)
            # The SDK forks a process that tells the platform that this one lives.
            parent_death.end_forks_with_parent()
            gc.freeze()  # a full collection would copy 16 MB that both share
            runpod.serverless.start({"handler": handler, "concurrency_modifier": concurrency})
        finally:
            for result in results:  # after the last output of the SDK
                opened = worker.start.ended or started  # in the latter case, no engine was needed
                figures = Figures.measure(result.documents, opened - started, time.monotonic() - started)
                reporter.report_result(result, figures.describe())


def _preload(entry_point: EntryPoint) -> None:
    """Import what takes seconds while the engine starts. Local runs may need no S3."""
    _import_sdk(entry_point)
    if entry_point is not EntryPoint.LOCAL:
        s3.preload()


def _import_sdk(entry_point: EntryPoint) -> Any:
    """Import RunPod's SDK, which reads its variables meanwhile, with our defaults for those that are not set."""
    level = LOCAL_SDK_LOG_LEVEL if entry_point is EntryPoint.LOCAL else SDK_LOG_LEVEL
    for name, value in {**SDK_DEFAULTS, "RUNPOD_LOG_LEVEL": level}.items():
        os.environ.setdefault(name, value)
    import runpod

    return runpod


def _report_unfit(error: TwopassError) -> NoReturn:
    """Report to RunPod why this worker cannot serve, through a fitness check of the SDK that fails."""
    runpod = _import_sdk(EntryPoint.SERVERLESS)

    def engine() -> None:  # the SDK reports this name and the error
        raise error

    runpod.serverless.register_fitness_check(engine)
    runpod.serverless.start({"handler": lambda job: {"error": str(error)}})
    raise SystemExit(1)


def _discard_result(result: Result) -> None:
    """Keep no result: only local runs print the artefacts at the end."""


def _do_nothing() -> None:
    """Before a job of a local run or a serverless worker, nothing is to be done.

    Local runs keep Python's signal handlers; `concurrency` installs those of serverless workers.
    """


def _create_handler(
    worker: Worker,
    entry_point: EntryPoint,
    reporter: Reporter,
    keep: Callable[[Result], None],
    before_job: Callable[[], None],
    misspelt: str | None,
) -> Callable[[JsonObject], Awaitable[JsonObject]]:
    first_job = iter([True])

    async def handler(job: JsonObject) -> JsonObject:
        """Answer one job, always with a dict that RunPod accepts. The program's only `except Exception` is here."""
        before_job()
        structlog.contextvars.bind_contextvars(job=job.get("id"))
        try:
            result = await answer(job, worker, entry_point, reporter)
            if next(first_job, False):
                result = _add_start(result, worker, misspelt)
            keep(result)
            return _request_replacement(worker, entry_point, result.as_answer())
        except TwopassError as error:
            if worker.start.failure:
                raise SystemExit(1) from error  # which `open_worker` replaces by the reason
            log.warning("job refused", code=error.code)
            worker.observer.job_refused(error.code)
            return _request_replacement(worker, entry_point, {"error": str(error)[:1000]})
        except Exception:
            log.exception("job failed")
            worker.observer.job_refused(Code.INTERNAL)
            message = "unexpected error; the worker's log has the traceback under this job's id"
            return {"error": f"{Code.INTERNAL}: {message}"}

    return handler


def _add_start(result: Result, worker: Worker, misspelt: str | None) -> Result:
    """Add what concerns the worker and not the job: the seconds of its start, and misspelt settings as a warning."""
    problem = Problem(code=Code.INVALID_SETTING, severity=Severity.WARNING, message=misspelt) if misspelt else None
    problems = (*result.problems, problem) if problem else result.problems
    return result.model_copy(update={"started": dict(worker.started) or None, "problems": problems})


def _request_replacement(worker: Worker, entry_point: EntryPoint, reply: JsonObject) -> JsonObject:
    """If the engine is gone for good, ask RunPod to replace this worker, and fail the job if pages are unread.

    Such a worker takes no more jobs: otherwise it would drain the queue by failing every job.
    """
    if not worker.engine.is_gone or entry_point is not EntryPoint.SERVERLESS:
        return reply
    signal.raise_signal(signal.SIGTERM)
    if "error" in reply or reply["status"] == Status.SUCCESS:
        return {**reply, "refresh_worker": True}
    message = f"{Code.ENGINE_DEAD}: the engine is gone and the worker is being replaced; {SEND_AGAIN}"
    return {"error": message, "detail": reply, "refresh_worker": True}


async def answer(delivered_job: JsonObject, worker: Worker, entry_point: EntryPoint, reporter: Reporter) -> Result:
    """Run the job on the worker's loop and report its progress; raises TwopassError."""
    settings = worker.settings
    if worker.engine.is_gone:
        message = f"this worker's engine is gone and the worker is being replaced; {SEND_AGAIN}"
        raise EngineError(Code.ENGINE_DEAD, message)
    job = Job.parse(delivered_job, settings, entry_point)
    progress = Tracker()
    async with AsyncExitStack() as stack:
        if entry_point is EntryPoint.SERVERLESS:
            progress.add_listener(await stack.enter_async_context(_post_progress(delivered_job, settings)))
        if entry_point is EntryPoint.LOCAL:
            progress.add_listener(stack.enter_context(_show_job(reporter, job)))
        stack.enter_context(worker.observer.job(job.id))
        result = await asyncio.wrap_future(worker.submit(pipeline.run(job, worker, progress)))
    worker.observer.job_ended(result)
    return result


@contextmanager
def _show_job(reporter: Reporter, job: Job) -> Iterator[Listener]:
    """A listener that shows the job's progress to the person who started it."""
    name = ", ".join(map(locations.redact, job.sources))[:60]
    with reporter.show_progress() as show:
        yield lambda now: show(BarState.of_job(name, now))


@asynccontextmanager
async def _post_progress(delivered_job: JsonObject, settings: Settings) -> AsyncIterator[Listener]:
    """A listener that posts progress to RunPod in order, one post at a time, and never after the job's result."""
    from runpod.http_client import AsyncClientSession
    from runpod.serverless.modules import rp_http

    async with AsyncClientSession() as session:

        async def post(progress: JsonObject) -> None:
            await rp_http.send_result(session, {"status": "IN_PROGRESS", "output": progress}, delivered_job)

        async with Sender(post, settings.progress_interval_s, settings.progress_drain_s) as sender:
            yield sender.offer


if __name__ == "__main__":
    main()
