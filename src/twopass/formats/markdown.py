"""Write document.md, and find the span of every element in it.

The text holds every word of every body element; paragraphs, headings and tables that continue on a later page are
joined. By default each page has a page mark, and furniture (headers, footers) is left out; options change both. The
same document gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple
from urllib.parse import quote

from twopass.document import Document, Element, Kind, Page, Span
from twopass.format_options import Markdown, Maths
from twopass.formats import escaping, flow, front_matter, list_items, markdown_tables
from twopass.formats.flow import Flow
from twopass.formats.note_links import Reference
from twopass.text import footnotes, markdown_escapes, prose
from twopass.text.confidence import UNREADABLE

DEFAULT_OPTIONS = Markdown()


class BlockPiece(NamedTuple):
    """The text that one element contributes to a block; no id for separators and page marks."""

    element_id: str | None
    text: str


@dataclass(frozen=True)
class MarkdownBlock:
    """A Markdown block, from one or more elements. No blank line separates neighbours of one `list_kind`."""

    pieces: tuple[BlockPiece, ...]
    list_kind: str | None = None


@dataclass(frozen=True)
class RenderContext:
    """What rendering one element needs."""

    flow: Flow
    options: Markdown = DEFAULT_OPTIONS
    crops: Mapping[str, str] = field(default_factory=dict)  # crop path -> address, where they differ


def write(
    document: Document, options: Markdown = DEFAULT_OPTIONS, crops: Mapping[str, str] | None = None
) -> tuple[str, dict[str, Span]]:
    """Return the text of document.md and the span of each element that is in it."""
    context = RenderContext(flow.build(document, options), options, crops or {})
    blocks = [MarkdownBlock((BlockPiece(None, front_matter.render(document)),))] if options.front_matter else []
    for number, page, elements in context.flow.pages:
        if options.page_marks:
            blocks.append(MarkdownBlock((BlockPiece(None, _make_page_mark(number, page)),)))
        blocks += _render_page(elements, context)
    return _join_blocks([block for block in blocks if any(piece.text for piece in block.pieces)])


def _render_page(elements: Sequence[Element], context: RenderContext) -> list[MarkdownBlock]:
    """Render the elements, with a visible note before and after text that the reader calls unreadable."""
    blocks = []
    for is_unreadable, group in groupby(elements, key=lambda element: UNREADABLE in element.flags):
        rendered = [_render_block(element, context) for element in group]
        blocks += (
            [_make_note(flow.UNREADABLE_BEGIN), *rendered, _make_note(flow.UNREADABLE_END)]
            if is_unreadable
            else rendered
        )
    return blocks


def _make_note(text: str) -> MarkdownBlock:
    return MarkdownBlock((BlockPiece(None, f"**[{text}]**"),))


def _join_blocks(blocks: Sequence[MarkdownBlock]) -> tuple[str, dict[str, Span]]:
    parts: list[str] = []
    spans: dict[str, Span] = {}
    position = 0
    previous: MarkdownBlock | None = None
    for block in blocks:
        is_same_list = previous and block.list_kind and previous.list_kind == block.list_kind
        separator = "" if previous is None else "\n" if is_same_list else "\n\n"
        for element_id, text in (BlockPiece(None, separator), *block.pieces):
            if element_id is not None and text:
                spans[element_id] = Span(position, position + len(text))
            parts.append(text)
            position += len(text)
        previous = block
    return "".join([*parts, "\n"]), spans


def _make_page_mark(number: int, page: Page | None) -> str:
    mark = f"<!-- page: {number} -->"
    if page is None or not page.is_lost:
        return mark
    return f"{mark}\n<!-- page {number}: {' '.join(filter(None, (page.state, page.reason)))} -->"


def _render_block(element: Element, context: RenderContext) -> MarkdownBlock:
    if context.flow.is_several_items(element):
        return _render_items(element, context)
    if element.kind in flow.JOINABLE:
        return _render_chain(element, context)
    if element.id in context.flow.next_of:
        return _render_joined_table(context.flow.collect_chain(element), context)
    text = _RENDERERS.get(element.kind, _render_plain)(element, context)
    if element.kind in _RENDERED_FROM_DATA and flow.lacks_words(element.text, text):
        text = "\n\n".join(part for part in (text, _render_paragraph(prose.to_one_line(element.text), context)) if part)
    return MarkdownBlock((BlockPiece(element.id, text),))


def _render_chain(element: Element, context: RenderContext) -> MarkdownBlock:
    """Render a paragraph, list item or heading joined with all its continuations."""
    parts = context.flow.join(element)
    first = parts[0].line.text
    marker, list_kind = "", None
    if element.kind is Kind.LIST_ITEM and first:
        marker, list_kind, first = list_items.parse(first)
    elif element.is_heading and first:
        marker = "#" * context.flow.get_heading_level(element) + " "
    pieces: list[BlockPiece] = []
    for part, (text, is_markdown), gap in parts:
        marks = context.flow.marks.get(part.id, ())
        text = first if part is element else text
        line = _render_text(text, is_markdown, marks, context.options.maths, alone=len(parts) == 1)
        if part is element:
            is_safe = element.is_heading or (is_markdown and not marker)
            line = marker + (line if is_safe else markdown_escapes.escape_line_start(line, in_list=bool(marker)))
        pieces += [BlockPiece(None, gap), BlockPiece(part.id, line)]
    if element.is_heading:
        pieces[-1] = pieces[-1]._replace(text=escaping.escape_heading_end(pieces[-1].text))
    return MarkdownBlock(tuple(pieces), list_kind)


def _render_items(element: Element, context: RenderContext) -> MarkdownBlock:
    """Render an element of several paragraphs or list items; items of one list get no blank line between them."""
    rendered, previous_kind = "", None
    for text, is_markdown in flow.split_items(element):
        marker, list_kind, rest = list_items.parse(text) if list_items.begins_item(text) else ("", None, text)
        marks = context.flow.marks.get(element.id, ())
        line = _render_text(rest, is_markdown, marks, context.options.maths, alone=True)
        separator = "" if not rendered else "\n" if list_kind and list_kind == previous_kind else "\n\n"
        is_safe = is_markdown and not marker
        rendered += (
            separator + marker + (line if is_safe else markdown_escapes.escape_line_start(line, in_list=bool(marker)))
        )
        previous_kind = list_kind
    return MarkdownBlock((BlockPiece(element.id, rendered),))


def _render_text(text: str, is_markdown: bool, marks: Sequence[Reference], style: Maths, alone: bool = False) -> str:
    """Escape one line of text, and replace its footnote references by `[^label]`. `alone`: it is all of its block."""
    for mark in marks:
        if span := mark.find(text):
            remaining = [other for other in marks if other is not mark]
            before = _render_text(text[: span[0]], is_markdown, remaining, style)
            return f"{before}[^{mark.label}]{_render_text(text[span[1] :], is_markdown, remaining, style)}"
    return escaping.normalise_markdown(text, style) if is_markdown else escaping.escape_text(text, style, alone)


def _render_paragraph(text: str, context: RenderContext) -> str:
    return markdown_escapes.escape_line_start(escaping.escape_text(text, context.options.maths, alone=True))


def _render_plain(element: Element, context: RenderContext) -> str:
    text, is_markdown = flow.choose_text(element)
    if is_markdown:
        return escaping.normalise_markdown(prose.to_one_line(text), context.options.maths)
    return _render_paragraph(prose.to_one_line(text), context)


def _render_footnote(element: Element, context: RenderContext) -> str:
    label, note = context.flow.notes.get(element.id), footnotes.parse_note(element.text)
    if label is None or note is None:
        return _render_plain(element, context)
    return f"[^{label}]: {_render_paragraph(prose.to_one_line(note[1]), context)}"


def _render_code(element: Element, context: RenderContext) -> str:
    text = flow.clean_code(element.text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}" if text.strip() else ""


def _render_formula(element: Element, context: RenderContext) -> str:
    latex = element.formula.latex if element.formula and element.formula.latex else element.text
    latex = escaping.clean_latex(latex)
    begin, end = escaping.MATHS_DELIMITERS[context.options.maths][1]
    return f"{begin}\n{latex}\n{end}" if latex.strip() else ""


def _render_table(element: Element, context: RenderContext) -> str:
    return markdown_tables.render_table(element.table, context.options) if element.table else ""


def _render_figure(element: Element, context: RenderContext) -> str:
    """Render the image, the text visible in it, its description and its data."""
    figure, visible = element.figure, flow.collect_visible_text(element)
    is_short = len(visible) <= flow.MAX_ALT_LENGTH
    parts = []
    if element.image:
        alt_text = visible if visible and is_short else context.flow.choose_alt_text(element)
        address = context.crops.get(element.image) or quote(element.image, safe="/-._~")
        parts.append(f"![{escaping.escape_alt_text(alt_text, context.options.maths)}]({address})")
    if visible and not (element.image and is_short):
        parts.append(_render_paragraph(visible, context))
    parts.append(_render_paragraph(flow.get_description(element), context))
    if figure:
        parts.append(markdown_tables.render_table(figure.data, context.options) if figure.data else "")
        parts.append(_render_mermaid(figure.mermaid or ""))
    return "\n\n".join(part for part in parts if part)


def _render_mermaid(code: str) -> str:
    lines = flow.clean_mermaid(code)
    return f"```mermaid\n{lines}\n```" if lines else ""


def _render_joined_table(parts: Sequence[Element], context: RenderContext) -> MarkdownBlock:
    """Render a table that spans several pages as one; each part's span holds its own rows."""
    texts, end = markdown_tables.render_joined_tables([part.table for part in parts if part.table], context.options)
    pieces: list[BlockPiece] = []
    for part, text in zip(parts, texts, strict=True):
        pieces += [BlockPiece(None, "\n" if pieces and text else ""), BlockPiece(part.id, text)]
    return MarkdownBlock((*pieces, BlockPiece(None, end)))


_RENDERERS: Mapping[Kind, Callable[[Element, RenderContext], str]] = {
    Kind.FOOTNOTE: _render_footnote,
    Kind.CODE: _render_code,
    Kind.FORMULA: _render_formula,
    Kind.TABLE: _render_table,
    Kind.PICTURE: _render_figure,
    Kind.CHART: _render_figure,
}
# Rendered from cells or figure data, so the element's own text may have to be added.
_RENDERED_FROM_DATA = frozenset({Kind.TABLE, Kind.PICTURE, Kind.CHART})
