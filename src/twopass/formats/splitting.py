"""Split a Markdown block that is too large into parts that fit, each with its position in the block.

A block is split between paragraphs, lines, sentences, clauses or words, as a last resort anywhere. Each part can stand
alone: each part of a table repeats the table's head, each part of code and of a formula is code and a formula, and what
begins within a line of text begins no other block.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from twopass.formats import token_estimate
from twopass.formats.escaping import BLOCK_END, CODE_BEGIN, CODE_END
from twopass.text import markdown_escapes, maths

# From the best place to split to the worst; each pattern matches the end of a piece.
_BREAKS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\n\s*\n",
        r"\n",
        r"[.!?][\"')\]”’]*\s+|[。！？][”’」』）]*",
        r"[,;:，、；：]\s*",
        r"\s+",
        r"(?s:.{1,24}(?<![\\*_~`&<])(?![*_~`\])}])|.{24})",  # not between an escape and its character
    )
)
# Tables, code and formulas, as document.md writes them; all other blocks are text.
_SPECIAL_BLOCK = re.compile(
    r"^(?:(?P<html><table[^\n]*\n)[\s\S]*?(?:\n</table>$|\Z)"
    r"|(?P<gfm>\|[^\n]*\n\|(?: :?-+:? \|)+\n)(?:\|[^\n]*(?:\n|\Z))*"
    r"|(?P<fence>(?P<ticks>`{3,}+)[^\n]*+\n)[\s\S]*?(?:\n(?P=ticks)$|\Z)"
    r"|(?P<maths>\$\$\n|\\\[\n)[\s\S]*?(?:\n(?:\$\$|\\\])$|\Z)"
    rf"|(?P<pre>{CODE_BEGIN})[\s\S]*?(?:{CODE_END}$|\Z)"
    r"|(?:<!-- -->\n\n)?(?P<code> {4})[^\n]*(?:\n+ {4}[^\n]*)*)",
    flags=re.MULTILINE,
)
_TAG = re.compile(r"<[a-z/][^<>]*>|&#?\w+;")
_TABLE_END = "\n</table>"
_RESERVE = 4  # tokens for what makes a part stand alone


class SplitPart(NamedTuple):
    """`text` is block[start:end], with what makes it stand alone."""

    start: int
    end: int
    text: str


class _Segment(NamedTuple):
    """A block within the block; its range contains the head of its first part and the tail of its last one."""

    start: int
    end: int
    kind: str = "text"
    head: str = ""
    tail: str = ""


def include_closing_tag(text: str, end: int) -> int:
    """Extend a block over a closing table tag, because the tag of a joined table belongs to no element."""
    return end + len(_TABLE_END) if text.startswith(_TABLE_END, end) else end


def split(block: str, limit: int) -> list[SplitPart]:
    """Split into parts of at most `limit` tokens, in order; only whitespace between them is lost."""
    parts = [part for segment in _find_segments(block) for part in _split_segment(block, segment, limit)]
    return parts or [SplitPart(0, len(block), block)]


def _find_segments(block: str) -> Iterator[_Segment]:
    at = 0
    for found in _SPECIAL_BLOCK.finditer(block):
        yield _Segment(at, found.start())
        yield _make_segment(found)
        at = found.end()
    yield _Segment(at, len(block))


def _make_segment(found: re.Match[str]) -> _Segment:
    kind = next(name for name in ("html", "gfm", "fence", "maths", "pre", "code") if found[name] is not None)
    head, tail, lines = found[kind], "", found.group().split("\n")
    if kind == "html":
        rows = next((n for n, line in enumerate(lines[1:], 1) if "<th" not in line), 1)
        head = "\n".join(lines[:rows]) + "\n"
    if kind in ("html", "fence", "maths") and len(lines) > 1:
        tail = f"\n{lines[-1]}"
    if kind == "pre" and found.group().endswith(CODE_END):
        tail = CODE_END
    return _Segment(*found.span(), kind, "" if kind == "code" else head, tail)


def _split_segment(block: str, segment: _Segment, limit: int) -> Iterator[SplitPart]:
    start, end, kind, head, tail = segment
    if limit - token_estimate.count(head) - token_estimate.count(tail) < limit // 2:
        # Repeating so large a head would leave no room for rows, but without its table a row of HTML is text.
        head = head[: head.index("\n") + 1] if kind == "html" else ""
    room = limit - token_estimate.count(head) - token_estimate.count(tail) - _RESERVE
    first = start + len(head)
    ranges = list(_split_range(block, first, end - len(tail), room, _find_tags(block, segment)))
    for begin, stop in ranges:
        is_within_line = begin > first and not block[first:begin].rstrip(" ").endswith("\n")
        text = head + _complete(kind, block[begin:stop], is_within_line) + tail
        yield SplitPart(start if begin == ranges[0][0] else begin, end if stop == ranges[-1][1] else stop, text)


def _complete(kind: str, part: str, is_within_line: bool) -> str:
    """Make a part stand alone that has lost the beginning of its line, or of its block."""
    if kind == "code":
        return f"    {part.removeprefix('    ')}" if not part.startswith(BLOCK_END) else part
    if kind == "maths":
        return maths.escape_display(part)
    if is_within_line and kind in ("text", "gfm"):
        part = markdown_escapes.escape_line_start(part)
    if is_within_line and kind == "html":
        part = f"<tr><td>{part}"
    return markdown_escapes.escape_block_end(part) if kind == "text" else part


def _find_tags(block: str, segment: _Segment) -> list[tuple[int, int]]:
    """Return where tags and entities of HTML begin and end: its rows and lines may be split, but none of these."""
    if segment.kind not in ("html", "pre"):
        return []
    return [found.span() for found in _TAG.finditer(block, segment.start, segment.end)]


def _split_range(
    block: str, start: int, end: int, room: int, tags: Sequence[tuple[int, int]], level: int = 0
) -> Iterator[tuple[int, int]]:
    """Combine the pieces between this level's breaks while they fit; split a larger piece at the next level."""
    begin, fits_until = start, start
    for stop in [*_find_breaks(block, start, end, tags, level), end]:
        if stop > begin and token_estimate.count(block[begin:stop]) > room and fits_until > begin:
            yield from _trim(block, begin, fits_until)
            begin = fits_until
        if level + 1 < len(_BREAKS) and token_estimate.count(block[begin:stop]) > room:
            yield from _split_range(block, begin, stop, room, tags, level + 1)
            begin = stop
        fits_until = stop
    if begin < end:
        yield from _trim(block, begin, end)


def _find_breaks(block: str, start: int, end: int, tags: Sequence[tuple[int, int]], level: int) -> Iterator[int]:
    for found in _BREAKS[level].finditer(block, start, end):
        position = found.end()
        nearest = tags[bisect_right(tags, (position,)) - 1] if tags else (0, 0)
        if position < end and not nearest[0] < position < nearest[1]:
            yield position


def _trim(block: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the range without surrounding whitespace; nothing if it is only whitespace."""
    text = block[start:end].strip()
    if text:
        start = block.index(text, start)
        yield start, start + len(text)
