"""Lines of server-sent events in, a growing answer out.

Knows what the events of a chat completion look like. Knows nothing of connections.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

FINISHES = {"stop": "stop", "length": "length", "abort": "abort"}  # any other, content_filter for one, is an error


class Garbled(Exception):
    """The stream is not what the protocol says."""


class Told(Exception):
    """The server says within its stream that it failed; `status` is its HTTP code, 500 where it names none."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass
class Answer:
    """What has come so far. `pieces` counts deltas: a token each, unless the server joins some."""

    parts: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    pieces: int = 0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def tokens_in(self) -> int:
        return self.usage.get("prompt_tokens", 0)

    @property
    def tokens_out(self) -> int:
        return self.usage.get("completion_tokens", self.pieces)


async def growing(lines: AsyncIterator[str]) -> AsyncGenerator[Answer, None]:
    """The answer after every event, the same object each time; raises Garbled or Told."""
    answer = Answer()
    async for line in lines:
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            break
        if data and line.startswith("data:"):
            _take(answer, _event(data))
            yield answer
    if answer.finish_reason is None:
        raise Garbled("the answer breaks off")


def _event(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        raise Garbled("an event is no JSON") from None
    if not isinstance(event, dict):
        raise Garbled("an event is no object")
    if error := event.get("error"):
        raise Told(*_trouble(error))
    return event


def _take(answer: Answer, event: dict[str, Any]) -> None:
    try:
        answer.usage |= {name: count for name, count in (event.get("usage") or {}).items() if isinstance(count, int)}
        for choice in event.get("choices") or ():
            if said := choice["delta"].get("content"):
                answer.parts.append("" + said)
                answer.pieces += 1
            if reason := choice.get("finish_reason"):
                answer.finish_reason = FINISHES.get(reason, "error")
    except (KeyError, TypeError, AttributeError):
        raise Garbled("an event is no part of a chat completion") from None


def _trouble(error: Any) -> tuple[int, str]:
    told = error if isinstance(error, dict) else {"message": str(error)}
    code = told.get("code")
    return (code if isinstance(code, int) else 500), str(told.get("message", ""))


def words(body: bytes) -> str:
    """The first of what a server says about a refusal: enough to act on, too little to be a document."""
    try:
        told = json.loads(body)
        told = told.get("error", told)
        return str(told.get("message", told) if isinstance(told, dict) else told)[:200]
    except (ValueError, AttributeError):
        return body[:200].decode(errors="replace")
