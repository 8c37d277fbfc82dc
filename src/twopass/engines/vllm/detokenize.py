"""Tokens in, an answer's text as far as it is whole characters: many tokens at a time, each turned into text once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\N{REPLACEMENT CHARACTER}"  # what bytes become that are no character, or not yet one


class GrowingText:
    """`decode` turns ids into text and knows nothing of those before them, as byte-level tokenizers do."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._whole = ""
        self._open: list[int] = []  # since the last whole character

    def add(self, tokens: Sequence[int]) -> str:
        """The text so far; a character whose bytes are not all there waits for the rest."""
        self._open += tokens
        text = self._decode(self._open)
        if not text.endswith(BROKEN):
            self._whole, self._open = self._whole + text, []
        return self._whole

    def end(self) -> str:
        """All of it but the bytes of a character that an answer was cut off in."""
        return self._whole + self._decode(self._open).rstrip(BROKEN)
