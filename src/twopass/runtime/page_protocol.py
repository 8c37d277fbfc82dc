"""What a page pool and its page workers send each other: pickled calls, and answers that are JSON or bytes.

A page worker that a malicious document has taken over can send anything. Its answer is read as the type that the called
function declares. Nothing of it is unpickled, names a class or chooses a type, so that no answer runs code in the
process that holds the credentials.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, get_type_hints

from pydantic import Field, JsonValue, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from twopass.errors import Code, EngineError, SourceError, TwopassError, WorkerDied
from twopass.values import Value

if TYPE_CHECKING:
    from asyncio import StreamReader

_CALL_HEADER = struct.Struct(">Q")  # bytes that follow
ANSWER_HEADER = struct.Struct(">?dQ")  # of an answer: whether it is an error, processor seconds, bytes that follow
MAX_BYTES = 256 << 20  # of an answer that is bytes: a crop of 40 million noisy pixels takes 120 MB
MAX_JSON_BYTES = 64 << 20  # of any other: a page of 100,000 words takes 6 MB; objects take more memory than their JSON
_MAX_MESSAGE = 10_000  # characters of an error's message
_HELLO = "hello"

# The class of an error follows from its code: these are what functions raise in page workers.
ERRORS: dict[Code, type[TwopassError]] = {
    **dict.fromkeys((Code.SOURCE_TOO_LARGE, Code.SOURCE_UNSUPPORTED, Code.DAMAGED, Code.ENCRYPTED), SourceError),
    Code.STORE_UNAVAILABLE: SourceError,  # the worker's disk is full
    **dict.fromkeys((Code.ENGINE_DEAD, Code.ENGINE_MEMORY, Code.PLATFORM), EngineError),
    **dict.fromkeys((Code.RENDER_CRASH, Code.RENDER_MEMORY, Code.RENDER_TIMEOUT), WorkerDied),
}


class MalformedAnswer(Exception):
    """A page worker sent what the called function cannot return."""


class _Message(Value, ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"):
    """JSON that gives equal values back: bytes of any value, and floats that are no numbers."""


class _Error(_Message):
    code: Code
    message: str = Field(max_length=_MAX_MESSAGE)


@dataclass(frozen=True)
class Answer:
    """What a call gave: a value or an error, and the processor seconds that the page worker reports."""

    value: Any = None
    error: TwopassError | None = None
    cpu_s: float = 0.0


def say_hello() -> str:
    """What a page worker answers before its first call."""
    return _HELLO


def write_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    data = pickle.dumps((function, args, kwargs), pickle.HIGHEST_PROTOCOL)
    return _CALL_HEADER.pack(len(data)) + data


def read_call(pipe: BinaryIO) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]] | None:
    """In a page worker: the next call, which its parent sent; None at the end of the pipe."""
    header = pipe.read(_CALL_HEADER.size)
    if len(header) < _CALL_HEADER.size:
        return None
    function, args, kwargs = pickle.loads(pipe.read(*_CALL_HEADER.unpack(header)))
    return function, args, kwargs


def write_answer(function: Callable[..., Any], value: object, cpu_s: float) -> bytes:
    """The answer of a call that returned a value; of one that is too large, the answer is an error."""
    body = (
        value
        if isinstance(value, bytes) and _is_raw(function)
        else _to_json(_find_model(function).model_construct(value=value))
    )
    if len(body) > _find_limit(function):
        message = f"an answer of {len(body) >> 20} MiB, more than any page needs; the file may be malicious"
        return write_error(WorkerDied(Code.RENDER_MEMORY, message), cpu_s)
    return ANSWER_HEADER.pack(False, cpu_s, len(body)) + body


def write_error(error: TwopassError, cpu_s: float) -> bytes:
    """The answer of a call that failed; raises the error itself if functions in page workers may not raise it."""
    if ERRORS.get(error.code) is not type(error):
        raise error
    body = _to_json(_Error(code=error.code, message=error.message[:_MAX_MESSAGE]))
    return ANSWER_HEADER.pack(True, cpu_s, len(body)) + body


async def receive_answer(function: Callable[..., Any], stream: StreamReader) -> Answer:
    """The value that the function returned, or its error; raises MalformedAnswer for anything else."""
    is_error, cpu_s, size = ANSWER_HEADER.unpack(await stream.readexactly(ANSWER_HEADER.size))
    if size > _find_limit(function) or not (math.isfinite(cpu_s) and cpu_s >= 0):
        raise MalformedAnswer("its header is wrong")
    body = await stream.readexactly(size)
    try:
        if is_error:
            sent = _Error.model_validate_json(body, strict=True)
            return Answer(error=ERRORS[sent.code](sent.code, sent.message), cpu_s=cpu_s)
        value = body if _is_raw(function) else _find_model(function).model_validate_json(body, strict=True).value
        return Answer(value, cpu_s=cpu_s)
    except (ValidationError, KeyError) as error:
        raise MalformedAnswer(f"it is no {'error' if is_error else 'value'} of {function.__name__}") from error


def _to_json(message: _Message) -> bytes:
    try:
        return message.model_dump_json(warnings=False).encode()
    except PydanticSerializationError:  # a lone surrogate, of a damaged font or a model's answer, has no UTF-8
        plain = message.model_dump(mode="json", warnings=False)
        return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


@functools.cache
def find_type(function: Callable[..., Any]) -> Any:
    """What the function returns: a class returns itself, and a function of C, without annotations, plain JSON."""
    if inspect.isclass(function):
        return function
    return get_type_hints(function, include_extras=True).get("return", JsonValue)


@functools.cache
def _find_model(function: Callable[..., Any]) -> Any:
    return create_model("_Value", __base__=_Message, value=(find_type(function), ...))


def _is_raw(function: Callable[..., Any]) -> bool:
    """Whether the function returns nothing but bytes, such as pictures, which base64 would only slow down."""
    return find_type(function) is bytes


def _find_limit(function: Callable[..., Any]) -> int:
    return MAX_BYTES if _is_raw(function) else MAX_JSON_BYTES
