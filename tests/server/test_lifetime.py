"""A server that starts, is full, is stopped, starts again, and deletes what is old."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from tests.fakes import openai_server
from tests.fakes.ports import reserve_port
from tests.server.conftest import KEY, START_S, STOP_S, build_pdf, iterate_events, run_server

PAGES = 30  # of a job that is cut off: on a fast machine, it must still run then


def test_jobs_that_a_crash_cut_off_are_continued(tmp_path: Path) -> None:
    """After SIGKILL and a new start, a running and a waiting job end, and pages that were stored are not read again."""
    folder = tmp_path / "jobs"
    with run_server(folder, CONCURRENCY="1") as server:
        finished = server.send(build_pdf(1), wait_s=60).json()
        running = server.send(build_pdf(PAGES)).json()["id"]
        waiting = server.send(build_pdf(1), name="waiting.pdf", job='{"inline": ["markdown"]}').json()["id"]
        server.wait(running, ("running",), pages=2)
        server.process.kill()
        server.process.wait()
    stored = {path: path.stat().st_mtime_ns for path in (folder / running).glob("output/*/pages/*.json")}
    with run_server(folder, CONCURRENCY="1") as server:
        again, continued, waited = (server.wait(job_id) for job_id in (finished["id"], running, waiting))
        text = server.client.get(again["result"]["documents"][0]["artefacts"]["document.md"]["uri"]).text

    assert again["result"] == finished["result"] and "rebuilt in 1934" in text
    assert continued["state"] == "done" and continued["result"]["documents"][0]["pages"] == {"read": PAGES}
    assert len(stored) >= 2 and stored == {path: path.stat().st_mtime_ns for path in stored}
    assert continued["result"]["usage"]["pages_read_now"] == PAGES - len(stored)
    assert waited["name"] == "waiting.pdf" and waited["result"]["documents"][0]["inline"]["markdown"]
    assert not [path for path in folder.glob("*/*") if path.name in ("upload", "input.json")]


def test_a_stopped_server_finishes_pages_and_continues_its_jobs_later(tmp_path: Path) -> None:
    """SIGTERM interrupts running and waiting jobs, exits with 0, and streams of events end; the next start goes on."""
    with run_server(tmp_path / "jobs", CONCURRENCY="1", SHUTDOWN_GRACE_S="2") as server:
        running, waiting = (server.send(build_pdf(PAGES)).json()["id"] for _ in range(2))
        server.wait(running, ("running",), pages=1)
        streams = [iterate_events(server, f"/v1/{path}") for path in ("events", f"jobs/{running}/events")]
        first = [next(stream) for stream in streams]  # before the stop, which refuses connections
        assert server.stop() == 0
        all_events, events = ([begun, *stream] for begun, stream in zip(first, streams, strict=True))
        last = {data["id"]: data for name, data in all_events if name == "job"}

        assert {last[job_id]["state"] for job_id in (running, waiting)} == {"interrupted"}
        assert events[-1][0] == "end" and events[-1][1]["error"]["code"] == "SHUTDOWN"
    with run_server(tmp_path / "jobs") as server:
        jobs = [server.wait(job_id) for job_id in (running, waiting)]

        assert [job["state"] for job in jobs] == ["done", "done"]
        assert [job["result"]["documents"][0]["pages"] for job in jobs] == [{"read": PAGES}] * 2


def test_a_job_with_a_password_is_not_continued_because_it_is_not_stored(tmp_path: Path) -> None:
    """Passwords are on no disk: after a crash the job has failed and says why."""
    folder, password = tmp_path / "jobs", "a password of this test"
    with run_server(folder) as server:
        job_id = server.send(build_pdf(300), job=json.dumps({"password": password})).json()["id"]
        server.wait(job_id, ("running",), pages=1)
        server.process.kill()
        server.process.wait()
    stored = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    with run_server(folder) as server:
        job = server.read(job_id)

    assert not [data for data in stored if password.encode() in data]
    assert job["state"] == "failed" and job["error"]["code"] == "SHUTDOWN" and "passwords" in job["error"]["message"]
    assert not (folder / job_id / "upload").exists()


def test_a_full_queue_refuses_jobs_until_there_is_room(tmp_path: Path) -> None:
    """Above CONCURRENCY and SERVE_QUEUE the answer is 429 with Retry-After; a cancelled job makes room."""
    with run_server(tmp_path / "jobs", CONCURRENCY="1", SERVE_QUEUE="1") as server:
        first, second = (server.send(build_pdf(300)).json() for _ in range(2))
        server.wait(first["id"], ("running",))
        health = server.client.get("/health").json()
        refused = server.send()
        server.client.delete(f"/v1/jobs/{second['id']}")
        taken = server.send()
        server.client.delete(f"/v1/jobs/{first['id']}")

        assert (health["running"], health["queued"]) == (1, 1)
        assert refused.status_code == 429 and refused.json()["code"] == "QUEUE_FULL"
        assert int(refused.headers["retry-after"]) > 0
        assert taken.status_code == 202
        assert server.read(second["id"])["state"] == "cancelled"


def test_old_jobs_are_deleted(tmp_path: Path) -> None:
    """A job that ended longer ago than SERVE_RETENTION_S is gone from the list and from the disk."""
    folder = tmp_path / "jobs"
    with run_server(folder) as server:
        job_id = server.send(build_pdf(1), wait_s=60).json()["id"]
    with run_server(folder, SERVE_RETENTION_S="0.05") as server:
        until = time.monotonic() + 120
        while (folder / job_id).exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not (folder / job_id).exists()
        assert server.client.get("/v1/jobs").json()["jobs"] == []


class HeldModels(openai_server.OpenAIServer):
    """An engine that asks for its models goes on starting until `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        await self.released.wait()
        return await super().list_models(request)


async def test_while_the_engine_starts_ping_says_so(tmp_path: Path) -> None:
    """The port answers from the beginning: 204 to /ping and STARTING to the rest, then 200, without a gap."""
    port, statuses, models = reserve_port(), list[int](), HeldModels()
    command = [sys.executable, "-m", "twopass.cli", "serve", "--port", str(port), "--folder", str(tmp_path / "jobs")]
    async with (
        openai_server.serve(models),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=START_S) as client,
    ):
        engine = {"ENGINE": "openai", "OPENAI_BASE_URL": models.url, "CANARY": "false"}
        environment = {"PATH": "", "PAGE_WORKERS": "1", **engine}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            async with asyncio.timeout(START_S):
                while 200 not in statuses:
                    try:
                        statuses.append((await client.get("/ping")).status_code)
                    except httpx.ConnectError:
                        assert not statuses  # not yet open
                        await asyncio.sleep(0.01)
                        continue
                    if not models.released.is_set():
                        code = (await client.get("/v1/jobs")).json()["code"]
                        page = (await client.get("/", headers={"Accept": "text/html"})).text
                        models.released.set()
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, STOP_S)

    assert set(statuses) == {204, 200} and statuses == sorted(statuses, reverse=True)
    assert code == "STARTING"
    assert "loads again by itself" in page


def test_without_a_key_only_this_machine_is_served(tmp_path: Path) -> None:
    """Requests under another name, or from another website, are refused: both can reach localhost from a browser."""
    with run_server(tmp_path / "jobs", SERVE_API_KEY="") as server:
        url = server.client.base_url.join("/v1/jobs")
        own = f"http://{url.host}:{url.port}"

        assert httpx.get(url).status_code == httpx.get(url, headers={"Origin": own}).status_code == 200
        for headers in (
            {"Host": "evil.example"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Host": "["},
            {"X-Forwarded-For": "192.0.2.1"},  # from a proxy
        ):
            assert httpx.get(url, headers=headers).json()["code"] == "ACCESS_DENIED"


REFUSED = {
    "0.0.0.0": ({}, 2, "INVALID_SETTING: SERVE_API_KEY: required"),
    "127.0.0.1": ({"SERVE_API_KEY": "short"}, 2, "SERVE_API_KEY"),
    "192.0.2.1": ({"SERVE_API_KEY": KEY}, 2, "INVALID_SETTING: PORT: cannot listen"),
    "localhost": ({"ENGINE": "nothing"}, 2, "ENGINE"),
}


@pytest.mark.parametrize("host", REFUSED)
def test_a_server_that_cannot_start_says_what_to_change(tmp_path: Path, host: str) -> None:
    """A missing or short key, a port that cannot be opened and a wrong engine are named, with the exit code."""
    settings, code, message = REFUSED[host]
    command = [sys.executable, "-m", "twopass.cli", "serve", "--host", host, "--port", str(reserve_port())]

    ran = subprocess.run(
        [*command, "--folder", str(tmp_path / "jobs")],
        env={"PATH": "", **settings}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert ran.returncode == code and message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not [value for value in settings.values() if value == "short" and value in ran.stderr.replace("shorter", "")]


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one is refused: each would take the other's running jobs for lost."""
    with run_server(tmp_path / "jobs"):
        command = [
            sys.executable,
            "-m",
            "twopass.cli",
            "serve",
            "--port",
            str(reserve_port()),
            "--folder",
            str(tmp_path / "jobs"),
        ]
        ran = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, timeout=60)

    assert ran.returncode == 1 and "another server" in ran.stderr


def read_terminal(terminal: int) -> Iterator[str]:
    """Yield each line that a process writes to its terminal, until it has ended."""
    with os.fdopen(terminal, encoding="utf-8", newline="") as lines, suppress(OSError):  # EIO: the other end is closed
        for line in lines:
            yield line.rstrip("\r\n")


def test_a_terminal_shows_two_lines_for_people(tmp_path: Path) -> None:
    """Where documents are kept and which address to open, and no figure of the engine's start."""
    port, (terminal, end) = reserve_port(), pty.openpty()
    command = [sys.executable, "-m", "twopass.cli", "serve", "--port", str(port), "--folder", str(tmp_path / "jobs")]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    process = subprocess.Popen(command, env={**environment, "PAGE_WORKERS": "1"}, stdout=end, stderr=end)
    os.close(end)
    lines, giving_up = list[str](), threading.Timer(START_S, process.kill)
    giving_up.start()
    for line in read_terminal(terminal):
        lines.append(line)
        if line.startswith("ready"):
            process.terminate()
    giving_up.cancel()

    assert process.wait() == 0
    assert lines[:2] == [
        f"starting; documents are kept in {tmp_path / 'jobs'}",
        f"ready: open http://127.0.0.1:{port}/ in a browser; Ctrl-C ends the server",
    ]
