"""A Markdown block that is too large in, parts of it that fit out, each with its place in the block.

Knows where a block may be cut: between rows, lines, sentences, words, at last anywhere. Every part of a table begins
with the table's head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from twopass.formats import token_estimate

# From where a cut hurts least to where it hurts most; each matches the end of a piece.
_CUTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\n\s*\n",
        r"\n",
        r"[.!?][\"')\]”’]*\s+|[。！？][”’」』）]*",
        r"[,;:，、；：]\s*",
        r"\s+",
        r"(?s:.{24})",
    )
)
_RULER = re.compile(r"\|(?: :?-+:? \|)+")
_CLOSE = "\n</table>"


class Part(NamedTuple):
    """`text` is block[start:end], with the head of its table where it has one."""

    start: int
    end: int
    text: str


def closed(text: str, end: int) -> int:
    """Where a block that ends here really ends: the tag that closes a table over several pages is no element's."""
    return end + len(_CLOSE) if text.startswith(_CLOSE, end) else end


def cut(block: str, limit: int) -> list[Part]:
    """Parts of at most `limit` tokens, in order, that together are the whole block but for blanks between them."""
    head, tail = _frame(block)
    room = limit - token_estimate.count(head) - token_estimate.count(tail)
    if head and room < limit // 2:  # a head as large as the table: no use to say it again and again
        head, tail, room = "", "", limit
    parts = []
    for start, end in _ranges(block, len(head), len(block) - len(tail), room):
        whole = block[start:end]
        begins, ends = start == len(head), end == len(block) - len(tail)
        text = head + whole + tail if head else whole
        parts.append(Part(0 if begins else start, len(block) if ends else end, text))
    return parts or [Part(0, len(block), block)]


def _frame(block: str) -> tuple[str, str]:
    """A table's head and what closes it; nothing of anything else."""
    lines = block.split("\n")
    if len(lines) > 2 and _RULER.fullmatch(lines[1]):
        return "\n".join(lines[:2]) + "\n", ""
    if lines[0] == "<table>":
        rows = next((n for n, line in enumerate(lines[1:], 1) if "<th" not in line), 1)
        return "\n".join(lines[:rows]) + "\n", _CLOSE if block.endswith(_CLOSE) else ""
    return "", ""


def _ranges(block: str, start: int, end: int, room: int, level: int = 0) -> Iterator[tuple[int, int]]:
    """Pieces between the cuts of this level put together while they fit; one that is too large is cut at the next."""
    begun, at = start, start
    for stop in [*(m.end() for m in _CUTS[level].finditer(block, start, end) if m.end() < end), end]:
        if stop > begun and token_estimate.count(block[begun:stop]) > room and at > begun:
            yield from _trimmed(block, begun, at)
            begun = at
        if level + 1 < len(_CUTS) and token_estimate.count(block[begun:stop]) > room:
            yield from _ranges(block, begun, stop, room, level + 1)
            begun = stop
        at = stop
    if begun < end:
        yield from _trimmed(block, begun, end)


def _trimmed(block: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Without blanks around it; nothing where it is only blanks."""
    bare = block[start:end].strip()
    if bare:
        start = block.index(bare, start)
        yield start, start + len(bare)
