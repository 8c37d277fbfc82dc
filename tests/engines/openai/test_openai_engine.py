"""The openai engine against a server that fails in every way servers fail."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.fakes import openai_server
from tests.fakes.openai_server import OpenAIServer, event, piece, said, status
from tests.fakes.reader import Reader
from twopass.engines import factory
from twopass.engines.interface import Completion, Prompt, Sampling
from twopass.engines.openai import engine as engine_module
from twopass.engines.openai import request as openai_chat
from twopass.engines.openai import stream
from twopass.engines.openai.engine import OpenAIEngine
from twopass.engines.openai.request import Served
from twopass.errors import Code, EngineError
from twopass.job import Result
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

PICTURE = np.arange(24 * 32 * 3, dtype=np.uint8).reshape(24, 32, 3)
PROMPT = Prompt("doc/p0001", "<image>\nFree OCR.", Pixels(32, 24, held=PICTURE.tobytes()))


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server.running(OpenAIServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits half a minute for a test."""
    monkeypatch.setattr(engine_module, "BACK_OFF", engine_module.tenacity.wait_fixed(0.01))


def settings(server: OpenAIServer, **fields: Any) -> Settings:
    return Settings(engine="openai", openai_base_url=server.url, **{"openai_tries": 3, **fields})


async def opened(server: OpenAIServer, page_pool: PagePool, **fields: Any) -> OpenAIEngine:
    engine = factory.constructed(settings(server, **fields))
    assert isinstance(engine, OpenAIEngine)
    await engine.open(page_pool)
    return engine


async def asked(server: OpenAIServer, page_pool: PagePool, prompt: Prompt = PROMPT, **fields: Any) -> Completion:
    engine = await opened(server, page_pool, **fields)
    try:
        return await engine.generate(prompt)
    finally:
        await engine.close()


async def test_an_answer_comes_with_its_tokens(server: OpenAIServer, page_pool: PagePool) -> None:
    """Text, reason and usage, put together from the stream."""
    completion = await asked(server, page_pool)

    assert replace(completion, seconds=0) == Completion("one two three", "stop", 903, 3)
    assert completion.seconds > 0


async def test_the_request_is_what_vllm_reads(server: OpenAIServer, page_pool: PagePool) -> None:
    """The page as PNG, pixel for pixel; special tokens kept; the n-gram ban as the logits processor wants it."""
    prompt = replace(PROMPT, sampling=Sampling(0.2, ngram=10, window=256), watch=lambda text: False)
    await asked(server, page_pool, prompt)

    (request,) = server.requests
    image, text = request["messages"][0]["content"]
    png = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert (np.asarray(Image.open(io.BytesIO(png))) == PICTURE).all()
    assert text == {"type": "text", "text": "<image>\nFree OCR."}
    assert (request["model"], request["temperature"], request["skip_special_tokens"]) == ("tiny", 0.2, False)
    assert request["vllm_xargs"] == {"ngram_size": 10, "window_size": 256, "whitelist_token_ids": [128821, 128822]}
    assert not {"max_tokens", "priority", "mm_processor_kwargs"} & set(request)


async def test_no_ban_is_asked_for_by_saying_nothing(server: OpenAIServer, page_pool: PagePool) -> None:
    """vLLM's processor and ours refuse a size of 0, which a job may ask for."""
    await asked(server, page_pool, replace(PROMPT, sampling=Sampling(ngram=0)))

    assert "vllm_xargs" not in server.requests[0]


async def test_settings_add_what_only_some_servers_take(server: OpenAIServer, page_pool: PagePool) -> None:
    """Priority and modes on demand; nothing beyond OpenAI's own fields for a plain server."""
    fields = {"openai_priority": True, "openai_modes": True}
    await asked(server, page_pool, replace(PROMPT, mode="base", priority=0), **fields)
    await asked(server, page_pool, openai_plain=True, **fields)

    rich, plain = server.requests
    assert rich["priority"] == 0
    assert rich["mm_processor_kwargs"] == {"mode": "base", "max_crops": 6}
    assert set(plain) == {"model", "messages", "temperature", "stream", "stream_options"}


@pytest.mark.parametrize(("asked_for", "context", "sent"), [(None, 8192, None), (8192, 8192, None), (4000, 8192, 4000)])
def test_a_limit_that_leaves_no_room_is_left_out(asked_for: int | None, context: int, sent: int | None) -> None:
    """vLLM answers 400 to max_tokens that fill the context; without it the answer goes on to its end."""
    prompt = replace(PROMPT, sampling=Sampling(max_tokens=asked_for))

    assert openai_chat.max_tokens(prompt, context) == sent
    assert openai_chat.max_tokens(prompt, None) == asked_for


@pytest.mark.parametrize(
    "fault",
    [
        *(status(code) for code in (408, 409, 429, 500, 502, 503, 529)),
        said(piece("one "), ended=False),
        said(piece("one ")),
        said(piece("one "), b"data: {no json\n\n"),
        said(event(choices=[{"nothing": 1}])),
        said(event(choices=7)),
        said(b"data: []\n\n"),
        said(event(error={"message": "the core died", "code": 500})),
        said(b'{"choices": []}'),
    ],
)
async def test_a_fault_that_passes_is_not_seen(
    server: OpenAIServer, page_pool: PagePool, fault: openai_server.Behaviour
) -> None:
    """Busy, broken and garbled answers are asked for again, from the beginning."""
    server.script = [fault, fault]

    assert (await asked(server, page_pool)).text == "one two three"
    assert len(server.requests) == 3


async def test_a_silent_server_is_asked_again(server: OpenAIServer, page_pool: PagePool) -> None:
    """No answer within OPENAI_TIMEOUT_S is a fault like any other, and the server sees that we hung up."""
    server.script = [openai_server.silent]

    assert (await asked(server, page_pool, openai_timeout_s=0.2)).text == "one two three"
    await asyncio.wait_for(server.hung_up.wait(), 5)


@pytest.mark.parametrize("header", ["0.4", "date"])
async def test_retry_after_is_honoured(server: OpenAIServer, page_pool: PagePool, header: str) -> None:
    """A server that says when is not asked before, in seconds or as a date."""
    said = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True) if header == "date" else header
    server.script = [status(429, Retry_After=said)]
    started = time.monotonic()
    await asked(server, page_pool)

    assert time.monotonic() - started > 0.4


@pytest.mark.parametrize("said", ["", "soon", "-3", "nan?"])
def test_a_retry_after_of_nonsense_says_nothing(said: str) -> None:
    """Whatever a proxy writes there."""
    assert engine_module._retry_after(said) == 0
    assert engine_module._retry_after("86400") == engine_module.LONGEST_WAIT_S


@pytest.mark.parametrize("fault", [status(400), status(413), status(422), said(event(error={"code": 400}))])
async def test_a_refused_prompt_costs_only_itself(
    server: OpenAIServer, page_pool: PagePool, fault: openai_server.Behaviour
) -> None:
    """It is not asked again; the ladder goes on with another."""
    server.script = [fault]

    assert await asked(server, page_pool) == Completion("", "error")
    assert len(server.requests) == 1


async def test_a_prompt_that_the_server_stumbles_over_costs_only_itself(
    server: OpenAIServer, page_pool: PagePool
) -> None:
    """500 again and again, but its models are listed: the page is lost and not the job."""
    server.script = [status(500)] * 3

    assert await asked(server, page_pool) == Completion("", "error")


@pytest.mark.parametrize(
    ("code", "advice"),
    [(401, "OPENAI_API_KEY"), (403, "OPENAI_MODEL"), (404, "OPENAI_BASE_URL"), (405, "OPENAI_BASE_URL")],
)
async def test_a_server_that_will_never_answer_says_what_to_set(
    server: OpenAIServer, page_pool: PagePool, code: int, advice: str
) -> None:
    """At once, without a second try."""
    server.script = [status(code)]

    with pytest.raises(EngineError, match=advice) as caught:
        await asked(server, page_pool)
    assert caught.value.code is Code.ENGINE_DEAD
    assert len(server.requests) == 1


async def test_a_server_that_stays_busy_is_dead(server: OpenAIServer, page_pool: PagePool) -> None:
    """After every try; the job ends unread and can be sent again."""
    server.script = [status(503)] * 3

    with pytest.raises(EngineError, match="HTTP 503, 3 times"):
        await asked(server, page_pool)


async def test_a_server_that_goes_away_is_dead(page_pool: PagePool) -> None:
    """Connection refused, after every try."""
    async with openai_server.running(OpenAIServer()) as server:
        engine = await opened(server, page_pool)

    with pytest.raises(EngineError, match="3 times") as caught:
        await engine.generate(PROMPT)
    assert caught.value.code is Code.ENGINE_DEAD
    await engine.close()


async def test_a_loop_is_hung_up_on(server: OpenAIServer, page_pool: PagePool) -> None:
    """`watch` is asked every 64 tokens with all that was said; True ends the request, and the server notices."""
    seen: list[int] = []

    def watch(text: str) -> bool:
        seen.append(text.count("again"))
        return len(seen) == 3

    server.script = [openai_server.endless]
    completion = await asked(server, page_pool, replace(PROMPT, watch=watch))

    assert (completion.finish_reason, completion.tokens_out, seen) == ("loop", 192, [64, 128, 192])
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_a_cancelled_prompt_is_hung_up_on(server: OpenAIServer, page_pool: PagePool) -> None:
    """Cancelling the awaiting task ends the request, and the engine goes on."""
    engine = await opened(server, page_pool)
    server.script = [openai_server.endless]
    task = asyncio.create_task(engine.generate(PROMPT))
    async with asyncio.timeout(30):
        while not server.busy:
            await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.hung_up.wait(), 5)
    assert (await engine.generate(PROMPT)).text == "one two three"
    await engine.close()


async def test_no_more_requests_are_made_than_sequences(server: OpenAIServer, page_pool: PagePool) -> None:
    """The pool is as large as the engine says it is."""
    server.pause_s = 0.05
    engine = await opened(server, page_pool, engine_sequences=3)
    await asyncio.gather(*(engine.generate(PROMPT) for _ in range(12)))
    await engine.close()

    assert engine.sequences == 3
    assert 1 < server.most_busy <= 3


@pytest.mark.parametrize(("reason", "told"), [("length", "length"), ("abort", "abort"), ("content_filter", "error")])
async def test_a_finish_reason_is_one_of_ours(
    server: OpenAIServer, page_pool: PagePool, reason: str, told: str
) -> None:
    """One that nobody knows is no good answer."""
    server.finish_reason = reason

    assert (await asked(server, page_pool)).finish_reason == told


async def test_the_first_model_is_taken(server: OpenAIServer, page_pool: PagePool) -> None:
    """Its name is part of the document's identity: another model reads into another folder."""
    engine = await opened(server, page_pool)
    await engine.close()

    assert (engine.kind, engine.precision) == ("openai", "tiny as served")
    assert engine._served == Served("tiny", 8192)


@pytest.mark.parametrize(
    ("models", "words"),
    [([], "one of: none"), ([{"id": "tiny"}], "one of: tiny"), ("nonsense", "no list of models"), (None, "no list of")],
)
async def test_a_model_that_is_not_there_is_told_by_name(page_pool: PagePool, models: Any, words: str) -> None:
    """Before any job, with the names that there are."""
    async with openai_server.running(OpenAIServer(models=models)) as server:
        with pytest.raises(EngineError, match=words):
            await opened(server, page_pool, openai_model="large")


async def test_a_key_is_sent_and_never_said(page_pool: PagePool) -> None:
    """As a bearer token; an error does not repeat it."""
    async with openai_server.running(OpenAIServer(key="sk-right")) as server:
        assert (await asked(server, page_pool, openai_api_key="sk-right")).text == "one two three"
        with pytest.raises(EngineError, match="OPENAI_API_KEY") as caught:
            await opened(server, page_pool, openai_api_key="sk-wrong")

    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://localhost/v1", "http://[::1/v1", "nonsense"])
async def test_an_address_that_is_none_is_told(page_pool: PagePool, address: str) -> None:
    """With an example of one."""
    engine = OpenAIEngine(Settings(openai_base_url=address, openai_tries=1))

    with pytest.raises(EngineError, match="OPENAI_BASE_URL"):
        await engine.open(page_pool)


def test_the_engine_needs_an_address() -> None:
    """The message names the variable."""
    with pytest.raises(EngineError, match="OPENAI_BASE_URL"):
        factory.constructed(Settings(engine="openai"))


def foreign() -> list[type[Exception]]:
    """Everything httpx raises."""
    kinds = [kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20
    return [kind for kind in kinds if not issubclass(kind, Warning)]


@pytest.mark.parametrize("kind", foreign(), ids=lambda kind: kind.__name__)
def test_every_error_of_httpx_is_translated(kind: type[Exception]) -> None:
    """None of them reaches a job as it is."""
    error = kind.__new__(kind)
    error.args = ("what happened",)

    with pytest.raises((EngineError, engine_module._Busy)), engine_module._translated("http://here/v1"):
        raise error


async def read(
    server: OpenAIServer, page_pool: PagePool, buffers: PixelBufferPool, sample: Path, output: Path
) -> Result:
    """Two pages of the sample through the whole pipeline."""
    engine = OpenAIEngine(settings(server, openai_family="layout"))
    try:
        return await Reader(page_pool, buffers, engine).run(source=str(sample), output=str(output), pages="1-2")
    finally:
        await engine.close()


async def test_a_job_whose_prompts_are_refused_keeps_its_text(
    server: OpenAIServer, page_pool: PagePool, buffers: PixelBufferPool, sample: Path, tmp_path: Path
) -> None:
    """The PDF's own text takes over, and the result says why."""
    server.script = [status(400)] * 9
    answer = (await read(server, page_pool, buffers, sample, tmp_path)).as_answer()

    assert answer["documents"][0]["pages"] == {"text_layer": 2}
    assert {problem["code"] for problem in answer["problems"]} == {"ENGINE_REFUSED"}


async def test_a_job_whose_server_is_gone_ends_unread(
    server: OpenAIServer, page_pool: PagePool, buffers: PixelBufferPool, sample: Path, tmp_path: Path
) -> None:
    """Nothing is called read, nothing is called failed: the same job again reads it."""
    server.script = [status(503)] * 9
    answer = (await read(server, page_pool, buffers, sample, tmp_path)).as_answer()

    assert answer["error"].startswith("ENGINE_DEAD")
    assert not list(tmp_path.rglob("pages/*.json"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "usage", "finish_reason", "error", "code", "prompt_tokens"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=4))
async def test_any_stream_is_an_answer_or_a_fault(events: list[Any]) -> None:
    """Whatever a server sends, nothing but the two faults comes out, and an answer's counts are numbers."""

    async def lines() -> AsyncIterator[str]:
        for one in events:
            yield f"data: {json.dumps(one)}"

    try:
        async for answer in stream.growing(lines()):
            assert isinstance(answer.text, str)
            assert answer.tokens_in + answer.tokens_out >= 0 or answer.usage
    except (stream.Garbled, stream.Told):
        pass


def test_an_error_of_a_server_is_cut_short() -> None:
    """A server may quote the prompt; what reaches the log is too little to be a document."""
    long = json.dumps({"error": {"message": "x" * 10_000}}).encode()

    assert len(stream.words(long)) == 200
    assert stream.words(b"\xff<html>") == "\ufffd<html>"
    assert stream.words(b'{"error": "plain"}') == "plain"
