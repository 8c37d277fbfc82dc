"""Tell the process that restarts an engine core whether the last core ran out of memory.

vLLM itself reports only that the core died. The core logs the exception that ends it, so a handler on its log writes
a marker into a file that the parent has named.
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path

PATH_VARIABLE = "TWOPASS_LAST_WORDS"
OUT_OF_MEMORY = "memory"


class ExitReport:
    """The parent's side, for one engine: the file, and the marker that a core left in it."""

    _numbers = count()  # one process may have several engines

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir(), f"twopass-last-words-{os.getpid()}-{next(ExitReport._numbers)}")
        self.clear()  # what the core of an earlier process with this id left

    @property
    def variables(self) -> dict[str, str]:
        """The environment variable that passes the path to a core."""
        return {PATH_VARIABLE: str(self._path)}

    def pop_out_of_memory(self) -> bool:
        """Whether the core that just died ran out of memory; clears the report."""
        with suppress(OSError):
            report = self._path.read_text()
            self.clear()
            return report == OUT_OF_MEMORY
        return False

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


class OutOfMemoryHandler(logging.Handler):
    """The core's side: a handler on vLLM's logger."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_out_of_memory(error) and (path := os.environ.get(PATH_VARIABLE)):
            with suppress(OSError):
                Path(path).write_text(OUT_OF_MEMORY)


def is_out_of_memory(error: BaseException) -> bool:
    """True for torch's error, or for its text in the error of a core whose workers are separate processes."""
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error)
