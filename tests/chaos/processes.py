"""Measures the memory, files, sockets, threads and processes of a process group. Reads /proc."""

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
SAMPLES_PER_LISTING = 10  # samples between two listings of the group; a page worker lives longer than that


@dataclass(frozen=True)
class GroupUsage:
    """What a process group uses: `memory` in bytes, shared pages counted once, file-backed pages left out.

    `connections` are TCP connections to one port of this machine, which `sockets` leaves out.
    """

    memory: int
    processes: int
    threads: int
    files: int
    sockets: int
    connections: int


def list_members(group: int) -> tuple[int, ...]:
    """Return the ids of the group's live processes."""
    found = []
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):  # the process has ended meanwhile
            state, _, pgrp = (path / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state != "Z":
                found.append(int(path.name))
    return tuple(sorted(found))


def measure_group(group: int, port: int | None = None) -> GroupUsage:
    """Measure a process group; `port` is the one to which connections are counted."""
    pids = list_members(group)
    links = [link for pid in pids for link in _list_links(pid)]
    sockets = [link for link in links if link.startswith("socket:")]
    connected = _list_connections(port)
    connections = sum(link in connected for link in sockets)
    threads = sum(len(os.listdir(PROC / str(pid) / "task")) for pid in pids)
    memory = sum(map(measure_memory, pids))
    files = len(links) - len(sockets)
    return GroupUsage(memory, len(pids), threads, files, len(sockets) - connections, connections)


def _list_connections(port: int | None) -> set[str]:
    """The links of all IPv4 sockets of this machine that are connected to a port."""
    rows = [line.split() for line in (PROC / "net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if int(row[2].rpartition(":")[2], 16) == port}


def measure_memory(pid: int) -> int:
    """Return the process's private bytes and its share of shared memory; 0 if it has ended.

    File-backed pages are left out: the share of a library depends on which other processes have loaded it.
    """
    with suppress(OSError):
        lines = (line.split() for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines())
        return sum(int(line[1]) * 1024 for line in lines if line[0] in ("Pss_Anon:", "Pss_Shmem:"))
    return 0


def measure_private_memory(pid: int) -> int:
    """Return the bytes of the process's private memory; 0 if it has ended."""
    with suppress(OSError):
        _, resident, shared, *_ = map(int, (PROC / str(pid) / "statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _list_links(pid: int) -> Iterator[str]:
    for path in (PROC / str(pid) / "fd").glob("*"):
        with suppress(OSError):
            yield os.readlink(path)


class PeakMemory:
    """The peak private memory in bytes of each process of a group, sampled every `interval_s` seconds."""

    def __init__(self, group: int, interval_s: float = 0.03) -> None:
        self.bytes: Counter[int] = Counter()
        self._group, self._interval_s = group, interval_s
        self._ended = threading.Event()

    @contextmanager
    def watch(self) -> Iterator[PeakMemory]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        for sample in count():
            if self._ended.wait(self._interval_s):
                return
            if sample % SAMPLES_PER_LISTING == 0:
                pids = list_members(self._group)
            for pid in pids:
                self.bytes[pid] = max(self.bytes[pid], measure_private_memory(pid))
