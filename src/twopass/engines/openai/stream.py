"""Parse the server-sent events of a streamed chat completion."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

FINISH_REASONS = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
}  # any other reason, such as content_filter, becomes error


class MalformedStream(Exception):
    """The stream does not follow the protocol."""


class ReportedError(Exception):
    """The server reports an error within its stream; `status` is the HTTP status it names, or 500."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class StreamedAnswer:
    """The answer so far. `deltas` counts its parts: one token each, unless the server joins several."""

    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    deltas: int = 0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def tokens_in(self) -> int:
        return self.usage.get("prompt_tokens", 0)

    @property
    def tokens_out(self) -> int:
        return self.usage.get("completion_tokens", self.deltas)


async def accumulate(lines: AsyncIterator[str]) -> AsyncGenerator[StreamedAnswer, None]:
    """Yield the answer after every event, the same object each time; raises MalformedStream or ReportedError."""
    answer = StreamedAnswer()
    async for line in lines:
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            break
        if data and line.startswith("data:"):
            _apply_event(answer, _parse_event(data))
            yield answer
    if answer.finish_reason is None:
        raise MalformedStream("the answer ends without a finish_reason")


def _parse_event(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        raise MalformedStream("an event is not JSON") from None
    if not isinstance(event, dict):
        raise MalformedStream("an event is not an object")
    if error := event.get("error"):
        raise ReportedError(*_parse_error(error))
    return event


def _apply_event(answer: StreamedAnswer, event: dict[str, Any]) -> None:
    try:
        answer.usage |= {name: count for name, count in (event.get("usage") or {}).items() if isinstance(count, int)}
        for choice in event.get("choices") or ():
            if text := choice["delta"].get("content"):
                answer.parts.append("" + text)  # a TypeError unless it is a string
                answer.deltas += 1
            if reason := choice.get("finish_reason"):
                answer.finish_reason = FINISH_REASONS.get(reason, "error")
    except (KeyError, TypeError, AttributeError):
        raise MalformedStream("an event is not part of a chat completion") from None


def _parse_error(error: Any) -> tuple[int, str]:
    """Return status and message."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code = fields.get("code")
    return (code if isinstance(code, int) else 500), str(fields.get("message", ""))


def extract_message(body: bytes) -> str:
    """Return the start of a server's error message: enough to act on, too short to contain a document."""
    try:
        reply = json.loads(body)
        error = reply.get("error", reply)
        return str(error.get("message", error) if isinstance(error, dict) else error)[:200]
    except (ValueError, AttributeError):
        return body[:200].decode(errors="replace")
