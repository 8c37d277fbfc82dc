"""A table as a model writes it, HTML or between pipes, in; a Table with cells, HTML and GFM out.

Total: unclosed, nested and misspelled tags, spans beyond the table and rows of any width make some table. Knows
the two spellings. Knows nothing of where tables stand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from typing import NamedTuple

from twopass.document import Cell, Table
from twopass.text import table_grid

WIDEST, HIGHEST, MOST = 100, 1000, 50_000  # cells that one may span, and cells of a table: more than a page holds
_EDGE = re.compile(r"<(/?)table(?:\s+[\w-]+\s*=[^<>]*)?\s*>", flags=re.IGNORECASE)  # <table 3> is text
_CELL_EDGE = re.compile(r"<(/?)t[dh]\b", flags=re.IGNORECASE)
_ROW_END = re.compile(r"</tr\s*>", flags=re.IGNORECASE)
_SKELETON = re.compile(r"</?(?:t[rdh]|thead|tbody|tfoot)\b[^<>]*>", flags=re.IGNORECASE)
_ROW = re.compile(r"(?:\A|</?tr\b[^<>]*>)(.*?)(?=</?tr\b|\Z)", flags=re.DOTALL | re.IGNORECASE)
_CELL = re.compile(r"<(td|th)\b([^<>]*)>(.*?)(?=<t[dh]\b|\Z)", flags=re.DOTALL | re.IGNORECASE)
_BREAK = re.compile(r"<br\b[^<>]*>|</(?:p|td|th)\s*>", flags=re.IGNORECASE)
_SPAN = re.compile(r"(row|col)span\s*=\s*[\"']?\s*(\d{1,6})", flags=re.IGNORECASE)
_STYLE = re.compile(
    r"</?(?:table|thead|tbody|tfoot|t[rdh]|b|i|u|p|em|strong|span|center|div|font|caption|colgroup|col)\b[^<>]*>",
    flags=re.IGNORECASE,
)
_PIPES = re.compile(
    r"^[ \t]*\|.+\|[ \t]*\n[ \t]*\|(?:[ \t]*:?-+:?[ \t]*\|)+(?:\n[ \t]*\|.*\|[ \t]*)*", flags=re.MULTILINE
)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,7});")


class Part(NamedTuple):
    """A stretch of an answer: prose, or a table."""

    text: str
    table: Table | None


class _Spot(NamedTuple):
    """A cell before it has a place."""

    text: str
    rows: int
    cols: int
    header: bool


def parts(text: str) -> list[Part]:
    """Prose and tables in the order they stand; nothing but blanks is left out."""
    found: list[Part] = []
    at = 0
    for start, end in sorted((*_wholes(text), *(match.span() for match in _PIPES.finditer(text)))):
        if start < at:
            continue
        told = text[start:end]
        found += [Part(text[at:start], None), Part(told, html(told) if told[0] == "<" else pipes(told))]
        at = end
    return [part for part in (*found, Part(text[at:], None)) if part.text.strip()]


def _wholes(text: str) -> Iterator[tuple[int, int]]:
    """Where HTML tables begin and end, with those in their cells; what nobody closed ends with the last that was."""
    start = depth = end = at = 0
    within = False
    for edge in _EDGE.finditer(text):
        cells = _CELL_EDGE.findall(text, at, edge.start())
        within = not cells[-1] if cells else within
        if depth and not edge[1] and not within:
            yield start, edge.start()
            depth = 0
        within, at = bool(edge[1]), edge.end()
        if not edge[1]:
            start, end = (start, end) if depth else (edge.start(), len(text))
            depth += 1
        elif depth:
            depth, end = depth - 1, edge.end()
            if not depth:
                yield start, end
    if depth:
        yield start, end


def html(text: str) -> Table:
    """The table of an HTML string; what stands in a row and in no cell is said by the cell beside it."""
    text = _alone(text)
    rows = []
    for row in _ROW.finditer(text):
        head = text.rfind("<thead", 0, row.start(1)) > text.rfind("</thead", 0, row.start(1))
        cells = [_spot(cell[1], cell[2], cell[3], head) for cell in _CELL.finditer(row[1])]
        first = _CELL.search(row[1])
        if stray := shown(row[1][: first.start()] if first else row[1]):
            told = _Spot("", 1, 1, head) if not cells else cells[0]
            cells[:1] = [told._replace(text=f"{stray}\n{told.text}".strip())]
        rows.append(cells)
    return _placed(rows)


def _alone(text: str) -> str:
    """A table whose cells hold no tables: a row of such a one is a line of its cell."""
    said, at, depth = [], 0, 0
    for edge in _EDGE.finditer(text):
        said.append(_flat(text[at : edge.start()]) if depth > 1 else text[at : edge.start()])
        depth = max(depth - 1, 0) if edge[1] else depth + 1
        at = edge.end()
        said.append(" " if depth else edge.group())
    return "".join([*said, _flat(text[at:]) if depth > 1 else text[at:]])


def _flat(text: str) -> str:
    return _SKELETON.sub(" ", _ROW_END.sub("<br>", text))


def _spot(name: str, attributes: str, text: str, head: bool) -> _Spot:
    spans = {which.lower(): int(count) for which, count in _SPAN.findall(attributes)}
    rows = min(max(spans.get("row", 1), 1), HIGHEST)
    cols = min(max(spans.get("col", 1), 1), WIDEST)
    return _Spot(shown(text), rows, cols, head or name == "th")


def shown(text: str) -> str:
    """A cell's text: without style, entities read, however often they were escaped."""
    text = unescape(_STYLE.sub("", _BREAK.sub("\n", text)))
    if _ENTITY.search(text):
        text = unescape(text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _placed(rows: Sequence[Sequence[_Spot]]) -> Table:
    """Every cell in the first free place of its row; spans end where the table does."""
    rows = [row for row in rows if row]
    taken: set[tuple[int, int]] = set()
    cells: list[Cell] = []
    for r, row in enumerate(rows):
        c = 0
        for spot in row:
            while (r, c) in taken:
                c += 1
            high, wide = (min(spot.rows, len(rows) - r), spot.cols) if len(taken) < MOST else (1, 1)
            taken |= {(r + down, c + across) for down in range(high) for across in range(wide)}
            cells.append(Cell(row=r, col=c, row_span=high, col_span=wide, text=spot.text, header=spot.header))
            c += wide
    widths = set(Counter(r for r, _ in taken).values())
    table = table_grid.table(len(rows), max((c for _, c in taken), default=-1) + 1, cells)
    return table.model_copy(update={"complexity": "complex"}) if len(widths) > 1 else table


def pipes(text: str) -> Table:
    """The table of a GFM string; its first row is the head."""
    lines = [line.strip().strip("|") for line in text.strip().splitlines()]
    rows = [re.split(r"(?<!\\)\|", line) for n, line in enumerate(lines) if n != 1]
    spots = [[_Spot(shown(t.replace("\\|", "|")), 1, 1, n == 0) for t in row] for n, row in enumerate(rows)]
    return _placed(spots)


def words(table: Table) -> str:
    """All that a table says, row by row."""
    lines: dict[int, list[str]] = {}
    for cell in table.cells:
        lines.setdefault(cell.row, []).append(" ".join(cell.text.split()))
    return "\n".join(" ".join(part for part in line if part) for line in lines.values()).strip()
