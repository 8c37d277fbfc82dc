"""The workers of this process: each is opened at its first use, shared by all calls, and closed at exit."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import ExitStack

from twopass.settings import Settings
from twopass.telemetry import logs
from twopass.worker import Worker, open_worker

_lock = threading.Lock()
_workers: dict[tuple[int, Settings], Worker] = {}  # by process, because a forked child has none of its parent's threads


def get_worker(settings: Settings) -> Worker:
    """The worker of this process with these settings. Raises EngineError if its engine does not start."""
    key = os.getpid(), settings
    with _lock:
        if key not in _workers:
            logs.use_standard_logging()
            _workers[key] = _open(settings)
        return _workers[key]


def is_open(settings: Settings) -> bool:
    """Whether this process has a worker with these settings."""
    return (os.getpid(), settings) in _workers


def _open(settings: Settings) -> Worker:
    stack = ExitStack()
    worker = stack.enter_context(open_worker(settings))
    atexit.register(_close, stack, os.getpid())
    return worker


def _close(stack: ExitStack, owner: int) -> None:
    if os.getpid() == owner:
        stack.close()
