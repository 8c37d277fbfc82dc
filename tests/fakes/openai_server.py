"""An OpenAI-compatible server on loopback that streams an answer or fails as a test's script says.

It speaks the protocol of `vllm serve`: /v1/models, and /v1/chat/completions as a stream with usage in the last event.
It runs on the test's event loop.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Behaviour = Callable[[web.Request, "OpenAIServer"], Awaitable[web.StreamResponse]]


@dataclass
class OpenAIServer:
    """Each request takes the next behaviour from `script`; after its end, requests get `answer`, one word per event.

    `answer` may be a function of the request's body.
    """

    answer: str | Callable[[dict[str, Any]], str] = "one two three"
    finish_reason: str = "stop"
    pause_s: float = 0.0
    models: list[Any] = field(default_factory=lambda: [{"id": "tiny", "max_model_len": 8192}])
    key: str | None = None
    script: list[Behaviour] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    active: int = 0
    max_active: int = 0
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        return self._check_key(request) or web.json_response({"object": "list", "data": self.models})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        behaviour = self.script.pop(0) if self.script else stream_words
        self.active += 1
        self.max_active = max(self.active, self.max_active)
        try:
            return self._check_key(request) or await behaviour(request, self)
        except (ConnectionResetError, asyncio.CancelledError):
            self.disconnected.set()
            raise
        finally:
            self.active -= 1

    def _check_key(self, request: web.Request) -> web.Response | None:
        """Return an error response if the request lacks the key."""
        if self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        return web.json_response({"error": {"message": "Unauthorized"}}, status=401)


@asynccontextmanager
async def serve(server: OpenAIServer) -> AsyncIterator[OpenAIServer]:
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


def encode_event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def encode_delta(text: str, finish_reason: str | None = None) -> bytes:
    return encode_event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}])


async def start_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


async def stream_words(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
    """Stream the whole answer, with usage at the end."""
    response = await start_stream(request)
    await asyncio.sleep(server.pause_s)
    answer = server.answer if isinstance(server.answer, str) else server.answer(await request.json())
    words = re.findall(r"\S+\s*", answer)
    for word in words[:-1]:
        await response.write(encode_delta(word))
    await response.write(encode_delta(words[-1], server.finish_reason))
    await response.write(encode_event(choices=[], usage={"prompt_tokens": 903, "completion_tokens": len(words)}))
    await response.write(b"data: [DONE]\n\n")
    return response


def respond_with_status(code: int, **headers: str) -> Behaviour:
    async def behave(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
        error = {"error": {"message": f"scripted status {code}", "code": code}}
        return web.json_response(error, status=code, headers={name.replace("_", "-"): v for name, v in headers.items()})

    return behave


def send_chunks(*chunks: bytes, ended: bool = True) -> Behaviour:
    """Send these bytes unchanged, then end the response, or cut the connection if `ended` is False."""

    async def behave(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
        response = await start_stream(request)
        for chunk in chunks:
            await response.write(chunk)
        if not ended and request.transport:
            request.transport.abort()
        return response

    return behave


async def repeat_forever(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
    """Stream the same word until the client disconnects."""
    response = await start_stream(request)
    while True:
        await response.write(encode_delta("again "))
        await asyncio.sleep(0)


async def never_answer(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
    """Send nothing until the client gives up."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 30)
    return web.Response(status=503)
