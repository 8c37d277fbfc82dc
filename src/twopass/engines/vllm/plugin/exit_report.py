"""Why an engine's core ended, told to who starts the next one: vLLM itself tells only that it did.

A core logs the exception that ends it. The log's handler here leaves a word in a file that the parent named.
"""

from __future__ import annotations

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

FILE = "TWOPASS_LAST_WORDS"
MEMORY = "memory"


class LastWords:
    """In the parent: the file, and what a core left in it."""

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir(), f"twopass-last-words-{os.getpid()}")

    def listen(self) -> None:
        """Cores started from now on know the file; what another worker's core left in it is forgotten."""
        self.forget()
        os.environ[FILE] = str(self._path)

    def tell_of_memory(self) -> bool:
        """Whether the core that just died had too little memory; asked once, then forgotten."""
        with suppress(OSError):
            words = self._path.read_text()
            self.forget()
            return words == MEMORY
        return False

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


class Listener(logging.Handler):
    """In the core, on vLLM's log."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_memory(error) and (path := os.environ.get(FILE)):
            with suppress(OSError):
                Path(path).write_text(MEMORY)


def is_memory(error: BaseException) -> bool:
    """Torch's error, or its words in that of a core whose workers are processes of their own."""
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error)
