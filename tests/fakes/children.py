"""The processes below another one. One may end, or be a zombie that nobody has waited for, at any time."""

import os
import select
from collections.abc import Iterator
from contextlib import suppress

import psutil


def find_children(command: str, parent: int | None = None) -> list[psutil.Process]:
    """The running processes below `parent` (this process if None) whose name or command line contains `command`."""
    return [child for child, line in read_commands(parent or os.getpid()) if command in line]


def open_ends(parent: int) -> list[tuple[str, int]]:
    """The command line of each process below `parent`, and a pidfd for `has_ended`."""
    ends = []
    for child, command in read_commands(parent):
        with suppress(ProcessLookupError):  # it has ended since
            ends.append((command, os.pidfd_open(child.pid)))
    return ends


def has_ended(descriptor: int, timeout_s: float) -> bool:
    """Whether the process with this pidfd ends in this time; `select` would refuse a descriptor above 1,024."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def read_commands(parent: int) -> Iterator[tuple[psutil.Process, str]]:
    """The running processes below `parent`, each with its name and command line."""
    for child in psutil.Process(parent).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # its cmdline() raises ZombieProcess, a subclass, for a zombie
            yield child, " ".join([child.name(), *child.cmdline()])
