"""The openai engine: send prompts to a server with OpenAI's chat protocol, such as `vllm serve` or a gateway.

This file handles connections, errors and retries; request.py builds the requests and stream.py parses the answers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar

import httpx
import structlog

from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.openai import request as chat_request
from twopass.engines.openai import stream
from twopass.engines.openai.request import ServerOptions
from twopass.engines.openai.stream import MalformedStream, ReportedError, StreamedAnswer, TooLarge
from twopass.errors import Code, EngineError
from twopass.runtime import retry
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings, redact_address

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger()

SEQUENCES = 32  # concurrent requests, unless ENGINE_SEQUENCES is set
LOOP_CHECK_TOKENS = 64  # tokens generated between two loop checks
CONNECT_S, WRITE_S = 10.0, 60.0
RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})  # as is any other 5xx
REFUSED_STATUSES = frozenset({400, 413, 422})  # the server works but does not accept this prompt
ADVICE = {
    401: "the server requires a key: set OPENAI_API_KEY",
    403: "the key has no access to this model: check OPENAI_API_KEY and OPENAI_MODEL",
    404: "not found: check OPENAI_MODEL, and that OPENAI_BASE_URL ends in /v1",
}


class TemporaryFailure(retry.Busy):
    """The server cannot answer now. `status` is its HTTP status; None when it sent no response."""

    def __init__(self, reason: str, status: int | None = None, retry_after_s: float = 0.0) -> None:
        super().__init__(reason, retry_after_s)
        self.status = status


class PromptRefused(Exception):
    """The server does not accept this prompt; a retry would not help."""


class OpenAIEngine(Engine):
    """Uses a model on another server. `precision` names that model, which a document's identity needs."""

    kind = "openai"
    needs_canary = True

    def __init__(self, settings: Settings) -> None:
        assert settings.openai_base_url, "preflight requires it"
        self.family = settings.openai_family
        self.sequences = settings.engine_sequences or SEQUENCES
        self.precision = "as served"
        self.has_ngram_ban = not settings.openai_plain
        self._url = redact_address(settings.openai_base_url.rstrip("/"))  # for messages
        self._settings = settings
        self._retry_policy = replace(retry.OPENAI_REQUEST, attempts=settings.openai_tries)
        self.server_options = ServerOptions(
            model="",
            context=None,
            plain=settings.openai_plain,
            priority=settings.openai_priority,
            modes=settings.openai_modes and not settings.openai_plain,
        )
        self._slots = asyncio.Semaphore(self.sequences)  # taken before the PNG is made: waiting prompts use no memory
        self._client: httpx.AsyncClient | None = None
        self._page_pool: PagePool | None = None

    async def open(self, page_pool: PagePool) -> None:
        """Connect, and check that the server has the model; raises EngineError."""
        await self._connect()
        self._page_pool = page_pool

    async def find_precision(self) -> str:
        """What `precision` will be after `open`; the server is asked only if no setting names its model."""
        if wanted := self._settings.openai_model:
            return self._describe_precision(wanted)
        await self._connect()
        await self.close()
        return self.precision

    async def _connect(self) -> None:
        with translate_errors(self._url):
            self._client = await asyncio.to_thread(_create_client, self._settings, self.sequences)  # reads certificates
        try:
            models = await self._with_retries(self._list_models)
            self.server_options = replace(self.server_options, **_choose_model(models, self._settings.openai_model))
        except TemporaryFailure as error:
            raise self._to_engine_error(error) from error
        except PromptRefused as error:
            raise EngineError(Code.ENGINE_DEAD, f"{self._url}/models: {error}; check OPENAI_BASE_URL") from error
        finally:
            if not self.server_options.model:  # the worker closes only an engine that opened
                await self.close()
        self.precision = self._describe_precision(self.server_options.model)

    def _describe_precision(self, model: str) -> str:
        suffix = ", plain" if self.server_options.plain else ", in modes" if self.server_options.modes else ""
        return f"{model} as served{suffix}"

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()
        self._client = self._page_pool = None

    async def generate(self, prompt: Prompt) -> Completion:
        if self._page_pool is None:
            raise EngineError(Code.ENGINE_DEAD, "the openai engine needs `open` before `generate`")
        async with self._slots:
            request = replace(prompt, loop_check=None)  # a function cannot be pickled for the page worker
            body = await self._page_pool.call(chat_request.build_body, request, self.server_options)
            started = time.monotonic()
            try:
                answer = await self._with_retries(self._request_answer, body, prompt.loop_check)
            except PromptRefused as error:
                return _make_refused_completion(prompt, str(error))
            except TemporaryFailure as error:
                if error.status == 500 and await self._is_alive():  # then it is this prompt that makes it fail
                    return _make_refused_completion(prompt, str(error))
                raise self._to_engine_error(error) from error
        seconds = time.monotonic() - started
        return Completion(answer.text, answer.finish_reason or "stop", answer.tokens_in, answer.tokens_out, seconds)

    async def _request_answer(self, body: bytes, loop_check: Callable[[str], bool] | None) -> StreamedAnswer:
        """Make one attempt. Any exit from the stream closes the connection, which ends the request on the server."""
        assert self._client
        with translate_errors(self._url):
            async with self._client.stream("POST", "chat/completions", content=body) as response:
                await _check_response(response)
                lines = stream.split_lines(_iterate_bytes(response))
                async with aclosing(stream.accumulate(lines)) as answers:
                    return await _read_answer(answers, loop_check)

    async def _list_models(self) -> list[dict[str, Any]]:
        assert self._client
        with translate_errors(self._url):
            async with self._client.stream("GET", "models") as response:
                await _check_response(response)
                body = await stream.read_body(_iterate_bytes(response))
        try:
            return [model for model in json.loads(body)["data"] if model["id"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            message = f"{self._url}/models is no list of models; set OPENAI_BASE_URL to an OpenAI-compatible API"
            raise EngineError(Code.ENGINE_DEAD, message) from None

    async def _is_alive(self) -> bool:
        """Whether the server lists its models."""
        try:
            return bool(await self._list_models())
        except (TemporaryFailure, PromptRefused, EngineError):
            return False

    async def _with_retries(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeat the call while the server is busy; raises the last TemporaryFailure."""
        return await self._retry_policy.run_async(partial(work, *args, **kwargs))

    def _to_engine_error(self, error: TemporaryFailure) -> EngineError:
        message = f"{self._url}: {error}, {self._retry_policy.attempts} times; is the server up? (OPENAI_BASE_URL)"
        return EngineError(Code.ENGINE_DEAD, message)


def _create_client(settings: Settings, sequences: int) -> httpx.AsyncClient:
    headers = {"Content-Type": "application/json", "User-Agent": "twopass", "Accept-Encoding": "identity"}
    if settings.openai_api_key and (key := settings.openai_api_key.get_secret_value()):
        headers["Authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(
        base_url=f"{(settings.openai_base_url or '').rstrip('/')}/",
        headers=headers,
        timeout=httpx.Timeout(settings.openai_timeout_s, connect=CONNECT_S, write=WRITE_S, pool=None),
        limits=httpx.Limits(max_connections=sequences, max_keepalive_connections=sequences),
    )


def _choose_model(models: list[dict[str, Any]], wanted: str | None) -> dict[str, Any]:
    """Name and context length of the wanted model, or of the first one if `wanted` is None."""
    model = next((model for model in models if wanted in (None, model["id"])), None)
    if model is None:
        names = ", ".join(str(model["id"]) for model in models) or "none"
        raise EngineError(Code.ENGINE_DEAD, f"the server does not have {wanted}; OPENAI_MODEL is one of: {names}")
    context = model.get("max_model_len")  # only vLLM has it
    return {"model": str(model["id"]), "context": context if isinstance(context, int) else None}


async def _read_answer(
    answers: AsyncIterator[StreamedAnswer], loop_check: Callable[[str], bool] | None
) -> StreamedAnswer:
    """Read the stream to its end, or until `loop_check` finds a loop."""
    checked = 0
    answer = StreamedAnswer()
    async for answer in answers:
        if loop_check and answer.deltas - checked >= LOOP_CHECK_TOKENS:
            checked = answer.deltas
            if loop_check(answer.text):
                answer.finish_reason = "loop"
                return answer
    return answer


def _iterate_bytes(response: httpx.Response) -> AsyncIterator[bytes]:
    """The response as it arrives; a compressed one is refused, because it might grow a thousandfold in memory."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise MalformedStream("the response is compressed, although the request does not allow that")
    return response.aiter_raw()


async def _check_response(response: httpx.Response) -> None:
    """Raise TemporaryFailure, PromptRefused or EngineError for a status other than 200."""
    status = response.status_code
    if status == 200:
        return
    message = await _read_message(response)
    if status in RETRYABLE_STATUSES or status >= 500:
        raise TemporaryFailure(f"HTTP {status}", status, parse_retry_after(response.headers.get("retry-after", "")))
    if status in REFUSED_STATUSES:
        raise PromptRefused(f"HTTP {status}: {message}")
    advice = ADVICE.get(status, "check OPENAI_BASE_URL")
    raise EngineError(Code.ENGINE_DEAD, f"{redact_address(str(response.url))}: HTTP {status}; {advice}")


async def _read_message(response: httpx.Response) -> str:
    """The message of an error; empty if it cannot be read, because the status says enough."""
    try:
        return stream.extract_message(await stream.read_body(_iterate_bytes(response)))
    except (MalformedStream, TooLarge):
        return ""


def parse_retry_after(header: str) -> float:
    """The seconds of a Retry-After header, which is a number or a date; 0 if it is neither."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), retry.OPENAI_REQUEST.longest_retry_after_s)


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Turn errors of httpx and of the stream into TemporaryFailure, PromptRefused or EngineError."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        message = f"{url} is not a valid address; set OPENAI_BASE_URL to something like http://localhost:8000/v1"
        raise EngineError(Code.ENGINE_DEAD, message) from None
    except ReportedError as error:
        reason = f"HTTP {error.status} within the answer"
        if error.status in REFUSED_STATUSES:
            raise PromptRefused(reason) from error
        raise TemporaryFailure(reason, error.status) from error
    except TooLarge as error:  # once more, it would be as large
        raise PromptRefused(f"the server sends {error}") from error
    except (httpx.HTTPError, httpx.StreamError, httpx.CookieConflict, MalformedStream) as error:
        raise TemporaryFailure(str(error) or type(error).__name__) from error


def _make_refused_completion(prompt: Prompt, reason: str) -> Completion:
    """Log a refused prompt and return a completion with finish_reason error; the ladder tries its next rung."""
    log.warning("prompt refused by the server", prompt=prompt.id, reason=reason)
    return Completion("", "error")
