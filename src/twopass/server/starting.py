"""Answer on the server's port while its engine starts: 204 to /ping, 503 to everything else, as a page to browsers.

It is a process of its own, because the engine may fork its process, in which no threads may run by then. It ends when
its standard input is closed, which also happens if the server dies.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from twopass.errors import Code

RETRY_AFTER_S = 2
STOP_S = 5.0
SILENCE_S = 10.0  # of a client that sends a request
ANSWER_S = 1.0  # for requests that have arrived when the engine is ready; a silent client gets no more
PAGE = b"""<!DOCTYPE html>
<html lang="en"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>twopass</title>
<p style="font: 16px system-ui; margin: 20vh auto; max-width: 40ch; text-align: center" role="status">The engine is
starting. This page loads again by itself.
"""


class _StartingHandler(BaseHTTPRequestHandler):
    """Answers every request at once; browsers load the page again by themselves."""

    timeout = SILENCE_S

    def do_GET(self) -> None:
        is_ping, is_browser = self.path == "/ping", "text/html" in self.headers.get("Accept", "")
        error = {"code": Code.STARTING, "message": "the engine is starting; try again in a moment", "field": None}
        body = b"" if is_ping else PAGE if is_browser else json.dumps(error).encode()
        self.send_response(204 if is_ping else 503)
        for name, value in (("Retry-After", RETRY_AFTER_S), ("Refresh", RETRY_AFTER_S), ("Connection", "close")):
            self.send_header(name, str(value))
        if body:
            self.send_header("Content-Type", "text/html; charset=utf-8" if is_browser else "application/json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


@contextmanager
def answer(listening: socket.socket) -> Iterator[None]:
    """Answer requests to this socket in a child process while the context lasts."""
    descriptor = str(listening.fileno())
    command = [sys.executable, "-m", __name__, descriptor]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()])
    try:
        yield
    finally:
        assert child.stdin
        child.stdin.close()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:  # a client that reads slowly
            child.kill()
            child.wait()


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    with ThreadingHTTPServer(("", 0), _StartingHandler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listening
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        sys.stdin.buffer.read()
        server.shutdown()
        until = time.monotonic() + ANSWER_S
        for thread in threading.enumerate():  # one for each accepted connection, which nobody else can answer
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


if __name__ == "__main__":
    main()
