"""Slow, greedy and careless clients over real sockets, and a slow disk, to a server in this process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import threading
from collections import namedtuple
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.server.conftest import KEY
from twopass.errors import Code
from twopass.server import connections, routes
from twopass.server.app import build_app
from twopass.server.connections import ClientLimits, group_address
from twopass.server.jobs import JobStore, Record, State, now, open_store
from twopass.server.uploads import Arrival
from twopass.settings import Settings
from twopass.worker import Worker, open_worker

JSON_JOB = b'{"source": "https://127.0.0.1/refused.pdf"}'
GIB = 1 << 30
HONEST = ClientLimits()
Usage = namedtuple("Usage", ["total", "used", "free"])
Address = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker(Settings(page_workers=1, serve_api_key=KEY)) as worker:
        yield worker


@dataclass
class Running:
    """A server that runs in the test's loop."""

    server: uvicorn.Server
    store: JobStore
    port: int
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, receive_bytes: int = 0, first: bytes = b"") -> Address:
        """Connect and send `first`, which has arrived when the server begins to count the connection's time."""
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.connect(("127.0.0.1", self.port))  # the kernel accepts for the server, which runs in this loop
        sock.sendall(first)
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock, limit=receive_bytes or 1 << 16)
        self.opened.append(writer)
        return reader, writer

    async def send(self, method: str, path: str, body: bytes = b"", *headers: str) -> Address:
        """Send the head of a request, and what there is of its body."""
        reader, writer = await self.connect()
        writer.write(head(method, path, *headers) + body)
        return reader, writer

    async def ask(self, method: str, path: str, body: bytes = b"", *headers: str) -> tuple[int, dict[str, Any]]:
        return await read_answer(await self.send(method, path, body, f"Content-Length: {len(body)}", *headers))

    async def post_job(self) -> tuple[int, dict[str, Any]]:
        return await self.ask("POST", "/v1/jobs", JSON_JOB, "Content-Type: application/json")

    async def wait_for_connections(self, are_open: bool) -> None:
        """Wait until there are some, or none."""
        while bool(self.server.server_state.connections) != are_open:
            await asyncio.sleep(0.01)


def head(method: str, path: str, *headers: str) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"X-API-Key: {KEY}", *headers, "", "")
    return "\r\n".join(lines).encode()


async def read_answer(address: Address) -> tuple[int, dict[str, Any]]:
    """The status and the body of an answer, whose connection may be closed or not."""
    reader, writer = address
    top = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:-2])
    body = await reader.readexactly(int(fields[b"content-length"]))
    if fields.get(b"connection") == b"close":
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    return int(top.split()[1]), json.loads(body)


@asynccontextmanager
async def run(worker: Worker, folder: Path, limits: ClientLimits = HONEST, **settings: Any) -> AsyncIterator[Running]:
    worker = replace(worker, settings=worker.settings.model_copy(update=settings))
    with open_store(folder) as store, socket.create_server(("127.0.0.1", 0)) as listening:
        app = build_app(worker, store, limits, lambda: None)
        server = uvicorn.Server(connections.configure(app, limits, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        running = Running(server, store, listening.getsockname()[1])
        try:
            yield running
        finally:
            for writer in running.opened:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
            server.should_exit = True
            await serving


UNENDED = b"GET /v1/jobs HTTP/1.1\r\nHost: local"


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
async def test_headers_that_do_not_end_are_answered_and_the_connection_closed(
    worker: Worker, tmp_path: Path, is_first: bool
) -> None:
    """Also those of a later request on the same connection; the answer has a code and says what to do."""
    async with run(worker, tmp_path, ClientLimits(headers_s=0.1)) as server:
        reader, writer = await server.connect(first=UNENDED if is_first else head("GET", "/ping"))
        if not is_first:
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(UNENDED)
        status, answer = await read_answer((reader, writer))

    assert status == 408 and answer["code"] == Code.REQUEST_TIMEOUT and "send the request again" in answer["message"]


async def test_a_connection_without_a_request_is_closed(worker: Worker, tmp_path: Path) -> None:
    """Without an answer: browsers open connections in advance, and would take it for that of their next request."""
    async with run(worker, tmp_path, ClientLimits(headers_s=0.1)) as server:
        reader, _ = await server.connect()

        assert await reader.read() == b""


async def test_what_is_not_http_is_answered_with_a_code(worker: Worker, tmp_path: Path) -> None:
    """Like every other error; and it writes no line to the log."""
    async with run(worker, tmp_path) as server:
        reader, writer = await server.connect()
        writer.write(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        status, answer = await read_answer((reader, writer))

    assert status == 400 and answer["code"] == Code.INVALID_JOB


FORM = ("Content-Type: multipart/form-data; boundary=edge", f"Content-Length: {GIB - 1}")


async def test_uploads_that_are_too_slow_give_their_places_back(worker: Worker, tmp_path: Path) -> None:
    """As many uploads of a few bytes as there are places block the queue only until they are seen to be slow."""
    limits = ClientLimits(body_grace_s=0.2, body_bytes_per_s=1e9, unread_s=0.1)
    async with run(worker, tmp_path, limits, concurrency=1, serve_queue=3) as server:
        slow = [await server.send("POST", "/v1/jobs", b"--edge\r\n", *FORM) for _ in range(4)]
        answers = await asyncio.gather(*map(read_answer, slow))
        status, _ = await server.post_job()

    assert [(code, answer["code"]) for code, answer in answers] == [(408, Code.REQUEST_TIMEOUT)] * 4
    assert "8 bytes arrived" in answers[0][1]["message"]
    assert status == 202


def test_an_upload_has_the_time_that_its_bytes_need() -> None:
    """Of three limits the first counts: silence, and the least mean pace after a while."""
    limits = ClientLimits(silence_s=60, body_grace_s=30, body_bytes_per_s=1000)
    arrival = Arrival(limits, started=100)

    assert arrival.find_deadline(now=100) == 130  # nothing has arrived
    arrival.add(5_000)
    assert arrival.find_deadline(now=101) == 135  # 5 s more
    arrival.add(10_000_000)
    assert arrival.find_deadline(now=101) == 161  # a fast one may be silent for a minute


def test_uploads_that_begin_together_are_counted_apart() -> None:
    """The end of one gives back its own place and bytes."""
    limits = ClientLimits()
    arriving = [Arrival(limits, started=0), Arrival(limits, started=0)]
    second = arriving[1]

    arriving.remove(second)
    assert arriving[0] is not second


@pytest.fixture
def free_gib(monkeypatch: pytest.MonkeyPatch) -> int:
    """A disk with so much room above MIN_FREE_DISK_BYTES, whatever is written meanwhile."""
    free = Settings().min_free_disk_bytes + 3 * GIB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free, 0, free))
    return 3


@pytest.mark.usefixtures("free_gib")
async def test_bytes_that_are_only_announced_use_up_no_disk(worker: Worker, tmp_path: Path) -> None:
    """Many clients announce a gigabyte and send nothing; one more is read all the same, here to its broken form."""
    async with run(worker, tmp_path, ClientLimits(per_address=100, unread_s=0.1)) as server:
        for _ in range(76):
            await server.send("POST", "/v1/jobs", b"", *FORM)
        status, answer = await read_answer(await server.send("POST", "/v1/jobs", b"no form", *FORM))

    assert status == 422 and answer["code"] == Code.INVALID_JOB


@pytest.mark.usefixtures("free_gib")
async def test_an_upload_that_cannot_fit_is_refused_at_once(worker: Worker, tmp_path: Path) -> None:
    """What it announces counts for itself, twice where it is received on the same disk and then copied."""
    async with run(worker, tmp_path, ClientLimits(unread_s=0.1), max_source_bytes=8 * GIB) as server:
        form = (FORM[0], f"Content-Length: {2 * GIB}")
        status, answer = await read_answer(await server.send("POST", "/v1/jobs", b"", *form))

    assert status == 503 and answer["code"] == Code.STORE_UNAVAILABLE and "delete jobs" in answer["message"]


async def test_a_body_without_a_length_leaves_the_disk_its_reserve(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused when what has arrived would not fit, long before MAX_SOURCE_BYTES."""
    free = worker.settings.min_free_disk_bytes + 100_000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free, 0, free))
    part = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n' + bytes(200_000)
    async with run(worker, tmp_path, ClientLimits(unread_s=0.1)) as server:
        chunk = b"%x\r\n%s\r\n" % (len(part), part)  # and no end
        address = await server.send("POST", "/v1/jobs", chunk, FORM[0], "Transfer-Encoding: chunked")
        status, answer = await read_answer(address)

    assert status == 503 and answer["code"] == Code.STORE_UNAVAILABLE


async def test_a_body_that_nobody_wants_is_not_received(worker: Worker, tmp_path: Path) -> None:
    """A client without a key that sends a gigabyte gets its answer, and its connection is closed soon."""
    async with run(worker, tmp_path, ClientLimits(unread_bytes=1 << 16)) as server:
        reader, writer = await server.connect()
        writer.write(f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {GIB}\r\n\r\n".encode())
        sent, answer = 0, asyncio.create_task(reader.readuntil(b'"ACCESS_DENIED"'))
        with suppress(ConnectionError):
            while sent < GIB:
                writer.write(bytes(1 << 16))
                sent += 1 << 16
                await writer.drain()

        assert b" 401 " in await answer and sent < GIB / 16  # what fits into the sockets' buffers


async def test_an_address_has_so_many_connections(worker: Worker, tmp_path: Path) -> None:
    """One more is answered with a code and what to do; many more are closed; a closed one makes room."""
    async with run(worker, tmp_path, ClientLimits(per_address=3, headers_s=600)) as server:
        held = [await server.connect() for _ in range(3)]
        status, answer = await server.ask("GET", "/ping")
        held += [await server.connect() for _ in range(3)]
        with suppress(ConnectionError):
            reader, _ = await server.connect()
            assert await reader.read() == b""
        for _, writer in held:
            writer.close()
        await server.wait_for_connections(False)
        reader, _ = await server.send("GET", "/ping")

        assert b" 200 " in await reader.readline()
    assert status == 429 and answer["code"] == Code.TOO_MANY_CONNECTIONS and "SERVE_CONNECTIONS" in answer["message"]


async def test_an_upgrade_to_another_protocol_leaves_no_connection_counted(worker: Worker, tmp_path: Path) -> None:
    """There are no WebSockets here: the request is answered like any other, and its connection counts until its end."""
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", key)
    async with run(worker, tmp_path, ClientLimits(per_address=1, headers_s=600)) as server:
        for _ in range(3):
            reader, writer = await server.send("GET", "/ping", b"", *upgrade)
            assert b" 200 " in await reader.readline()
            writer.close()
            await server.wait_for_connections(False)


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1:aaaa::7", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_client_are_counted_together(host: str, group: str) -> None:
    """A client of IPv6 has 2^64 addresses, which are one here; an IPv4 client is the same over both protocols."""
    assert group_address(host) == group


def test_behind_a_proxy_more_connections_can_be_allowed() -> None:
    """SERVE_CONNECTIONS is the limit of one address, and raises that of all where it is higher."""
    assert ClientLimits.from_settings(Settings(serve_connections=2000)).connections == 2000


async def test_a_client_that_takes_nothing_of_its_answer_is_dropped(worker: Worker, tmp_path: Path) -> None:
    """A connection whose buffers are full ends after a while without progress, and not only with the client."""
    async with run(worker, tmp_path, ClientLimits(silence_s=0.2)) as server:
        add_jobs(server.store, 1)
        (job,) = server.store.all()
        server.store.output_path(job.id).mkdir(parents=True)
        with (server.store.output_path(job.id) / "large").open("wb") as large:
            large.truncate(GIB)
        _, writer = await server.connect(receive_bytes=4096)
        writer.write(head("GET", f"/v1/jobs/{job.id}/artefacts/large"))
        await server.wait_for_connections(True)
        await server.wait_for_connections(False)


async def test_streams_whose_clients_go_away_write_nothing_to_the_log(
    worker: Worker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients that close in the middle of many events are nothing that an operator can act on."""
    async with run(worker, tmp_path) as server:
        add_jobs(server.store, 1000)
        for _ in range(20):
            reader, writer = await server.connect(receive_bytes=4096)
            writer.write(head("GET", "/v1/events"))
            await reader.readuntil(b"event: job")
            writer.close()
        await server.wait_for_connections(False)

    assert [record.getMessage() for record in caplog.records] == []


async def test_a_client_that_sends_no_more_ends_its_stream(worker: Worker, tmp_path: Path) -> None:
    """uvicorn closes such a connection, and what is still written to it would be lost with a warning each time."""
    async with run(worker, tmp_path) as server:
        add_jobs(server.store, 5000)
        reader, writer = await server.connect(receive_bytes=4096)
        writer.write(head("GET", "/v1/events"))
        await reader.readuntil(b"event: job")
        writer.write_eof()
        while server.server.server_state.tasks:
            await asyncio.sleep(0.01)
        writer.transport.abort()


async def test_streams_of_events_say_that_they_are_alive(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing happens a comment is sent from time to time, for proxies that end silent connections."""
    monkeypatch.setattr(routes, "PING_INTERVAL_S", 0.0)
    async with run(worker, tmp_path) as server:
        reader, _ = await server.send("GET", "/v1/events")
        stream = await reader.readuntil(b": ping")

    assert b"text/event-stream" in stream and b"event: listed\ndata: 0\n\n" in stream


async def test_pages_of_a_job_that_began_and_ended_between_two_looks_are_sent(worker: Worker, tmp_path: Path) -> None:
    """A small job is read faster than its stream looks at it."""
    async with run(worker, tmp_path) as server, asyncio.timeout(60):
        reader, _ = await server.send("GET", "/v1/events")
        await reader.readuntil(b"event: listed")
        pages = server.store.output_path("0" * 16) / "report" / "pages"
        pages.mkdir(parents=True)
        (pages / "0001.json").write_text('{"page": {"state": "read"}}')
        add_jobs(server.store, 1)

        assert await reader.readuntil(b"event: page")


def add_jobs(store: JobStore, count: int) -> None:
    for number in range(count):
        store.show(Record(id=f"{number:016x}", name="n" * 200, created=now()).end(State.DONE))


class SlowDisk:
    """A disk on which files that contain `text` are durable only when it is released."""

    def __init__(self, text: str = "") -> None:
        self._text, self._fsync = text, os.fsync
        self.reached, self.released = threading.Event(), threading.Event()

    def sync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not self._text or (path.is_file() and self._text in path.read_text(errors="replace")):
            self.reached.set()
            assert self.released.wait(60), "the disk was waited for on the event loop"
        self._fsync(descriptor)

    async def wait(self) -> None:
        """Wait until something must become durable."""
        await asyncio.to_thread(self.reached.wait)


async def test_a_slow_disk_holds_up_only_the_job_that_is_stored(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are answered and get their events meanwhile; the job is accepted when it would survive a restart."""
    disk = SlowDisk()
    async with run(worker, tmp_path) as server:
        add_jobs(server.store, 1)
        monkeypatch.setattr(os, "fsync", disk.sync)
        posting = asyncio.create_task(server.post_job())
        await disk.wait()
        health, _ = await server.ask("GET", "/health")
        reader, _ = await server.send("GET", "/v1/events")
        stream = await reader.readuntil(b"event: listed")
        was_accepted = posting.done()
        disk.released.set()
        accepted, _ = await posting

    assert health == 200 and b"event: job" in stream
    assert not was_accepted and accepted == 202


async def test_a_later_record_never_loses_against_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on a slow disk, and not if nobody waits for the later one any more."""
    disk, record = SlowDisk(), Record(id="0" * 16, name="a.pdf", created=now())
    monkeypatch.setattr(os, "fsync", disk.sync)
    with open_store(tmp_path) as store:
        (tmp_path / record.id).mkdir()
        first = asyncio.create_task(store.put(record.update(state=State.RUNNING)))
        await disk.wait()
        last = asyncio.create_task(store.put(record.end(State.DONE)))
        await asyncio.sleep(0)
        last.cancel()
        disk.released.set()
        await first
    with open_store(tmp_path) as store:
        assert store.get(record.id).state is State.DONE


async def test_a_job_that_has_ended_is_deleted_and_not_cancelled_while_its_end_is_stored(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says how it ended, and nothing of it is left, in memory or on the disk."""
    disk = SlowDisk('"state":"failed"')
    monkeypatch.setattr(os, "fsync", disk.sync)
    async with run(worker, tmp_path) as server:
        _, job = await server.post_job()
        await disk.wait()
        deleting = asyncio.create_task(server.ask("DELETE", f"/v1/jobs/{job['id']}"))
        shown = (await server.ask("GET", f"/v1/jobs/{job['id']}"))[1]["state"]
        disk.released.set()
        answer = (await deleting)[1]["state"]
        is_listed = server.store.find(job["id"]) is not None

    assert (shown, answer) == ("failed", "failed")
    assert not is_listed and not (tmp_path / job["id"]).exists()
