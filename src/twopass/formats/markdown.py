"""Write document.md, and find the span of every element in it.

The text holds every word of every body element; paragraphs, headings and tables that continue on a later page are
joined. By default each page has a page mark, and furniture (headers, footers) is left out; options change both. The
same document gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import quote

from twopass.document import HEADINGS, Document, Element, Kind, Page, Span
from twopass.format_options import Markdown, Maths
from twopass.formats import escaping, front_matter, markdown_notes, markdown_tables
from twopass.formats.markdown_notes import Reference
from twopass.text import direction, footnotes, list_items, markdown_escapes, prose
from twopass.text.confidence import UNREADABLE

DEFAULT_OPTIONS = Markdown()
PARAGRAPHS = frozenset({Kind.TEXT, Kind.LIST_ITEM})
JOINABLE = PARAGRAPHS | HEADINGS  # joined with their continuation on the next page
MAX_HEADING_LEVEL = 6  # Markdown's ######
MAX_ALT_LENGTH = 200  # characters of alternative text; longer visible text becomes a paragraph below the image
RTL_BEGIN, RTL_END = '<div dir="rtl">', "</div>"  # Markdown itself cannot say that a text runs from right to left
UNREADABLE_BEGIN = "**[The following text could not be read reliably.]**"
LIST_END = "<!-- -->"  # between two lists of the same kind, which Markdown would take for one
UNREADABLE_END = "**[End of the text that could not be read reliably.]**"
# Markdown of more than one paragraph, or of another block.
_BLOCK_MARKUP = re.compile(r"\A(?:[#|!>]|<(?!su[bp]>)|```|\$\$)|\n\s*(?:\n|[#|<>]|[-*+]\s|\d+[.)]\s|```|\$\$)")
_INLINE_MARKUP = re.compile(r"</?su[bp]>|\*+")  # may stand inside a word


class BlockPiece(NamedTuple):
    """The text that one element contributes to a block; no id for separators and page marks."""

    element_id: str | None
    text: str


@dataclass(frozen=True)
class MarkdownBlock:
    """A Markdown block, from one or more elements.

    `first_marker` and `last_marker` are those of the list items that it begins and ends with; empty for other text.
    `is_rtl` is None for a block without letters, which has no direction of its own.
    """

    pieces: tuple[BlockPiece, ...]
    first_marker: str = ""
    last_marker: str = ""
    is_rtl: bool | None = None


@dataclass(frozen=True)
class RenderContext:
    """The options, and the links between elements that rendering one of them needs."""

    by_id: Mapping[str, Element]
    next_of: Mapping[str, str]  # element id -> id of its continuation, where both elements name each other
    has_title: bool
    options: Markdown = DEFAULT_OPTIONS
    crops: Mapping[str, str] = field(default_factory=dict)  # crop path -> address, where they differ
    notes: Mapping[str, str] = field(default_factory=dict)  # footnote id -> label
    marks: Mapping[str, Sequence[Reference]] = field(default_factory=dict)  # paragraph id -> references in it


def write(
    document: Document,
    options: Markdown = DEFAULT_OPTIONS,
    crops: Mapping[str, str] | None = None,
    mark_direction: bool = True,
) -> tuple[str, dict[str, Span]]:
    """Return the text of document.md and the span of each element that is in it.

    `mark_direction` puts text that runs from right to left into elements that say so.
    """
    context = _build_context(document, options, crops or {})
    pages: dict[int, list[Element]] = {page.number: [] for page in document.pages}
    for element in document.elements:
        pages.setdefault(element.page, []).append(element)
    page_of = {page.number: page for page in document.pages}
    joined = set(context.next_of.values())
    blocks = [MarkdownBlock((BlockPiece(None, front_matter.render(document)),))] if options.front_matter else []
    for number in sorted(pages):
        if options.page_marks:
            blocks.append(MarkdownBlock((BlockPiece(None, _make_page_mark(number, page_of.get(number))),)))
        rendered = _render_page([e for e in pages[number] if e.id in context.by_id and e.id not in joined], context)
        filled = [block for block in rendered if any(piece.text for piece in block.pieces)]
        blocks += _mark_direction(filled) if mark_direction else filled
    return _join_blocks(blocks)


def _render_page(elements: Sequence[Element], context: RenderContext) -> list[MarkdownBlock]:
    """Render the elements, with a visible note before and after text that the reader calls unreadable."""
    blocks = []
    was_unreadable = False
    for element in elements:
        is_unreadable = UNREADABLE in element.flags
        if is_unreadable != was_unreadable:
            blocks.append(MarkdownBlock((BlockPiece(None, UNREADABLE_BEGIN if is_unreadable else UNREADABLE_END),)))
        blocks.append(replace(_render_block(element, context), is_rtl=_is_rtl(element)))
        was_unreadable = is_unreadable
    if was_unreadable:
        blocks.append(MarkdownBlock((BlockPiece(None, UNREADABLE_END),)))
    return blocks


def _is_rtl(element: Element) -> bool | None:
    if element.kind is Kind.CODE:
        return False
    text = element.text or "".join(cell.text for cell in (element.table.cells if element.table else ()))
    return direction.is_rtl(text) if any(map(str.isalpha, text)) else None


def _mark_direction(blocks: Sequence[MarkdownBlock]) -> list[MarkdownBlock]:
    """Put each run of right-to-left blocks between marks."""
    marked: list[MarkdownBlock] = []
    is_rtl = False
    for block in blocks:
        if block.is_rtl is not None and block.is_rtl != is_rtl:
            is_rtl = block.is_rtl
            marked.append(MarkdownBlock((BlockPiece(None, RTL_BEGIN if is_rtl else RTL_END),)))
        marked.append(block)
    return [*marked, MarkdownBlock((BlockPiece(None, RTL_END),))] if is_rtl else marked


def find_continuations(document: Document) -> dict[str, str]:
    """Map the id of each body paragraph, list item or heading to the id of its continuation, if it has one."""
    return dict(_build_context(document, Markdown(merge_tables=False), {}).next_of)


def _join_blocks(blocks: Sequence[MarkdownBlock]) -> tuple[str, dict[str, Span]]:
    parts: list[str] = []
    spans: dict[str, Span] = {}
    position = 0
    previous: MarkdownBlock | None = None
    for block in blocks:
        separator = "" if previous is None else _choose_separator(previous.last_marker, block.first_marker)
        for element_id, text in (BlockPiece(None, separator), *block.pieces):
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
    return "\n" if list_items.is_next(marker, following) else f"\n\n{LIST_END}\n\n"


def _make_page_mark(number: int, page: Page | None) -> str:
    mark = f"<!-- page: {number} -->"
    if page is None or not page.is_lost:
        return mark
    return f"{mark}\n<!-- page {number}: {' '.join(filter(None, (page.state, page.reason)))} -->"


def _build_context(document: Document, options: Markdown, crops: Mapping[str, str]) -> RenderContext:
    body = [element for element in document.elements if element.is_body or options.furniture]
    by_id = {element.id: element for element in body}
    position = {element.id: n for n, element in enumerate(body)}
    next_of = {}
    for element in body:
        following = by_id.get(element.continued_by or "")
        if following is None or (element.kind is Kind.TABLE and not options.merge_tables):
            continue
        # Only forwards and only if both name each other: otherwise links could form a cycle or drop an element.
        is_linked = following.continues == element.id and position[following.id] > position[element.id]
        if is_linked and _can_join(element, following):
            next_of[element.id] = following.id
    notes, marks = markdown_notes.link(body, by_id, PARAGRAPHS, lambda element: _choose_text(element)[0])
    has_title = any(element.kind is Kind.TITLE for element in body)
    return RenderContext(by_id, next_of, has_title, options, crops, notes, marks)


def _can_join(first: Element, second: Element) -> bool:
    """Whether both can be written as one: texts that have words, or tables with equally many columns."""
    if Kind.TABLE in (first.kind, second.kind):
        return (columns := _count_columns(first)) is not None and columns == _count_columns(second)
    return (
        {first.kind, second.kind} <= JOINABLE
        and first.is_heading == second.is_heading
        and _has_words(first)
        and _has_words(second)
    )


def _count_columns(element: Element) -> int | None:
    """Count a table's columns; None if its cells lack words of its text, which is then written below the table."""
    table = element.table if element.kind is Kind.TABLE else None
    if not table or not table.cells or _lacks_words(element.text, "\n".join(cell.text for cell in table.cells)):
        return None
    return max(table.cols, *(cell.col + cell.col_span for cell in table.cells))


def _has_words(element: Element) -> bool:
    return bool(prose.to_one_line(_choose_text(element)[0]))


def _choose_text(element: Element) -> tuple[str, bool]:
    """Return an element's text and whether it is Markdown: the model's own Markdown only if it has all the words."""
    return (element.text, False) if element.is_heading else _choose_markdown(element.text, element.markdown.strip())


def _choose_markdown(text: str, markdown: str) -> tuple[str, bool]:
    # Without markup the plain text says the same, and it gets escaped.
    has_markup = list_items.parse(prose.to_one_line(markdown))[1] != list_items.parse(prose.to_one_line(text))[1]
    if not markdown or not has_markup or _BLOCK_MARKUP.search(markdown):
        return text, False
    lacks_words = _lacks_words(text, markdown) and _lacks_words(text, _INLINE_MARKUP.sub("", markdown))
    return (text, False) if lacks_words else (markdown, True)


def _lacks_words(text: str, rendered: str) -> bool:
    """Whether any word of the text is missing from what was rendered."""
    return bool(set(prose.split_words(text)) - set(prose.split_words(rendered)))


def _render_block(element: Element, context: RenderContext) -> MarkdownBlock:
    if element.kind in PARAGRAPHS and element.id not in context.next_of and len(list_items.split(element.text)) > 1:
        return _render_items(element, context)
    if element.kind in JOINABLE:
        return _render_chain(element, context)
    if element.id in context.next_of:
        return _render_joined_table(_collect_chain(element, context), context)
    text = _RENDERERS.get(element.kind, _render_plain)(element, context)
    if element.kind in _RENDERED_FROM_DATA and _lacks_words(element.text, text):
        text = "\n\n".join(part for part in (text, _render_paragraph(prose.to_one_line(element.text), context)) if part)
    return MarkdownBlock((BlockPiece(element.id, text),))


def _collect_chain(element: Element, context: RenderContext) -> list[Element]:
    """Return the element followed by all its continuations."""
    chain = [element]
    while (following := context.next_of.get(chain[-1].id)) is not None:
        chain.append(context.by_id[following])
    return chain


def _render_chain(element: Element, context: RenderContext) -> MarkdownBlock:
    """Render a paragraph, list item or heading joined with all its continuations."""
    chain = _collect_chain(element, context)
    sources = [_choose_text(part) for part in chain]
    texts = [prose.to_one_line(text) for text, _ in sources]
    gaps = [""]
    for n in range(1, len(texts)):
        texts[n - 1], gap, texts[n] = prose.join_lines(texts[n - 1], texts[n])
        gaps.append(gap)
    marker = ""
    if element.kind is Kind.LIST_ITEM and texts[0]:
        marker, texts[0] = list_items.parse(texts[0])
    elif element.is_heading and texts[0]:
        marker = _make_heading_marker(element, context)
    pieces: list[BlockPiece] = []
    for part, text, (_, is_markdown), gap in zip(chain, texts, sources, gaps, strict=True):
        marks = context.marks.get(part.id, ())
        line = _render_text(text, is_markdown, marks, context.options.maths, alone=len(chain) == 1)
        if part is element:
            is_safe = element.is_heading or (is_markdown and not marker)
            line = marker + (line if is_safe else markdown_escapes.escape_line_start(line, in_list=bool(marker)))
        pieces += [BlockPiece(None, gap), BlockPiece(part.id, line)]
    if element.is_heading:
        pieces[-1] = pieces[-1]._replace(text=escaping.escape_heading_end(pieces[-1].text))
        return MarkdownBlock(tuple(pieces))
    return MarkdownBlock(tuple(pieces), marker, marker)


def _render_items(element: Element, context: RenderContext) -> MarkdownBlock:
    """Render an element of several paragraphs or list items."""
    texts, own = list_items.split(element.text), list_items.split(element.markdown)
    sources = [_choose_markdown(*pair) for pair in zip(texts, own, strict=True)] if len(texts) == len(own) else []
    marks = context.marks.get(element.id, ())
    rendered = ""
    markers: list[str] = []
    for text, is_markdown in sources or [(text, False) for text in texts]:
        marker, rest = list_items.parse(text) if list_items.begins_item(text) else ("", text)
        line = _render_text(rest, is_markdown, marks, context.options.maths, alone=True)
        if marker or not is_markdown:
            line = markdown_escapes.escape_line_start(line, in_list=bool(marker))
        separator = _choose_separator(markers[-1], marker) if markers else ""
        rendered += separator + marker + line
        markers.append(marker)
    return MarkdownBlock((BlockPiece(element.id, rendered),), markers[0], markers[-1])


def _render_text(text: str, is_markdown: bool, marks: Sequence[Reference], style: Maths, alone: bool = False) -> str:
    """Escape one line of text, and replace its footnote references by `[^label]`. `alone`: it is all of its block."""
    rendered, start = "", 0
    found = sorted((span, mark.label) for mark in marks if (span := mark.find(text)))
    for (begin, end), label in found:
        if begin >= start:
            rendered += f"{_escape(text[start:begin], is_markdown, style)}[^{label}]"
            if text.startswith(("(", ":"), end):  # the reference would begin a link or the note
                rendered += "\\"
            start = end
    return rendered + _escape(text[start:], is_markdown, style, alone and not found)


def _escape(text: str, is_markdown: bool, style: Maths, alone: bool = False) -> str:
    return escaping.normalise_markdown(text, style) if is_markdown else escaping.escape_text(text, style, alone)


def _render_paragraph(text: str, context: RenderContext) -> str:
    return markdown_escapes.escape_line_start(escaping.escape_text(text, context.options.maths, alone=True))


def _render_plain(element: Element, context: RenderContext) -> str:
    text, is_markdown = _choose_text(element)
    if is_markdown:
        return escaping.normalise_markdown(prose.to_one_line(text), context.options.maths)
    return _render_paragraph(prose.to_one_line(text), context)


def _render_footnote(element: Element, context: RenderContext) -> str:
    label, note = context.notes.get(element.id), footnotes.parse_note(element.text)
    if label is None or note is None:
        return _render_plain(element, context)
    return f"[^{label}]: {_render_paragraph(prose.to_one_line(note[1]), context)}"


def _make_heading_marker(element: Element, context: RenderContext) -> str:
    level = 1 if element.kind is Kind.TITLE else (element.level or 1) + context.has_title
    return "#" * max(1, min(level, MAX_HEADING_LEVEL)) + " "


def _render_code(element: Element, context: RenderContext) -> str:
    text = re.sub(r"\n\s*\n(\s*\n)+", "\n\n", element.text.replace("\r", "\n")).strip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}" if text.strip() else ""


def _render_formula(element: Element, context: RenderContext) -> str:
    """Render the LaTeX; without it, the text, in which a formula's reader would drop spaces and comments."""
    if not (element.formula and element.formula.latex):
        return _render_paragraph(prose.to_one_line(element.text), context)
    latex = escaping.clean_latex(element.formula.latex)
    begin, end = escaping.MATHS_DELIMITERS[context.options.maths][1]
    return f"{begin}\n{latex}\n{end}" if latex.strip() else ""


def _render_table(element: Element, context: RenderContext) -> str:
    return markdown_tables.render_table(element.table, context.options) if element.table else ""


def _render_figure(element: Element, context: RenderContext) -> str:
    """Render the image, the text visible in it, its description and its data."""
    figure = element.figure
    texts = [element.text]
    if figure and figure.visible_text and _lacks_words(figure.visible_text, element.text):
        texts.append(figure.visible_text)
    # One by one: joined, a word broken at the end of one text would be completed by the other.
    visible = " ".join(filter(None, map(prose.to_one_line, texts)))
    parts = []
    if element.image:
        alt_text = visible if visible and len(visible) <= MAX_ALT_LENGTH else _choose_alt_text(element, context)
        address = context.crops.get(element.image) or quote(element.image, safe="/-._~")
        parts.append(f"![{escaping.escape_alt_text(alt_text, context.options.maths)}]({address})")
    if visible and not (element.image and len(visible) <= MAX_ALT_LENGTH):
        parts.append(_render_paragraph(visible, context))
    if figure:
        description = figure.description if figure.description != element.text else None
        parts.append(_render_paragraph(prose.to_one_line(description or ""), context))
        parts.append(markdown_tables.render_table(figure.data, context.options) if figure.data else "")
        parts.append(_render_mermaid(figure.mermaid or ""))
    return "\n\n".join(part for part in parts if part)


def _choose_alt_text(element: Element, context: RenderContext) -> str:
    """Return the first of captions, summary and kind that the element has."""
    captions = [context.by_id[name].text for name in element.caption_ids if name in context.by_id]
    return prose.to_one_line("\n".join(captions) or element.summary or element.kind)[:MAX_ALT_LENGTH]


def _render_mermaid(code: str) -> str:
    lines = [line for line in code.splitlines() if line.strip() and "```" not in line]
    return "\n".join(["```mermaid", *lines, "```"]) if lines else ""


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
