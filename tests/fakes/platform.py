"""RunPod's public API on loopback: /run, /runsync, /status, /cancel and /health over HTTP, rate limits included.

Jobs go to the loopback queue and its workers, or to a function that answers them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from tests.fakes.queue import LoopbackQueue

Json = dict[str, Any]


class Backend(Protocol):
    def put(self, payload: Json) -> str: ...

    def status(self, job_id: str) -> Json | None:
        """The body of GET /status; None for a 404."""

    def stop(self, job_id: str) -> None: ...


class QueueBackend:
    """The loopback queue, as a client of the platform sees it."""

    def __init__(self, queue: LoopbackQueue) -> None:
        self._queue = queue

    def put(self, payload: Json) -> str:
        return self._queue.put(payload)

    def status(self, job_id: str) -> Json | None:
        job = self._queue.snapshot(job_id)
        if job is None:
            return None
        output = job.progress[-1] if job.status == "IN_PROGRESS" and job.progress else job.output
        body = {"id": job_id, "status": job.status, "output": output, "error": job.error}
        return {**body, "delayTime": 250, "executionTime": 1000}

    def stop(self, job_id: str) -> None:
        self._queue.stop(job_id)


@dataclass
class ScriptedBackend:
    """Answers every job by a function of its input. None becomes a 404, as for a job that was forgotten."""

    answer: Callable[[Json], Json | None]
    inputs: list[Json] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def put(self, payload: Json) -> str:
        self.inputs.append(payload["input"])
        return f"job-{len(self.inputs)}"

    def status(self, job_id: str) -> Json | None:
        return self.answer(self.inputs[int(job_id.removeprefix("job-")) - 1])

    def stop(self, job_id: str) -> None:
        self.stopped.append(job_id)


@dataclass
class Platform:
    """The HTTP server. `refusals` are sent first, one per request: a status and a Retry-After header.

    `requests` holds the time, method and path of each request, `bodies` those of /run and /runsync. `workers` is what
    /health counts; None: there is no such endpoint. `answers_run` is called when /run has queued a job; if it returns
    False, the connection is closed without an answer. What `garble` returns for a path is the answer instead.
    """

    backend: Backend
    key: str | None = "secret-key"
    refusals: list[tuple[int, str | None]] = field(default_factory=list)
    requests: list[tuple[float, str, str]] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    workers: Json | None = field(default_factory=lambda: {"idle": 1, "running": 0, "throttled": 0})
    answers_run: Callable[[], bool] = lambda: True
    garble: Callable[[str], bytes | None] = lambda path: None

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve while the context lasts; yields the endpoint's address."""
        platform = self

        class Handler(_Handler):
            owner = platform

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v2/loopback"
        finally:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet: the second one would wait for an acknowledgement
    owner: Platform

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix("/v2/loopback")
        self.owner.requests.append((time.monotonic(), self.command, path))
        if self.owner.key and self.headers.get("Authorization") != f"Bearer {self.owner.key}":
            return self._send(401, None)
        if self.owner.refusals:
            status, retry_after = self.owner.refusals.pop(0)
            return self._send(status, None, retry_after)
        if (garbled := self.owner.garble(path)) is not None:
            return self._send_bytes(200, garbled)
        verb, _, job_id = path.strip("/").partition("/")
        if (self.command, verb) == ("GET", "health") and self.owner.workers is not None:
            return self._send(200, {"jobs": {"inQueue": 0, "inProgress": 0}, "workers": self.owner.workers})
        if (self.command, verb) == ("POST", "run"):
            job_id = self._put(body)
            if self.owner.answers_run():
                return self._send(200, {"id": job_id, "status": "IN_QUEUE"})
            self.close_connection = True
            return None
        if self.command == "POST" and (sync := re.fullmatch(r"runsync\?wait=(\d+)", verb)):
            return self._send(200, self._wait(self._put(body), int(sync[1]) / 1000))
        if (self.command, verb) == ("POST", "cancel"):
            self.owner.backend.stop(job_id)
            return self._send(200, {"id": job_id, "status": "CANCELLED"})
        status_body = self.owner.backend.status(job_id) if (self.command, verb) == ("GET", "status") else None
        return self._send(200, status_body) if status_body is not None else self._send(404, None)

    def _put(self, body: bytes) -> str:
        payload = json.loads(body)
        self.owner.bodies.append(payload)
        return self.owner.backend.put(payload)

    def _wait(self, job_id: str, seconds: float) -> Json:
        """The job's status when it has ended, or after so many seconds."""
        until = time.monotonic() + seconds
        while True:
            status = self.owner.backend.status(job_id) or {}
            if status.get("status") not in ("IN_QUEUE", "IN_PROGRESS") or time.monotonic() > until:
                return {"id": job_id, **status}
            time.sleep(0.02)

    def _send(self, status: int, body: Json | None, retry_after: str | None = None) -> None:
        self._send_bytes(status, json.dumps(body or {"error": "no"}).encode(), retry_after)

    def _send_bytes(self, status: int, data: bytes, retry_after: str | None = None) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _handle

    def log_message(self, *_: Any) -> None:
        """Keep requests out of the test output."""
