"""RunPod's public side on loopback: /run, /status and /cancel over HTTP, before a queue or an answering function.

Knows what a client of the platform sees, rate limits included. Knows nothing of workers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from tests.fakes.queue import LoopbackQueue

Json = dict[str, Any]


class Behind(Protocol):
    def put(self, payload: Json) -> str: ...

    def status(self, job_id: str) -> Json | None:
        """What GET /status answers; None: 404."""

    def stop(self, job_id: str) -> None: ...


class Queued:
    """The loopback queue's jobs as a client sees them."""

    def __init__(self, queue: LoopbackQueue) -> None:
        self._queue = queue

    def put(self, payload: Json) -> str:
        return self._queue.put(payload)

    def status(self, job_id: str) -> Json | None:
        seen = self._queue.look(job_id)
        if seen is None:
            return None
        output = seen.progress[-1] if seen.status == "IN_PROGRESS" and seen.progress else seen.output
        return {"id": job_id, "status": seen.status, "output": output, "error": seen.error, "executionTime": 1000}

    def stop(self, job_id: str) -> None:
        self._queue.stop(job_id)


@dataclass
class Scripted:
    """Answers every job by a function of its input; None answers 404, as for a job that nobody knows any more."""

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
    """`refusals` are answered first, one each: a status and what Retry-After says. `seen`: when, method, path, key."""

    behind: Behind
    key: str = "secret-key"
    refusals: list[tuple[int, str | None]] = field(default_factory=list)
    seen: list[tuple[float, str, str]] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[str]:
        """The endpoint's address."""
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
    owner: Platform

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.removeprefix("/v2/loopback")
        self.owner.seen.append((time.monotonic(), self.command, path))
        if self.headers.get("Authorization") != f"Bearer {self.owner.key}":
            return self._send(401, None)
        if self.owner.refusals:
            status, after = self.owner.refusals.pop(0)
            return self._send(status, None, after)
        verb, _, job_id = path.strip("/").partition("/")
        if (self.command, verb) == ("POST", "run"):
            payload = json.loads(body)
            self.owner.bodies.append(payload)
            return self._send(200, {"id": self.owner.behind.put(payload), "status": "IN_QUEUE"})
        if (self.command, verb) == ("POST", "cancel"):
            self.owner.behind.stop(job_id)
            return self._send(200, {"id": job_id, "status": "CANCELLED"})
        told = self.owner.behind.status(job_id) if (self.command, verb) == ("GET", "status") else None
        return self._send(200, told) if told is not None else self._send(404, None)

    def _send(self, status: int, body: Json | None, after: str | None = None) -> None:
        data = json.dumps(body or {"error": "no"}).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if after is not None:
            self.send_header("Retry-After", after)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _handle

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""
