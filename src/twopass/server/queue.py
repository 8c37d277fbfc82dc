"""Run jobs in the worker, as many at once as CONCURRENCY says, and keep their records up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from twopass import contexts, locations, pipeline
from twopass.document import Severity, Status
from twopass.errors import Code, EngineError, RequestError, StoreError, TwopassError
from twopass.formats import registry
from twopass.job import EntryPoint, Format, Job, Upload
from twopass.result import Result
from twopass.runtime import loop_thread, scratch
from twopass.server.connections import ClientLimits
from twopass.server.jobs import NOT_KEPT, ErrorAnswer, JobStore, Record, State, describe_missing_file, now
from twopass.server.uploads import Arrival, Body
from twopass.server.webhooks import FIELD, Webhooks
from twopass.steps import reparse
from twopass.steps.document_folder import DocumentFolder
from twopass.storage import outputs
from twopass.telemetry.progress import Progress, Tracker
from twopass.worker import Worker

log = structlog.get_logger()

_BUG = "unexpected error; the server's log has the traceback under this job's id"
_INTERRUPTED = ErrorAnswer(
    code=Code.SHUTDOWN, message="the server stopped before the job ended; it continues the job when it starts again"
)


@dataclass
class JobQueue:
    """The jobs that wait or run. It lives on the server's event loop; the pipeline runs on the worker's."""

    worker: Worker
    store: JobStore
    limits: ClientLimits = ClientLimits()
    announce: Callable[[Record], dict[str, Any]] = lambda record: {"id": record.id, "state": record.state}
    _deliveries: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _arriving: list[Arrival] = field(default_factory=list)
    _slots: asyncio.Semaphore = field(init=False)
    _one_format: asyncio.Lock = field(default_factory=asyncio.Lock)  # a document takes memory while it is written
    _webhooks: Webhooks = field(init=False)

    def __post_init__(self) -> None:
        self._webhooks = Webhooks(self.worker.settings, self.announce)
        self._slots = asyncio.Semaphore(self.worker.settings.concurrency)

    @property
    def running(self) -> int:
        return min(len(self._tasks), self.worker.settings.concurrency)

    @property
    def queued(self) -> int:
        return len(self._tasks) - self.running

    @property
    def is_stopped(self) -> bool:
        """Whether the worker shuts down and no job of it runs any more."""
        return self.worker.shutdown.has_begun and not self._tasks

    @contextmanager
    def reserve(self, size: int) -> Iterator[Arrival]:
        """Keep a place for a job while its body arrives, of which the client has announced `size` bytes.

        Raises TwopassError if there is no place. The disk is kept free for what has arrived, not for what is announced.
        """
        self._check_room(min(size, self.worker.settings.max_source_bytes))  # more is refused as too large
        arrival = Arrival(self.limits, asyncio.get_running_loop().time(), check_room=self._check_disk)
        self._arriving.append(arrival)
        try:
            yield arrival
        finally:
            self._arriving.remove(arrival)

    def _check_room(self, size: int = 0) -> None:
        settings = self.worker.settings
        if self.worker.engine.is_gone:
            raise EngineError(Code.ENGINE_DEAD, "the engine is gone; restart the server")
        if len(self._tasks) + len(self._arriving) >= settings.concurrency + settings.serve_queue:
            raise RequestError(Code.QUEUE_FULL, f"{self.queued} jobs are waiting; try again later")
        self._check_disk(size)

    def _check_disk(self, size: int = 0) -> None:
        """Require room for `size` more bytes; raises StoreError. What arrives is in the temporary folder at first."""
        to_copy = sum(arrival.received for arrival in self._arriving) + size
        spooled = size if self.store.shares_disk_with(scratch.folder()) else 0
        free = min(self.store.free_bytes - to_copy - spooled, scratch.free_bytes() - size)
        if free < self.worker.settings.min_free_disk_bytes:
            message = "the server's disk is nearly full; delete jobs, or lower SERVE_RETENTION_S"
            raise StoreError(Code.STORE_UNAVAILABLE, message)

    async def add(self, body: Body) -> Record:
        """Parse and store a job and let it run, in a place that is reserved; raises TwopassError."""
        webhook = self._webhooks.check(body.input.get(FIELD))
        job_id = await self.store.new_folder()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.store.delete, job_id)
            job = self._parse(job_id, body.input, body.name)
            contexts.check_supported(job, self.worker.family)  # before the file is kept and waits for its turn
            await body.save(self.store.upload_path(job_id))
            await self.store.keep_input(job_id, body.input, is_secret=bool(job.password or job.s3))
            name = body.name or locations.redact(job.sources[0])
            record = Record(id=job_id, name=name, created=now(), webhook=webhook)
            await self.store.put(record)
            undo.pop_all()
        self._start(job)
        return record

    def _parse(self, job_id: str, job_input: Mapping[str, Any], file_name: str | None) -> Job:
        upload = Upload(file_name, self.store.upload_path(job_id)) if file_name else None
        job_input = {name: value for name, value in job_input.items() if name != FIELD}
        settings = self.worker.settings.model_copy(update={"output_dir": self.store.output_path(job_id)})
        job = Job.parse({"id": job_id, "input": job_input, "upload": upload}, settings, EntryPoint.SERVER)
        if self._is_kept_here(job):  # in a folder of its own, which has only pages of this job
            job = job.model_copy(update={"resume": True})
        return job

    def _is_kept_here(self, job: Job) -> bool:
        return job.output == str(self.store.output_path(job.id))

    def _start(self, job: Job) -> None:
        task = asyncio.create_task(self._run(job))
        self._tasks[job.id] = task

        def forget(ended: asyncio.Task[None]) -> None:
            if self._tasks.get(job.id) is ended:  # else the job was resumed
                del self._tasks[job.id]

        task.add_done_callback(forget)

    async def take_up(self) -> None:
        """Continue the jobs that the end of the last server cut off, the oldest first. Pages that are stored stay."""
        for record in reversed(self.store.all()):
            if record.state is State.QUEUED:
                try:
                    job = await self._load(record)
                except TwopassError as error:  # also if a setting has changed
                    await self._end(record.end(State.FAILED, error=ErrorAnswer.of(error)))
                else:
                    log.info("job continued", job=record.id)
                    self._start(job)
            elif record.state.is_final:
                self._notify(record)

    async def resume(self, job_id: str, password: str | None = None) -> Record:
        """Run a job again that ended incomplete; a job that has not ended goes on. Pages that are stored stay.

        A password replaces the one that was sent before. Raises TwopassError if nothing is left to read, what was sent
        is gone, the password is none, or there is no room.
        """
        record = self.store.get(job_id)
        if not record.state.is_final:
            return record
        if not self.store.can_resume(record):
            message = "the job is complete, or what was sent with it is no longer here; send the file as a new job"
            raise RequestError(Code.NOT_FOUND, message)
        self._check_room()
        job = await self._load(record, password)
        record = record.restart()
        self.store.show(record)  # before it is stored: another request must not start the job, too, or delete it
        self._start(job)
        try:
            await self.store.save(record)
        except StoreError:
            await self.cancel(job_id)
            raise
        return record

    async def _load(self, record: Record, password: str | None = None) -> Job:
        file_name = record.name if self.store.upload_path(record.id).exists() else None
        job_input = self.store.load_input(record.id)
        if password is not None:
            job_input = {**job_input, "password": password}
        job = self._parse(record.id, job_input, file_name)
        if password is not None:
            await self.store.keep_input(record.id, job_input, is_secret=True)
        return job

    async def add_format(self, job_id: str, document_id: str, name: Format) -> None:
        """Write a format that a done job did not ask for, from its pages; raises TwopassError."""
        record = self.store.get(job_id)
        documents = record.result.documents if record.result and record.state is State.DONE else ()
        if document_id not in [document.id for document in documents]:
            raise describe_missing_file(record)
        registry.check_installed([name])
        async with self._one_format:
            with suppress(RequestError):  # another request may have asked for it meanwhile
                self.store.find_file(job_id, f"{document_id}/{registry.WRITERS[name].name}")
                return
            try:
                async with outputs.open_output(
                    str(self.store.output_path(job_id)), self.worker.settings, None
                ) as store:
                    written = await reparse.write_one_format(DocumentFolder(store, document_id), name)
            finally:
                if self.store.find(job_id) is None:  # deleted meanwhile: what was written must not stay
                    await self.store.delete(job_id)
            await self._keep(self.store.get(job_id).add_artefacts(document_id, written.artefacts, written.lost_words))

    async def wait(self, job_id: str, seconds: float) -> None:
        """Wait until the job has ended, but no longer than this."""
        if task := self._tasks.get(job_id):
            await asyncio.wait({task}, timeout=seconds)

    async def cancel(self, job_id: str) -> bool:
        """Cancel the job and wait until nothing of it runs any more; returns whether it had not ended yet."""
        task = self._tasks.get(job_id)
        if task is None:
            return False
        state = self.store.get(job_id).state
        # A second cancellation would not wait for the work to end, and one after the end for its record.
        if state.is_active and not task.cancelling():
            task.cancel()
        await asyncio.wait({task})
        if not self.store.get(job_id).state.is_final:  # it was cancelled before its first step
            await self._end(self.store.get(job_id).end(State.CANCELLED))
        return not state.is_final

    async def close(self) -> None:
        """Wait until every job has ended. During a shutdown the worker ends them within SHUTDOWN_GRACE_S."""
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))
        for delivery in self._deliveries.values():  # the next start tries again
            delivery.cancel()
        await asyncio.gather(*self._deliveries.values(), return_exceptions=True)

    async def _run(self, job: Job) -> None:
        structlog.contextvars.bind_contextvars(job=job.id)
        try:
            async with self._slots:
                await self._keep(self.store.get(job.id).update(state=State.RUNNING, started=now()))
                record = self._describe_end(job, await self._read(job))
        except asyncio.CancelledError:
            record = self.store.get(job.id).end(State.CANCELLED)
        await self._end(record)

    async def _end(self, record: Record) -> None:
        """Keep the record, and what was sent with the job while it may run again."""
        if record.needs_password:
            self.store.forget_password(record.id)  # it was wrong
        is_stored = await self._keep(record)
        if record.state.is_final and not record.is_incomplete:
            await self.store.delete_sent(record.id)  # after the record: without both, a restart would lose the job
            if not is_stored:
                await self._save(record)  # there may be room on the disk now
        if record.state.is_final:
            self._notify(record)

    def _notify(self, record: Record) -> None:
        """Tell the job's webhook that it has ended, unless that was done; nothing waits for it."""
        if record.webhook is None or record.notified:
            return
        if earlier := self._deliveries.get(record.id):  # about an end before the job was resumed
            earlier.cancel()
        task = asyncio.create_task(self._deliver(record))
        self._deliveries[record.id] = task

        def forget(ended: asyncio.Task[None]) -> None:
            if self._deliveries.get(record.id) is ended:
                del self._deliveries[record.id]

        task.add_done_callback(forget)

    async def _deliver(self, record: Record) -> None:
        notified = await self._webhooks.send(record)
        now_known = self.store.find(record.id)
        if now_known and now_known.finished == record.finished:  # neither deleted nor resumed
            await self._keep(now_known.update(notified=notified))

    async def _keep(self, record: Record) -> bool:
        """Keep the record, only in memory if it cannot be stored; returns whether it was."""
        self.store.show(record)
        return await self._save(record)

    async def _save(self, record: Record) -> bool:
        try:
            await self.store.save(record)
        except StoreError as error:
            log.error("record of a job not stored", job=record.id, code=error.code)
            return False
        return True

    async def _read(self, job: Job) -> asyncio.Task[Result]:
        loop = asyncio.get_running_loop()

        def show(progress: Progress) -> None:
            self.store.show(self.store.get(job.id).update(progress=progress.as_dict()))

        def show_soon(progress: Progress) -> None:
            loop.call_soon_threadsafe(show, progress)

        tracker, worker, is_kept_here = Tracker(show_soon), self.worker, self._is_kept_here(job)
        if is_kept_here:  # no other worker reads into this folder
            worker = replace(worker, pick_start=_pick_first)
        work = _observe(job, worker, tracker, keeps_thumbnails=is_kept_here)
        return await loop_thread.run_from_loop(work, worker.loop)

    def _describe_end(self, job: Job, task: asyncio.Task[Result]) -> Record:
        record, error = self.store.get(job.id), task.exception()
        if _is_cut_off(task):
            result = None if error else task.result()
            if self.store.is_kept(job.id):
                return record.update(state=State.INTERRUPTED, result=result, error=_INTERRUPTED)
            return record.end(State.FAILED, result=result, error=NOT_KEPT)
        if error is None:
            result = task.result()
            if result.status is Status.FAILURE:
                return record.end(State.FAILED, result=result, error=_find_error(result))
            return record.end(State.DONE, result=result)
        if isinstance(error, TwopassError):
            log.warning("job refused", code=error.code)
            self.worker.observer.job_refused(error.code)
            return record.end(State.FAILED, error=ErrorAnswer.of(error))
        log.error("job failed", exc_info=error)
        self.worker.observer.job_refused(Code.INTERNAL)
        return record.end(State.FAILED, error=ErrorAnswer(code=Code.INTERNAL, message=_BUG))


def _pick_first(count: int) -> int:
    """The first of `count` pages, in place of a random one."""
    return 0


async def _observe(job: Job, worker: Worker, tracker: Tracker, keeps_thumbnails: bool) -> Result:
    with worker.observer.job(job.id):
        result = await pipeline.run(job, worker, tracker, keeps_thumbnails=keeps_thumbnails)
    worker.observer.job_ended(result)
    return result


def _is_cut_off(task: asyncio.Task[Result]) -> bool:
    """Whether the shutdown of the worker ended the work before its time."""
    error = task.exception()
    if error:
        return isinstance(error, TwopassError) and error.code is Code.SHUTDOWN
    return any(problem.code is Code.SHUTDOWN for problem in task.result().problems)


def _find_error(result: Result) -> ErrorAnswer:
    problem = next((problem for problem in result.problems if problem.severity is Severity.ERROR), None)
    if problem is None:
        return ErrorAnswer(code=Code.INTERNAL, message="no page was read")
    return ErrorAnswer(code=problem.code, message=problem.message)
