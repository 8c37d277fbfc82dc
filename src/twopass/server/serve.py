"""Open the port, the folder of jobs and the worker, and serve until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing

import structlog
import uvicorn

from twopass.engines import preflight
from twopass.errors import Code, InvalidSetting
from twopass.runtime.shutdown import chain_signal_handlers
from twopass.server import access, connections, starting
from twopass.server.app import build_app
from twopass.server.connections import ClientLimits
from twopass.server.jobs import open_store
from twopass.settings import Settings
from twopass.worker import open_monitored_worker

log = structlog.get_logger()

BACKLOG = 2048
CLOSE_RESERVE_S = 10  # for answers to clients after the last job has ended


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until a signal; `announce` is called with lines for the person who started it.

    Raises TwopassError if the server cannot start.
    """
    access.check_settings(settings)
    preflight.check_disk(settings)
    with closing(_listen(settings)) as listening, open_store(settings.serve_dir) as store, ExitStack() as stack:
        address = "http://{}:{}/".format(*listening.getsockname())
        log.info("starting", address=address, jobs=str(settings.serve_dir))
        announce(f"starting; documents are kept in {settings.serve_dir}")
        with starting.answer(listening):
            worker = stack.enter_context(open_monitored_worker(settings))
        limits = ClientLimits.from_settings(settings)
        install_signal_handlers = chain_signal_handlers(worker.stop_soon)

        def start() -> None:
            install_signal_handlers()
            log.info("ready", address=address)
            announce(f"ready: open {address} in a browser; Ctrl-C ends the server")

        app = build_app(worker, store, limits, start)
        grace_s = int(settings.shutdown_grace_s + settings.write_reserve_s) + CLOSE_RESERVE_S
        config = connections.configure(app, limits, timeout_graceful_shutdown=grace_s)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(
                number, _ignore
            )  # uvicorn raises the signal again after it has stopped: the worker must be closed
        uvicorn.Server(config).run(sockets=[listening])


def _ignore(number: int, frame: object) -> None:
    """Replaces Python's handlers, which would end the process."""


def _listen(settings: Settings) -> socket.socket:
    """A socket that listens, so that a port that is in use is reported before the engine starts.

    Raises InvalidSetting.
    """
    try:
        family, *_, address = socket.getaddrinfo(settings.serve_host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        message = (
            f"PORT: cannot listen on {settings.serve_host}:{settings.port} ({reason}); choose another host or port"
        )
        raise InvalidSetting(Code.INVALID_SETTING, message) from None
    return listening
