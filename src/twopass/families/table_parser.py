"""Parse the tables that a model writes as HTML or GFM.

Never fails: unclosed, nested and misspelled tags, spans beyond the table and rows of any width give some table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from twopass.document import Cell, Table
from twopass.text import maths, prose, superscripts, table_markup

# More than a page can hold, so that absurd spans cost no time.
_MAX_COL_SPAN, _MAX_ROW_SPAN = 100, 1000
_MAX_CELLS = 50_000  # from here on spans are ignored
_TABLE_TAG = re.compile(r"<(/?)table(?:\s+[\w-]+\s*=[^<>]*)?\s*>", flags=re.IGNORECASE)  # <table 3> is text
_CELL_TAG = re.compile(r"<(/?)t[dh]\b", flags=re.IGNORECASE)
_HEAD_TAG = re.compile(r"<(?:(/thead|/?t(?:body|foot))|thead)\b", flags=re.IGNORECASE)  # in group 1, its end
_CUT_TAG = re.compile(  # at the end of an answer that is cut off
    r"<(?:/?t?|/?t(?:a|ab|abl|able|h|he|hea|head|b|bo|bod|body|f|fo|foo|foot|r|d)|t(?:able|[rdh])\s[^<>]*)\s*\Z",
    flags=re.IGNORECASE,
)
_ROW_END = re.compile(r"</tr\s*>", flags=re.IGNORECASE)
_STRUCTURE_TAG = re.compile(r"</?(?:t[rdh]|thead|tbody|tfoot)\b[^<>]*>", flags=re.IGNORECASE)
_ROWS_BEGIN = re.compile(r"\s*+(?=<t(?:r|d|h|head|body)\b[^<>]*>[\s\S]*</t)", flags=re.IGNORECASE)
_ROW = re.compile(
    r"(?:\A|(?P<begun><tr\b[^<>]*>)|</tr\b[^<>]*>)(?P<content>.*?)(?=(?P<ended></tr\b)|<tr\b|\Z)",
    flags=re.DOTALL | re.IGNORECASE,
)
_CELL = re.compile(r"<(td|th)\b([^<>]*)>(.*?)(?=<t[dh]\b|\Z)", flags=re.DOTALL | re.IGNORECASE)
_BREAK = re.compile(
    r"</?(?:br|hr|p|li|ul|ol|div|d[dtl]|h[1-6]|pre|caption|figcaption)\b[^<>]*>|</t[dh]\s*>", flags=re.IGNORECASE
)
_SPAN = re.compile(r"(row|col)span\s*=\s*[\"']?\s*(\d{1,6})", flags=re.IGNORECASE)
_STYLE_TAG = re.compile(
    r"</?(?:table|thead|tbody|tfoot|t[rdh]|b|i|s|u|em|strong|span|center|font|colgroup|col|figure|code|del|ins|mark|small)\b(?![@-])[^<>]*>"
    r"|<a\s[^<>]*>|</a\s*>",
    flags=re.IGNORECASE,
)
_RULE = r"[ \t]*:?-+:?[ \t]*"  # below a column's head
_GFM_TABLE = re.compile(
    rf"^[ \t]*\|.+\|[ \t]*\n[ \t]*\|(?:{_RULE}\|)+(?:\n[ \t]*\|.*)*"
    rf"|^[^\n|]*\|.*\n(?:[ \t]*\|)?{_RULE}(?:\|{_RULE})+(?:\|[ \t]*)?$(?:\n[^\n|]*\|.*)*"  # without pipes at the edges
    r"|^[ \t]*\|[ \t][^\n|]*\|.*[ \t]\|[ \t]*(?:\n[ \t]*\|[ \t][^\n|]*\|.*[ \t]\|[ \t]*$)+",  # without a head
    flags=re.MULTILINE,
)
_GFM_RULE = re.compile(rf"\|?{_RULE}(?:\|{_RULE})*\|?")
_PIPE = re.compile(r"(?<!\\)\|")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,7});")
# The frame of an HTML document: no text of the page.
_FRAME_TAG = re.compile(
    r"<!doctype\b[^<>]*>|<\?xml\b[^<>]*>|</?title\s*>|<style\b[^<>]*>(?:[^<]|<(?!/?style\b))*+</style\s*>"
    r"|<(?:meta|link)\b[^<>]*>|</?(?:html|head|body)\b[^<>]*>",
    flags=re.DOTALL | re.IGNORECASE,
)
_BOX_TAG = re.compile(r"</?(?:div|section|article|main|figure|figcaption|center|p)\b[^<>]*>", flags=re.IGNORECASE)
_SPAN_TAG = re.compile(r"</?(?:span|font|b|i|u|em|strong|small)\b[^<>]*>", flags=re.IGNORECASE)
_COMMENT = re.compile(r"<!--(?:(?!-->|<!--).)*+-->", flags=re.DOTALL)
_EMPTY_ROWS = re.compile(r"(?<=</tr>)\s*(?:<tr\b[^<>]*/>\s*)+", flags=re.IGNORECASE)
_FENCE_BEGIN, _FENCE_END = re.compile(r"^[ \t]*```[\w-]*\s*\Z", flags=re.MULTILINE), re.compile(r"\A\s*```(?!\S)")
_PICTURE = re.compile(
    r"<img\s(?P<attributes>[^<>]*)>|!\[(?P<written>[^\[\]\n]{0,2000})\]\([^()\s]{1,2000}\)", flags=re.IGNORECASE
)
_ALT = re.compile(r"\balt\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", flags=re.IGNORECASE)


class Part(NamedTuple):
    """A part of an answer: prose, or a table with its source."""

    text: str
    table: Table | None


class _UnplacedCell(NamedTuple):
    """A cell without its row and column; `rows` and `cols` are its spans."""

    text: str
    rows: int
    cols: int
    header: bool


def split_tables(text: str) -> list[Part]:
    """Split an answer into prose and tables, in order; only blank parts, and the tags around a table, are dropped."""
    tables = list(_find_tables(text))
    starts, ends = [start for start, _ in tables], [end for _, end in tables]
    texts = [text[at:start] for at, start in zip([0, *ends], [*starts, len(text)], strict=True)]
    texts = _strip_frames(texts) if any(text[start] == "<" for start in starts) else texts
    found = [Part(texts[0], None)]
    for (start, end), after in zip(tables, texts[1:], strict=True):
        source = text[start:end]
        found += [Part(source, parse_source(source)), Part(after, None)]
    return [part for part in found if part.text.strip()]


def _strip_frames(texts: Sequence[str]) -> list[str]:
    """The texts before, between and after tables, without the tags and fences that only surround tables."""
    texts = [_COMMENT.sub("", text) for text in texts]
    stripped = [_SPAN_TAG.sub("", _BOX_TAG.sub("\n", _FRAME_TAG.sub("", text))) for text in texts]
    for n, (before, after) in enumerate(pairwise(stripped)):
        if (begin := _FENCE_BEGIN.search(before)) and (end := _FENCE_END.match(after)):
            stripped[n], stripped[n + 1] = before[: begin.start()], after[end.end() :]
    return stripped


def split_pictures(source: str) -> tuple[str, list[str]]:
    """A text without the pictures in it, and the words that stand for each of them."""
    return _PICTURE.sub("", source), [_read_alt(picture) for picture in _PICTURE.finditer(source)]


def _read_alt(picture: re.Match[str]) -> str:
    """What the model wrote in place of a picture; "" for a picture without words."""
    alt = _ALT.search(picture["attributes"] or "")
    return prose.unescape(picture["written"] or (alt and (alt[1] or alt[2] or alt[3])) or "").strip()


def join_parts(parts: Sequence[Part]) -> Table | None:
    """One table of all parts of an answer about one table; None if none of them is a table.

    Text before, between and after tables becomes a row of one cell over all columns, so that none is lost.
    """
    tables = [part.table for part in parts if part.table and part.table.cells]
    if not tables:
        return None
    if len(tables) == 1 and all(part.table for part in parts):
        return tables[0]
    columns = max(table.cols for table in tables)
    cells: list[Cell] = []
    row = 0
    for part in parts:
        if part.table:
            cells += [cell.model_copy(update={"row": row + cell.row}) for cell in part.table.cells]
            row += part.table.rows
        elif text := clean_cell_text(part.text):
            cells.append(Cell(row=row, col=0, col_span=columns, text=text))
            row += 1
    return table_markup.build_table(row, columns, cells)


def find_sources(text: str) -> list[str]:
    """The tables of an answer as the model wrote them, in order."""
    return [text[start:end] for start, end in _find_tables(text)]


def _find_tables(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each outermost table."""
    at = 0
    for start, end in sorted((*_find_html_tables(text), *(match.span() for match in _GFM_TABLE.finditer(text)))):
        if start >= at:
            yield start, end
            at = end


def _find_html_tables(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each outermost HTML table.

    A table that is not closed ends with the last nested table that is, or with the text. One that is not opened begins
    with its first tag: in an answer that begins within it, or is nothing else.
    """
    start = depth = end = at = 0
    if (first := _ROWS_BEGIN.match(text)) and not _TABLE_TAG.search(text):
        *_, last = _STRUCTURE_TAG.finditer(text)
        yield first.end(), last.end() if last.group().startswith("</") else len(text)
    in_cell = False
    for tag in _TABLE_TAG.finditer(text):
        cells = _CELL_TAG.findall(text, at, tag.start())
        in_cell = not cells[-1] if cells else in_cell
        is_closing = bool(tag[1])
        if depth and not is_closing and not in_cell:
            yield start, tag.start()
            depth = 0
        in_cell, at = is_closing, tag.end()
        if not is_closing:
            start, end = (start, end) if depth else (tag.start(), len(text))
            depth += 1
        elif depth:
            depth, end = depth - 1, tag.end()
            if not depth:
                yield start, end
        elif cells and (first := _STRUCTURE_TAG.search(text, end, tag.start())):
            end = tag.end()
            yield first.start(), end
    if depth:
        yield start, end


def parse_source(text: str) -> Table:
    """Parse a table as the model wrote it."""
    return parse_html(text) if text.startswith("<") else parse_gfm(text)


def parse_html(text: str) -> Table:
    """Parse an HTML table. Text in a row but outside its cells goes to the nearest cell."""
    text = _EMPTY_ROWS.sub(_open_rows, _COMMENT.sub("", _flatten_nested_tables(_CUT_TAG.sub("", text))))
    last_end = max((tag.start() for tag in _HEAD_TAG.finditer(text) if tag[1]), default=-1)
    rows: list[list[_UnplacedCell]] = []
    beside = set[int]()  # rows that are text between others, such as a caption
    in_head, at, has_loose_text = False, 0, False
    for row in _ROW.finditer(text):
        content, start = row["content"], row.start("content")
        if heads := _HEAD_TAG.findall(text, at, start):
            in_head = not heads[-1]
        at = start
        cells = [_parse_cell(cell[1], cell[2], cell[3], in_head) for cell in _CELL.finditer(content)]
        first = _CELL.search(content)
        if stray := clean_cell_text(content[: first.start()] if first else content):
            first_cell = _UnplacedCell("", 1, 1, in_head) if not cells else cells[0]
            cells[:1] = [first_cell._replace(text=f"{stray}\n{first_cell.text}".strip())]
        # A row without cells is one nevertheless: cells above may span it. Text before it takes its place.
        if cells or (row["begun"] and row["ended"] and not has_loose_text):
            if not row["begun"] and not first:
                beside.add(len(rows))
            rows.append(cells)
            in_head = in_head and start < last_end  # a head that does not end is one row
        has_loose_text = bool(stray) and not row["begun"]
    columns = max((sum(cell.cols for cell in row) for row in rows), default=1)
    return _place_cells([[row[0]._replace(cols=columns)] if n in beside else row for n, row in enumerate(rows)])


def _open_rows(found: re.Match[str]) -> str:
    """The same empty rows, each with a tag that ends it."""
    return "<tr></tr>" * found.group().count("/>")


def _flatten_nested_tables(text: str) -> str:
    """Replace tables inside cells by their text, one line per row."""
    pieces, at, depth = [], 0, 0
    for tag in _TABLE_TAG.finditer(text):
        pieces.append(_strip_structure_tags(text[at : tag.start()]) if depth > 1 else text[at : tag.start()])
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        at = tag.end()
        pieces.append(" " if depth else tag.group())
    return "".join([*pieces, _strip_structure_tags(text[at:]) if depth > 1 else text[at:]])


def _strip_structure_tags(text: str) -> str:
    return _STRUCTURE_TAG.sub(" ", _ROW_END.sub("<br>", text))


def _parse_cell(name: str, attributes: str, text: str, in_head: bool) -> _UnplacedCell:
    spans = {which.lower(): int(count) for which, count in _SPAN.findall(attributes)}
    rows = min(max(spans.get("row", 1), 1), _MAX_ROW_SPAN)
    cols = min(max(spans.get("col", 1), 1), _MAX_COL_SPAN)
    return _UnplacedCell(clean_cell_text(text), rows, cols, in_head or name.lower() == "th")


def clean_cell_text(text: str) -> str:
    """A cell's text without tags, with entities decoded even where they were escaped twice.

    Of a picture that no element shows, the words that stand for it remain.
    """
    text = _STYLE_TAG.sub("", _BREAK.sub("\n", _PICTURE.sub(_read_alt, text)))
    text = prose.unescape(superscripts.replace_tags(text))
    if _ENTITY.search(text):
        text = prose.unescape(text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return maths.unify_dollars("\n".join(line for line in lines if line))


def _place_cells(rows: Sequence[Sequence[_UnplacedCell]]) -> Table:
    """Place each cell in the first free column of its row; spans end with the table, and before a taken place.

    A row without cells has empty ones where no cell above spans it.
    """
    taken: set[tuple[int, int]] = set()
    cells: list[Cell] = []
    for r, row in enumerate(rows):
        c = 0
        for cell in row:
            while (r, c) in taken:
                c += 1
            row_span, col_span = (min(cell.rows, len(rows) - r), cell.cols) if len(taken) < _MAX_CELLS else (1, 1)
            col_span = next((n for n in range(1, col_span) if (r, c + n) in taken), col_span)
            taken |= {(r + down, c + across) for down in range(row_span) for across in range(col_span)}
            cells.append(Cell(row=r, col=c, row_span=row_span, col_span=col_span, text=cell.text, header=cell.header))
            c += col_span
    cells, taken = _end_widest_row(cells, taken)
    columns = max((c for _, c in taken), default=-1) + 1
    for r in (r for r, row in enumerate(rows) if not row and len(taken) < _MAX_CELLS):
        free = [(r, c) for c in range(columns) if (r, c) not in taken]
        taken |= set(free)
        cells += [Cell(row=r, col=c) for r, c in free]
    widths = set(Counter(r for r, _ in taken).values())
    table = table_markup.build_table(len(rows) if cells else 0, columns, sorted(cells, key=lambda one: one.row))
    return table.model_copy(update={"complexity": "complex"}) if len(widths) > 1 else table


def _end_widest_row(cells: list[Cell], taken: set[tuple[int, int]]) -> tuple[list[Cell], set[tuple[int, int]]]:
    """End the span of the last cell of the widest row where the others end, if it alone goes beyond."""
    widths: dict[int, int] = {}
    for r, c in taken:
        widths[r] = max(widths.get(r, 0), c + 1)
    (_, others), (row, width) = [(0, 0), (0, 0), *sorted(widths.items(), key=lambda one: one[1])][-2:]
    last = next((n for n, cell in enumerate(cells) if (cell.row, cell.col + cell.col_span) == (row, width)), None)
    if not others or last is None or cells[last].row_span > 1 or (end := max(others, cells[last].col + 1)) >= width:
        return cells, taken
    cells[last] = cells[last].model_copy(update={"col_span": end - cells[last].col})
    return cells, {(r, c) for r, c in taken if c < end}


def parse_gfm(text: str) -> Table:
    """Parse a GFM table; its first row is the header, unless the line below it is missing. Pipes divide no formula."""
    lines = [line.strip() for line in text.strip().splitlines()]
    has_head = len(lines) > 1 and bool(_GFM_RULE.fullmatch(lines[1]))
    lines = [maths.FORMULA.sub(lambda found: _PIPE.sub(r"\\|", found.group()), line) for line in lines]
    rows = [_PIPE.split(_trim_pipes(line)) for n, line in enumerate(lines) if n != 1 or not has_head]
    texts = [[clean_cell_text(text.replace("\\|", "|")) for text in row] for row in rows]
    return _place_cells(
        [[_UnplacedCell(text, 1, 1, has_head and n == 0) for text in row] for n, row in enumerate(texts)]
    )


def _trim_pipes(line: str) -> str:
    return line.removeprefix("|") if line.endswith("\\|") else line.removeprefix("|").removesuffix("|")
