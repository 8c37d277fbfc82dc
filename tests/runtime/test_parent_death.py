"""Forked processes that end with their parent, in an interpreter of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.fakes.children import has_ended

# Forks a process that forks another one, and writes the numbers of both.
FAMILY = """
import os, signal
from twopass.runtime.parent_death import end_forks_with_parent

end_forks_with_parent()
for generation in range(2):
    if child := os.fork():
        break
else:
    print(os.getppid(), os.getpid(), flush=True)
signal.pause()
"""


def test_a_fork_and_its_fork_end_with_their_parents() -> None:
    """Both live while their parents do; SIGKILL of the first process ends both, one after the other."""
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout
        ends = [os.pidfd_open(int(number)) for number in first.stdout.readline().split()]
        lived = [not has_ended(end, 0) for end in ends]
        first.send_signal(signal.SIGKILL)

        assert lived == [True, True]
        assert all(has_ended(end, 180) for end in ends)
