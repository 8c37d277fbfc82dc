"""Serve until SIGTERM or SIGINT: the port, the folder of jobs and the worker opened, and the application."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from importlib import metadata
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from twopass.engines import preflight
from twopass.errors import Code, InvalidJob, InvalidSetting, RequestError, TwopassError
from twopass.formats.html.page import load_asset, load_style
from twopass.runtime.shutdown import chain_signal_handlers
from twopass.server import connections, reference, starting
from twopass.server.access import Access, require_key
from twopass.server.answers import announce_job, error_response
from twopass.server.connections import ClientLimits
from twopass.server.jobs import JobStore, open_store
from twopass.server.queue import JobQueue
from twopass.server.routes import build_router
from twopass.server.webhooks import read_key
from twopass.settings import Settings
from twopass.worker import Worker, open_monitored_worker

log = structlog.get_logger()

_RETENTION_INTERVAL_S = 60.0
_PAGE_FILES = {
    "/": ("page/index.html", "text/html", load_asset),
    "/app.css": ("page/app.css", "text/css", load_style),
    "/docs.css": ("page/docs.css", "text/css", load_style),
    "/app.js": ("page/app.js", "text/javascript", load_asset),
    "/events.js": ("page/events.js", "text/javascript", load_asset),
    "/shared.js": ("page/shared.js", "text/javascript", load_asset),
}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_BACKLOG = 2048
_CLOSE_RESERVE_S = 10  # for answers to clients after the last job has ended


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until a signal; `announce` is called with lines for the person who started it.

    Raises TwopassError if the server cannot start.
    """
    require_key(settings)
    read_key(settings)  # before the engine starts
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
        grace_s = int(settings.shutdown_grace_s + settings.write_reserve_s) + _CLOSE_RESERVE_S
        config = connections.configure(app, limits, timeout_graceful_shutdown=grace_s)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again once it has stopped
            signal.signal(number, _ignore)
        uvicorn.Server(config).run(sockets=[listening])


def _ignore(number: int, frame: object) -> None:
    """Replaces Python's handlers, which would end the process before the worker is closed."""


def _listen(settings: Settings) -> socket.socket:
    """A socket that listens, so that a port that is in use is reported before the engine starts.

    Raises InvalidSetting.
    """
    try:
        family, *_, address = socket.getaddrinfo(settings.serve_host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        place = f"{settings.serve_host}:{settings.port} ({error.strerror or type(error).__name__})"
        message = f"PORT: cannot listen on {place}; choose another host or port"
        raise InvalidSetting(Code.INVALID_SETTING, message) from None
    return listening


def build_app(worker: Worker, store: JobStore, limits: ClientLimits, on_start: Callable[[], None]) -> FastAPI:
    """Build the application. `on_start` is called when uvicorn has installed its signal handlers."""
    access = Access(worker.settings)
    queue = JobQueue(worker, store, limits, lambda record: announce_job(record, store, access))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        on_start()
        await queue.take_up()
        cleaning = asyncio.create_task(_delete_old_jobs(store, worker.settings.serve_retention_s))
        yield
        cleaning.cancel()
        with suppress(asyncio.CancelledError):
            await cleaning
        await queue.close()

    app = FastAPI(
        title="twopass serve",
        version=metadata.version("twopass"),
        description="Send a document, watch its pages, fetch what was read.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from another host; ours needs none
        redoc_url=None,
        redirect_slashes=False,
    )
    app.openapi_version = "3.2.0"  # the first that describes server-sent events
    app.include_router(build_router(queue, store, access))
    _add_page(app)
    _add_error_answers(app)
    return app


async def _delete_old_jobs(store: JobStore, retention_s: float) -> None:
    while True:
        for job_id in store.find_expired(retention_s):
            log.info("job deleted", job=job_id, retention_s=retention_s)
            await store.delete(job_id)
        await asyncio.sleep(_RETENTION_INTERVAL_S)


def _add_page(app: FastAPI) -> None:
    def add(path: str, content: str, media_type: str) -> None:
        @app.get(path, include_in_schema=False)
        async def page_file() -> Response:
            return Response(content, media_type=media_type, headers=_PAGE_HEADERS)

    for path, (name, media_type, load) in _PAGE_FILES.items():
        add(path, load(__package__, name), media_type)
    add("/docs", reference.write(app.openapi()), "text/html")


def _add_error_answers(app: FastAPI) -> None:
    async def answer_ours(_: Request, error: Any) -> JSONResponse:
        return error_response(error)

    async def answer_validation(_: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        return error_response(InvalidJob(Code.INVALID_JOB, f"{first['loc'][-1]}: {first['msg']}"))

    async def answer_http(_: Request, error: Any) -> JSONResponse:
        message = f"there is nothing at this address for this method ({error.detail}); /docs lists all"
        return error_response(RequestError(Code.NOT_FOUND, message), error.status_code)

    async def answer_nobody(_: Request, error: Any) -> JSONResponse:  # the client closed the connection while it sent
        return error_response(InvalidJob(Code.INVALID_JOB, "the request was not sent to its end"))

    async def answer_unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("request failed", path=request.url.path, exc_info=error)
        message = "unexpected error; the server's log has the traceback"
        return error_response(RequestError(Code.INTERNAL, message))

    app.add_exception_handler(TwopassError, answer_ours)
    app.add_exception_handler(RequestValidationError, answer_validation)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(ClientDisconnect, answer_nobody)
    app.add_exception_handler(Exception, answer_unexpected)
