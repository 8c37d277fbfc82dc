"""A process group in, what it holds out: memory, files, sockets, threads, processes. Reads /proc."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PROC = Path("/proc")
MEMBERS_EVERY = 10  # looks: a page worker lives longer than that


@dataclass(frozen=True)
class Held:
    """What a group holds at a moment; `memory` in bytes, shared pages counted once, pages of files left out."""

    memory: int
    processes: int
    threads: int
    files: int
    sockets: int

    @property
    def countable(self) -> tuple[int, int, int, int]:
        return self.processes, self.threads, self.files, self.sockets


def members(group: int) -> tuple[int, ...]:
    """The living processes of the group."""
    found = []
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it ended just now
            state, _, pgrp = (path / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state != "Z":
                found.append(int(path.name))
    return tuple(sorted(found))


def held(group: int) -> Held:
    pids = members(group)
    links = [link for pid in pids for link in _links(pid)]
    sockets = sum(link.startswith("socket:") for link in links)
    threads = sum(len(os.listdir(PROC / str(pid) / "task")) for pid in pids)
    return Held(sum(map(memory, pids)), len(pids), threads, len(links) - sockets, sockets)


def memory(pid: int) -> int:
    """The process's own bytes and its share of what it shares; 0 for one that is gone. Pages of files are left out:
    how many of a library's are its own share changes with who else on the machine has loaded it."""
    with suppress(OSError):
        lines = (line.split() for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines())
        return sum(int(line[1]) * 1024 for line in lines if line[0] in ("Pss_Anon:", "Pss_Shmem:"))
    return 0


def anonymous(pid: int) -> int:
    """Bytes of the process's own memory now; 0 for one that is gone."""
    with suppress(OSError):
        _, resident, shared, *_ = map(int, (PROC / str(pid) / "statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _links(pid: int) -> Iterator[str]:
    for path in (PROC / str(pid) / "fd").glob("*"):
        with suppress(OSError):
            yield os.readlink(path)


class Peaks:
    """The most memory of its own that each process of a group was seen with, looked at every few milliseconds."""

    def __init__(self, group: int, interval_s: float = 0.03) -> None:
        self.bytes: Counter[int] = Counter()
        self._group, self._interval_s = group, interval_s
        self._ended = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[Peaks]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        for look in count():
            if self._ended.wait(self._interval_s):
                return
            if look % MEMBERS_EVERY == 0:
                pids = members(self._group)
            for pid in pids:
                self.bytes[pid] = max(self.bytes[pid], anonymous(pid))
