"""S3 over real HTTP for tests: a moto server, and a proxy before it that misbehaves to order."""

from __future__ import annotations

import hashlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

KEY, SECRET = "test-key", "test-secret"


@contextmanager
def moto_server() -> Iterator[str]:
    """The endpoint URL of an empty S3."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _one_at_a_time(server._server)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    try:
        empty(endpoint)
        yield endpoint
    finally:
        server.stop()
        server._server.server_close()


def _one_at_a_time(server: Any) -> None:
    """moto looks and then puts, in as many threads as there are requests: its conditions would be none."""
    answer, alone = server.app, threading.Lock()

    def locked(*request: Any) -> Any:
        with alone:
            return answer(*request)

    server.app = locked


def empty(endpoint: str) -> None:
    """Forget all buckets; moto keeps one S3 per process, however many servers there were."""
    with closing(http.client.HTTPConnection(urlsplit(endpoint).netloc)) as connection:
        connection.request("POST", "/moto-api/reset")
        connection.getresponse().read()


@contextmanager
def client(endpoint: str, *buckets: str) -> Iterator[Any]:
    """A boto3 client of this endpoint, with which these buckets were made."""
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    session = boto3.Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1")
    with closing(session.client("s3", endpoint_url=endpoint, config=config)) as opened:
        for name in buckets:
            opened.create_bucket(Bucket=name)
        yield opened


def objects(client: Any, name: str = "bucket") -> dict[str, bytes]:
    """Everything that lies in the bucket."""
    listed = client.list_objects_v2(Bucket=name).get("Contents", ())
    return {entry["Key"]: client.get_object(Bucket=name, Key=entry["Key"])["Body"].read() for entry in listed}


@dataclass(frozen=True)
class Fault:
    """One wrong answer to the next request of this method whose path holds `path`.

    landed: the request is done all the same and only its answer is lost. cut: the true answer,
    broken off after so many bytes of its body. status 0: no fault, this request is passed on. dropped:
    the connection ends without an answer. held_s: so much later than it could.
    """

    method: str
    status: int = 500
    code: str = "InternalError"
    path: str = ""
    landed: bool = False
    cut: int | None = None
    dropped: bool = False
    held_s: float = 0


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    digest: str = ""  # of the body


class Proxy:
    """Before an S3: drops the headers named in `drops`, answers `faults` once each, remembers requests.

    `judge`, where there is one, is asked about every request first, on the thread that serves it.
    """

    def __init__(self, target: str, drops: tuple[str, ...] = (), faults: tuple[Fault, ...] = ()) -> None:
        self.drops = {name.lower() for name in drops}
        self.faults = list(faults)
        self.seen: list[Seen] = []
        self.connections = 0
        self.judge: Callable[[Seen], Fault | None] = lambda seen: None
        self._target = urlsplit(target).netloc
        self._open: set[socket.socket] = set()

    @property
    def open_now(self) -> int:
        return len(self._open)

    def cut(self) -> int:
        """End every connection that is open; how many those were."""
        ended = list(self._open)
        for connection in ended:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(ended)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its endpoint URL."""
        proxy = self

        class Handler(_Handler):
            owner = proxy

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

    def fault_for(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and fault.path in path:
                self.faults.remove(fault)
                return fault
        return None

    def forward(self, seen: Seen, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {name: value for name, value in seen.headers.items() if name.lower() not in self.drops | {"expect"}}
        with closing(http.client.HTTPConnection(self._target)) as connection:
            connection.request(seen.method, seen.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Proxy

    def setup(self) -> None:
        super().setup()
        self.owner._open.add(self.connection)
        self.owner.connections += 1

    def finish(self) -> None:
        self.owner._open.discard(self.connection)
        with suppress(OSError):  # it was cut
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # who sent it was killed meanwhile
            self.close_connection = True
            return
        seen = Seen(self.command, self.path, dict(self.headers.items()), hashlib.sha256(body).hexdigest())
        self.owner.seen.append(seen)
        fault = self.owner.judge(seen) or self.owner.fault_for(self.command, self.path)
        time.sleep(fault.held_s if fault else 0)
        if fault and fault.dropped:
            if fault.landed:
                self.owner.forward(seen, body)
            self.close_connection = True
        elif not fault or not fault.status:
            self._send(*self.owner.forward(seen, body))
        elif fault.cut is not None:
            self._send(*self.owner.forward(seen, body), cut=fault.cut)
        else:
            if fault.landed:
                self.owner.forward(seen, body)
            error = f"<Error><Code>{fault.code}</Code><Message>scripted</Message></Error>".encode()
            self._send(fault.status, [("Content-Type", "application/xml"), ("Content-Length", str(len(error)))], error)

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, cut: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.close_connection = self.close_connection or cut is not None
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""
