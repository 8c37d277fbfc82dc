"""Estimate how many tokens a text has, and split a Markdown block that has too many into parts that fit.

A block is split between paragraphs, lines, sentences, clauses or words, as a last resort anywhere. Each part can stand
alone: each part of a table repeats the table's head, each part of code and of a formula is code and a formula, and what
begins within a line of text begins no other block.

The estimate needs no vocabulary and no network access: chunks must fit models that are not known here, so that the
exact count for one model would be an estimate, too, and vocabularies are tens of megabytes. docs/log/ compares it with
two vocabularies.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
# The pieces of a text whose tokens are estimated.
_PIECE = re.compile(
    r"(?P<word>[A-Za-z]+)|(?P<digits>[0-9]{1,3})|(?P<hangul>[\uac00-\ud7a3])|(?P<space>\s+)|(?P<marks>[!-/:-@\[-`{-~]+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])|(?P<other>\S)"
)
_WEIGHTS = {"digits": 1.0, "hangul": 1.3, "cjk": 1.2, "other": 1.3}
_LINE_BREAK = 0.7
_WHOLE_WORD = 6  # letters; most English words up to this length are one token
_LONG_WORD = 12  # letters; longer words are compounds, about one token for every four letters
_TAG = re.compile(r"<[a-z/][^<>]*>|&#?\w+;")
_RESERVE = 4  # tokens for what makes a part stand alone


class _SplitPart(NamedTuple):
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


def split(block: str, limit: int) -> list[_SplitPart]:
    """Split into parts of at most `limit` tokens, in order; only whitespace between them is lost."""
    parts = [part for segment in _find_segments(block) for part in _split_segment(block, segment, limit)]
    return parts or [_SplitPart(0, len(block), block)]


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


def _split_segment(block: str, segment: _Segment, limit: int) -> Iterator[_SplitPart]:
    start, end, kind, head, tail = segment
    if limit - count_tokens(head) - count_tokens(tail) < limit // 2:
        # Repeating so large a head would leave no room for rows, but without its table a row of HTML is text.
        head = head[: head.index("\n") + 1] if kind == "html" else ""
    room = limit - count_tokens(head) - count_tokens(tail) - _RESERVE
    first = start + len(head)
    ranges = list(_split_range(block, first, end - len(tail), room, _find_tags(block, segment)))
    for begin, stop in ranges:
        is_within_line = begin > first and not block[first:begin].rstrip(" ").endswith("\n")
        text = head + _complete(kind, block[begin:stop], is_within_line) + tail
        yield _SplitPart(start if begin == ranges[0][0] else begin, end if stop == ranges[-1][1] else stop, text)


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
    """Where tags and entities of HTML begin and end: its rows and lines may be split, but none of these."""
    if segment.kind not in ("html", "pre"):
        return []
    return [found.span() for found in _TAG.finditer(block, segment.start, segment.end)]


def _split_range(
    block: str, start: int, end: int, room: int, tags: Sequence[tuple[int, int]], level: int = 0
) -> Iterator[tuple[int, int]]:
    """Combine the pieces between this level's breaks while they fit; split a larger piece at the next level."""
    begin, fits_until = start, start
    for stop in [*_find_breaks(block, start, end, tags, level), end]:
        if stop > begin and count_tokens(block[begin:stop]) > room and fits_until > begin:
            yield from _trim(block, begin, fits_until)
            begin = fits_until
        if level + 1 < len(_BREAKS) and count_tokens(block[begin:stop]) > room:
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


def count_tokens(text: str) -> int:
    """Estimate the number of tokens; for prose it is more often too high than too low."""
    return math.ceil(sum(_weight(str(found.lastgroup), found.group()) for found in _PIECE.finditer(text)))


def _weight(kind: str, piece: str) -> float:
    length = len(piece)
    if kind == "space":
        return _LINE_BREAK if "\n" in piece else 0.0
    if kind == "marks":
        return (1 + length) / 2
    if kind != "word":
        return _WEIGHTS[kind]
    if length > _LONG_WORD:
        return length / 4
    return 1.0 if length <= _WHOLE_WORD else 1 + (length - _WHOLE_WORD) / 5
