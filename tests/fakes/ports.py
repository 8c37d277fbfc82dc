"""Ports for servers in other processes."""

from __future__ import annotations

import atexit
import socket


def reserve_port() -> int:
    """A port on which a server of this test can listen, and which nobody else is given until this process ends.

    A socket that is bound but does not listen leaves it to servers, which all set SO_REUSEADDR. Without a server, the
    port refuses connections.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    atexit.register(held.close)
    return int(held.getsockname()[1])
