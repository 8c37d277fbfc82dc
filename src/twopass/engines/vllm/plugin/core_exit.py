"""How an engine core ends: with the process that started it, and with a report of why, which that process reads.

vLLM's own core keeps the GPU's memory when its parent is killed. Of a core that died, vLLM reports only that it did, so
the core writes a marker into a file that the parent has named: its worker when CUDA graphs cannot be captured, and a
handler on its log, where the core logs the exception that ends it, when there was no memory. The first marker is kept,
because the exception of the graphs is logged, too.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

PATH_VARIABLE = "TWOPASS_EXIT_REPORT"
OUT_OF_MEMORY, NO_GRAPHS = "memory", "graphs"


class ExitReport:
    """The parent's side, for one engine: the file, and the marker that a core left in it."""

    _numbers = count()  # one process may have several engines

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir(), f"twopass-exit-report-{os.getpid()}-{next(ExitReport._numbers)}")
        self.clear()  # what the core of an earlier process with this id left

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable that passes the path to a core."""
        return {PATH_VARIABLE: str(self._path)}

    def pop_out_of_memory(self) -> bool:
        """Whether the core that just died ran out of memory; clears that report."""
        return self._pop(OUT_OF_MEMORY)

    def pop_no_graphs(self) -> bool:
        """Whether the core that just died could not capture its CUDA graphs; clears that report."""
        return self._pop(NO_GRAPHS)

    def _pop(self, marker: str) -> bool:
        try:
            is_reported = self._path.read_text() == marker
        except OSError:
            return False
        if is_reported:
            self.clear()
        return is_reported

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class OutOfMemoryHandler(logging.Handler):
    """The core's side: a handler on vLLM's logger."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and _is_out_of_memory(error):
            _write(OUT_OF_MEMORY)


@contextmanager
def report_no_graphs() -> Iterator[None]:
    """The core's side: report that an exception left the capture of CUDA graphs, whatever it was."""
    try:
        yield
    except Exception:
        _write(NO_GRAPHS)
        raise


def _write(marker: str) -> None:
    """Write the marker unless there is one."""
    if path := os.environ.get(PATH_VARIABLE):
        with suppress(OSError), open(path, "x") as report:
            report.write(marker)


def _is_out_of_memory(error: BaseException) -> bool:
    """True for torch's error, or for its text in the error of a core whose workers are separate processes."""
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error)


def end_with_parent() -> None:
    """Watch the parent in a thread. The kernel's signal would come when the thread that started this process ends."""
    if parent := multiprocessing.parent_process():  # none in a program that runs vLLM in its own process
        threading.Thread(target=_wait_for, args=(parent,), name="parent-watch", daemon=True).start()


def _wait_for(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)  # vLLM's workers end with it
