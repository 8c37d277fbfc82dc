"""RunPod's job queue on loopback, for workers that run the unmodified SDK.

Implements the worker protocol (take, batch take, done, stream, ping, stop) and starts workers, each in a process group
of its own. `_QueueServer` lives on the server thread's event loop; everything else may be called from any thread, so
synchronous tests need no loop.
"""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from aiohttp import web

T = TypeVar("T")
Json = dict[str, Any]
Status = Literal["IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED"]

FINAL: tuple[Status, ...] = ("COMPLETED", "FAILED", "CANCELLED")
ENDPOINT = "loopback"
BODY_LIMIT = 20 * 2**20  # the platform answers 400 to a larger result, and the SDK then drops it
REQUEST_LIMIT = 64 * 2**20  # aiohttp's own limit; above BODY_LIMIT, so that we answer 400 before aiohttp answers 413
RETIRED_PAUSE = 0.05  # seconds; the SDK does not back off on 204, so a worker that shuts down would poll in a busy loop
GRACE = 5.0  # seconds from SIGTERM to SIGKILL when a worker's `with` block ends
INHERITED = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")


@dataclass(frozen=True)
class Outcome:
    """What a client of the platform sees of a job, and every body that the worker posted for it."""

    status: Status
    output: Any
    error: str | None
    progress: list[Any]
    stream: list[Any]
    posts: list[Json]
    refresh: bool


@dataclass(frozen=True)
class Take:
    """One answered job-take poll; `batch_size` is None for the take of a single job."""

    worker: str
    batch_size: int | None
    in_progress: bool
    status: int
    job_ids: tuple[str, ...]


@dataclass(frozen=True)
class Ping:
    """One heartbeat: the ids of the running jobs, and the full query."""

    worker: str
    job_ids: tuple[str, ...]
    query: dict[str, str]


@dataclass
class _Record:
    """One job's history; changed on the server's loop only."""

    job: Json
    worker: str | None = None
    cancelled: bool = False
    result: Json | None = None
    progress: list[Any] = field(default_factory=list)
    stream: list[Any] = field(default_factory=list)
    posts: list[Json] = field(default_factory=list)

    @property
    def status(self) -> Status:
        if self.cancelled:
            return "CANCELLED"
        if self.result is None:
            return "IN_QUEUE" if self.worker is None else "IN_PROGRESS"
        return "COMPLETED" if self.error is None else "FAILED"

    @property
    def error(self) -> str | None:
        # The platform shows a job whose error is not a string as COMPLETED without output (runpod-python #299).
        error = (self.result or {}).get("error")
        return error if isinstance(error, str) and error else None

    def accept(self, body: Json) -> None:
        if body.get("status") == "IN_PROGRESS":
            self.progress.append(body["output"])
        elif self.result is None:
            self.result = body

    def outcome(self) -> Outcome:
        result = self.result or {}
        return Outcome(
            status=self.status,
            output=result.get("output"),
            error=self.error,
            progress=list(self.progress),
            stream=list(self.stream),
            posts=list(self.posts),
            refresh=bool(result.get("stopPod")),
        )


class LoopbackQueue:
    """RunPod's queue on 127.0.0.1: `with LoopbackQueue() as queue, queue.worker([...]) as worker: ...`."""

    def __init__(self, hold_s: float = 5.0) -> None:
        """`hold_s` is how long an empty long poll is kept open; the SDK gives up after 90 s."""
        self._server = _QueueServer(hold_s)
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="loopback-queue-")
        started: Future[tuple[asyncio.AbstractEventLoop, str]] = Future()
        self._thread = threading.Thread(target=_run_server, args=(self._server, started), name="loopback-queue")
        self._thread.start()
        self._loop, self.url = started.result(timeout=60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._run_on_server(self._server.close())
        self._thread.join()
        self._folder.cleanup()

    # A client's side of the platform.

    def put(self, payload: Json, **extra: Any) -> str:
        """Queue `{"input": {...}}`. Keys besides `input` reach the handler's job, as on the platform."""
        return self.put_batch([{**payload, **extra}])[0]

    def put_batch(self, payloads: Sequence[Json]) -> list[str]:
        """Queue several jobs in one step, so that one batch take can get all of them."""
        return self._run_on_server(self._server.put(payloads))

    def wait(self, job_id: str, timeout: float = 600.0) -> Outcome:
        """Wait until the job is completed, failed or cancelled. A TimeoutError shows the workers' logs."""
        record = self._server.records[job_id]
        self._wait_until(lambda: record.status in FINAL, f"{job_id} has no result", timeout)
        return record.outcome()

    @property
    def job_ids(self) -> list[str]:
        """The ids of all jobs, in the order in which they were queued."""
        return list(self._server.records)

    def snapshot(self, job_id: str) -> Outcome | None:
        """The job's current state; None for an unknown id."""
        record = self._server.records.get(job_id)
        return record.outcome() if record else None

    def wait_posts(self, job_id: str, count: int = 1, timeout: float = 600.0) -> list[Json]:
        """Wait until `count` bodies were posted for the job, which shows that it runs; returns the bodies."""
        record = self._server.records[job_id]
        self._wait_until(lambda: len(record.posts) >= count, f"{job_id} has fewer than {count} posts", timeout)
        return list(record.posts)

    def posts(self, job_id: str) -> list[Json]:
        """Every JSON body posted for the job so far, including refused and late ones."""
        return list(self._server.records[job_id].posts)

    def stop(self, job_id: str) -> None:
        """Cancel the job: a queued job is dropped, a job that a worker has is announced through job-stop.

        The SDK ignores the announcement for a job that it took and has not started: call `wait_posts` first.
        """
        self._run_on_server(self._server.stop(job_id))

    def redeliver(self, job_id: str) -> None:
        """Queue the job again with the same id, as the platform does when a worker is lost or on /retry."""
        self._run_on_server(self._server.redeliver(job_id))

    # What workers have sent.

    @property
    def takes(self) -> list[Take]:
        return list(self._server.takes)

    @property
    def pings(self) -> list[Ping]:
        return list(self._server.pings)

    def wait_ping(self, job_id: str | None = None, worker: str | None = None, timeout: float = 600.0) -> Ping:
        """Wait for the first heartbeat that names the job and is the worker's; without them, for the first of all."""

        def matching_pings() -> list[Ping]:
            pings = (ping for ping in self._server.pings if worker in (None, ping.worker))
            return [ping for ping in pings if job_id is None or job_id in ping.job_ids]

        self._wait_until(lambda: bool(matching_pings()), f"no ping names {job_id or worker or 'a worker'}", timeout)
        return matching_pings()[0]

    def wait_asked(self, workers: Sequence["Worker"], timeout: float = 600.0) -> None:
        """Wait until each of these workers has asked for jobs."""
        names = {worker.id for worker in workers}
        self._wait_until(lambda: names <= self._server.asked, f"not all of {names} ask for jobs", timeout)

    # Faults, and the ends of long polls.

    def answer_takes_with(self, statuses: int | Sequence[int]) -> None:
        """Answer the next takes with these codes, an open long poll first; 200 is an ordinary answer."""
        self._run_on_server(self._server.script_takes([statuses] if isinstance(statuses, int) else list(statuses)))

    def answer_done_with(self, statuses: int | Sequence[int]) -> None:
        """Answer the next posts to job-done, progress included, with these codes; only 200 accepts the body."""
        self._run_on_server(self._server.script_done([statuses] if isinstance(statuses, int) else list(statuses)))

    def release(self) -> None:
        """End every long poll now with 204."""
        self._run_on_server(self._server.release())

    def retire(self, worker_id: str) -> None:
        """End the worker's long polls with 204 and give it no more jobs."""
        self._run_on_server(self._server.retire(worker_id))

    @contextmanager
    def worker(
        self, command: Sequence[str | Path], cwd: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> Iterator["Worker"]:
        """Start a worker process on this queue; it ends with all its children when the block ends."""
        worker = self._start(command, cwd, env or {})
        self._workers.append(worker)
        try:
            yield worker
        finally:
            worker.close()

    def _start(self, command: Sequence[str | Path], cwd: str | Path | None, env: Mapping[str, str]) -> "Worker":
        name = f"worker-{len(self._workers) + 1}"
        home = Path(self._folder.name, name)
        home.mkdir()
        log = home.with_suffix(".log")
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**_worker_env(self.url, name, home), **env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        return Worker(name, process, log, self.retire)

    def _wait_until(self, condition: Callable[[], bool], problem: str, timeout: float) -> None:
        try:
            self._run_on_server(self._server.until(condition, timeout))
        except TimeoutError:
            logs = "".join(f"\n--- {worker.id} ---\n{worker.log[-3000:]}" for worker in self._workers)
            raise TimeoutError(f"{problem} after {timeout} s{logs}") from None

    def _run_on_server(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class Worker:
    """A process that runs the SDK. It leads a process group of its own, as PID 1 leads its container."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, retire: Callable[[str], None]) -> None:
        self.id = name
        self._process = process
        self._log = log
        self._retire = retire
        self._group_killed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything that the worker wrote to stdout and stderr; readable until the queue is closed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_log(self, text: str, timeout: float = 600.0) -> None:
        """Wait until the log contains the text."""
        deadline = time.monotonic() + timeout
        while text not in self.log:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.id} has not logged {text!r} after {timeout} s:\n{self.log[-3000:]}")
            time.sleep(0.02)

    def terminate(self) -> None:
        """Send SIGTERM to the main process alone, as the stop of a container does; its long polls end at once."""
        self._process.terminate()
        # After the signal: a poll that ended earlier would only be repeated.
        self._retire(self.id)

    def kill(self) -> None:
        """Send SIGKILL to the group: the SDK's ping child outlives its parent and would go on reporting its jobs."""
        self._kill_group()
        self._process.wait()
        self._retire(self.id)

    @contextmanager
    def freeze(self) -> Iterator[None]:
        """Stop the whole group while the context lasts, as if a snapshot were taken and restored later."""
        os.killpg(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.pid, signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. The rest of the group ends with the main process, as in a container."""
        code = self._process.wait(timeout)
        self._kill_group()
        return code

    def close(self) -> None:
        """Send SIGTERM, then SIGKILL to what remains after the grace period."""
        self.terminate()
        try:
            self.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill()

    def _kill_group(self) -> None:
        if self._group_killed:  # another process may have its number by now
            return
        self._group_killed = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class _QueueServer:
    """The queue's side of the worker protocol; every method runs on the server's loop."""

    def __init__(self, hold_s: float) -> None:
        self.records: dict[str, _Record] = {}
        self.takes: list[Take] = []
        self.pings: list[Ping] = []
        self.asked: set[str] = set()
        self._hold_s = hold_s
        self._waiting: list[str] = []
        self._to_stop: dict[str, list[str]] = {}
        self._retired: set[str] = set()
        self._take_script: list[int] = []
        self._done_script: list[int] = []
        self._releases = 0
        self._closing = False
        self._changed = asyncio.Condition()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v2/{endpoint}/job-take/{worker}", self._take),
            web.get("/v2/{endpoint}/job-take-batch/{worker}", self._take_batch),
            web.get("/v2/{endpoint}/job-stop/{worker}", self._stop),
            web.get("/v2/{endpoint}/ping/{worker}", self._ping),
            web.post("/v2/{endpoint}/job-done/{worker}/{job}", self._done),
            web.post("/v2/{endpoint}/job-stream/{worker}/{job}", self._stream),
        ]

    # Called by LoopbackQueue.

    async def put(self, payloads: Sequence[Json]) -> list[str]:
        first = len(self.records) + 1
        jobs = [{"id": f"job-{number}-e1", **payload} for number, payload in enumerate(payloads, first)]
        async with self._change():
            self.records.update((job["id"], _Record(job)) for job in jobs)
            self._waiting += [job["id"] for job in jobs]
        return [job["id"] for job in jobs]

    async def stop(self, job_id: str) -> None:
        record = self.records[job_id]
        if record.status in FINAL:
            return
        async with self._change():
            record.cancelled = True
            if job_id in self._waiting:
                self._waiting.remove(job_id)
            elif record.worker is not None:
                self._to_stop.setdefault(record.worker, []).append(job_id)

    async def redeliver(self, job_id: str) -> None:
        record = self.records[job_id]
        async with self._change():
            record.worker, record.result, record.cancelled = None, None, False
            self._waiting.append(job_id)

    async def script_takes(self, statuses: list[int]) -> None:
        async with self._change():
            self._take_script = statuses

    async def script_done(self, statuses: list[int]) -> None:
        async with self._change():
            self._done_script = statuses

    async def release(self) -> None:
        async with self._change():
            self._releases += 1

    async def retire(self, worker: str) -> None:
        async with self._change():
            self._retired.add(worker)

    async def close(self) -> None:
        async with self._change():
            self._closing = True

    async def wait_closed(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._closing)

    async def until(self, condition: Callable[[], bool], timeout: float) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(condition)

    # Routes for the SDK.

    async def _take(self, request: web.Request) -> web.Response:
        status, jobs = await self._assign_jobs(request, None)
        return web.json_response(jobs[0]) if jobs else web.Response(status=status)

    async def _take_batch(self, request: web.Request) -> web.Response:
        status, jobs = await self._assign_jobs(request, int(request.query["batch_size"]))
        return web.json_response(jobs) if jobs else web.Response(status=status)

    async def _assign_jobs(self, request: web.Request, batch_size: int | None) -> tuple[int, list[Json]]:
        worker = request.match_info["worker"]
        async with self._change():
            self.asked.add(worker)
        status = await self._hold_poll(worker, self._has_take)
        if status == 200 and self._take_script:
            status = self._take_script.pop(0)
        jobs: list[Json] = []
        while status == 200 and self._waiting and len(jobs) < (batch_size or 1):
            record = self.records[self._waiting.pop(0)]
            record.worker = worker
            jobs.append(record.job)
        status = 204 if status == 200 and not jobs else status
        in_progress = request.query["job_in_progress"] == "1"
        self.takes.append(Take(worker, batch_size, in_progress, status, tuple(job["id"] for job in jobs)))
        return status, jobs

    def _has_take(self) -> bool:
        return bool(self._waiting) or self._take_script[:1] not in ([], [200])

    async def _stop(self, request: web.Request) -> web.Response:
        worker = request.match_info["worker"]
        status = await self._hold_poll(worker, lambda: worker in self._to_stop)
        if status == 204:
            return web.Response(status=204)
        return web.json_response({"jobsToStop": self._to_stop.pop(worker)})

    async def _done(self, request: web.Request) -> web.Response:
        record, body = await self._parse_post(request)
        status = self._done_script.pop(0) if self._done_script else 200
        if len(await request.read()) > BODY_LIMIT:
            status = 400
        async with self._change():
            record.posts.append(body)
            if status == 200:
                record.accept(body)
        return web.Response(status=status)

    async def _stream(self, request: web.Request) -> web.Response:
        record, body = await self._parse_post(request)
        async with self._change():
            record.posts.append(body)
            record.stream.append(body.get("output"))
        return web.Response()

    async def _ping(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        job_ids = tuple(query["job_id"].split(",")) if "job_id" in query else ()
        async with self._change():
            self.pings.append(Ping(request.match_info["worker"], job_ids, query))
        return web.Response()

    async def _parse_post(self, request: web.Request) -> tuple[_Record, Json]:
        record = self.records.get(request.match_info["job"])
        if record is None:
            raise web.HTTPNotFound
        try:
            return record, json.loads(await request.read(), parse_constant=_reject_constant)
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error

    async def _hold_poll(self, worker: str, is_ready: Callable[[], bool]) -> int:
        """Hold a long poll until there is an answer (200), or until it times out or is released (204)."""
        releases = self._releases

        def is_over() -> bool:
            return worker in self._retired or self._closing or self._releases != releases

        if is_over():
            await asyncio.sleep(RETIRED_PAUSE)
            return 204
        with suppress(TimeoutError):
            await self.until(lambda: is_ready() or is_over(), self._hold_s)
        return 200 if is_ready() and not is_over() else 204

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        async with self._changed:
            yield
            self._changed.notify_all()


def _run_server(server: _QueueServer, started: "Future[tuple[asyncio.AbstractEventLoop, str]]") -> None:
    try:
        asyncio.run(_serve(server, started))
    except OSError as error:
        started.set_exception(error)


async def _serve(server: _QueueServer, started: "Future[tuple[asyncio.AbstractEventLoop, str]]") -> None:
    app = web.Application(client_max_size=REQUEST_LIMIT)
    app.add_routes(server.routes())
    # Without handler_cancellation a killed worker's poll would stay open and get the next job.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        started.set_result((asyncio.get_running_loop(), f"http://{host}:{port}"))
        await server.wait_closed()
    finally:
        await runner.cleanup()


def _worker_env(url: str, worker: str, home: Path) -> dict[str, str]:
    base = f"{url}/v2/{ENDPOINT}"
    query = "?gpu=NVIDIA+H200"  # the SDK appends "&...": every template needs a query of its own
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return inherited | {
        "RUNPOD_WEBHOOK_GET_JOB": f"{base}/job-take/$ID{query}",
        "RUNPOD_WEBHOOK_POST_OUTPUT": f"{base}/job-done/$RUNPOD_POD_ID/$ID{query}",
        "RUNPOD_WEBHOOK_POST_STREAM": f"{base}/job-stream/$RUNPOD_POD_ID/$ID{query}",
        "RUNPOD_WEBHOOK_PING": f"{base}/ping/$RUNPOD_POD_ID{query}",
        "RUNPOD_PING_INTERVAL": "2000",
        "RUNPOD_AI_API_KEY": "loopback",
        "RUNPOD_POD_ID": worker,
        "RUNPOD_POD_HOSTNAME": worker,
        "RUNPOD_ENDPOINT_ID": ENDPOINT,
        "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
        "RUNPOD_SKIP_GPU_CHECK": "true",
        "RUNPOD_LOG_LEVEL": "INFO",
        "HOME": str(home),  # an API key in ~/.runpod would win over ours
        "PYTHONUNBUFFERED": "1",  # the log must have everything that a killed worker wrote
    }


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
