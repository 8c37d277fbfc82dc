"""What a page worker sends back: JSON or bytes, read as the type that the called function declares.

A page worker that a malicious document has taken over can send anything. Nothing of it is unpickled, names a class or
chooses a type, so that no answer runs code in the process that holds the credentials.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic_core import PydanticSerializationError

from twopass.errors import Code, EngineError, SourceError, TwopassError, WorkerDied

HEADER = struct.Struct(">?dQ")  # of an answer: whether it is an error, processor seconds, bytes that follow
MAX_BYTES = 256 << 20  # of an answer that is bytes: a crop of 40 million noisy pixels takes 120 MB
MAX_JSON_BYTES = 64 << 20  # of any other: a page of 100,000 words takes 6 MB; objects take more memory than their JSON
MAX_MESSAGE = 10_000  # characters of an error's message
HELLO = "hello"

# The class of an error follows from its code: these are what functions raise in page workers.
ERRORS: dict[Code, type[TwopassError]] = {
    **dict.fromkeys((Code.SOURCE_TOO_LARGE, Code.SOURCE_UNSUPPORTED, Code.DAMAGED, Code.ENCRYPTED), SourceError),
    **dict.fromkeys((Code.ENGINE_DEAD, Code.ENGINE_MEMORY, Code.PLATFORM), EngineError),
    **dict.fromkeys((Code.RENDER_CRASH, Code.RENDER_MEMORY, Code.RENDER_TIMEOUT), WorkerDied),
}


class MalformedAnswer(Exception):
    """A page worker sent what the called function cannot return."""


class _Message(BaseModel):
    """JSON that gives equal values back: bytes of any value, and floats that are no numbers."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        ser_json_inf_nan="constants",
    )


class _Error(_Message):
    code: Code
    message: str = Field(max_length=MAX_MESSAGE)


@dataclass(frozen=True)
class Answer:
    """What a call gave: a value or an error, and the processor seconds that the page worker reports."""

    value: Any = None
    error: TwopassError | None = None
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Header:
    """What precedes an answer's bytes. `parse` raises MalformedAnswer."""

    is_error: bool
    cpu_s: float
    size: int

    @classmethod
    def parse(cls, data: bytes, function: Callable[..., Any]) -> Header:
        header = cls(*HEADER.unpack(data))
        if header.size > _find_limit(function) or not (math.isfinite(header.cpu_s) and header.cpu_s >= 0):
            raise MalformedAnswer("its header is wrong")
        return header


def say_hello() -> str:
    """What a page worker answers before its first call."""
    return HELLO


def write(function: Callable[..., Any], value: object, cpu_s: float) -> bytes:
    """The answer of a call that returned a value; of one that is too large, the answer is an error."""
    body = (
        value
        if isinstance(value, bytes) and _is_raw(function)
        else _to_json(_find_model(function).model_construct(value=value))
    )
    if len(body) > _find_limit(function):
        message = f"an answer of {len(body) >> 20} MiB, more than any page needs; the file may be malicious"
        return write_error(WorkerDied(Code.RENDER_MEMORY, message), cpu_s)
    return HEADER.pack(False, cpu_s, len(body)) + body


def write_error(error: TwopassError, cpu_s: float) -> bytes:
    """The answer of a call that failed; raises the error itself if functions in page workers may not raise it."""
    if ERRORS.get(error.code) is not type(error):
        raise error
    body = _to_json(_Error(code=error.code, message=error.message[:MAX_MESSAGE]))
    return HEADER.pack(True, cpu_s, len(body)) + body


def read(function: Callable[..., Any], header: Header, body: bytes) -> Answer:
    """The value that the function returned, or its error; raises MalformedAnswer for anything else."""
    try:
        if header.is_error:
            sent = _Error.model_validate_json(body, strict=True)
            return Answer(error=ERRORS[sent.code](sent.code, sent.message), cpu_s=header.cpu_s)
        value = body if _is_raw(function) else _find_model(function).model_validate_json(body, strict=True).value
        return Answer(value, cpu_s=header.cpu_s)
    except (ValidationError, KeyError) as error:
        raise MalformedAnswer(f"it is no {'error' if header.is_error else 'value'} of {function.__name__}") from error


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
