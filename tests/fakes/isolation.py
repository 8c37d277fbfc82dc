"""A network of a test's own, and empty folders: what a process asks for and writes is seen.

Every address is this machine and no name is known: an attempt that would fail silently elsewhere is recorded, and
fails at once. It needs root, and `ip` of Debian's iproute2.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymupdf
import pytest

CLONE_NEWNET = 0x40000000  # sched.h
SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 263, 6, 23  # linux/if_packet.h; loopback shows packets twice
SO_RCVBUFFORCE = 33  # asm-generic/socket.h
ETH_P_ALL = 3  # linux/if_ether.h
BUFFER_BYTES = 256 << 20  # packets are read at the end only
SYN, SYN_ACK = 0x02, 0x12
DNS_PORT, DNS_HEADER = 53, 12
ADDRESS = "198.51.100.1"  # of this machine, for programs that ask for one beside loopback
COMMANDS = ("link set lo up", f"address add {ADDRESS}/32 dev lo", f"route add local default dev lo src {ADDRESS}")
COMMANDS_IPV6 = ("-6 route add local default dev lo src ::1",)
PAGES, SCANS = 40, 8  # of a book
SENTENCE = "The first pump was built in 1891 and rebuilt in 1934."


def build_book() -> bytes:
    """Forty pages, the last of them scans: a short read may end before a library's first report."""
    with pymupdf.open() as document:
        for number in range(1, PAGES + 1):
            page = document.new_page()
            page.insert_text((72, 90), f"Chapter {number}", fontsize=18)
            page.insert_text((72, 130), SENTENCE, fontsize=11)
            if number > PAGES - SCANS:
                pixels, area = page.get_pixmap(dpi=100), page.rect
                document.delete_page(-1)
                document.new_page().insert_image(area, pixmap=pixels)
        return bytes(document.tobytes(deflate=True))


@dataclass(frozen=True)
class Machine:
    """What is asked for and written in the isolation; `packets` is a socket that gets every packet."""

    folder: Path
    packets: socket.socket

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process: empty folders for home and scratch, and nothing that may be a setting."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "scratch")}

    def list_files(self) -> list[str]:
        """The files that are left below home and scratch."""
        folders = (self.folder / "home", self.folder / "scratch")
        return sorted(
            str(path.relative_to(self.folder)) for folder in folders for path in folder.rglob("*") if path.is_file()
        )

    def list_destinations(self) -> set[str]:
        """What was connected to or sent to since the last call, as `address:port`, and names as `name?`."""
        found = set()
        while True:
            try:
                found |= _find_destination(self.packets.recv(1 << 16))
            except BlockingIOError:
                break
        _, lost = struct.unpack("II", self.packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert not lost, f"{lost} packets are lost: raise BUFFER_BYTES"
        return found


@contextmanager
def isolate(folder: Path) -> Iterator[Machine]:
    """Move this thread, and all threads and processes that it starts, into a new network while the context lasts."""
    for name in ("home", "scratch"):
        (folder / name).mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"no network of its own: {os.strerror(ctypes.get_errno())}; run as root")
        try:
            with _record_packets() as packets:
                yield Machine(folder, packets)
        finally:
            assert not libc.setns(before, CLONE_NEWNET)
    finally:
        os.close(before)


@contextmanager
def _record_packets() -> Iterator[socket.socket]:
    """Route every address to this machine, and record what is sent."""
    for command in (*COMMANDS, *(COMMANDS_IPV6 if Path("/proc/sys/net/ipv6").exists() else ())):
        subprocess.run(["ip", *command.split()], check=True)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as packets:
        packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        packets.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        packets.setblocking(False)
        yield packets


def _find_destination(packet: bytes) -> set[str]:
    """Where a packet of TCP that opens a connection, or one of UDP, goes to; empty for every other packet."""
    if packet[0] >> 4 == 4:
        start, protocol, address = 4 * (packet[0] & 15), packet[9], socket.inet_ntop(socket.AF_INET, packet[16:20])
    else:
        start, protocol, address = 40, packet[6], f"[{socket.inet_ntop(socket.AF_INET6, packet[24:40])}]"
    segment = packet[start:]
    if protocol == socket.IPPROTO_UDP:
        port = int.from_bytes(segment[2:4], "big")
        return {_read_name(segment[8:]) if port == DNS_PORT else f"{address}:{port}"}
    if protocol == socket.IPPROTO_TCP and segment[13] & SYN_ACK == SYN:
        return {f"{address}:{int.from_bytes(segment[2:4], 'big')}"}
    return set()


def _read_name(query: bytes) -> str:
    """The name that a DNS query asks for."""
    labels, at = [], DNS_HEADER
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels) + "?"
