"""Metrics of a worker that Prometheus cannot reach, pushed over HTTP to a gateway."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import structlog
from structlog.testing import capture_logs

from twopass.errors import Code
from twopass.telemetry.metrics import Metrics, push

WAIT_S = 30


class Gateway(ThreadingHTTPServer):
    """Keeps the last metrics of each group, as a Pushgateway does, or answers every push with an error."""

    def __init__(self, *, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Push)
        self.status = status
        self.groups: dict[str, str] = {}
        self.credentials: set[str | None] = set()
        self.pushes = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Push(BaseHTTPRequestHandler):
    server: Gateway

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.groups[self.path] = body
        self.server.credentials.add(self.headers["Authorization"])
        self.send_response(self.server.status)
        self.end_headers()
        self.server.pushes.release()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


@contextmanager
def open_gateway(status: int = 200) -> Iterator[Gateway]:
    with Gateway(status=status) as gateway:
        thread = threading.Thread(target=gateway.serve_forever, daemon=True)
        thread.start()
        yield gateway
        gateway.shutdown()
        thread.join()


def test_metrics_are_pushed_while_the_worker_runs_and_at_its_end() -> None:
    """The group is the worker's, and what was counted after the last interval is not lost."""
    metrics = Metrics()
    with open_gateway() as gateway, push(metrics.registry, gateway.url, "worker-1", interval_s=0.05):
        assert gateway.pushes.acquire(timeout=WAIT_S)
        metrics.job_refused(Code.INVALID_JOB)

    assert list(gateway.groups) == ["/metrics/job/twopass/instance/worker-1"]
    [body] = gateway.groups.values()
    assert 'twopass_problems_total{code="INVALID_JOB",severity="error"} 1.0' in body


def test_the_user_and_password_of_the_address_are_sent() -> None:
    """A gateway behind a proxy gets basic authentication; the address has special characters percent-encoded."""
    with open_gateway() as gateway:
        address = f"http://worker:p%40ss@127.0.0.1:{gateway.server_port}"
        with push(Metrics().registry, address, "worker-1", interval_s=60):
            pass

    assert list(gateway.groups) == ["/metrics/job/twopass/instance/worker-1"]
    assert gateway.credentials == {f"Basic {base64.b64encode(b'worker:p@ss').decode()}"}


def test_a_wrong_address_is_logged() -> None:
    """An address that no client can use does not end the worker."""
    with capture_logs() as events, push(Metrics().registry, "http://gateway:port", "worker-1", interval_s=60):
        pass

    assert [event["setting"] for event in events] == ["METRICS_PUSH_URL"]


def test_a_wrong_address_is_logged_without_its_password() -> None:
    """A password with a character that should be encoded makes the address wrong, and is not in the message."""
    with capture_logs() as events, push(Metrics().registry, "http://user:hun#ter2@gateway", "worker-1", interval_s=60):
        pass

    assert [event["setting"] for event in events] == ["METRICS_PUSH_URL"]
    assert "hun" not in str(events)


def test_a_failing_gateway_is_logged_once() -> None:
    """Errors of the gateway name the setting, do not end the worker, and do not fill the log."""
    structlog.reset_defaults()
    with (
        open_gateway(status=500) as gateway,
        capture_logs() as events,
        push(Metrics().registry, gateway.url, "worker-1", interval_s=0.01),
    ):
        for _ in range(3):
            assert gateway.pushes.acquire(timeout=WAIT_S)

    assert [event["setting"] for event in events] == ["METRICS_PUSH_URL"]
    assert "500" in events[0]["reason"]


def test_a_gateway_that_cannot_be_reached_is_logged() -> None:
    """The worker ends without waiting for a gateway that is not there."""
    with open_gateway() as gateway:
        url = gateway.url

    with capture_logs() as events, push(Metrics().registry, url, "worker-1", interval_s=60):
        pass

    assert [event["event"] for event in events] == ["the gateway does not take metrics"]
