"""Turn an answer's tokens into text as they arrive, many at a time, decoding each token once where possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what `decode` makes of bytes that are not, or not yet, a character


class IncrementalDetokenizer:
    """`decode` must turn ids into text independently of the ids before them, as byte-level tokenizers do."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._text = ""
        self._pending: list[int] = []  # tokens since the last complete character

    def add(self, tokens: Sequence[int]) -> str:
        """Return the text so far, without a last character whose bytes are incomplete."""
        self._pending += tokens
        text = self._decode(self._pending)
        if not text.endswith(REPLACEMENT):
            self._text, self._pending = self._text + text, []
        return self._text

    def finish(self) -> str:
        """Return the whole text, without the bytes of a character in which the answer was cut off."""
        return self._text + self._decode(self._pending).rstrip(REPLACEMENT)
