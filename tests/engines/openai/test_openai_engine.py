"""The openai engine against a scripted server with the failures of real ones."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import repeat
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from structlog.testing import capture_logs

from tests.fakes import openai_server
from tests.fakes.openai_server import OpenAIServer, encode_delta, encode_event, respond_with_status, send_chunks
from tests.fakes.operations import count_operations
from tests.fakes.reader import Reader
from twopass.engines import factory
from twopass.engines.interface import MAX_ANSWER, Completion, Prompt, Sampling, build_sampling
from twopass.engines.openai import engine as engine_module
from twopass.engines.openai import request as chat_request
from twopass.engines.openai import stream
from twopass.engines.openai.engine import OpenAIEngine
from twopass.engines.openai.request import ServerOptions
from twopass.errors import Code, EngineError, InvalidSetting
from twopass.families import registry
from twopass.families.interface import FamilyOptions, PageFeatures, PageRequest
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.result import Result
from twopass.runtime import retry
from twopass.runtime.page_pool import PagePool
from twopass.settings import Settings

PICTURE = np.arange(24 * 32 * 3, dtype=np.uint8).reshape(24, 32, 3)
PROMPT = Prompt("doc/p0001", "<image>\nFree OCR.", Pixels(32, 24, data=PICTURE.tobytes()))


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with openai_server.serve(OpenAIServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry after 10 ms instead of up to half a minute."""
    monkeypatch.setattr(retry, "OPENAI_REQUEST", replace(retry.OPENAI_REQUEST, delays=(0.01,)))


def settings(server: OpenAIServer, **fields: Any) -> Settings:
    return Settings(engine="openai", openai_base_url=server.url, **{"openai_tries": 3, **fields})


async def open_engine(server: OpenAIServer, page_pool: PagePool, **fields: Any) -> OpenAIEngine:
    engine = factory.create_engine(settings(server, **fields))
    assert isinstance(engine, OpenAIEngine)
    await engine.open(page_pool)
    return engine


async def ask(server: OpenAIServer, page_pool: PagePool, prompt: Prompt = PROMPT, **fields: Any) -> Completion:
    engine = await open_engine(server, page_pool, **fields)
    try:
        return await engine.generate(prompt)
    finally:
        await engine.close()


async def test_an_answer_comes_with_its_tokens(server: OpenAIServer, page_pool: PagePool) -> None:
    """Text, finish reason and token counts are assembled from the stream."""
    completion = await ask(server, page_pool)

    assert replace(completion, seconds=0) == Completion("one two three", "stop", 903, 3)
    assert completion.seconds > 0


async def test_a_request_has_the_fields_of_vllm(server: OpenAIServer, page_pool: PagePool) -> None:
    """A request has the page as a lossless PNG, keeps special tokens and passes the n-gram ban in vllm_xargs."""
    prompt = replace(PROMPT, sampling=Sampling(0.2, ngram=10, window=256), loop_check=lambda text: False)
    await ask(server, page_pool, prompt)

    (request,) = server.requests
    image, text = request["messages"][0]["content"]
    png = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert (np.asarray(Image.open(io.BytesIO(png))) == PICTURE).all()
    assert text == {"type": "text", "text": "<image>\nFree OCR."}
    assert (request["model"], request["temperature"], request["skip_special_tokens"]) == ("tiny", 0.2, False)
    assert request["vllm_xargs"] == {"ngram_size": 10, "window_size": 256, "whitelist_token_ids": [128821, 128822]}
    assert not {"max_tokens", "priority", "mm_processor_kwargs"} & set(request)


async def test_unlimited_ocr_is_asked_as_its_recipe_says(server: OpenAIServer, page_pool: PagePool) -> None:
    """A stock server gets the prompt without a line end, special tokens, and the ban without allowed tokens.

    A server with our plugin is also told the mode and how many tiles it may cut, up to 32.
    """
    family = registry.get_family("unlimited_ocr", FamilyOptions(max_tiles=32))
    (rung, *_) = family.ladder(PageFeatures(1700, 2200, ink=0.2, characters=4000), PageRequest())
    sampling = build_sampling(family.sampling, {}, rung.sampling)
    prompt = replace(PROMPT, text=rung.prompt, mode=rung.mode, max_crops=family.crops.most, sampling=sampling)

    await ask(server, page_pool, prompt, openai_family="unlimited_ocr")
    await ask(server, page_pool, prompt, openai_family="unlimited_ocr", openai_modes=True)

    stock, plugin = server.requests
    assert stock["messages"][0]["content"][1] == {"type": "text", "text": "<image>document parsing."}
    assert (stock["temperature"], stock["skip_special_tokens"]) == (0.0, False)
    assert stock["vllm_xargs"] == {"ngram_size": 35, "window_size": 128}
    assert "mm_processor_kwargs" not in stock
    assert plugin["mm_processor_kwargs"] == {"mode": "gundam", "max_crops": 32}
    assert plugin["messages"] == stock["messages"]


async def test_glm_ocr_is_asked_with_the_sampling_of_its_sdk(server: OpenAIServer, page_pool: PagePool) -> None:
    """A repetition penalty and no ban; a job that sets a ban gets no penalty, because servers refuse both together."""
    family = registry.get_family("glm_ocr")
    for override in ({}, {"ngram": 30}):
        await ask(server, page_pool, replace(PROMPT, sampling=build_sampling(family.sampling, override)))

    usual, banned = server.requests
    assert (usual["temperature"], usual["repetition_penalty"]) == (0.0, 1.1)
    assert "vllm_xargs" not in usual
    assert banned["vllm_xargs"]["ngram_size"] == 30 and "repetition_penalty" not in banned


async def test_a_ban_of_size_zero_is_not_sent(server: OpenAIServer, page_pool: PagePool) -> None:
    """A job may turn the n-gram ban off with size 0, which vLLM's logits processor and ours refuse."""
    await ask(server, page_pool, replace(PROMPT, sampling=Sampling(ngram=0)))

    assert "vllm_xargs" not in server.requests[0]


async def test_settings_control_the_optional_fields(server: OpenAIServer, page_pool: PagePool) -> None:
    """Priority and modes are sent if set; a plain server gets only the fields of OpenAI's protocol."""
    fields = {"openai_priority": True, "openai_modes": True}
    await ask(server, page_pool, replace(PROMPT, mode="base", priority=0), **fields)
    await ask(server, page_pool, openai_plain=True, **fields)

    rich, plain = server.requests
    assert rich["priority"] == 0
    assert rich["mm_processor_kwargs"] == {"mode": "base", "max_crops": 6}
    assert set(plain) == {"model", "messages", "temperature", "stream", "stream_options"}


@pytest.mark.parametrize(("limit", "context", "sent"), [(None, 8192, None), (8192, 8192, None), (4000, 8192, 4000)])
def test_a_limit_that_leaves_no_room_is_not_sent(limit: int | None, context: int, sent: int | None) -> None:
    """vLLM before 0.32 refuses max_tokens that fill the context, so none is sent and the answer may fill the rest."""
    prompt = replace(PROMPT, sampling=Sampling(max_tokens=limit))

    assert chat_request.choose_max_tokens(prompt, context) == sent
    assert chat_request.choose_max_tokens(prompt, None) == limit


@pytest.mark.parametrize(
    "fault",
    [
        *(respond_with_status(code) for code in (408, 409, 429, 500, 502, 503, 529)),
        send_chunks(encode_delta("one "), ended=False),
        send_chunks(encode_delta("one ")),
        send_chunks(encode_delta("one "), b"data: {no json\n\n"),
        send_chunks(encode_event(choices=[{"nothing": 1}])),
        send_chunks(encode_event(choices=7)),
        send_chunks(b"data: []\n\n"),
        send_chunks(encode_event(error={"message": "the core died", "code": 500})),
        send_chunks(b'{"choices": []}'),
    ],
)
async def test_a_temporary_failure_is_retried(
    server: OpenAIServer, page_pool: PagePool, fault: openai_server.Behaviour
) -> None:
    """A request is repeated after a retryable status, a cut connection or a malformed stream."""
    server.script = [fault, fault]

    assert (await ask(server, page_pool)).text == "one two three"
    assert len(server.requests) == 3


async def test_a_silent_server_is_retried(server: OpenAIServer, page_pool: PagePool) -> None:
    """A request without an answer in OPENAI_TIMEOUT_S is closed and repeated."""
    server.script = [openai_server.never_answer]

    assert (await ask(server, page_pool, openai_timeout_s=0.2)).text == "one two three"
    await asyncio.wait_for(server.disconnected.wait(), 5)


@pytest.mark.parametrize("header", ["0.4", "date"])
async def test_retry_after_is_honoured(server: OpenAIServer, page_pool: PagePool, header: str) -> None:
    """The engine waits as long as a Retry-After header asks for, given in seconds or as a date."""
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True) if header == "date" else header
    server.script = [respond_with_status(429, Retry_After=value)]
    started = time.monotonic()
    await ask(server, page_pool)

    assert time.monotonic() - started > 0.4


@pytest.mark.parametrize("header", ["", "soon", "-3", "nan?"])
def test_an_invalid_retry_after_is_ignored(header: str) -> None:
    """A Retry-After that a proxy garbled counts as 0 seconds, and a very long one is capped."""
    assert engine_module.parse_retry_after(header) == 0
    assert engine_module.parse_retry_after("86400") == retry.OPENAI_REQUEST.longest_retry_after_s


@pytest.mark.parametrize(
    "fault",
    [
        respond_with_status(400),
        respond_with_status(413),
        respond_with_status(422),
        send_chunks(encode_event(error={"code": 400})),
    ],
)
async def test_a_refused_prompt_costs_only_itself(
    server: OpenAIServer, page_pool: PagePool, fault: openai_server.Behaviour
) -> None:
    """A refused prompt is not repeated; its completion has the finish reason error."""
    server.script = [fault]

    assert await ask(server, page_pool) == Completion("", "error")
    assert len(server.requests) == 1


async def test_a_prompt_that_fails_with_500_costs_only_itself(server: OpenAIServer, page_pool: PagePool) -> None:
    """If every attempt ends in 500 and the server still lists its models, only this prompt fails."""
    server.script = [respond_with_status(500)] * 3

    assert await ask(server, page_pool) == Completion("", "error")


@pytest.mark.parametrize(
    ("code", "advice"),
    [(401, "OPENAI_API_KEY"), (403, "OPENAI_MODEL"), (404, "OPENAI_BASE_URL"), (405, "OPENAI_BASE_URL")],
)
async def test_a_permanent_error_names_the_setting_to_change(
    server: OpenAIServer, page_pool: PagePool, code: int, advice: str
) -> None:
    """Statuses such as 401 raise EngineError at the first attempt, with advice."""
    server.script = [respond_with_status(code)]

    with pytest.raises(EngineError, match=advice) as caught:
        await ask(server, page_pool)
    assert caught.value.code is Code.ENGINE_DEAD
    assert len(server.requests) == 1


async def test_a_server_that_stays_busy_is_dead(server: OpenAIServer, page_pool: PagePool) -> None:
    """When every attempt ends in 503, the engine raises EngineError and the job can be sent again."""
    server.script = [respond_with_status(503)] * 3

    with pytest.raises(EngineError, match="HTTP 503, 3 times"):
        await ask(server, page_pool)


async def test_an_unreachable_server_is_dead(page_pool: PagePool) -> None:
    """When every attempt ends in a refused connection, the engine raises EngineError."""
    async with openai_server.serve(OpenAIServer()) as server:
        engine = await open_engine(server, page_pool)

    with pytest.raises(EngineError, match="3 times") as caught:
        await engine.generate(PROMPT)
    assert caught.value.code is Code.ENGINE_DEAD
    await engine.close()


async def test_a_looping_answer_is_ended(server: OpenAIServer, page_pool: PagePool) -> None:
    """`loop_check` gets the answer so far every 64 tokens; True closes the connection to the server."""
    counts: list[int] = []

    def loop_check(text: str) -> bool:
        counts.append(text.count("again"))
        return len(counts) == 3

    server.script = [openai_server.repeat_forever]
    completion = await ask(server, page_pool, replace(PROMPT, loop_check=loop_check))

    assert (completion.finish_reason, completion.tokens_out, counts) == ("loop", 192, [64, 128, 192])
    await asyncio.wait_for(server.disconnected.wait(), 5)


async def test_a_cancelled_prompt_is_ended(server: OpenAIServer, page_pool: PagePool) -> None:
    """Cancelling the awaiting task closes its connection, and the engine answers the next prompt."""
    engine = await open_engine(server, page_pool)
    server.script = [openai_server.repeat_forever]
    task = asyncio.create_task(engine.generate(PROMPT))
    async with asyncio.timeout(30):
        while not server.active:
            await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.disconnected.wait(), 5)
    assert (await engine.generate(PROMPT)).text == "one two three"
    await engine.close()


async def test_concurrent_requests_are_limited_to_sequences(server: OpenAIServer, page_pool: PagePool) -> None:
    """With engine_sequences=3, at most three of twelve prompts are at the server at once."""
    server.pause_s = 0.05
    engine = await open_engine(server, page_pool, engine_sequences=3)
    await asyncio.gather(*(engine.generate(PROMPT) for _ in range(12)))
    await engine.close()

    assert engine.sequences == 3
    assert 1 < server.max_active <= 3


@pytest.mark.parametrize(
    ("reason", "expected"), [("length", "length"), ("abort", "abort"), ("content_filter", "error")]
)
async def test_an_unknown_finish_reason_is_an_error(
    server: OpenAIServer, page_pool: PagePool, reason: str, expected: str
) -> None:
    """Known finish reasons are kept; any other, such as content_filter, becomes error."""
    server.finish_reason = reason

    assert (await ask(server, page_pool)).finish_reason == expected


async def test_the_first_model_is_the_default(server: OpenAIServer, page_pool: PagePool) -> None:
    """The model's name is in `precision` and so in the document's identity: each model has its own folder."""
    engine = await open_engine(server, page_pool)
    await engine.close()

    assert (engine.kind, engine.precision) == ("openai", "tiny as served")
    assert engine.server_options == ServerOptions("tiny", 8192)


@pytest.mark.parametrize(
    ("models", "message"),
    [([], "one of: none"), ([{"id": "tiny"}], "one of: tiny"), ("nonsense", "no list of models"), (None, "no list of")],
)
async def test_a_missing_model_is_an_error(page_pool: PagePool, models: Any, message: str) -> None:
    """`open` fails for a model that the server does not have, and lists the models it has."""
    async with openai_server.serve(OpenAIServer(models=models)) as server:
        with pytest.raises(EngineError, match=message):
            await open_engine(server, page_pool, openai_model="large")


async def test_the_api_key_is_sent_and_never_shown(page_pool: PagePool) -> None:
    """The key is sent as a bearer token, and no error message contains it."""
    async with openai_server.serve(OpenAIServer(key="sk-right")) as server:
        assert (await ask(server, page_pool, openai_api_key="sk-right")).text == "one two three"
        with pytest.raises(EngineError, match="OPENAI_API_KEY") as caught:
            await open_engine(server, page_pool, openai_api_key="sk-wrong")

    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://localhost/v1", "http://[::1/v1", "nonsense"])
async def test_an_invalid_address_is_an_error(page_pool: PagePool, address: str) -> None:
    """The error names the variable to set."""
    engine = OpenAIEngine(Settings(openai_base_url=address, openai_tries=1))

    with pytest.raises(EngineError, match="OPENAI_BASE_URL"):
        await engine.open(page_pool)


def test_the_engine_needs_an_address() -> None:
    """Without an address the engine is not created, and the error names the variable to set."""
    with pytest.raises(InvalidSetting, match="OPENAI_BASE_URL"):
        factory.create_engine(Settings(engine="openai"))


def list_httpx_errors() -> list[type[Exception]]:
    """Return every exception class of httpx that is not a warning."""
    kinds = [kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 20
    return [kind for kind in kinds if not issubclass(kind, Warning)]


@pytest.mark.parametrize("kind", list_httpx_errors(), ids=lambda kind: kind.__name__)
def test_every_error_of_httpx_is_translated(kind: type[Exception]) -> None:
    """Each exception of httpx becomes EngineError or TemporaryFailure."""
    error = kind.__new__(kind)
    error.args = ("a message",)

    with pytest.raises((EngineError, engine_module.TemporaryFailure)), engine_module.translate_errors("http://here/v1"):
        raise error


async def read(
    server: OpenAIServer, page_pool: PagePool, buffers: PixelBufferPool, sample: Path, output: Path
) -> Result:
    """Read two pages of the sample through the whole pipeline."""
    engine = OpenAIEngine(settings(server, openai_family="layout"))
    try:
        return await Reader(page_pool, buffers, engine).run(source=str(sample), output=str(output), pages="1-2")
    finally:
        await engine.close()


async def test_a_job_whose_prompts_are_refused_keeps_its_text(
    server: OpenAIServer, page_pool: PagePool, buffers: PixelBufferPool, sample: Path, tmp_path: Path
) -> None:
    """Refused pages fall back to the PDF's own text, and the result has the code ENGINE_REFUSED."""
    server.script = [respond_with_status(400)] * 9
    answer = (await read(server, page_pool, buffers, sample, tmp_path)).as_answer()

    assert answer["documents"][0]["pages"] == {"text_layer": 2}
    assert {problem["code"] for problem in answer["problems"]} == {"ENGINE_REFUSED"}


async def test_a_job_without_a_server_is_unread(
    server: OpenAIServer, page_pool: PagePool, buffers: PixelBufferPool, sample: Path, tmp_path: Path
) -> None:
    """No page is stored as read or failed, so that the same job sent again reads them."""
    server.script = [respond_with_status(503)] * 9
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
async def test_any_stream_gives_an_answer_or_a_known_error(events: list[Any]) -> None:
    """Any events give an answer with numeric counts, or raise MalformedStream or ReportedError."""

    async def lines() -> AsyncIterator[str]:
        for event in events:
            yield f"data: {json.dumps(event)}"

    try:
        async for answer in stream.accumulate(lines()):
            assert isinstance(answer.text, str)
            assert answer.tokens_in + answer.tokens_out >= 0 or answer.usage
    except (stream.MalformedStream, stream.ReportedError):
        pass


FILLER = b"x" * (1 << 20)
TOO_LARGE: dict[str, tuple[Iterable[bytes], str]] = {
    "line": (repeat(FILLER, 100), "an event of more than 4 MiB"),
    "event": ((b"data: ", *[FILLER] * 100), "an event of more than 4 MiB"),
    "comments": (repeat(b": " + FILLER + b"\n", 100), "a stream of more than 64 MiB"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_stream_without_an_end_is_left_at_its_limit(name: str) -> None:
    """Of a line, an event or comments, hardly more is read than the limit, however much would follow."""
    chunks, message = TOO_LARGE[name]
    read: list[int] = []

    async def send() -> AsyncIterator[bytes]:
        for chunk in chunks:
            read.append(len(chunk))
            yield chunk

    with pytest.raises(stream.TooLarge, match=message):
        async for _ in stream.accumulate(stream.split_lines(send())):
            pass

    assert sum(read) < 70 << 20 if name == "comments" else sum(read) < 6 << 20


async def test_an_answer_without_an_end_ends_where_no_more_is_used() -> None:
    """It counts as one that reached the token limit, and its page is read, with a warning."""
    read: list[int] = []

    async def send() -> AsyncIterator[bytes]:
        for chunk in repeat(encode_delta("word " * 10_000)):
            read.append(len(chunk))
            yield chunk

    answers = [answer async for answer in stream.accumulate(stream.split_lines(send()))]

    assert (answers[-1].finish_reason, answers[-1].tokens_out) == ("length", len(answers)) == ("length", 6)
    assert MAX_ANSWER < len(answers[-1].text) < MAX_ANSWER + 50_000
    assert len(read) == 6


async def test_an_answer_that_is_too_large_costs_only_its_prompt(server: OpenAIServer, page_pool: PagePool) -> None:
    """The page goes on with its next rung, the request is not repeated, and the log says why."""
    server.script = [send_chunks(b"data: ", *[FILLER] * 6)]
    with capture_logs() as events:
        answer = await ask(server, page_pool)

    assert (answer.finish_reason, answer.text, len(server.requests)) == ("error", "", 1)
    assert [event["reason"] for event in events] == ["the server sends an event of more than 4 MiB"]


def compress(status: int) -> openai_server.Behaviour:
    """An answer that is compressed, of which a few kilobytes could be gigabytes."""

    async def behave(request: web.Request, server: OpenAIServer) -> web.StreamResponse:
        body = gzip.compress(encode_delta("unpacked", "stop"))
        return web.Response(body=body, status=status, headers={"Content-Encoding": "gzip"})

    return behave


async def test_a_compressed_answer_is_not_unpacked(server: OpenAIServer, page_pool: PagePool) -> None:
    """Requests ask for plain answers; a compressed one is a failure of the server, and a compressed error an error."""
    server.script = [compress(200), compress(503)]

    assert (await ask(server, page_pool)).text == "one two three"
    assert len(server.requests) == 3


async def test_a_list_of_models_without_an_end_is_an_error(page_pool: PagePool) -> None:
    """The error names the setting."""
    async with openai_server.serve(OpenAIServer(models=["x" * (5 << 20)])) as server:
        with pytest.raises(EngineError, match="a response of more than 4 MiB; check OPENAI_BASE_URL"):
            await open_engine(server, page_pool)


async def test_lines_end_where_the_protocol_says() -> None:
    """Not at U+2028 and other separators, which JSON may contain as they are; chunks end anywhere."""
    data = 'data: {"a": "x\u2028y\x85z"}\r\ndata: ä\rdata: 2\n'.encode()

    async def send() -> AsyncIterator[bytes]:
        for byte in data:
            yield bytes((byte,))

    lines = [line async for line in stream.split_lines(send()) if line]

    assert lines == ['data: {"a": "x\u2028y\x85z"}', "data: ä", "data: 2"]


def test_a_line_of_many_small_chunks_takes_linear_time() -> None:
    """A server that sends an event byte by byte costs each byte once, not all bytes before it again."""

    async def read(size: int) -> None:
        async def send() -> AsyncIterator[bytes]:
            for _ in range(size):
                yield b"x"

        assert [line async for line in stream.split_lines(send())] == ["x" * size]

    one, two = (count_operations(lambda size=size: asyncio.run(read(size))) for size in (2000, 4000))

    assert two < 2.5 * one


def test_the_parts_of_an_answer_are_joined_once() -> None:
    """Looking for loops in the answer so far does not go through all of its parts each time."""
    answer = stream.StreamedAnswer(parts=["a"] * 1000)

    assert answer.text == answer.text == "a" * 1000
    assert len(answer.parts) == 1


async def test_events_that_nest_without_an_end_are_malformed() -> None:
    """Deep nesting is no crash of the engine."""

    async def lines() -> AsyncIterator[str]:
        yield "data: " + "[" * 100_000

    with pytest.raises(stream.MalformedStream):
        async for _ in stream.accumulate(lines()):
            pass


async def test_messages_have_no_password_of_the_address(server: OpenAIServer, page_pool: PagePool) -> None:
    """A password in OPENAI_BASE_URL is used and never shown."""
    server.key = "another"
    server.url = server.url.replace("http://", "http://user:hunter2@")

    with pytest.raises(EngineError, match="http://…@127.0.0.1:") as caught:
        await open_engine(server, page_pool)

    assert "hunter2" not in str(caught.value)


def test_a_server_error_is_truncated() -> None:
    """A server may quote the prompt in its error, so only 200 characters of it reach the log."""
    long = json.dumps({"error": {"message": "x" * 10_000}}).encode()

    assert len(stream.extract_message(long)) == 200
    assert stream.extract_message(b"\xff<html>") == "\ufffd<html>"
    assert stream.extract_message(b'{"error": "plain"}') == "plain"
