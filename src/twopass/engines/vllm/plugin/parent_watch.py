"""End an engine core with the process that started it: vLLM's own keeps the GPU's memory when that one is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """Watch the parent in a thread. The kernel's signal would come when the thread that started this process ends."""
    if parent := multiprocessing.parent_process():  # none in a program that runs vLLM in its own process
        threading.Thread(target=_wait_for, args=(parent,), name="parent-watch", daemon=True).start()


def _wait_for(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)  # vLLM's workers end with it
