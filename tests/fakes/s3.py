"""S3 over real HTTP for tests: a moto server, and a proxy in front of it that injects faults."""

from __future__ import annotations

import hashlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from twopass.settings import Settings
from twopass.storage.s3 import S3Limits

KEY, SECRET = "test-key", "test-secret"


def settings(endpoint: str | None, **fields: Any) -> Settings:
    """A worker's settings with credentials for this endpoint."""
    return Settings(bucket_endpoint_url=endpoint, bucket_access_key_id=KEY, bucket_secret_access_key=SECRET, **fields)


def worker_keys(endpoint: str) -> dict[str, str]:
    """The environment variables that give a worker this store."""
    return {"BUCKET_ENDPOINT_URL": endpoint, "BUCKET_ACCESS_KEY_ID": KEY, "BUCKET_SECRET_ACCESS_KEY": SECRET}


def limits(attempts: int = 2, connect_s: float = 0.5, read_s: float = 2.0, budget_s: float = 0.0) -> S3Limits:
    """Short time limits; `attempts` are those of one request."""
    defaults = S3Limits()
    request, call = replace(defaults.request, attempts=attempts), replace(defaults.call, budget_s=budget_s)
    return S3Limits(connect_s, read_s, request, call)


QUICK = limits()


@contextmanager
def moto_server() -> Iterator[str]:
    """Run an empty S3 server; yields its endpoint URL."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _serialize_requests(server._server)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    try:
        reset(endpoint)
        yield endpoint
    finally:
        server.stop()
        server._server.server_close()


def _serialize_requests(server: Any) -> None:
    """Make conditional writes atomic: moto checks the condition and then writes, in one thread per request."""
    app, lock = server.app, threading.Lock()

    def serve_alone(*request: Any) -> Any:
        with lock:
            return app(*request)

    server.app = serve_alone


def reset(endpoint: str) -> None:
    """Delete all buckets. All moto servers of one process share their buckets."""
    with closing(http.client.HTTPConnection(urlsplit(endpoint).netloc)) as connection:
        connection.request("POST", "/moto-api/reset")
        connection.getresponse().read()


@contextmanager
def client(endpoint: str, *buckets: str) -> Iterator[Any]:
    """Yield a boto3 client of this endpoint, after creating these buckets with it."""
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    session = boto3.Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1")
    with closing(session.client("s3", endpoint_url=endpoint, config=config)) as opened:
        for name in buckets:
            opened.create_bucket(Bucket=name)
        yield opened


def read_objects(client: Any, name: str = "bucket") -> dict[str, bytes]:
    """All objects of the bucket by key."""
    listed = client.list_objects_v2(Bucket=name).get("Contents", ())
    return {entry["Key"]: client.get_object(Bucket=name, Key=entry["Key"])["Body"].read() for entry in listed}


@dataclass(frozen=True)
class Fault:
    """One wrong response to the next request of this method whose path contains `path`.

    performed: the request is forwarded all the same and only its response is lost. cut: the true response, cut off
    after so many bytes of its body. status 0: no fault, the request is forwarded. dropped: the connection ends
    without a response. delay_s: seconds before the response.
    """

    method: str
    status: int = 500
    code: str = "InternalError"
    path: str = ""
    performed: bool = False
    cut: int | None = None
    dropped: bool = False
    delay_s: float = 0


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    digest: str = ""  # of the body


class Proxy:
    """A proxy in front of an S3: removes `dropped_headers`, injects each of `faults` once, records the requests.

    `choose_fault` is called for every request, on the thread that serves it; its fault comes before those of `faults`.
    """

    def __init__(self, target: str, dropped_headers: tuple[str, ...] = (), faults: tuple[Fault, ...] = ()) -> None:
        self.dropped_headers = {name.lower() for name in dropped_headers}
        self.faults = list(faults)
        self.requests: list[Request] = []
        self.connections = 0
        self.choose_fault: Callable[[Request], Fault | None] = lambda request: None
        self._target = urlsplit(target).netloc
        self._open: set[socket.socket] = set()

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def close_connections(self) -> int:
        """Close every open connection; returns how many there were."""
        ended = list(self._open)
        for connection in ended:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(ended)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve while the context lasts; yields the endpoint URL."""
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

    def forward(self, request: Request, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in self.dropped_headers | {"expect"}
        }
        with closing(http.client.HTTPConnection(self._target)) as connection:
            connection.request(request.method, request.path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Proxy

    def setup(self) -> None:
        super().setup()
        self.owner._open.add(self.connection)
        self.owner.connections += 1

    def finish(self) -> None:
        self.owner._open.discard(self.connection)
        with suppress(OSError):  # it was closed by close_connections
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the sender was killed
            self.close_connection = True
            return
        request = Request(self.command, self.path, dict(self.headers.items()), hashlib.sha256(body).hexdigest())
        self.owner.requests.append(request)
        fault = self.owner.choose_fault(request) or self.owner.fault_for(self.command, self.path)
        time.sleep(fault.delay_s if fault else 0)
        if fault and fault.dropped:
            if fault.performed:
                self.owner.forward(request, body)
            self.close_connection = True
        elif not fault or not fault.status:
            self._send(*self.owner.forward(request, body))
        elif fault.cut is not None:
            self._send(*self.owner.forward(request, body), cut=fault.cut)
        else:
            if fault.performed:
                self.owner.forward(request, body)
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
        """Keep requests out of the test output."""
