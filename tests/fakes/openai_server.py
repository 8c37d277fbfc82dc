"""An OpenAI-compatible server on loopback that answers in words, and fails as it is told to.

Knows the protocol of `vllm serve`: /v1/models, /v1/chat/completions as a stream, usage in the last event.
Runs on the test's own loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Behaviour = Callable[[web.Request, "OpenAIServer"], Awaitable[web.StreamResponse]]


@dataclass
class OpenAIServer:
    """`script` is what the next requests meet, one each; without one they get `answer`, a word an event."""

    answer: str = "one two three"
    finish_reason: str = "stop"
    pause_s: float = 0.0
    models: list[Any] = field(default_factory=lambda: [{"id": "tiny", "max_model_len": 8192}])
    key: str | None = None
    script: list[Behaviour] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    busy: int = 0
    most_busy: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        return self._denied(request) or web.json_response({"object": "list", "data": self.models})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        behave = self.script.pop(0) if self.script else words
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        try:
            return self._denied(request) or await behave(request, self)
        except (ConnectionResetError, asyncio.CancelledError):
            self.hung_up.set()
            raise
        finally:
            self.busy -= 1

    def _denied(self, request: web.Request) -> web.Response | None:
        if self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        return web.json_response({"error": {"message": "Unauthorized"}}, status=401)


@asynccontextmanager
async def running(server: OpenAIServer) -> AsyncIterator[OpenAIServer]:
    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.get("/v1/models", server.list_models), web.post("/v1/chat/completions", server.chat)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def piece(text: str, finish_reason: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}])


async def started(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


async def words(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
    """The whole answer, usage at its end."""
    response = await started(request)
    await asyncio.sleep(server.pause_s)
    said = [word + " " for word in server.answer.split()]
    for word in said[:-1]:
        await response.write(piece(word))
    await response.write(piece(server.answer.split()[-1], server.finish_reason))
    await response.write(event(choices=[], usage={"prompt_tokens": 903, "completion_tokens": len(said)}))
    await response.write(b"data: [DONE]\n\n")
    return response


def status(code: int, **headers: str) -> Behaviour:
    async def behave(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
        said = {"error": {"message": f"told to say {code}", "code": code}}
        return web.json_response(said, status=code, headers={name.replace("_", "-"): v for name, v in headers.items()})

    return behave


def said(*chunks: bytes, ended: bool = True) -> Behaviour:
    """Bytes as they are; not `ended`, the connection is cut after them."""

    async def behave(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
        response = await started(request)
        for chunk in chunks:
            await response.write(chunk)
        if not ended and request.transport:
            request.transport.abort()
        return response

    return behave


async def endless(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
    """The same word until the other side hangs up."""
    response = await started(request)
    while True:
        await response.write(piece("again "))
        await asyncio.sleep(0)


async def silent(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
    """Never a word."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 30)
    return web.Response(status=503)
