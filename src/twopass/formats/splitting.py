"""Estimate how many tokens a text has, and split a Markdown block that has too many into parts that fit.

A block is split between paragraphs, lines, sentences, clauses or words, as a last resort anywhere. Each part can stand
alone: each part of a table repeats the table's head, each part of code and of a formula is code and a formula, and what
begins within a line of text begins no other block.

The estimate needs no vocabulary and no network access: chunks must fit models that are not known here, so that the
exact count for one model would be an estimate, too, and vocabularies are tens of megabytes. docs/log/reading.md
compares it with two vocabularies.
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
        r"[,;:]\s+|[，、；：]\s*",
        r"\s+",
        r"[,:]|(?<!&lt)(?<!&gt)(?<!&amp)(?<!&#\d\d)(?<!&#\d\d\d);",  # of numbers and addresses; not of entities
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
_TAG = re.compile(r"<a [^<>]*>(?:[^<]|<br>)*+</a>|<[a-z/][^<>]*>|&#?\w+;")
_LINK = re.compile(r"!?\[(?:!\[(?:[^\[\]\\]|\\[\s\S])*+\]\([^()\s]*\)|[^\[\]\\!]|\\[\s\S]|!(?!\[))*+\]\([^()\s]*\)")
_CELL = re.compile(r"<(?P<name>t[hd])(?P<spans>[^<>]*)>(?P<text>(?:[^<]|<(?!/?t[hd]\b))*+)</(?P=name)>")
_EMPTY_CELL = re.compile(r"<td[^<>]*></td>")
_LEAST_ROOM = 4  # a quarter of the tokens is left for rows
_MAX_COLUMNS = 1000  # that a cell spans, as in browsers
_RESERVE = 4  # tokens for what makes a part stand alone


class _SplitPart(NamedTuple):
    """`text` is block[start:end], with what makes it stand alone: `repeated` is what other parts have, too."""

    start: int
    end: int
    text: str
    repeated: str = ""


class _Segment(NamedTuple):
    """A block within the block; its range contains the head of its first part and the tail of its last one."""

    start: int
    end: int
    kind: str = "text"
    head: str = ""
    tail: str = ""


class _PlacedCell(NamedTuple):
    """A cell of an HTML table: where it begins, and the row and column after its last ones."""

    row: int
    column: int
    end_row: int
    end_column: int
    markup: re.Match[str]

    def repeat_in(self, row: int, end: int, is_empty: bool = False) -> str:
        """The cell for a table that has only its rows from `row` to before `end`."""
        spans = {"rowspan": min(self.end_row, end) - row, "colspan": self.end_column - self.column}
        written = "".join(f' {name}="{count}"' for name, count in spans.items() if count > 1)
        return f"<{self.markup['name']}{written}>{'' if is_empty else self.markup['text']}</{self.markup['name']}>"


class _SplitTable:
    """An HTML table, each row on a line, whose later parts repeat its head and the cells that span into them.

    These cells are repeated with their text, or empty where that needs more tokens than `room`, or not at all.
    """

    def __init__(self, table: str, head: str, room: int) -> None:
        self._lines, self._head = table.split("\n"), head
        self._cells: list[list[_PlacedCell]] = [[] for _ in self._lines]  # by line, if any cell spans rows
        self._spanning: list[list[_PlacedCell]] = [[] for _ in self._lines]  # those from above, from left to right
        self._is_empty, self.reserve = False, 0  # tokens for the repeated cells
        if "rowspan" in table:
            self._place_cells()
            self._head = self._write_head(head.count("\n"))
            sizes = [(is_empty, self._measure_spanning(is_empty)) for is_empty in (False, True)]
            fitting = [(is_empty, size) for is_empty, size in sizes if size <= room]
            self._is_empty, self.reserve = fitting[0] if fitting else (True, 0)

    def _place_cells(self) -> None:
        for row, line in enumerate(self._lines):
            self._cells[row] = list(_place_cells(row, line, self._spanning[row]))
            below = (cell for cell in (*self._spanning[row], *self._cells[row]) if cell.end_row > row + 1)
            if row + 1 < len(self._lines):
                self._spanning[row + 1] = sorted(below, key=lambda cell: cell.column)

    def _write_head(self, end: int) -> str:
        """The lines before `end`, without spans to rows that another part has."""
        rows = ("".join(cell.repeat_in(n, end) for cell in self._cells[n]) for n in range(end))
        return "".join(
            f"<tr>{row}</tr>\n" if row else f"{line}\n" for row, line in zip(rows, self._lines, strict=False)
        )

    def _measure_spanning(self, is_empty: bool) -> int:
        """The most tokens that repeating the spanning cells adds to a row."""
        spanning = {cell for cells in self._spanning for cell in cells}
        sizes = {cell: count_tokens(cell.repeat_in(cell.row, cell.end_row, is_empty)) for cell in spanning}
        return max(sum(sizes[cell] for cell in cells) for cells in self._spanning)

    def complete(self, row: int, part: str) -> tuple[str, str]:
        """A part that begins in this row with what it repeats, and the latter alone."""
        spanning = self._spanning[row] if self.reserve else []
        repeated = [(cell.column, cell.repeat_in(row, cell.end_row, self._is_empty)) for cell in spanning]
        line, separator, rest = part.partition("\n")
        if repeated and line == self._lines[row]:
            cells = sorted([*repeated, *((cell.column, cell.markup.group()) for cell in self._cells[row])])
            line = f"<tr>{''.join(markup for _, markup in cells)}</tr>"
        elif repeated:  # the row itself is split
            line = f"<tr>{''.join(markup for _, markup in repeated)}{line.removeprefix('<tr>')}"
        written = self._head + line + separator + rest
        return written, self._head + "".join(markup for _, markup in repeated)


def _place_cells(row: int, line: str, spanning: Sequence[_PlacedCell]) -> Iterator[_PlacedCell]:
    """Yield the cells of a row in the columns that no cell from above occupies."""
    taken, column = {n for cell in spanning for n in range(cell.column, cell.end_column)}, 0
    for markup in _CELL.finditer(line):
        while column in taken:
            column += 1
        end_column = column + min(_read_span("colspan", markup), _MAX_COLUMNS)
        yield _PlacedCell(row, column, row + _read_span("rowspan", markup), end_column, markup)
        column = end_column


def _read_span(name: str, markup: re.Match[str]) -> int:
    found = re.search(rf'{name}="(\d+)"', markup["spans"])
    return int(found[1]) if found else 1


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
        rows = next((n for n, line in enumerate(lines[1:], 1) if not _is_head(line)), 1)
        head = "\n".join(lines[:rows]) + "\n"
    if kind in ("html", "fence", "maths") and len(lines) > 1:
        tail = f"\n{lines[-1]}"
    if kind == "pre" and found.group().endswith(CODE_END):
        tail = CODE_END
    return _Segment(*found.span(), kind, "" if kind == "code" else head, tail)


def _is_head(line: str) -> bool:
    """Whether a row has header cells only; the corner above a column of headers is often an empty cell."""
    return "<td" not in _EMPTY_CELL.sub("", line) and "<th" in line


def _split_segment(block: str, segment: _Segment, limit: int) -> Iterator[_SplitPart]:
    start, end, kind, head, tail = segment
    if limit - count_tokens(head) - count_tokens(tail) < limit // 2:
        # Repeating so large a head would leave no room for rows, but without its table a row of HTML is text.
        head = head[: head.index("\n") + 1] if kind == "html" else ""
    room = limit - count_tokens(head) - count_tokens(tail) - _RESERVE
    table = _SplitTable(block[start:end], head, room - limit // _LEAST_ROOM) if kind == "html" else None
    first = start + len(head)
    room -= table.reserve if table else 0
    ranges = list(_split_range(block, first, end - len(tail), room, _find_whole(block, segment, limit)))
    for begin, stop in ranges:
        is_within_line = begin > first and not block[first:begin].rstrip(" ").endswith("\n")
        part, repeated = _complete(kind, block[begin:stop], is_within_line), "" if begin == first else head
        text = head + part
        if table and begin > first:
            text, repeated = table.complete(block.count("\n", start, begin), part)
        is_first, is_last = begin == ranges[0][0], stop == ranges[-1][1]
        yield _SplitPart(start if is_first else begin, end if is_last else stop, text + tail, repeated)


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


def _find_whole(block: str, segment: _Segment, limit: int) -> list[tuple[int, int]]:
    """Where links, images, tags and entities begin and end: none of these is split, unless a link is very long."""
    if segment.kind in ("fence", "maths", "code"):
        return []
    pattern = _LINK if segment.kind in ("text", "gfm") else _TAG
    found = (one for one in pattern.finditer(block, segment.start, segment.end))
    return [one.span() for one in found if 2 * count_tokens(one.group()) <= limit]


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
