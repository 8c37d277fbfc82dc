"""Write document.md, and find the span of every element in it.

The text holds every word of every body element; paragraphs, headings and tables that continue on a later page are
joined. By default each page has a page mark, and furniture (headers and footers that repeat, page numbers) is left out;
options change both. The same document gives the same bytes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple
from urllib.parse import quote

from twopass.document import Cell, Document, Element, Flag, Kind, Page, Span, Table
from twopass.format_options import Markdown, Maths, Tables
from twopass.formats import escaping, flow
from twopass.formats.escaping import Insertion
from twopass.formats.flow import Flow, InlineText, Reference
from twopass.text import direction, footnotes, links, list_items, markdown_escapes, prose, table_markup
from twopass.text.links import ShownLink

_DEFAULT_OPTIONS = Markdown()
_RTL_BEGIN, _RTL_END = '<div dir="rtl">', "</div>"  # Markdown itself cannot say that a text runs from right to left
# YAML allows the first ones only escaped, and all of them may be escaped.
_UNPRINTABLE_IN_YAML = "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"
_ESCAPED_IN_YAML = re.compile(rf"{_UNPRINTABLE_IN_YAML}|[<>\[\]`*~]|(?<!\w)_|_(?!\w)|&(?=#|\w+;)")
_MAY_BE_ADDRESS = re.compile(r"(?:<[^>]*>|\S+)(?:\s+[\"'(].*)?|\S*[\"'(].*[\"')]")  # of a link, with a title


class _Piece(NamedTuple):
    """The text that one element contributes to a block; no id for separators and page marks."""

    element_id: str | None
    text: str


@dataclass(frozen=True)
class _Block:
    """A Markdown block, from one or more elements.

    `first_marker` and `last_marker` are those of the list items that it begins and ends with; empty for other text.
    `direction` is None for a block without letters, which has no direction of its own.
    """

    pieces: tuple[_Piece, ...]
    first_marker: str = ""
    last_marker: str = ""
    direction: Literal["ltr", "rtl"] | None = None


@dataclass(frozen=True)
class _Context:
    """What rendering one element needs."""

    flow: Flow
    options: Markdown = _DEFAULT_OPTIONS
    crops: Mapping[str, str] = field(default_factory=dict)  # crop path -> address, where they differ


def write(
    document: Document,
    options: Markdown = _DEFAULT_OPTIONS,
    crops: Mapping[str, str] | None = None,
    mark_direction: bool = True,
    shown: Flow | None = None,
) -> tuple[str, dict[str, Span]]:
    """The text of document.md and the span of each element that is in it.

    `mark_direction` puts text that runs from right to left into elements that say so. `shown` is the document's flow
    with these options, if it is known.
    """
    context = _Context(shown or flow.build(document, options), options, crops or {})
    blocks = [_Block((_Piece(None, _render_front_matter(document)),))] if options.front_matter else []
    for number, page, elements in context.flow.pages:
        if options.page_marks:
            blocks.append(_Block((_Piece(None, _make_page_mark(number, page)),)))
        filled = [block for block in _render_page(elements, context) if any(piece.text for piece in block.pieces)]
        blocks += _mark_direction(filled) if mark_direction else filled
    return _join_blocks(blocks)


def _render_page(elements: Sequence[Element], context: _Context) -> list[_Block]:
    """Render the elements, with a visible note before and after text that the reader calls unreadable."""
    blocks = []
    begin, end = (_Block((_Piece(None, f"**[{note}]**"),)) for note in flow.UNREADABLE_NOTES)
    for is_unreadable, group in groupby(elements, key=lambda element: Flag.UNREADABLE in element.flags):
        rendered = [replace(_render_block(element, context), direction=_find_direction(element)) for element in group]
        blocks += [begin, *rendered, end] if is_unreadable else rendered
    return blocks


def _find_direction(element: Element) -> Literal["ltr", "rtl"] | None:
    if element.kind is Kind.CODE:
        return "ltr"
    cells = element.table.cells if element.table else ()
    return direction.find_direction(element.text or "".join(cell.text for cell in cells))


def _mark_direction(blocks: Sequence[_Block]) -> list[_Block]:
    """Put each run of right-to-left blocks between marks."""
    marked: list[_Block] = []
    is_rtl = False
    for block in blocks:
        if block.direction and is_rtl != (block.direction == "rtl"):
            is_rtl = not is_rtl
            marked.append(_Block((_Piece(None, _RTL_BEGIN if is_rtl else _RTL_END),)))
        marked.append(block)
    return [*marked, _Block((_Piece(None, _RTL_END),))] if is_rtl else marked


def _join_blocks(blocks: Sequence[_Block]) -> tuple[str, dict[str, Span]]:
    parts: list[str] = []
    spans: dict[str, Span] = {}
    position = 0
    previous: _Block | None = None
    for block in blocks:
        separator = "" if previous is None else _choose_separator(previous.last_marker, block.first_marker)
        for element_id, text in (_Piece(None, separator), *block.pieces):
            if element_id is not None and text:
                spans[element_id] = Span(position, position + len(text))
            parts.append(text)
            position += len(text)
        previous = block
    return "".join([*parts, "\n"]), spans


def _choose_separator(marker: str, following: str) -> str:
    """What separates two blocks that end and begin with these markers: no blank line inside a list.

    Markdown numbers the items of a list by itself, so an item with another number begins a new list.
    """
    if not list_items.are_of_one_list(marker, following):
        return "\n\n"
    return "\n" if list_items.is_next(marker, following) else f"\n\n{escaping.BLOCK_END}\n\n"


def _make_page_mark(number: int, page: Page | None) -> str:
    mark = f"<!-- page: {number} -->"
    if page is None or not page.is_lost:
        return mark
    return f"{mark}\n<!-- page {number}: {' '.join(filter(None, (page.state, page.reason)))} -->"


def _render_block(element: Element, context: _Context) -> _Block:
    if context.flow.is_several_items(element):
        return _render_items(element, context)
    if element.kind in flow.JOINABLE:
        return _render_chain(element, context)
    if element.id in context.flow.next_of:
        return _render_joined_table(context.flow.collect_chain(element), context)
    text = _RENDERERS.get(element.kind, _render_plain)(element, context)
    return _Block((_Piece(element.id, text),))


def _render_chain(element: Element, context: _Context) -> _Block:
    """Render a paragraph, list item or heading joined with all its continuations."""
    parts = context.flow.join(element)
    first = parts[0].line.text
    marker = ""
    if element.kind is Kind.LIST_ITEM and first:
        marker, first = list_items.parse(first)
    elif element.is_heading and first:
        marker = "#" * context.flow.get_heading_level(element) + " "
    pieces: list[_Piece] = []
    for part, whole, gap in parts:
        line = _render_line(part, whole, first if part is element else whole.text, context, alone=len(parts) == 1)
        is_markdown = whole.is_markdown
        if part is element:
            is_safe = element.is_heading or (is_markdown and not marker)
            line = marker + (line if is_safe else markdown_escapes.escape_line_start(line, in_list=bool(marker)))
        pieces += [_Piece(None, gap), _Piece(part.id, line)]
    if element.is_heading:
        pieces[-1] = pieces[-1]._replace(text=escaping.escape_heading_end(pieces[-1].text))
        return _Block(tuple(pieces))
    return _Block(tuple(pieces), marker, marker)


def _render_line(element: Element, whole: InlineText, text: str, context: _Context, alone: bool) -> str:
    """Render a line of an element, or what of it stands behind the marker of a list item."""
    skipped = links.count_letters(whole.text.removesuffix(text)) if element.links else 0
    shown = flow.locate_links(element, whole._replace(text=text), skipped)
    marks = context.flow.marks.get(element.id, ())
    return _render_text(text, whole.is_markdown, marks, context.options.maths, alone, shown)


def _render_items(element: Element, context: _Context) -> _Block:
    """Render an element of several paragraphs or list items."""
    marks = context.flow.marks.get(element.id, ())
    rendered, letters = "", 0
    markers: list[str] = []
    for text, is_markdown in flow.split_items(element):
        marker, rest = flow.parse_item(element, text)
        skipped = letters + links.count_letters(text.removesuffix(rest))
        shown = flow.locate_links(element, InlineText(rest, is_markdown), skipped)
        line = _render_text(rest, is_markdown, marks, context.options.maths, alone=True, shown=shown)
        letters += links.count_letters(text)
        if marker or not is_markdown:
            line = markdown_escapes.escape_line_start(line, in_list=bool(marker))
        separator = _choose_separator(markers[-1], marker) if markers else ""
        rendered += separator + marker + line
        markers.append(marker)
    return _Block((_Piece(element.id, rendered),), markers[0], markers[-1])


def _render_text(
    text: str,
    is_markdown: bool,
    marks: Sequence[Reference],
    style: Maths,
    alone: bool = False,
    shown: Sequence[ShownLink] = (),
) -> str:
    """Escape one line of text, with its links and with its footnote references as `[^label]`.

    `alone`: it is all of its block.
    """
    escape = partial(_escape, is_markdown=is_markdown, style=style)
    found = [Insertion(*span, f"[^{mark.label}]") for mark in marks if (span := mark.find(text))]
    found += escaping.make_links(text, shown, escape)
    return escaping.insert(text, found, escape) if found else _escape(text, is_markdown, style, alone)


def _escape(text: str, is_markdown: bool, style: Maths, alone: bool = False) -> str:
    return escaping.normalize_markdown(text, style) if is_markdown else escaping.escape_text(text, style, alone)


def _render_paragraph(text: str, context: _Context) -> str:
    return escaping.escape_paragraph(text, context.options.maths)


def _render_plain(element: Element, context: _Context) -> str:
    text, is_markdown = flow.choose_text(element)
    line = InlineText(prose.to_one_line(text), is_markdown)
    rendered = _render_text(*line, (), context.options.maths, alone=True, shown=flow.locate_links(element, line))
    return rendered if is_markdown else markdown_escapes.escape_line_start(rendered)


def _render_footnote(element: Element, context: _Context) -> str:
    label, note = context.flow.notes.get(element.id), footnotes.parse_note(element.text)
    if label is None or note is None:
        return _render_plain(element, context)
    line = InlineText(prose.to_one_line(note[1]), False)
    skipped = links.count_letters(element.text) - links.count_letters(line.text)
    shown = flow.locate_links(element, line, skipped)
    text = markdown_escapes.escape_line_start(_render_text(*line, (), context.options.maths, alone=True, shown=shown))
    # Readers without footnotes would take the note for the address of a link, and its mark for the link.
    return f"[^{label}]: {text}" + (f" {escaping.BLOCK_END}" if _MAY_BE_ADDRESS.fullmatch(text.strip()) else "")


def _render_code(element: Element, context: _Context) -> str:
    text = flow.clean_code(element.text)
    return escaping.write_code(text) if text.strip() else ""


def _render_formula(element: Element, context: _Context) -> str:
    latex = flow.get_latex(element)
    if not latex:
        return _render_paragraph(prose.to_one_line(element.text), context)
    return escaping.write_display_formula(latex, context.options.maths)


def _render_table(element: Element, context: _Context) -> str:
    data = _render_data(element.table, context.options) if element.table else ""
    return "\n\n".join(filter(None, (data, _render_paragraph(flow.get_own_text(element), context))))


def _render_figure(element: Element, context: _Context) -> str:
    """Render the image, the text visible in it, its description and its data."""
    texts, parts = flow.describe_figure(element), []
    if element.image:
        address = context.crops.get(element.image) or quote(element.image, safe="/-._~")
        image = f"![{escaping.escape_alt_text(texts.label, context.options.maths)}]({address})"
        uri = flow.get_own_link(element)
        parts.append(escaping.write_link(image, uri, is_image=True) if uri else image)
    parts += [_render_paragraph(texts.visible, context), _render_paragraph(texts.description, context)]
    if element.figure and element.figure.data:
        parts.append(_render_data(element.figure.data, context.options))
    if lines := escaping.escape_mermaid(texts.mermaid):
        parts.append(f"```mermaid\n{lines}\n```")
    return "\n\n".join(part for part in parts if part)


def _render_joined_table(parts: Sequence[Element], context: _Context) -> _Block:
    """Render a table that spans several pages as one; each part's span holds its own rows."""
    texts, end = _render_joined_data([part.table for part in parts if part.table], context.options)
    pieces: list[_Piece] = []
    for part, text in zip(parts, texts, strict=True):
        pieces += [_Piece(None, "\n" if pieces and text else ""), _Piece(part.id, text)]
    return _Block((*pieces, _Piece(None, end)))


def _render_data(table: Table, options: Markdown) -> str:
    """Render a table as the options ask; by default as GFM, or as HTML if a cell spans rows or columns."""
    if not table.cells:
        return escaping.escape_paragraph(flow.get_table_text(table), options.maths)
    return _render_cells(table.cells, table.cols, options)


def _render_cells(cells: Sequence[Cell], cols: int, options: Markdown) -> str:
    has_spans = any(cell.row_span > 1 or cell.col_span > 1 for cell in cells)
    is_huge = len({cell.row for cell in cells}) * len({cell.col for cell in cells}) > table_markup.MAX_GRID
    if options.tables is Tables.HTML or is_huge or (has_spans and options.tables is Tables.AUTO):
        return table_markup.to_html(cells, partial(escaping.escape_html_cell, style=options.maths))
    return _render_gfm(cells, cols, options.maths)


def _render_gfm(cells: Sequence[Cell], cols: int, style: Maths) -> str:
    rows = sorted({cell.row for cell in cells})
    columns = sorted({cell.col for cell in cells} | set(range(min(cols, flow.MAX_COLUMNS))))
    texts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for cell in cells:
        texts[cell.row, cell.col].append(escaping.escape_gfm_cell(cell, style))
    escaped = [[" ".join(filter(None, texts[row, column])) for column in columns] for row in rows]
    return table_markup.to_gfm(escaped, len(columns))


def _render_joined_data(parts: Sequence[Table], options: Markdown) -> tuple[list[str], str]:
    """Render tables as one. Returns the lines that each part contributes, and the text that closes the table."""
    joined, counts = flow.join_tables(parts)
    lines = _render_cells(joined, max(part.cols for part in parts), options).split("\n")  # each row is one line
    # The first part has one line more: GFM's delimiter row below the head, or HTML's <table> above it.
    ends = list(accumulate(counts, initial=1))[1:]
    texts = ["\n".join(lines[start:end]) for start, end in pairwise([0, *ends])]
    return texts, "".join(f"\n{line}" for line in lines[ends[-1] :])


def _render_front_matter(document: Document) -> str:
    """The front matter; fields without a value are left out."""
    meta = document.meta
    fields = {
        "title": meta.title,
        "author": meta.author,
        "subject": meta.subject,
        "date": meta.date,
        "language": meta.language,
        "source": document.source.uri,
        "sha256": document.source.sha256,
        "document": document.id,
        "pages": len(document.pages),
        "status": document.status,
    }
    lines = (f"{name}: {_quote_scalar(value)}" for name, value in fields.items() if value is not None)
    return "\n".join(["---", *lines, "---"])


def _quote_scalar(value: str | int) -> str:
    # Every JSON string is a YAML string.
    return _ESCAPED_IN_YAML.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(value, ensure_ascii=False))


_RENDERERS: Mapping[Kind, Callable[[Element, _Context], str]] = {
    Kind.FOOTNOTE: _render_footnote,
    Kind.CODE: _render_code,
    Kind.FORMULA: _render_formula,
    Kind.TABLE: _render_table,
    Kind.PICTURE: _render_figure,
    Kind.CHART: _render_figure,
}
