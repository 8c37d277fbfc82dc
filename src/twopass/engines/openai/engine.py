"""A prompt in, a completion out, from a server that speaks OpenAI's chat protocol: `vllm serve`, a gateway.

Knows HTTP, when to try again and when not. What is said is openai_chat's, what is heard openai_stream's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ParamSpec, TypeVar

import httpx
import structlog
import tenacity

from twopass.engines.interface import Completion, Engine, Prompt
from twopass.engines.openai import request as openai_chat
from twopass.engines.openai import stream
from twopass.engines.openai.request import Served
from twopass.engines.openai.stream import Answer, Garbled, Told
from twopass.errors import Code, EngineError
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
log = structlog.get_logger()

SEQUENCES = 32  # requests at once, where nobody says how many the server likes
LOOK_EVERY = 64  # tokens between two questions whether the answer loops
CONNECT_S, WRITE_S = 10.0, 60.0
BACK_OFF = tenacity.wait_random_exponential(multiplier=0.5, max=30)  # full jitter: workers must not come back at once
LONGEST_WAIT_S = 60.0  # whatever a Retry-After says
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})  # worth another try; so is any other 5xx
REFUSED = frozenset({400, 413, 422})  # this prompt, not the server
ADVICE = {
    401: "the server wants a key: set OPENAI_API_KEY",
    403: "the key may not use this model: check OPENAI_API_KEY and OPENAI_MODEL",
    404: "nothing is there: check OPENAI_MODEL, and that OPENAI_BASE_URL ends in /v1",
}


class _Busy(Exception):
    """Not now: `after` is the server's Retry-After in seconds, `status` its answer where it gave one."""

    def __init__(self, why: str, status: int | None = None, after: float = 0.0) -> None:
        super().__init__(why)
        self.status = status
        self.after = after


class _Refused(Exception):
    """Never: the server does not take this prompt."""


class OpenAIEngine(Engine):
    """A model that somebody else serves; `precision` says which, because nothing else of a document would."""

    kind = "openai"
    canary = True

    def __init__(self, settings: Settings) -> None:
        if not settings.openai_base_url:
            message = "engine openai needs OPENAI_BASE_URL, such as http://localhost:8000/v1"
            raise EngineError(Code.ENGINE_DEAD, message)
        self.family = settings.openai_family
        self.sequences = settings.engine_sequences or SEQUENCES
        self.precision = "as served"
        self._url = settings.openai_base_url.rstrip("/")
        self._settings = settings
        self._served = Served(
            "",
            None,
            settings.openai_plain,
            settings.openai_priority,
            settings.openai_modes and not settings.openai_plain,
        )
        self._seats = asyncio.Semaphore(self.sequences)  # before the PNG is made: who waits holds no memory
        self._client: httpx.AsyncClient | None = None
        self._page_pool: PagePool | None = None

    async def open(self, page_pool: PagePool) -> None:
        """See that the server answers and has the model."""
        self._page_pool = page_pool
        with _translated(self._url):
            self._client = await asyncio.to_thread(_client, self._settings, self.sequences)  # reads certificates
        try:
            listed = await self._patiently(self._listed)
            self._served = replace(self._served, **_chosen(listed, self._settings.openai_model))
        except _Busy as error:
            raise self._dead(error) from error
        finally:
            if not self._served.model:  # the house closes only what it could open
                await self.close()
        how = ", plain" if self._served.plain else ", in modes" if self._served.modes else ""
        self.precision = f"{self._served.model} as served{how}"

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()
        self._client = self._page_pool = None

    async def generate(self, prompt: Prompt) -> Completion:
        if self._page_pool is None:
            raise EngineError(Code.ENGINE_DEAD, "the openai engine is asked after `open`")
        async with self._seats:
            body = await self._page_pool.call(openai_chat.body, replace(prompt, watch=None), self._served)
            started = time.monotonic()
            try:
                answer = await self._patiently(self._answer, body, prompt.watch)
            except _Refused as error:
                return _lost(prompt, str(error))
            except _Busy as error:
                if error.status == 500 and await self._lists():
                    return _lost(prompt, str(error))  # it lives, so this prompt is what it stumbles over
                raise self._dead(error) from error
        seconds = time.monotonic() - started
        return Completion(answer.text, answer.finish_reason or "stop", answer.tokens_in, answer.tokens_out, seconds)

    async def _answer(self, body: bytes, watch: Callable[[str], bool] | None) -> Answer:
        """One try. Leaving the stream, however that happens, hangs up, and the server ends the request."""
        assert self._client
        with _translated(self._url):
            async with self._client.stream("POST", "chat/completions", content=body) as response:
                await _check(response)
                async with aclosing(stream.growing(response.aiter_lines())) as answers:
                    return await _read(answers, watch)

    async def _listed(self) -> list[dict[str, Any]]:
        """The server's models."""
        assert self._client
        with _translated(self._url):
            response = await self._client.get("models")
            await _check(response)
        try:
            return [model for model in response.json()["data"] if model["id"]]
        except (ValueError, KeyError, TypeError):
            message = f"{self._url}/models is no list of models; OPENAI_BASE_URL must lead to an OpenAI-compatible API"
            raise EngineError(Code.ENGINE_DEAD, message) from None

    async def _lists(self) -> bool:
        try:
            return bool(await self._listed())
        except (_Busy, _Refused, EngineError):
            return False

    async def _patiently(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Every try of this engine; the last _Busy comes through."""
        trying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_Busy),
            stop=tenacity.stop_after_attempt(self._settings.openai_tries),
            wait=_pause,
            reraise=True,
        )
        return await trying(work, *args, **kwargs)

    def _dead(self, error: _Busy) -> EngineError:
        tries = self._settings.openai_tries
        return EngineError(
            Code.ENGINE_DEAD, f"{self._url}: {error}, {tries} times; is the server up? (OPENAI_BASE_URL)"
        )


def _client(settings: Settings, sequences: int) -> httpx.AsyncClient:
    headers = {"Content-Type": "application/json", "User-Agent": "twopass"}
    if settings.openai_api_key and (key := settings.openai_api_key.get_secret_value()):
        headers["Authorization"] = f"Bearer {key}"
    return httpx.AsyncClient(
        base_url=f"{(settings.openai_base_url or '').rstrip('/')}/",
        headers=headers,
        timeout=httpx.Timeout(settings.openai_timeout_s, connect=CONNECT_S, write=WRITE_S, pool=None),
        limits=httpx.Limits(max_connections=sequences, max_keepalive_connections=sequences),
    )


def _chosen(listed: list[dict[str, Any]], wanted: str | None) -> dict[str, Any]:
    """Name and context of the wanted model, of the first where none is wanted."""
    model = next((model for model in listed if wanted in (None, model["id"])), None)
    if model is None:
        names = ", ".join(str(model["id"]) for model in listed) or "none"
        raise EngineError(Code.ENGINE_DEAD, f"the server does not have {wanted}; OPENAI_MODEL is one of: {names}")
    context = model.get("max_model_len")  # vLLM's
    return {"model": str(model["id"]), "context": context if isinstance(context, int) else None}


async def _read(answers: AsyncIterator[Answer], watch: Callable[[str], bool] | None) -> Answer:
    """The whole answer, or what there was when `watch` had seen enough."""
    looked = 0
    answer = Answer()
    async for answer in answers:
        if watch and answer.pieces - looked >= LOOK_EVERY:
            looked = answer.pieces
            if watch(answer.text):
                answer.finish_reason = "loop"
                return answer
    return answer


async def _check(response: httpx.Response) -> None:
    """Raise what an answer other than 200 means."""
    status = response.status_code
    if status == 200:
        return
    said = stream.words(await response.aread())
    if status in BUSY or status >= 500:
        raise _Busy(f"HTTP {status}", status, _retry_after(response.headers.get("retry-after", "")))
    if status in REFUSED:
        raise _Refused(f"HTTP {status}: {said}")
    advice = ADVICE.get(status, "check OPENAI_BASE_URL")
    raise EngineError(Code.ENGINE_DEAD, f"{response.url.copy_with(query=None)}: HTTP {status}; {advice}")


def _retry_after(said: str) -> float:
    """Seconds of a Retry-After, which is a number or a date; 0 where it says nothing."""
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT_S)


def _pause(state: tenacity.RetryCallState) -> float:
    """What the server asked for, or longer."""
    error = state.outcome.exception() if state.outcome else None
    return max(error.after if isinstance(error, _Busy) else 0.0, BACK_OFF(state))


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """httpx's errors, and a stream that is not what it should be, become ours."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        message = f"{url} is no address; set OPENAI_BASE_URL to something like http://localhost:8000/v1"
        raise EngineError(Code.ENGINE_DEAD, message) from None
    except Told as error:
        why = f"HTTP {error.status} within the answer"
        raise (_Refused(why) if error.status in REFUSED else _Busy(why, error.status)) from error
    except (httpx.HTTPError, httpx.StreamError, httpx.CookieConflict, Garbled) as error:
        raise _Busy(str(error) or type(error).__name__) from error


def _lost(prompt: Prompt, said: str) -> Completion:
    """An answer that says that there is none; the ladder asks in another way."""
    log.warning("the server refused a prompt", prompt=prompt.id, said=said)
    return Completion("", "error")
