"""`twopass submit --ray` on a real Ray cluster of this machine, whose actors, nodes and commands are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from tests import ROOT
from tests.cluster.conftest import RayNodes, wait_for
from tests.fakes import s3, shelf
from tests.fakes.isolation import ADDRESS, isolate

RUN_S = 240
PAGES = (12, *[1] * 11)  # of the twelve documents; the first is sliced


@pytest.fixture(scope="module")
def bucket(client: Any, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A client of a bucket with twelve documents below in/, which one process has read to alone/."""
    client.create_bucket(Bucket="bucket")
    shelf.fill(client, PAGES)
    home = tmp_path_factory.mktemp("alone")
    command = [sys.executable, "-m", "twopass.cli", "read", "s3://bucket/in/", "--output", "s3://bucket/alone/"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **s3.worker_keys(endpoint)}
    subprocess.run(command, cwd=home, env=environment, check=True, capture_output=True, timeout=RUN_S)
    return client


@contextmanager
def submit(folder: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in this folder, with two workers, and end it with the context."""
    inherited = {"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "200"}
    command = [sys.executable, "-m", "twopass.cli", "submit", *arguments, "--workers", "2", "--poll-s", "0.1"]
    with (folder / "stderr").open("a") as stderr:
        process = subprocess.Popen(command, cwd=folder, env={**inherited, **environment}, stderr=stderr)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def environment(cluster: RayNodes, endpoint: str) -> dict[str, str]:
    """The tokens of cluster and bucket."""
    return {"RAY_AUTH_TOKEN": cluster.token, "RAY_ADDRESS": cluster.address, **s3.worker_keys(endpoint)}


def read_bucket(output: str) -> tuple[str, ...]:
    """The arguments that read the twelve documents, the first in slices."""
    return ("s3://bucket/in/", "--output", output, "--slice-pages", "4")


def wait_for_pages(client: Any, prefix: str, count: int) -> None:
    wait_for(lambda: shelf.list_stored_pages(client, prefix), lambda stored: len(stored) >= count)


def assert_read_once(client: Any, prefix: str) -> None:
    """Each page was stored once, and everything equals what a single process wrote."""
    stored = shelf.list_stored_pages(client, prefix)
    assert len(stored) == len(set(stored)) == sum(PAGES)
    assert shelf.read_results(client, prefix) == shelf.read_results(client, "alone/")


def wait_for_end(running: subprocess.Popen[bytes], folder: Path) -> int:
    """Wait for the command and return its exit code; one that hangs fails the test with what it wrote."""
    try:
        return running.wait(RUN_S)
    except subprocess.TimeoutExpired:
        raise AssertionError((folder / "stderr").read_text()) from None


def read_summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "submitted" / "submit_summary.json").read_text()))


def test_a_killed_actor_costs_only_its_pages_in_flight(
    bucket: Any, cluster: RayNodes, endpoint: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Its jobs are sent again to another actor, and the campaign ends as if nothing had happened."""
    with submit(tmp_path, environment, *read_bucket("s3://bucket/actor/"), "--ray", cluster.address) as running:
        wait_for_pages(bucket, "actor/", 3)
        _, killed = cluster.wait_for_reader(endpoint)
        killed.kill()
        code = wait_for_end(running, tmp_path)

    errors = (tmp_path / "stderr").read_text()
    assert code == 0, errors
    assert f"actor {killed.pid} on " in errors
    assert f"actor {killed.pid} on " in (tmp_path / "submitted" / "state.jsonl").read_text()
    assert read_summary(tmp_path)["success"] == len(PAGES)
    assert_read_once(bucket, "actor/")
    assert not cluster.find_actors()


def test_a_killed_node_costs_only_the_pages_in_flight_there(
    bucket: Any, cluster: RayNodes, endpoint: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """The jobs of the actor on a lost node are sent again, to the actors that are left or can be started."""
    with submit(tmp_path, environment, *read_bucket("s3://bucket/node/"), "--ray", cluster.address) as running:
        wait_for_pages(bucket, "node/", 3)
        node, _ = cluster.wait_for_reader(endpoint)
        cluster.kill_node(node)
        code = wait_for_end(running, tmp_path)

    errors = (tmp_path / "stderr").read_text()
    assert code == 0, errors
    assert "job sent again" in errors
    assert read_summary(tmp_path)["success"] == len(PAGES)
    assert_read_once(bucket, "node/")


def test_an_interrupted_command_continues_from_the_stored_pages(
    bucket: Any, cluster: RayNodes, endpoint: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """After Ctrl-C, and after SIGKILL, no actor is left, and the same command reads only what is missing."""
    with submit(tmp_path, environment, *read_bucket("s3://bucket/driver/"), "--ray", cluster.address) as running:
        wait_for_pages(bucket, "driver/", 3)
        running.send_signal(signal.SIGINT)
        interrupted = wait_for_end(running, tmp_path)
    stopped = wait_for(cluster.find_actors, lambda actors: not actors)
    with submit(tmp_path, environment, *read_bucket("s3://bucket/driver/"), "--ray", cluster.address) as running:
        cluster.wait_for_reader(endpoint)
        running.kill()
    wait_for(cluster.find_actors, lambda actors: not actors)
    with submit(tmp_path, environment, *read_bucket("s3://bucket/driver/"), "--ray", "auto") as running:
        code = wait_for_end(running, tmp_path)

    errors = (tmp_path / "stderr").read_text()
    assert interrupted == 130, errors
    assert code == 0, errors
    assert "the same command continues from the pages that were stored" in errors
    assert stopped == {}
    assert read_summary(tmp_path)["pages_read_now"] < sum(PAGES)
    assert_read_once(bucket, "driver/")


def test_a_dead_engine_ends_the_process_of_its_actor(cluster: RayNodes, tmp_path: Path) -> None:
    """The job meets a new engine in another process, and not the dead one again."""
    (tmp_path / "report.pdf").write_bytes(shelf.build_pdf("Report", 3))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RAY_AUTH_TOKEN": cluster.token}

    ran = subprocess.run(
        [sys.executable, "-m", "tests.cluster.dying_engine", cluster.address, str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_S,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    processes = [int(number) for number in (tmp_path / "processes").read_text().split()]
    assert json.loads(ran.stdout.splitlines()[-1]) == {"status": "success", "pages": {"read": 3}}
    assert len(processes) == len(set(processes)) == 2
    wait_for(lambda: psutil.pid_exists(processes[0]), lambda is_alive: not is_alive)


def test_a_cluster_of_this_machine_begins_and_ends_with_the_command(tmp_path: Path) -> None:
    """`--ray local` starts a cluster with a token of its own, reads with it and leaves nothing behind."""
    (tmp_path / "papers").mkdir()
    for number in range(2):
        (tmp_path / "papers" / f"{number}.pdf").write_bytes(shelf.build_pdf("Report", 2))
    with submit(tmp_path, {}, "papers", "--ray", "local", "--output", "read") as running:
        command = psutil.Process(running.pid)
        raylet = wait_for(lambda: find_below(command, "raylet"), bool)[0]
        variables = wait_for(raylet.environ, lambda found: "RAY_AUTH_TOKEN" in found)  # empty while it is starting
        started = [raylet, *find_below(command, "gcs_server")]
        code = wait_for_end(running, tmp_path)

    assert code == 0, (tmp_path / "stderr").read_text()
    assert read_summary(tmp_path)["success"] == 2
    assert len(list((tmp_path / "read").glob("*/manifest.json"))) == 2
    assert variables["RAY_AUTH_MODE"] == "token" and len(variables["RAY_AUTH_TOKEN"]) == 64
    assert not (tmp_path / ".ray" / "auth_token").exists()
    assert not [process for process in started if process.is_running()]


def test_a_cluster_of_this_machine_asks_nobody(tmp_path: Path) -> None:
    """Command, cluster and actor connect to this machine only, look up no name, and leave nothing but what was read."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.pdf").write_bytes(shelf.build_pdf("Report", 2))
    arguments = ("papers", "--ray", "local", "--output", "read")
    with isolate(tmp_path) as machine, TemporaryDirectory(prefix="ray-") as sockets:  # their paths must be short
        with submit(tmp_path, {**machine.environment, "RAY_TMPDIR": sockets}, *arguments) as running:
            code = wait_for_end(running, tmp_path)

        assert code == 0, (tmp_path / "stderr").read_text()
        assert {name.partition(":")[0] for name in machine.list_destinations()} <= {"127.0.0.1", ADDRESS}
        assert machine.list_files() == []


def find_below(command: psutil.Process, name: str) -> list[psutil.Process]:
    return [process for process in command.children(recursive=True) if process.name() == name]
