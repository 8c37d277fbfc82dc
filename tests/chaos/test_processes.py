"""The helpers of the chaos tests: measuring a process group, and the number of repetitions."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.chaos import processes
from tests.chaos.chaos import read_count
from tests.fakes.waiting import wait_until

HOLDER = """
import socket, sys, threading
kept = bytearray(64 << 20), socket.socket(), open("/dev/null"), threading.Event()
connected = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(2)]
threading.Thread(target=kept[3].wait, daemon=True).start()
print("holding", flush=True)
sys.stdin.read()
"""


def test_the_resources_of_a_process_group_are_measured() -> None:
    """Memory, sockets, threads and connections to a port are counted, and an ended process is not listed."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    command = [sys.executable, "-c", HOLDER, str(port)]
    with (
        listener,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as child,
    ):
        assert child.stdout and child.stdin
        child.stdout.readline()
        with processes.PeakMemory(child.pid).watch() as peaks:
            wait_until(lambda: peaks.bytes[child.pid] > 64 << 20)
            usage = processes.measure_group(child.pid, port)
        child.stdin.close()

    assert (usage.processes, usage.threads, usage.sockets, usage.connections) == (1, 2, 1, 2)
    assert usage.memory > 64 << 20
    assert processes.list_members(child.pid) == ()


def test_a_count_that_is_not_set_has_its_default() -> None:
    """Without a CHAOS_ variable of its name, a count has its default."""
    assert read_count("NOTHING_SAYS_SO", 3) == 3
