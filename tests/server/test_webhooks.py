"""Webhooks of `twopass serve`: signed, repeated, and checked with the library of Standard Webhooks."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.server.conftest import Server, build_pdf, run_server
from twopass.errors import Code, InvalidJob, InvalidSetting, SourceError
from twopass.runtime.retry import Backoff, RetryPolicy
from twopass.server.jobs import Notified, Record, State, now
from twopass.server.webhooks import Webhooks, read_key
from twopass.settings import Settings
from twopass.storage import https

SECRET = f"whsec_{base64.b64encode(b'a key of these tests, 32 bytes..').decode()}"
PRIVATE = Settings(serve_webhook_secret=SECRET, allow_private_sources=True)


@dataclass
class Receiver:
    """A caller's server: it answers with these statuses, the last one again and again."""

    statuses: list[int]
    address: str = ""
    received: SimpleQueue[tuple[dict[str, str], bytes]] = field(default_factory=SimpleQueue)

    def take(self) -> Any:
        """The next message, which must be signed; raises Empty if none comes."""
        headers, body = self.received.get(timeout=60)
        return headers["webhook-id"], Webhook(SECRET).verify(body, headers)


@contextmanager
def receive(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            receiver.received.put(({name.lower(): value for name, value in self.headers.items()}, body))
            self.end_headers()  # after that, the sender goes on

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        receiver.address = f"http://127.0.0.1:{server.server_address[1]}/done?token=secret"
        yield receiver
        server.shutdown()


def ended(address: str) -> Record:
    return Record(id="0123456789abcdef", name="a.pdf", created=now(), webhook=address).end(State.DONE)


async def send(address: str, settings: Settings = PRIVATE) -> Notified:
    at_once = RetryPolicy(attempts=3)
    return await Webhooks(settings, lambda record: {"id": record.id}, at_once).send(ended(address))


async def test_an_attempt_that_fails_is_repeated_with_the_same_id() -> None:
    """The third attempt is taken; a receiver can tell that it is the same message."""
    with receive(500, 302, 204) as receiver:
        notified = await send(receiver.address)
        messages = [receiver.take() for _ in range(3)]

    assert notified is Notified.DELIVERED
    assert len({message_id for message_id, _ in messages}) == 1
    assert messages[0][1]["type"] == "job.done" and messages[0][1]["data"] == {"id": "0123456789abcdef"}


@pytest.mark.parametrize("status", [500, 302, 404])
async def test_an_address_that_refuses_is_given_up_after_three_attempts(status: int) -> None:
    """Redirects are not followed: they may lead anywhere."""
    with receive(status) as receiver:
        assert await send(receiver.address) is Notified.FAILED

    assert receiver.received.qsize() == 3


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/", "https://127.0.0.1:9/"])
async def test_an_address_that_the_rules_refuse_is_asked_once(address: str) -> None:
    """It stays refused: no second attempt is planned."""
    pauses: list[int] = []

    class Pauses(Backoff):
        def draw(self, attempt: int) -> float:
            pauses.append(attempt)
            return 0.0

    policy = RetryPolicy(attempts=3, delays=Pauses(0.0, 0.0))
    webhooks = Webhooks(Settings(serve_webhook_secret=SECRET), lambda record: {}, policy)

    assert await webhooks.send(ended(address)) is Notified.FAILED
    assert not pauses


async def test_a_private_address_is_not_reached() -> None:
    """The rules of sources hold: without ALLOW_PRIVATE_SOURCES nothing is sent to this machine or its network."""
    with receive(200) as receiver:
        settings = Settings(serve_webhook_secret=SECRET)
        assert await send(receiver.address, settings) is Notified.FAILED
        assert await send(receiver.address.replace("http:", "https:"), settings) is Notified.FAILED

    assert receiver.received.empty()
    with pytest.raises(SourceError) as caught:
        await https.post("https://127.0.0.1:9/", b"{}", {}, allow_private=False)
    assert caught.value.code is Code.SOURCE_DENIED  # by its address, before a connection


@pytest.mark.parametrize(
    ("address", "settings", "message"),
    [
        ("http://example.com", Settings(serve_webhook_secret=SECRET), "webhook: must be a valid .*https://"),
        (7, PRIVATE, "webhook: must be"),
        ("https://example.com/" + "x" * 3000, PRIVATE, "webhook: longer"),
        ("https://example.com", Settings(), "webhook: .*SERVE_WEBHOOK_SECRET"),
        ("https://", PRIVATE, "webhook: must be"),
        ("https://user:sec/ret@example.com/", PRIVATE, "webhook: must be [^@]*$"),
        ("https://example.com/\ud800", PRIVATE, "webhook: must be"),
    ],
    ids=["http", "number", "long", "no secret", "no host", "no port", "no text"],
)
def test_a_wrong_webhook_is_refused_with_its_name(address: Any, settings: Settings, message: str) -> None:
    """The job is refused before its file is stored."""
    with pytest.raises(InvalidJob, match=message):
        Webhooks(settings, lambda record: {}).check(address)


async def test_an_end_has_an_id_of_its_own() -> None:
    """A job that is resumed and ends again within the same second is another message, which no receiver drops."""
    with receive(200) as receiver:
        first = ended(receiver.address)
        second = first.restart().end(State.DONE)
        for record in (first, first, second):
            await Webhooks(PRIVATE, lambda record: {}).send(record)
        ids = [receiver.take()[0] for _ in range(3)]

    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("secret", ["short", "whsec_c2hvcnQ=", "whsec_ not base64 at all, though it is long"])
def test_a_weak_secret_is_refused_at_the_start(secret: str) -> None:
    """The message names the setting and how to make one."""
    with pytest.raises(InvalidSetting, match="SERVE_WEBHOOK_SECRET: must be whsec_.*openssl"):
        read_key(Settings(serve_webhook_secret=secret))


def test_a_job_tells_its_end_and_again_after_a_restart(tmp_path: Path) -> None:
    """The message has the job without its result and without the link that needs no key. An end that was not told when
    the server stopped is told at its next start.
    """
    settings = {"SERVE_WEBHOOK_SECRET": SECRET, "ALLOW_PRIVATE_SOURCES": "true"}
    with receive(200) as receiver, run_server(tmp_path / "jobs", **settings) as server:
        job = f'{{"webhook": "{receiver.address}"}}'
        job_id = server.send(build_pdf(1), job=job).json()["id"]
        _, message = receiver.take()
        _wait_until_notified(server, job_id, "delivered")
        answer = server.read(job_id)
    with receive(500, 200) as receiver:
        with run_server(tmp_path / "more", **settings) as server:
            job = f'{{"webhook": "{receiver.address}"}}'
            server.send(build_pdf(1), job=job)
            first, _ = receiver.take()
            server.stop()  # while it waits for the second attempt
        with run_server(tmp_path / "more", **settings):
            second, told = receiver.take()

    assert message["type"] == "job.done" and message["data"]["id"] == job_id and message["data"]["state"] == "done"
    assert "result" not in message["data"] and "files" not in message["data"]["links"]
    assert "token=secret" not in str(answer)
    assert second == first and told["type"] == "job.done"


def _wait_until_notified(server: Server, job_id: str, state: str) -> None:
    """The answer to the webhook is taken a moment after it was sent."""
    until = time.monotonic() + 120
    while server.read(job_id)["notified"] != state:
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.05)
