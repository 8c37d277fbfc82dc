"""The page worker process: reads pickled calls from stdin and writes their answers to stdout, until stdin ends.

Arguments: the parent's process id, the names to preload with commas between them, then `number:descriptor` of each
pixel buffer.
"""

from __future__ import annotations

import errno
import os
import pkgutil
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from twopass.errors import TwopassError
from twopass.pages import shared_pixels, source_files
from twopass.runtime import confinement, page_protocol, parent_death

_IDLE_CHECK_S = 1.0  # between calls, so that a document's disk space is free soon after its job


def main() -> None:
    # The parent handles Ctrl-C and SIGTERM; it ends this process by closing stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent_death.end_with_parent(int(sys.argv[1]))
    with suppress(OSError):  # if the machine runs out of memory, this process is killed instead of its parent
        Path("/proc/self/oom_score_adj").write_text("1000")
    confinement.confine()
    shared_pixels.inherit((int(number), int(fd)) for number, fd in (pair.split(":") for pair in sys.argv[3:]))
    sys.excepthook = _print_without_message
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of libraries that print must not get into the pipe
    _send(answers, page_protocol.write_answer(page_protocol.say_hello, page_protocol.say_hello(), 0.0))
    _preload_when_idle(preloading := preload(sys.argv[2].split(",")))
    while call := page_protocol.read_call(sys.stdin.buffer):
        _send(answers, _run(*call))
        _preload_when_idle(preloading)
        _close_files_when_idle()


def preload(names: Sequence[str]) -> Iterator[None]:
    """Import each name when the next item is asked for; call it if it is a function.

    What fails, such as a library that is not installed, is left out: the call that needs it fails with a message.
    """
    for name in filter(None, names):
        with suppress(Exception):
            loaded = pkgutil.resolve_name(name)
            if callable(loaded):
                loaded()
        yield


def _preload_when_idle(preloading: Iterator[None]) -> None:
    """Preload until a call waits: it must not wait for what it may not need."""
    for _ in preloading:
        if _is_called():
            return


def _is_called(wait_s: float = 0.0) -> bool:
    """Whether a call arrives within `wait_s`.

    The buffer of stdin is empty here, because the parent sends the next call only after the answer.
    """
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


def _close_files_when_idle() -> None:
    """Wait for the next call; meanwhile close documents whose file was deleted."""
    while not _is_called(_IDLE_CHECK_S):
        if not source_files.close_deleted_files():
            return


def _run(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Run the call and return its answer."""
    started = time.process_time()
    try:
        value = function(*args, **kwargs)
    except TwopassError as error:  # any other error ends this process, and the parent starts another
        return page_protocol.write_error(error, time.process_time() - started)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return page_protocol.write_error(source_files.describe_full_disk(), time.process_time() - started)
    return page_protocol.write_answer(function, value, time.process_time() - started)


def _print_without_message(kind: type[BaseException], _: BaseException, trace: TracebackType | None) -> None:
    """Print only frames and type of a fatal error: its message may quote text of the document."""
    traceback.print_tb(trace)
    print(f"{kind.__module__}.{kind.__qualname__} in a page worker", file=sys.stderr)


def _send(pipe: BinaryIO, answer: bytes) -> None:
    pipe.write(answer)
    pipe.flush()


if __name__ == "__main__":
    main()
