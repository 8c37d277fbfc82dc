"""Split a Markdown block that is too large into parts that fit, each with its position in the block.

A block is split between paragraphs, lines, sentences, clauses or words, as a last resort anywhere. Each part of a table
repeats the table's head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from twopass.formats import token_estimate

# From the best place to split to the worst; each pattern matches the end of a piece.
_BREAKS = tuple(
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
_DELIMITER_ROW = re.compile(r"\|(?: :?-+:? \|)+")
_TABLE_END = "\n</table>"


class SplitPart(NamedTuple):
    """`text` is block[start:end], for parts of a table with the table's head and end added."""

    start: int
    end: int
    text: str


def include_closing_tag(text: str, end: int) -> int:
    """Extend a block over a closing table tag, because the tag of a joined table belongs to no element."""
    return end + len(_TABLE_END) if text.startswith(_TABLE_END, end) else end


def split(block: str, limit: int) -> list[SplitPart]:
    """Split into parts of at most `limit` tokens, in order; only whitespace between them is lost."""
    head, tail = _find_table_frame(block)
    room = limit - token_estimate.count(head) - token_estimate.count(tail)
    if head and room < limit // 2:  # repeating so large a head would leave no room for rows
        head, tail, room = "", "", limit
    parts = []
    for start, end in _split_range(block, len(head), len(block) - len(tail), room):
        is_first, is_last = start == len(head), end == len(block) - len(tail)
        text = head + block[start:end] + tail if head else block[start:end]
        parts.append(SplitPart(0 if is_first else start, len(block) if is_last else end, text))
    return parts or [SplitPart(0, len(block), block)]


def _find_table_frame(block: str) -> tuple[str, str]:
    """Return a table's head and closing tag; empty strings for anything that is not a table."""
    lines = block.split("\n")
    if len(lines) > 2 and _DELIMITER_ROW.fullmatch(lines[1]):
        return "\n".join(lines[:2]) + "\n", ""
    if lines[0].startswith("<table"):
        rows = next((n for n, line in enumerate(lines[1:], 1) if "<th" not in line), 1)
        return "\n".join(lines[:rows]) + "\n", _TABLE_END if block.endswith(_TABLE_END) else ""
    return "", ""


def _split_range(block: str, start: int, end: int, room: int, level: int = 0) -> Iterator[tuple[int, int]]:
    """Combine the pieces between this level's breaks while they fit; split a larger piece at the next level."""
    begin, fits_until = start, start
    for stop in [*(m.end() for m in _BREAKS[level].finditer(block, start, end) if m.end() < end), end]:
        if stop > begin and token_estimate.count(block[begin:stop]) > room and fits_until > begin:
            yield from _trim(block, begin, fits_until)
            begin = fits_until
        if level + 1 < len(_BREAKS) and token_estimate.count(block[begin:stop]) > room:
            yield from _split_range(block, begin, stop, room, level + 1)
            begin = stop
        fits_until = stop
    if begin < end:
        yield from _trim(block, begin, end)


def _trim(block: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the range without surrounding whitespace; nothing if it is only whitespace."""
    text = block[start:end].strip()
    if text:
        start = block.index(text, start)
        yield start, start + len(text)
