"""The measuring itself: what a process group holds is seen, and what it gave back is gone."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.chaos import processes
from tests.chaos.chaos import turns

HOLDS = """
import socket, sys, threading
kept = bytearray(64 << 20), socket.socket(), open("/dev/null"), threading.Event()
threading.Thread(target=kept[3].wait, daemon=True).start()
print("holding", flush=True)
sys.stdin.read()
"""


def test_what_a_group_holds_is_seen() -> None:
    """Memory, a file, a socket and a thread of one process, and nothing of an ended one."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as child:
        assert child.stdout and child.stdin
        child.stdout.readline()
        with processes.Peaks(child.pid).watching() as peaks:
            time.sleep(0.1)
            held = processes.held(child.pid)
        child.stdin.close()

    assert (held.processes, held.threads, held.sockets) == (1, 2, 1)
    assert held.memory > 64 << 20 and peaks.bytes[child.pid] > 64 << 20
    assert processes.members(child.pid) == ()


def test_turns_are_as_many_as_the_environment_says() -> None:
    """Few where it says nothing."""
    assert turns("NOTHING_SAYS_SO", 3) == 3
