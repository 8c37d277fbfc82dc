"""What page workers send back: equal values arrive, and nothing else does."""

from __future__ import annotations

import ast
import asyncio
import os
import pickle
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.fakes import taken_over
from twopass.document import Box, Checkpoint, Element, Kind, Word
from twopass.engines.cpu.layout_regions import load_layout_model
from twopass.engines.cpu.page import read_page, read_page_simply
from twopass.engines.detector.process import detect, prepare
from twopass.engines.openai.request import build_body
from twopass.engines.vllm import images
from twopass.errors import Code, EngineError, OutOfTime, SourceError, TwopassError, WorkerDied
from twopass.pages import canary_images, epub, hidden_words, picture_page, searchable_pdf
from twopass.pages.damage import Fault
from twopass.pages.shared_pixels import PixelBufferPool
from twopass.pages.source_files import PageSize
from twopass.pages.text_layer import TextLayer
from twopass.runtime import office, page_protocol
from twopass.runtime.page_pool import PagePool, cpu_time_callback
from twopass.steps import document_folder, enrich, fetch, missed_text, pass1, pass2, picture_text, render

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(hidden_words.find_blank, fetch.inspect, render.draw_pdf, render.draw_bare_pdf, render.draw_image),
    *(render.read_text_only, render.draw_preview, document_folder.encode_png, document_folder.encode_thumbnail),
    *(read_page, read_page_simply, load_layout_model, prepare, detect, build_body),
    *(images.write_views, images.write_patches),
    *(pass1.parse, missed_text.find, picture_text.read_pixels, picture_page.find_picture, pass2.apply_replies),
    *(epub.convert, office.convert, searchable_pdf.place, searchable_pdf.write),
    *(enrich.page, canary_images.draw_page, canary_images.draw_text, canary_images.draw_repeated_line),
)


def find_called_names() -> set[str]:
    """The names of all functions that the source calls through a page pool."""
    names = set()
    texts = (path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for text in (text for text in texts if "pool.call" in text):
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in ("call", "call_with_retry") and ast.unparse(node.func.value).endswith("pool"):
                names.add(ast.unparse(node.args[0]).rpartition(".")[2])
    return names


def test_every_function_that_page_workers_run_is_tested_here() -> None:
    """A function that is new in a page worker is added to FUNCTIONS, and so has a declared type."""
    assert find_called_names() == {function.__name__ for function in FUNCTIONS}
    assert all("return" in function.__annotations__ for function in FUNCTIONS)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
BOXES = st.builds(Box, FLOATS, FLOATS, FLOATS, FLOATS)
LAYERS = st.lists(st.builds(Word, BOXES, st.text())).map(TextLayer.of)
SIDES = st.integers(1, 1 << 20)
ELEMENTS = st.deferred(lambda: st.from_type(Element))


@pytest.fixture(scope="module", autouse=True)
def strategies() -> None:
    """What Hypothesis does not derive from the types: their limits, and numbers that equal themselves."""
    st.register_type_strategy(float, FLOATS)
    st.register_type_strategy(TextLayer, LAYERS)
    st.register_type_strategy(PageSize, st.builds(PageSize, POSITIVE, POSITIVE, st.none() | POSITIVE, st.booleans()))
    st.register_type_strategy(
        render.DrawResult,
        st.builds(render.DrawResult, SIDES, SIDES, turn=st.sampled_from((0, 90, 180, 270)), words=LAYERS),
    )
    st.register_type_strategy(Fault, st.builds(Fault, st.text(max_size=200)))
    st.register_type_strategy(Element, st.builds(Element, read_by=st.integers(1, 2)))
    costs = st.dictionaries(st.text(), st.integers() | FLOATS | st.text() | st.none() | st.lists(st.text()))
    st.register_type_strategy(Checkpoint, st.builds(Checkpoint, cost=costs))


def send(function: Callable[..., Any], value: object, cpu_s: float = 0.0) -> page_protocol.Answer:
    return receive(function, page_protocol.write_answer(function, value, cpu_s))


def receive(function: Callable[..., Any], data: bytes) -> page_protocol.Answer:
    async def read() -> page_protocol.Answer:
        stream = asyncio.StreamReader()
        stream.feed_data(data)
        stream.feed_eof()
        return await page_protocol.receive_answer(function, stream)

    return asyncio.run(read())


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_every_value_of_every_type_arrives_as_it_was(function: Callable[..., Any]) -> None:
    """Whatever a function may return arrives equal, with the same types inside."""

    @settings(max_examples=15)
    @given(st.from_type(page_protocol.find_type(function)), POSITIVE)
    def arrives(value: object, cpu_s: float) -> None:
        answer = send(function, value, cpu_s)
        assert (answer.value, answer.error, answer.cpu_s) == (value, None, cpu_s)
        assert repr(answer.value) == repr(value) or isinstance(value, render.DrawResult | tuple)

    arrives()


ELEMENT = Element(id="p0001-e000", page=1, category=Kind.TABLE.category, kind=Kind.TABLE, boxes=(Box(0, 0.1, 1, 1),))


def test_lone_surrogates_are_replaced() -> None:
    """Half a surrogate pair, which JSON cannot hold, becomes a question mark; the page is not lost."""
    answer = send(pass2.apply_replies, ELEMENT.model_copy(update={"text": "a\ud800ö"}))

    assert answer.value.text == "a?ö"


def test_numbers_that_are_none_arrive() -> None:
    """A text layer with infinite or undefined coordinates, as damaged files have them, arrives unchanged."""
    layer = TextLayer.of([Word(Box(float("nan"), float("inf"), 0.0, 1.0), "word")])

    sent = (90, float("inf"), 1.0, layer, (Fault("an image is damaged"),))

    assert send(render.read_text_only, sent).value == sent


ERRORS = (
    SourceError(Code.ENCRYPTED, "send its password"),
    EngineError(Code.ENGINE_MEMORY, "the detector's memory"),
    WorkerDied(Code.RENDER_MEMORY, "too large"),
)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_an_error_arrives_with_class_code_and_message(error: TwopassError) -> None:
    """The errors of functions in page workers are raised by the caller as they were."""
    arrived = receive(fetch.inspect, page_protocol.write_error(error, 0.5)).error

    assert (type(arrived), str(arrived)) == (type(error), str(error))


def list_raised_codes() -> set[tuple[str, str]]:
    """Class and code of every error that the modules of page workers' functions raise."""
    folders = ("pages", "engines/cpu", "engines/detector", "families", "text", "detection")
    files = [path for folder in folders for path in (ROOT / "src/twopass" / folder).rglob("*.py")]
    files += [ROOT / "src/twopass/steps" / name for name in ("fetch.py", "render.py")]
    texts = (text for text in (path.read_text() for path in files) if "raise " in text)
    calls = (node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    named = ((ast.unparse(call.func), ast.unparse(call.args[0]).removeprefix("Code.")) for call in calls if call.args)
    return {(name, code) for name, code in named if name in ("SourceError", "EngineError", "WorkerDied")}


def test_every_error_of_page_workers_has_its_class() -> None:
    """Codes decide the class of an error, as it is raised in the source."""
    known = {(error.__name__, code.name) for code, error in page_protocol.ERRORS.items()}

    assert len(found := list_raised_codes()) > 5
    assert found <= known


def test_an_error_that_page_workers_may_not_raise_ends_them() -> None:
    """A child's word must not end the job or stop the worker, so its error is raised there, with its traceback."""
    with pytest.raises(OutOfTime):
        page_protocol.write_error(OutOfTime(Code.DEADLINE, "stop"), 0.0)


def frame(body: bytes, is_error: bool = False, cpu_s: float = 0.0, size: int | None = None) -> bytes:
    return page_protocol.ANSWER_HEADER.pack(is_error, cpu_s, len(body) if size is None else size) + body


class Bomb:
    """Unpickling it creates a folder, which any other command could do, too."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def before_this_format(path: Path) -> bytes:
    """A pickle behind its length, which the parent unpickled once."""
    data = pickle.dumps((Bomb(path), None, 0.0))
    return len(data).to_bytes(8, "big") + data


VALID = page_protocol.write_answer(pass2.apply_replies, ELEMENT, 0.0)[page_protocol.ANSWER_HEADER.size :]
HOSTILE: dict[str, Callable[[Path], bytes]] = {
    "pickle": lambda path: frame(pickle.dumps((Bomb(path), None, 0.0))),
    "pickle-as-before": before_this_format,
    "other-type": lambda path: frame(b'{"value": 7}'),
    "other-field": lambda path: frame(VALID.replace(b'"page":1', b'"page":1,"__class__":"Bomb"')),
    "wrong-field-type": lambda path: frame(VALID.replace(b'"page":1', b'"page":"1"')),
    "no-value": lambda path: frame(b"{}"),
    "not-utf-8": lambda path: frame(VALID.replace(b"p0001", b"\xff")),
    "empty": lambda path: frame(b""),
    "cut": lambda path: frame(VALID[:20], size=len(VALID)),
    "huge-length": lambda path: frame(b"", size=(1 << 64) - 1),
    "length-above-the-limit": lambda path: frame(b"", size=page_protocol.MAX_JSON_BYTES + 1),
    "deep": lambda path: frame(b'{"value":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
    "deep-objects": lambda path: frame(b'{"value":' + b'{"parent_id":' * 100_000 + b"1" + b"}" * 100_001),
    "unknown-code": lambda path: frame(b'{"code": "BOMB", "message": "x"}', is_error=True),
    "code-of-another-class": lambda path: frame(b'{"code": "DEADLINE", "message": "x"}', is_error=True),
    "error-class": lambda path: frame(b'{"code": "DAMAGED", "message": "x", "class": "os.system"}', is_error=True),
    "long-message": lambda path: frame(b'{"code":"DAMAGED","message":"' + b"x" * 99_999 + b'"}', is_error=True),
    "time-that-is-none": lambda path: frame(VALID, cpu_s=float("nan")),
    "negative-time": lambda path: frame(VALID, cpu_s=-1.0),
    "endless-time": lambda path: frame(VALID, cpu_s=float("inf")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_the_function_cannot_give_is_refused(name: str, tmp_path: Path) -> None:
    """Whatever a page worker sends: it is data of the type that the parent expects, or malformed."""
    data = HOSTILE[name](tmp_path / "executed")

    with pytest.raises((page_protocol.MalformedAnswer, asyncio.IncompleteReadError)):
        receive(pass2.apply_replies, data)

    assert not (tmp_path / "executed").exists()


@pytest.fixture(scope="module")
async def page_pool() -> AsyncIterator[PagePool]:
    buffers = PixelBufferPool(1, 100)
    page_pool = PagePool(1, buffers)
    await page_pool.open()
    yield page_pool
    await page_pool.close()
    buffers.close()


@pytest.mark.parametrize("name", ["pickle-as-before", "huge-length", "deep"])
async def test_a_page_worker_that_is_taken_over_fails_its_call_only(
    name: str, page_pool: PagePool, tmp_path: Path
) -> None:
    """For its caller it died, nothing that it sent is executed, and another page worker takes the next call."""
    with pytest.raises(WorkerDied, match="RENDER_CRASH"):
        await page_pool.call(taken_over.send_answer, HOSTILE[name](tmp_path / "executed"))

    assert not (tmp_path / "executed").exists()
    assert await page_pool.call(abs, -1) == 1


async def test_a_page_worker_cannot_pretend_to_have_used_more_time_than_passed(page_pool: PagePool) -> None:
    """A figure that a page worker invents does not get into metrics and budgets."""
    seconds: list[float] = []
    started, token = time.monotonic(), cpu_time_callback.set(seconds.append)

    await page_pool.call(taken_over.send_answer, page_protocol.write_answer(pass2.apply_replies, ELEMENT, 1e300))

    cpu_time_callback.reset(token)
    assert seconds[0] <= (time.monotonic() - started) * (os.cpu_count() or 1)
