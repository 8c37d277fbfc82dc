"""Limit what one client may take of the server: connections, and the time and pace at which it sends and receives.

uvicorn has no limits for single connections. They are added to its connections here, because other servers that can be
embedded lack some of them, too: hypercorn knows no addresses, and granian runs processes of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from twopass.errors import Code, RequestError
from twopass.server.answers import error_response
from twopass.settings import Settings

CLOSE = (b"connection", b"close")
_IPV6_PREFIX = 64  # one household or server has so many addresses


@dataclass(frozen=True)
class ClientLimits:
    """What one client may take. The numbers leave room for honest clients on bad lines."""

    per_address: int = 64  # SERVE_CONNECTIONS; a browser opens six
    connections: int = 500  # of all addresses: each is a descriptor, and vLLM's pixel buffers need many
    headers_s: float = 10.0  # from a connection's or request's first byte to the end of its headers
    silence_s: float = 60.0  # of a client that sends a body or does not take its answer
    body_grace_s: float = 10.0  # before the pace of a body counts
    body_bytes_per_s: float = 8192.0  # least mean pace: 1 GiB may take 36 hours
    unread_bytes: int = 4 << 20  # of a body that nobody wants, taken so that the client sees its answer
    unread_s: float = 2.0

    @classmethod
    def from_settings(cls, settings: Settings) -> ClientLimits:
        return cls(settings.serve_connections, max(cls.connections, settings.serve_connections))


@dataclass
class Connections:
    """The open connections, counted by address."""

    limits: ClientLimits
    by_address: Counter[str] = field(default_factory=Counter)

    def add(self, address: str) -> int:
        """Count one more; returns how many the address has now."""
        self.by_address[address] += 1
        return self.by_address[address]

    def remove(self, address: str) -> None:
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]

    @property
    def are_exhausted(self) -> bool:
        return self.by_address.total() > self.limits.connections


def configure(app: ASGIApp, limits: ClientLimits, **options: Any) -> uvicorn.Config:
    """The configuration of uvicorn for the application, with the limits of its connections."""
    connections = Connections(limits)

    class Connection(_ClientConnection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(connections, *args, **kwargs)

    return uvicorn.Config(
        _CloseUnread(app, limits),
        http=Connection,
        ws="none",  # an upgraded connection would leave these limits
        log_config=None,
        log_level=logging.ERROR,  # warnings are about what clients send
        access_log=False,  # addresses of files contain permissions
        server_header=False,
        **options,
    )


def group_address(host: str) -> str:
    """The address whose connections are counted together: of IPv6, the network that one client has to itself."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket has none
        return host
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ip_network((address, _IPV6_PREFIX), strict=False))


class _ClientConnection(H11Protocol):
    """One connection, which is closed if its client sends headers or takes its answer too slowly."""

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        self._limits = connections.limits
        self._headers_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._has_sent = False  # whether the client has begun a request whose headers are incomplete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = group_address(self.client[0] if self.client else "")
        held = self._connections.add(self._address)
        if self._connections.are_exhausted or held > 2 * self._limits.per_address:
            transport.abort()
        elif held > self._limits.per_address:
            self.app = self._refuse_address  # as the answer to a request: clients do not expect one before
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.remove(self._address)
        for timer in (self._headers_timer, self._answer_timer):
            if timer:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._has_sent = self._has_sent or self._is_idle
        super().data_received(data)
        self._watch_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_headers()
        self._watch_answer()

    def eof_received(self) -> None:
        """asyncio closes the connection now: what the application still sends would be lost, with a warning each."""
        if not self._is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._watch_answer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_answer()

    def send_400_response(self, msg: str) -> None:
        message = f"{msg} It is not HTTP/1.1, or its headers are too long."
        self._answer(RequestError(Code.INVALID_JOB, message), HTTPStatus.BAD_REQUEST)

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _watch_headers(self) -> None:
        """Limit the time of headers that have begun; between two requests uvicorn's own limit holds."""
        if self._is_idle and self.timeout_keep_alive_task is None:
            if self._headers_timer is None:
                self._headers_timer = self.loop.call_later(self._limits.headers_s, self._end_headers)
        else:
            self._has_sent = False
            if self._headers_timer:
                self._headers_timer.cancel()
                self._headers_timer = None

    def _end_headers(self) -> None:
        if self._has_sent:
            message = f"the headers took longer than {self._limits.headers_s:g} s; send the request again"
            self._answer(RequestError(Code.REQUEST_TIMEOUT, message))
        else:
            self.transport.close()  # a browser opens connections in advance

    def _watch_answer(self) -> None:
        """End the connection if its client takes nothing of the answer for a while."""
        if self._answer_timer is None and (size := self.transport.get_write_buffer_size()):
            self._answer_timer = self.loop.call_later(self._limits.silence_s, self._check_answer, size)

    def _check_answer(self, size_before: int) -> None:
        self._answer_timer = None
        if self.transport.get_write_buffer_size() >= size_before:
            self.transport.abort()
        else:
            self._watch_answer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answer_timer:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _answer(self, error: RequestError, status: int | None = None) -> None:
        """Answer what is no complete request, and close the connection."""
        response = error_response(error, status)
        phrase = HTTPStatus(response.status_code).phrase
        head = [b"HTTP/1.1 %d %s" % (response.status_code, phrase.encode())]
        head += [b"%s: %s" % header for header in (*response.raw_headers, CLOSE)]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
        self.transport.close()

    async def _refuse_address(self, scope: Any, receive: Any, send: Any) -> None:
        message = (
            f"over {self._limits.per_address} connections from {self._address}; close some, or raise "
            "SERVE_CONNECTIONS if it is a proxy"
        )
        response = error_response(RequestError(Code.TOO_MANY_CONNECTIONS, message))
        response.raw_headers.append(CLOSE)
        await _CloseUnread(response, self._limits)(scope, receive, send)


class _CloseUnread:
    """Close the connection of a client that sends a body which is not read, instead of receiving all of it."""

    def __init__(self, app: ASGIApp, limits: ClientLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        is_read = False

        async def receive_noted() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body")  # or the client has gone
            return message

        async def send_closing(message: Message) -> None:
            if is_read:
                await send(message)
            elif message["type"] == "http.response.start":
                await send({**message, "headers": [*message.get("headers", ()), CLOSE]})
            elif message.get("more_body"):
                await send(message)
            else:
                await send({**message, "more_body": True})  # the client has the whole answer
                await self._discard(receive_noted)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(scope, receive_noted, send_closing)

    async def _discard(self, receive: Receive) -> None:
        """Receive a little more: a connection that is closed while its client sends may lose the answer."""
        left = self._limits.unread_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.unread_s):
                while left > 0:
                    message = await receive()
                    if not message.get("more_body"):
                        return
                    left -= len(message["body"])


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
