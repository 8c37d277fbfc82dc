"""One Ray cluster for all tests, with two nodes that have room for one actor each."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil
import pytest

from tests import ROOT
from tests.fakes.children import find_children

T = TypeVar("T")
START_S = 120.0
ACTOR = "ray::ReadingActor"  # how Ray names an actor's process


@dataclass
class RayNodes:
    """A running cluster. `nodes` are the process ids of the raylets that can have actors."""

    process: subprocess.Popen[str]
    address: str
    token: str
    nodes: list[int] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to join the cluster."""
        return {"RAY_AUTH_TOKEN": self.token}

    def require_nodes(self, count: int) -> None:
        """Add nodes until there are so many."""
        assert self.process.stdin and self.process.stdout
        while len(self.nodes) < count:
            self.process.stdin.write("add\n")
            self.process.stdin.flush()
            self.nodes.append(int(self.process.stdout.readline()))

    def find_actors(self) -> dict[int, psutil.Process]:
        """The processes of actors by the node that they run on."""
        found = {}
        for node in self.nodes:
            with suppress(psutil.NoSuchProcess):  # the node
                for actor in find_children(ACTOR, node):
                    found[node] = actor
        return found

    def find_readers(self, store: str) -> dict[int, psutil.Process]:
        """The actors that have a job now: they are connected to the store at this address."""
        port = urlsplit(store).port
        return {
            node: actor
            for node, actor in self.find_actors().items()
            if any(connection.raddr and connection.raddr.port == port for connection in list_connections(actor))
        }

    def wait_for_reader(self, store: str) -> tuple[int, psutil.Process]:
        """A node whose actor has a job, and this actor."""
        return next(iter(wait_for(lambda: self.find_readers(store), bool).items()))

    def kill_node(self, node: int) -> None:
        """End a node as a power failure would: its raylet and everything below it."""
        raylet = psutil.Process(node)
        for process in (raylet, *raylet.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.nodes.remove(node)


def list_connections(process: psutil.Process) -> list[Any]:
    try:
        return list(process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return []


def wait_for(look: Callable[[], T], is_done: Callable[[T], bool]) -> T:
    """Look again until what is found is complete."""
    until = time.monotonic() + START_S
    while not is_done(found := look()):
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def started_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    token, home = secrets.token_hex(32), tmp_path_factory.mktemp("ray")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),  # actors import the tests' engines
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Ray's 15 lets actors starve beside other work
        "RAY_memory_monitor_refresh_ms": "0",  # which kills actors because other programs need memory
    }
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.ray_nodes"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    assert process.stdin and process.stdout
    with process:
        try:
            address = process.stdout.readline().strip()
            assert address, (home / "log").read_text()
            yield RayNodes(process, address, token)
        finally:
            end_cluster(psutil.Process(process.pid), process)


def end_cluster(root: psutil.Process, process: subprocess.Popen[str]) -> None:
    """End the cluster, and whatever is left of it."""
    started = [root, *root.children(recursive=True)]
    assert process.stdin
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    for left in started:
        with suppress(psutil.NoSuchProcess):
            left.kill()


@pytest.fixture
def cluster(started_nodes: RayNodes) -> RayNodes:
    started_nodes.require_nodes(2)
    return started_nodes
