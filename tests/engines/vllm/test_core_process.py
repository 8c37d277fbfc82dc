"""Processes that a fork server has started, with a target that needs no vLLM."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from multiprocessing import Pipe, forkserver
from multiprocessing.connection import Connection

import psutil
import pytest

from tests.fakes.children import find_children, has_ended
from tests.fakes.waiting import wait_until
from twopass.engines.vllm import core_process

WAIT_S = 60


def run(begin: Connection) -> None:
    begin.send(None)
    time.sleep(WAIT_S)


@pytest.fixture
def server() -> Iterator[psutil.Process]:
    core_process._fork_server.start([])
    wait_until(lambda: bool(find_children("multiprocessing.forkserver")))  # a fork is not yet called so
    (process,) = find_children("multiprocessing.forkserver")
    yield process
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def test_a_core_ends_with_the_server_that_forked_it(server: psutil.Process) -> None:
    """To this process it looks dead then, and would keep the GPU's memory, which the next core needs."""
    began, begin = Pipe(duplex=False)
    core = core_process._CoreContext().Process(target=run, args=(begin,))
    core.start()
    assert core.pid and began.poll(WAIT_S)
    running = os.pidfd_open(core.pid)

    os.kill(server.pid, signal.SIGKILL)
    core.join(WAIT_S)

    assert core.exitcode == 255  # nobody can say how it ended
    assert has_ended(running, WAIT_S / 2)
