"""What a document does with a page worker that it has taken over."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from twopass.document import Element
from twopass.runtime import page_protocol


def send_answer(answer: bytes) -> Element:
    """Send any bytes as the answer, and end."""
    with _open_pipe() as answers:
        answers.write(answer)
    os._exit(0)


def send_more(nbytes: int, sent: str) -> bool:
    """Send the answer True and so many bytes behind it, then create the file `sent` and never return."""
    with _open_pipe() as answers:
        answers.write(page_protocol.write_answer(send_more, True, 0.0) + bytes(nbytes))
        answers.flush()
        Path(sent).touch()
        signal.pause()
    return True


def _open_pipe() -> BinaryIO:
    """The pipe in which the parent awaits answers."""
    links = {int(path.name): os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    (pipe,) = (number for number, link in links.items() if number > 2 and link.startswith("pipe:"))
    return open(pipe, "wb")


def list_open_files() -> list[str]:
    """What the descriptors of this process are, but those of standard input, output and error."""
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [os.readlink(f"/proc/self/fd/{number}") for number in numbers if number > 2 and _is_open(number)]


def _is_open(number: int) -> bool:
    return os.path.islink(f"/proc/self/fd/{number}")  # not the one of the listing itself


def attack(process: int, port: int) -> list[str]:
    """Try what would give it another process's credentials, stop that or send data away; returns what succeeded."""
    folder = Path(f"/proc/{process}")
    attempts: dict[str, Callable[[], object]] = {
        "environment": lambda: (folder / "environ").read_bytes(),
        "memory": lambda: (folder / "mem").open("r+b").close(),
        "descriptor": lambda: os.open(folder / "fd" / "0", os.O_RDONLY),
        "signal": lambda: os.kill(process, 0),
        "connection": lambda: socket.create_connection(("127.0.0.1", port)).close(),
    }
    return [name for name, attempt in attempts.items() if _succeeds(attempt)]


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True
