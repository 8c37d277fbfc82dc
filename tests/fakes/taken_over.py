"""What a document does with a page worker that it has taken over."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from twopass.document import Element


def send_answer(answer: bytes) -> Element:
    """Send any bytes as the answer, and end."""
    links = {int(path.name): os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    (pipe,) = (number for number, link in links.items() if number > 2 and link.startswith("pipe:"))
    with open(pipe, "wb") as answers:
        answers.write(answer)
    os._exit(0)


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
