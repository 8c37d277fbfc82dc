"""Run jobs in the worker, as many at once as CONCURRENCY says, and keep their records up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from twopass import pipeline
from twopass.document import Severity, Status
from twopass.errors import Code, EngineError, RequestError, StoreError, TwopassError
from twopass.job import EntryPoint, Job, Upload, redact_uri
from twopass.result import Result
from twopass.server.answers import ErrorAnswer, State
from twopass.server.jobs import JobStore, Record, now
from twopass.server.uploads import Body
from twopass.telemetry.progress import Progress, Tracker
from twopass.worker import Worker

log = structlog.get_logger()

_BUG = "unexpected error; the server's log has the traceback under this job's id"


@dataclass
class JobQueue:
    """The jobs that wait or run. It lives on the server's event loop; the pipeline runs on the worker's."""

    worker: Worker
    store: JobStore
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _arriving: int = 0
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.worker.settings.concurrency)

    @property
    def running(self) -> int:
        return min(len(self._tasks), self.worker.settings.concurrency)

    @property
    def queued(self) -> int:
        return len(self._tasks) - self.running

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Keep a place for a job while its file is received; raises TwopassError if there is none."""
        self._check_room()
        self._arriving += 1
        try:
            yield
        finally:
            self._arriving -= 1

    def _check_room(self) -> None:
        settings = self.worker.settings
        if self.worker.engine.is_gone:
            raise EngineError(Code.ENGINE_DEAD, "the engine is gone; restart the server")
        if len(self._tasks) + self._arriving >= settings.concurrency + settings.serve_queue:
            raise RequestError(Code.QUEUE_FULL, f"{self.queued} jobs are waiting; try again later")
        if self.store.free_bytes < settings.min_free_disk_bytes:
            message = "the server's disk is nearly full; delete jobs, or lower SERVE_RETENTION_S"
            raise StoreError(Code.STORE_UNAVAILABLE, message)

    async def add(self, body: Body) -> Record:
        """Parse and store a job and let it run, in a place that is reserved; raises TwopassError."""
        job_id = self.store.new_folder()
        with ExitStack() as undo:
            undo.callback(self.store.delete, job_id)
            job = self._parse(job_id, body)
            await body.save(self.store.upload_path(job_id))
            record = self.store.put(Record(id=job_id, name=body.name or redact_uri(job.sources[0]), created=now()))
            undo.pop_all()
        task = asyncio.create_task(self._run(job))
        self._tasks[job_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job_id, None))
        return record

    def _parse(self, job_id: str, body: Body) -> Job:
        upload = Upload(body.name, self.store.upload_path(job_id)) if body.name else None
        settings = self.worker.settings.model_copy(update={"output_dir": self.store.output_path(job_id)})
        return Job.parse({"id": job_id, "input": body.input, "upload": upload}, settings, EntryPoint.SERVER)

    async def wait(self, job_id: str, seconds: float) -> None:
        """Wait until the job has ended, but no longer than this."""
        if task := self._tasks.get(job_id):
            await asyncio.wait({task}, timeout=seconds)

    async def cancel(self, job_id: str) -> bool:
        """Cancel the job and wait until nothing of it runs any more; returns whether it had not ended yet."""
        task = self._tasks.get(job_id)
        if task is None:
            return False
        if not task.cancelling():  # a second cancellation would not wait for the work to end
            task.cancel()
        await asyncio.wait({task})
        if not self.store.get(job_id).state.is_final:  # it was cancelled before its first step
            self._end(self.store.get(job_id).end(State.CANCELLED))
        return True

    async def close(self) -> None:
        """Wait until every job has ended. During a shutdown the worker ends them within SHUTDOWN_GRACE_S."""
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def _run(self, job: Job) -> None:
        structlog.contextvars.bind_contextvars(job=job.id)
        try:
            async with self._slots:
                self.store.show(self.store.get(job.id).update(state=State.RUNNING, started=now()))
                record = self._describe_end(job, await self._read(job))
        except asyncio.CancelledError:
            record = self.store.get(job.id).end(State.CANCELLED)
        self._end(record)

    def _end(self, record: Record) -> None:
        self.store.delete_upload(record.id)
        try:
            self.store.put(record)
        except StoreError as error:
            log.error("record of a job not stored", code=error.code)
            self.store.show(record)

    async def _read(self, job: Job) -> asyncio.Task[Result]:
        loop = asyncio.get_running_loop()

        def show(progress: Progress) -> None:
            self.store.show(self.store.get(job.id).update(progress=progress.as_dict()))

        def show_soon(progress: Progress) -> None:
            loop.call_soon_threadsafe(show, progress)

        tracker = Tracker(show_soon)
        return await run_in_worker(self.worker, _observe(job, self.worker, tracker))

    def _describe_end(self, job: Job, task: asyncio.Task[Result]) -> Record:
        record, error = self.store.get(job.id), task.exception()
        if error is None:
            result = task.result()
            failed = result.status is Status.FAILURE
            return record.end(
                State.FAILED if failed else State.DONE, result=result, error=_find_error(result) if failed else None
            )
        if isinstance(error, TwopassError):
            log.warning("job refused", code=error.code)
            self.worker.observer.job_refused(error.code)
            return record.end(State.FAILED, error=ErrorAnswer.of(error))
        log.error("job failed", exc_info=error)
        self.worker.observer.job_refused(Code.INTERNAL)
        return record.end(State.FAILED, error=ErrorAnswer(code=Code.INTERNAL, message=_BUG))


async def _observe(job: Job, worker: Worker, tracker: Tracker) -> Result:
    with worker.observer.job(job.id):
        result = await pipeline.run(job, worker, tracker)
    worker.observer.job_ended(result)
    return result


def _find_error(result: Result) -> ErrorAnswer:
    problem = next((problem for problem in result.problems if problem.severity is Severity.ERROR), None)
    if problem is None:
        return ErrorAnswer(code=Code.INTERNAL, message="no page was read")
    return ErrorAnswer(code=problem.code, message=problem.message)


async def run_in_worker(worker: Worker, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Run on the worker's loop and return the ended task.

    A cancellation is passed on, and raised only when the work has ended: until then it may write files.
    """
    loop, ended, tasks = asyncio.get_running_loop(), asyncio.Event(), list[asyncio.Task[Result]]()

    def start() -> None:
        task = worker.loop.create_task(work)
        task.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        tasks.append(task)

    worker.loop.call_soon_threadsafe(start)
    try:
        await ended.wait()
    except asyncio.CancelledError:
        worker.loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        await ended.wait()
        raise
    return tasks[0]
