"""A server that starts, is full, is stopped, starts again, and deletes what is old."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import KEY, build_pdf, find_port, run_server


def test_finished_documents_survive_a_restart_and_unfinished_jobs_say_so(tmp_path: Path) -> None:
    """After SIGKILL and a new start, a finished job has its result and files, and an unfinished one its reason."""
    folder = tmp_path / "jobs"
    with run_server(folder) as server:
        finished = server.send(build_pdf(1), wait_s=60).json()
        unfinished = server.send(build_pdf(300)).json()["id"]
        server.wait(unfinished, ("running",), pages=1)
        server.process.kill()
        server.process.wait()
    with run_server(folder) as server:
        again, lost = server.read(finished["id"]), server.read(unfinished)
        text = server.client.get(again["result"]["documents"][0]["artefacts"]["document.md"]["uri"]).text

        assert again["result"] == finished["result"] and "rebuilt in 1934" in text
        assert lost["state"] == "failed" and lost["error"]["code"] == "SHUTDOWN"
        assert not (folder / unfinished / "upload").exists()


def test_a_stopped_server_finishes_pages_and_stores_the_job(tmp_path: Path) -> None:
    """SIGTERM ends running and waiting jobs as SHUTDOWN, stores their results, and exits with 0."""
    with run_server(tmp_path / "jobs", CONCURRENCY="1", SHUTDOWN_GRACE_S="2") as server:
        running, waiting = (server.send(build_pdf(300)).json()["id"] for _ in range(2))
        server.wait(running, ("running",), pages=1)

        assert server.stop() == 0
    with run_server(tmp_path / "jobs") as server:
        jobs = [server.read(job_id) for job_id in (running, waiting)]

        assert [job["state"] for job in jobs] == ["done", "failed"]
        assert jobs[0]["result"]["status"] == "partial_success"
        assert "SHUTDOWN" in {problem["code"] for problem in jobs[0]["result"]["problems"]}
        assert jobs[1]["error"]["code"] == "SHUTDOWN"


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
    time.sleep(0.1)
    with run_server(folder, SERVE_RETENTION_S="0.05") as server:
        assert server.client.get("/v1/jobs").json()["jobs"] == []
        assert not (folder / job_id).exists()


def test_while_the_engine_starts_ping_says_so(tmp_path: Path) -> None:
    """The port answers from the beginning: 204 to /ping and STARTING to the rest, then 200, without a gap."""
    port, statuses, codes = find_port(), list[int](), set[str]()
    command = [sys.executable, "-m", "twopass.cli", "serve", "--port", str(port), "--folder", str(tmp_path / "jobs")]
    process = subprocess.Popen(command, env={"PATH": "", "PAGE_WORKERS": "1"}, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while 200 not in statuses and time.monotonic() < until:
            try:
                statuses.append(httpx.get(f"http://127.0.0.1:{port}/ping", timeout=30).status_code)
                if statuses[-1] == 204:
                    codes.add(httpx.get(f"http://127.0.0.1:{port}/v1/jobs").json().get("code"))
            except httpx.ConnectError:
                assert not statuses  # not yet open
    finally:
        process.terminate()
        process.wait(30)

    assert set(statuses) == {204, 200} and statuses == sorted(statuses, reverse=True)
    assert "STARTING" in codes


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
    command = [sys.executable, "-m", "twopass.cli", "serve", "--host", host, "--port", str(find_port())]

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
            str(find_port()),
            "--folder",
            str(tmp_path / "jobs"),
        ]
        ran = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, timeout=60)

    assert ran.returncode == 1 and "another server" in ran.stderr
