"""Parse the server-sent events of a streamed chat completion, from a server that may send anything."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from twopass.engines.interface import MAX_ANSWER

# Any other reason, such as content_filter, becomes error.
FINISH_REASONS = {"stop": "stop", "length": "length", "abort": "abort"}
USAGE = ("prompt_tokens", "completion_tokens")
MAX_LINE_BYTES = 4 << 20  # of an event: some servers send the whole answer in one, which takes up to 250 kB
MAX_STREAM_BYTES = 64 << 20  # of all events: vLLM sends 130,000 tokens in 50 MB
MAX_BODY_BYTES = 4 << 20  # of any other response, such as the list of models


class MalformedStream(Exception):
    """The stream does not follow the protocol."""


class ReportedError(Exception):
    """The server reports an error within its stream; `status` is the HTTP status it names, or 500."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TooLarge(Exception):
    """The server sends more than any answer needs; the message says what."""


@dataclass
class StreamedAnswer:
    """The answer so far. `deltas` counts its parts: one token each, unless the server joins several."""

    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    deltas: int = 0
    characters: int = 0

    @property
    def text(self) -> str:
        self.parts[:] = ["".join(self.parts)]  # a million parts are joined once, not for each check of loops
        return self.parts[0]

    @property
    def tokens_in(self) -> int:
        return self.usage.get("prompt_tokens", 0)

    @property
    def tokens_out(self) -> int:
        return self.usage.get("completion_tokens", self.deltas)


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """Yield the lines of a stream; raises TooLarge before more than one line is held."""
    line, received = bytearray(), 0  # appended to in place: a line may come in a million chunks
    async for chunk in chunks:
        received += len(chunk)
        if received > MAX_STREAM_BYTES:
            raise TooLarge(f"a stream of more than {MAX_STREAM_BYTES >> 20} MiB")
        for number, part in enumerate(chunk.replace(b"\r", b"\n").split(b"\n")):
            if number:
                yield line.decode(errors="replace")
                line.clear()
            line += part
            if len(line) > MAX_LINE_BYTES:
                raise TooLarge(f"an event of more than {MAX_LINE_BYTES >> 20} MiB")
    yield line.decode(errors="replace")


async def read_body(chunks: AsyncIterator[bytes]) -> bytes:
    """Read a response that is not streamed; raises TooLarge."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge(f"a response of more than {MAX_BODY_BYTES >> 20} MiB")
    return bytes(body)


async def accumulate(lines: AsyncIterator[str]) -> AsyncGenerator[StreamedAnswer, None]:
    """Yield the answer after every event, the same object each time; one that is too long ends there.

    Raises MalformedStream, ReportedError or TooLarge.
    """
    answer = StreamedAnswer()
    async for line in lines:
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            break
        if data and line.startswith("data:"):
            _apply_event(answer, _parse_event(data))
            if answer.characters > MAX_ANSWER:  # no more of it is used
                answer.finish_reason = "length"
            yield answer
            if answer.characters > MAX_ANSWER:
                return
    if answer.finish_reason is None:
        raise MalformedStream("the answer ends without a finish_reason")


def _parse_event(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedStream("an event is not JSON") from None
    if not isinstance(event, dict):
        raise MalformedStream("an event is not an object")
    if error := event.get("error"):
        raise ReportedError(*_parse_error(error))
    return event


def _apply_event(answer: StreamedAnswer, event: dict[str, Any]) -> None:
    try:
        usage = event.get("usage") or {}
        answer.usage |= {name: usage[name] for name in USAGE if _is_count(usage.get(name))}
        for choice in event.get("choices") or ():
            if text := choice["delta"].get("content"):
                answer.parts.append("" + text)  # a TypeError unless it is a string
                answer.deltas += 1
                answer.characters += len(text)
            if reason := choice.get("finish_reason"):
                answer.finish_reason = FINISH_REASONS.get(reason, "error")
    except (KeyError, TypeError, AttributeError):
        raise MalformedStream("an event is not part of a chat completion") from None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 53  # a JSON number that metrics can hold, too


def _parse_error(error: Any) -> tuple[int, str]:
    """Status and message."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code = fields.get("code")
    return (code if isinstance(code, int) else 500), str(fields.get("message", ""))


def extract_message(body: bytes) -> str:
    """The start of a server's error message: enough to act on, too short to contain a document."""
    try:
        reply = json.loads(body)
        error = reply.get("error", reply)
        return str(error.get("message", error) if isinstance(error, dict) else error)[:200]
    except (ValueError, AttributeError, RecursionError):
        return body[:200].decode(errors="replace")
