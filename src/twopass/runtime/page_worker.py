"""`python -m twopass.runtime.page_worker`: calls in on stdin, values out on stdout, until stdin ends.

Knows pickled calls and shared slabs. Knows nothing of what it is asked to compute.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from twopass.errors import Code, TwopassError, WorkerDied
from twopass.pages import shared_pixels, source_files
from twopass.runtime.page_pool import ANSWER_BYTES, SIZE


def main() -> None:
    # Ctrl-C and a group's SIGTERM are the parent's to answer; it ends this process by closing stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):  # where the machine has no memory left, this process goes and not its parent
        Path("/proc/self/oom_score_adj").write_text("1000")
    shared_pixels.inherit((int(number), int(fd)) for number, fd in (pair.split(":") for pair in sys.argv[1:]))
    sys.excepthook = _told_without_its_text
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries that print must not speak into the pipe
    _send(answers, "hello")
    while (message := _receive(sys.stdin.buffer)) is not None:
        _send(answers, _run(message))


def _run(message: bytes) -> tuple[object, TwopassError | None, float]:
    started = time.process_time()
    function, args, kwargs = pickle.loads(message)
    source_files.forget_gone()
    try:
        return function(*args, **kwargs), None, time.process_time() - started
    except TwopassError as error:  # any other is a crash: its frames go to stderr, the parent starts another
        return None, error, time.process_time() - started


def _told_without_its_text(kind: type[BaseException], _: BaseException, trace: TracebackType | None) -> None:
    """Frames and type of what ends this process: messages quote their input, which is text of the document."""
    traceback.print_tb(trace)
    print(f"{kind.__module__}.{kind.__qualname__} in a page worker", file=sys.stderr)


def _receive(pipe: BinaryIO) -> bytes | None:
    header = pipe.read(SIZE)
    return pipe.read(int.from_bytes(header, "big")) if len(header) == SIZE else None


def _send(pipe: BinaryIO, value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    if len(data) > ANSWER_BYTES:  # the parent has no limit of its own
        message = f"an answer of {len(data) >> 20} MiB, which no page has; the file was made to harm"
        data = pickle.dumps((None, WorkerDied(Code.RENDER_MEMORY, message), 0.0), pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(SIZE, "big") + data)
    pipe.flush()


if __name__ == "__main__":
    main()
