"""Run one measurement in a process of its own, and end what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from scripts import ROOT


@contextmanager
def start(
    command: Sequence[str], variables: Mapping[str, str], limit_s: float
) -> Iterator[tuple[Iterator[str], subprocess.Popen[str]]]:
    """Yield the lines that it prints, and the process, which has ended when the context is left.

    It gets `variables` in addition to the environment, and is killed after `limit_s`.
    """
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **variables}
    )
    # The whole group: vLLM's core is a process of its own and would keep the GPU's memory.
    timer = threading.Timer(limit_s, os.killpg, (child.pid, signal.SIGKILL))
    timer.start()
    assert child.stdout
    try:
        with child.stdout:
            yield child.stdout, child
        child.wait()
    except BaseException:  # Ctrl-C included: a process group of its own does not receive it
        os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        timer.cancel()
