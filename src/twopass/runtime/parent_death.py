"""Let processes end with their parent, however it ends: SIGKILL leaves it no time to end them."""

from __future__ import annotations

import ctypes
import os
import signal
from functools import cache

_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, also in the middle of a call."""
    _load_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def end_forks_with_parent() -> None:
    """Do so in every process that this one, or one of those, forks from now on.

    Only the main thread may fork them: for the kernel, the parent is the thread. Processes that another program is
    started in, such as page workers, are no forks.
    """
    _load_libc()  # not after a fork, when another thread may hold the loader's lock
    parent = [0]

    def remember_parent() -> None:
        parent[0] = os.getpid()

    os.register_at_fork(before=remember_parent, after_in_child=lambda: end_with_parent(parent[0]))


@cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
