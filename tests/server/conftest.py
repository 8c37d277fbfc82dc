"""Servers in processes of their own, on free ports, with the cpu engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymupdf
import pytest

from tests.fakes.ports import reserve_port

KEY = "a-key-of-these-tests"
START_S = 180.0
STOP_S = 120.0
FINAL = ("done", "failed", "cancelled")


def build_pdf(pages: int = 2, title: str = "Chapter") -> bytes:
    with pymupdf.open() as document:
        for number in range(1, pages + 1):
            page = document.new_page()
            page.insert_text((72, 90), f"{title} {number}", fontsize=18, fontname="hebo")
            page.insert_text((72, 130), "The first pump was built in 1891 and rebuilt in 1934.", fontsize=11)
        return bytes(document.tobytes())


@dataclass(frozen=True)
class Server:
    """A running server, and a client that sends its key."""

    process: subprocess.Popen[bytes]
    client: httpx.Client
    log: Path

    def send(self, data: bytes = b"", name: str = "report.pdf", job: str = "{}", **params: Any) -> httpx.Response:
        files = {"file": (name, data or build_pdf(), "application/pdf")}
        return self.client.post("/v1/jobs", files=files, data={"job": job}, params=params)

    def read(self, job_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get(f"/v1/jobs/{job_id}").json()
        return answer

    def wait(
        self, job_id: str, states: tuple[str, ...] = FINAL, pages: int = 0, timeout_s: float = 600
    ) -> dict[str, Any]:
        """Wait until the job is in one of the states, with so many pages done."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            job = self.read(job_id)
            if job["state"] in states and (job["progress"] or {"pages_done": 0})["pages_done"] >= pages:
                return job
            time.sleep(0.05)
        raise AssertionError(f"{job}\n{self.log.read_text()}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


def iterate_events(server: Server, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each event of a stream when it arrives."""
    with server.client.stream("GET", path) as answer:
        name = ""
        for line in answer.iter_lines():
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)


def read_events(server: Server, path: str) -> list[tuple[str, Any]]:
    """Every event of a stream until its end."""
    return list(iterate_events(server, path))


@contextmanager
def run_server(folder: Path, port: int | None = None, **settings: str) -> Iterator[Server]:
    """Run `twopass serve` with these settings; the server is ready when the context begins."""
    port, log = port or reserve_port(), folder.with_suffix(".log")
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    environment = {**inherited, "PAGE_WORKERS": "1", "SERVE_API_KEY": KEY, **settings}
    command = [
        sys.executable,
        "-m",
        "twopass.cli",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--folder",
        str(folder),
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"X-API-Key": KEY}, timeout=180) as client:
        try:
            _wait_until_ready(client, process, log)
            yield Server(process, client, log)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if client.get("/ping").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes files of up to 2 MB, for all tests that change none of its settings."""
    with run_server(tmp_path_factory.mktemp("serve") / "jobs", MAX_SOURCE_BYTES="2000000") as server:
        yield server
