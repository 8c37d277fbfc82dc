"""Write document.html: the document for reading, in one file that opens without network access and has no script.

It holds the same text as document.md, and follows the same options where they concern both. Its elements have their
DocJSON ids, pages begin at `#page-N`. All text is escaped; formulas are MathML with their LaTeX as annotation.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from twopass.document import FIGURES, FURNITURE, Cell, Element, Flag, Kind, Table
from twopass.formats import flow
from twopass.formats.flow import InlineText, PageFlow, Reference
from twopass.formats.html.page import encode, load_asset, make_policy, open_tag, tag
from twopass.formats.html.text import Insertion, TextRenderer, make_link
from twopass.formats.writer_input import WriterInput
from twopass.text import direction, footnotes, links, list_items, prose
from twopass.text.links import ShownLink
from twopass.text.table_markup import group_rows

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")  # what a file says of itself may be anything
_ENGLISH = {"lang": "en", "dir": "ltr"}  # our own words
_CAPTIONED = FIGURES | {Kind.TABLE}
_CLASSES = {
    Kind.CAPTION: "caption",
    Kind.FOOTNOTE: "footnote",
    Kind.PAGE_HEADER: "furniture",
    Kind.PAGE_FOOTER: "furniture",
    Kind.FORMULA: "formula",
}
_CONTENTS_DEPTH = 3  # deeper headings would hide the others
_MIN_CONTENTS = 5  # fewer headings are found without a list of them


class _Block(NamedTuple):
    """A block of the page.

    `marker` is the Markdown marker of a list item, empty for other blocks; `link` is a heading's entry in the contents.
    """

    html: Markup
    heading_level: int | None = None
    marker: str = ""
    link: Markup | None = None


def write(inputs: WriterInput) -> bytes:
    style = load_asset(__package__, "document.css")
    writer = _DocumentWriter(inputs)
    meta = inputs.shown.meta
    head = [
        Markup('<meta charset="utf-8">'),
        open_tag("meta", http_equiv="Content-Security-Policy", content=make_policy(style)),
        open_tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        open_tag("meta", name="referrer", content="no-referrer"),
        open_tag("meta", name="author", content=meta.author) if meta.author else "",
        tag("title", meta.title or inputs.shown.id),
        tag("style", Markup(style)),
    ]
    blocks = writer.write_blocks()
    article = tag("article", _join_lines(["", *_nest_sections(_build_lists(blocks)), ""]))
    body = _join_lines(filter(None, [_build_contents(blocks), article]))
    content = _join_lines(["", tag("head", _join_lines(["", *filter(None, head), ""])), tag("body", body), ""])
    html = tag("html", content, lang=writer.language, dir="rtl" if writer.direction == "rtl" else None)
    return encode(f"<!DOCTYPE html>\n{html}\n")


def _build_contents(blocks: Iterable[_Block]) -> Markup | None:
    """Build a list of links to the headings, if there are many; it is folded, so that the document begins below it."""
    headings = [block for block in blocks if block.heading_level and block.heading_level <= _CONTENTS_DEPTH]
    if len(headings) < _MIN_CONTENTS:
        return None
    return tag("nav", _fold("Contents", _nest_headings(headings)), aria_label="Contents")


def _nest_headings(headings: Sequence[_Block]) -> Markup:
    """Put the headings below another one into a list inside its item."""
    items, remaining = list[Markup](), deque(headings)
    while remaining:
        heading = remaining.popleft()
        below = []
        while remaining and (remaining[0].heading_level or 0) > (heading.heading_level or 0):
            below.append(remaining.popleft())
        items.append(tag("li", (heading.link or "") + (_nest_headings(below) if below else Markup(""))))
    return tag("ul", _join_lines(["", *items, ""]))


def _nest_sections(blocks: Iterable[_Block]) -> Iterator[Markup]:
    """Put each heading and what follows it into a section, which lies in the section of the heading above it."""
    open_levels: list[int] = []
    for block in blocks:
        while block.heading_level and open_levels and open_levels[-1] >= block.heading_level:
            open_levels.pop()
            yield Markup("</section>")
        if block.heading_level:
            open_levels.append(block.heading_level)
            yield Markup("<section>")
        yield block.html
    yield from [Markup("</section>")] * len(open_levels)


def _build_lists(blocks: Sequence[_Block]) -> Iterator[_Block]:
    """Put neighbouring items of one kind into a list. Its numbers may jump, because each item says its own."""
    for kind, group in groupby(blocks, key=lambda block: list_items.get_kind(block.marker)):
        if not kind:
            yield from group
        else:
            items = list(group)
            content = _join_lines(["", *(item.html for item in items), ""])
            yield _Block(tag("ul" if list_items.get_number(items[0].marker) is None else "ol", content))


def _attach_captions(pages: Sequence[PageFlow]) -> dict[str, list[Element]]:
    """The captions that are written with their table or figure, by its id; others stay where they are."""
    captions: dict[str, list[Element]] = {}
    for page in pages:
        owners = {element.id: element for element in page.elements if element.kind in _CAPTIONED}
        for element in page.elements:
            owner = owners.get(element.parent_id or "")
            if element.kind is Kind.CAPTION and owner and element.id in owner.caption_ids:
                captions.setdefault(owner.id, []).append(element)
    return captions


def _join_lines(lines: Iterable[str]) -> Markup:
    return Markup("\n").join(lines)


def _make_note(text: str) -> _Block:
    return _Block(tag("p", f"[{text}]", class_="note", **_ENGLISH))


def _get_primary(language: str | None) -> str | None:
    """`de` for de-AT."""
    return language.partition("-")[0].lower() if language else None


class _DocumentWriter:
    """Writes the blocks of one document."""

    def __init__(self, inputs: WriterInput) -> None:
        document, self._options = inputs.shown, inputs.options.markdown
        self._crops = inputs.crops
        self._flow = inputs.flow
        self._texts = TextRenderer(annotate=True)
        self._captions = _attach_captions(self._flow.pages)
        self._page_languages = {page.number: page.language for page in document.pages}
        self._note_ids = {label: note_id for note_id, label in self._flow.notes.items()}
        self._linked: set[str] = set()  # labels of the footnotes that a text written so far refers to
        stated = document.meta.language or ""
        self.language = stated if _LANGUAGE.fullmatch(stated) else None
        self.direction = direction.find_direction("".join(element.text for element in document.elements)) or "ltr"
        self._renderers: Mapping[Kind, Callable[[Element], Markup | None]] = {
            Kind.FOOTNOTE: self._render_footnote,
            Kind.CODE: self._render_code,
            Kind.FORMULA: self._render_formula,
            Kind.TABLE: self._render_table,
            Kind.PICTURE: self._render_figure,
            Kind.CHART: self._render_figure,
        }

    def write_blocks(self) -> list[_Block]:
        blocks: list[_Block] = []
        attached = {caption.id for captions in self._captions.values() for caption in captions}
        for page in self._flow.pages:
            if self._options.page_marks:
                blocks += _mark_page(page)
            elements = [element for element in page.elements if element.id not in attached]
            for is_unreadable, group in groupby(elements, key=lambda element: Flag.UNREADABLE in element.flags):
                rendered = [block for element in group for block in self._render_blocks(element)]
                begin, end = map(_make_note, flow.UNREADABLE_NOTES)
                blocks += [begin, *rendered, end] if is_unreadable else rendered
        return blocks

    def _render_blocks(self, element: Element) -> list[_Block]:
        if self._flow.is_several_items(element):
            return self._render_items(element)
        if element.kind in flow.JOINABLE:
            return self._render_joined(element)
        html = self._renderers.get(element.kind, self._render_plain)(element)
        return [_Block(html)] if html else []

    def _render_items(self, element: Element) -> list[_Block]:
        """Render the paragraphs and list items of one element; the first one has its id."""
        blocks, letters = [], 0
        for n, item in enumerate(flow.split_items(element)):
            attributes = self._describe(element, item.text) | {"id": None if n else element.id}
            marker, rest = flow.parse_item(element, item.text)
            skipped = letters + links.count_letters(item.text.removesuffix(rest))
            content = self._render_line(element, item._replace(text=rest), skipped)
            letters += links.count_letters(item.text)
            blocks.append(_make_list_item(marker, content, attributes))
        return blocks

    def _render_joined(self, element: Element) -> list[_Block]:
        """Render a paragraph, list item or heading with its continuations, each of which has its id."""
        first, *following = self._flow.join(element)
        if not first.line.text:
            return []
        marker, text = list_items.parse(first.line.text) if element.kind is Kind.LIST_ITEM else ("", first.line.text)
        skipped = links.count_letters(first.line.text.removesuffix(text))
        content = self._render_line(element, first.line._replace(text=text), skipped)
        for part in following:
            content += part.gap + tag("span", self._render_line(part.element, part.line), id=part.element.id)
        attributes = self._describe(element, " ".join(part.line.text for part in (first, *following)))
        if marker:
            return [_make_list_item(marker, content, attributes)]
        if not element.is_heading:
            return [_Block(tag("p", content, **attributes))]
        level = self._flow.get_heading_level(element)
        parts = (Markup(part.gap) + self._render_unlinked(part.element) for part in (first, *following))
        link = tag("a", Markup("").join(parts), **attributes | {"id": None}, href=f"#{quote(element.id, safe='/-._~')}")
        return [_Block(tag(f"h{level}", content, **attributes), heading_level=level, link=link)]

    def _render_line(self, element: Element, line: InlineText, skipped: int = 0) -> Markup:
        """Render one line, with its links, and links to the footnotes that it refers to.

        `skipped` is the number of the element's letters in front of it.
        """
        insertions = [
            Insertion(*span, self._link_note(reference))
            for reference in self._flow.marks.get(element.id, ())
            if (span := reference.find(line.text))
        ]
        shown = flow.locate_links(element, line, skipped)
        return self._texts.render(line.text, line.is_markdown, insertions, shown)

    def _render_unlinked(self, element: Element) -> Markup:
        """Render the text of a heading without links, for a place inside a link."""
        text = prose.to_one_line(element.text)
        references = self._flow.marks.get(element.id, ())
        return self._texts.render(
            text, False, [Insertion(*span, Markup("")) for r in references if (span := r.find(text))]
        )

    def _link_note(self, reference: Reference) -> Markup:
        label = reference.label
        anchor = None if label in self._linked else f"ref-{label}"
        self._linked.add(label)
        link = tag("a", reference.mark, id=anchor, href=f"#{self._note_ids[label]}", role="doc-noteref")
        return tag("sup", link)

    def _render_plain(self, element: Element) -> Markup | None:
        text, is_markdown = flow.choose_text(element)
        line = InlineText(prose.to_one_line(text), is_markdown)
        return self._render_paragraph(element, line, flow.locate_links(element, line))

    def _render_paragraph(self, element: Element, line: InlineText, shown: Sequence[ShownLink] = ()) -> Markup | None:
        text = line.text
        if not text:
            return None
        content = self._texts.render(text, line.is_markdown, shown=shown)
        is_header = element.kind in FURNITURE and element.is_body  # written like any other paragraph
        name = None if is_header else _CLASSES.get(element.kind)
        return tag("p", content, **self._describe(element, text), class_=name)

    def _render_footnote(self, element: Element) -> Markup | None:
        label, note = self._flow.notes.get(element.id), footnotes.parse_note(element.text)
        if label not in self._linked or note is None:
            return self._render_plain(element)
        text = prose.to_one_line(note[1])
        skipped = links.count_letters(element.text) - links.count_letters(text)
        shown = flow.locate_links(element, InlineText(text, False), skipped)
        back = tag("a", note[0], href=f"#ref-{label}", role="doc-backlink", aria_label=f"Back to reference {note[0]}")
        content = Markup("{} {}").format(tag("sup", back), self._texts.render(text, shown=shown))
        return tag("p", content, **self._describe(element, text), class_="footnote", role="doc-footnote")

    def _render_code(self, element: Element) -> Markup | None:
        text = flow.clean_code(element.text)
        return tag("pre", tag("code", text), id=element.id, dir="ltr") if text.strip() else None

    def _render_formula(self, element: Element) -> Markup | None:
        latex = flow.get_latex(element)
        if not latex:
            return self._render_paragraph(element, InlineText(prose.to_one_line(element.text), False))
        return tag("div", self._texts.render_formula(latex), id=element.id, class_="formula")

    def _render_table(self, element: Element) -> Markup | None:
        """Render a table with its captions and with the tables that continue it."""
        chain = self._flow.collect_chain(element)
        parts = [part.table for part in chain if part.table]
        cells = flow.join_tables(parts)[0] if parts and parts[0].cells else []
        if not cells:
            text = flow.get_table_text(parts[0]) if parts else ""
            contents = [self._render_own(element, text), self._render_own(element, flow.get_own_text(element))]
            return self._enclose(element, contents, self._render_captions(element))
        anchors = [tag("span", id=part.id) for part in chain[1:]]
        rendered = self._render_cells(element, cells, self._render_captions(element), element.id)
        missing = self._render_own(element, flow.get_own_text(element))
        return _join_lines(filter(None, [*anchors, rendered, missing]))

    def _render_cells(
        self, element: Element, cells: Sequence[Cell], captions: Sequence[Markup] = (), table_id: str | None = None
    ) -> Markup:
        attributes = self._describe(element, "\n".join(cell.text for cell in cells)) | {"id": table_id}
        caption = tag("caption", _join_lines(captions)) if captions else Markup("")
        return tag("div", _build_table(cells, caption, self._texts.render_cell, **attributes), class_="scroll")

    def _render_data(self, element: Element, table: Table | None) -> Markup | None:
        """Render the data of a figure."""
        if table is None:
            return None
        if table.cells:
            return self._render_cells(element, table.cells)
        return self._render_own(element, flow.get_table_text(table))

    def _render_own(self, element: Element, text: str) -> Markup | None:
        """Render a text as a paragraph without id, inside its element."""
        return tag("p", self._texts.render(text), **self._describe(element, text) | {"id": None}) if text else None

    def _render_figure(self, element: Element) -> Markup | None:
        """Render the image, the text visible in it, its description and its data."""
        texts, contents = flow.describe_figure(element), list[Markup | None]()
        visible = self._render_own(element, texts.visible)
        if element.image:
            source = self._crops.get(element.image) or quote(element.image, safe="/-._~")
            image = open_tag("img", src=source, alt=texts.label, loading="lazy")
            uri = flow.get_own_link(element)
            contents.append(make_link(image, uri) if uri else image)
            visible = visible and _fold("Text in the figure", visible)
        contents += [visible, self._render_own(element, texts.description)]
        contents.append(self._render_data(element, element.figure.data if element.figure else None))
        if texts.mermaid:
            contents.append(_fold("Diagram as Mermaid code", tag("pre", tag("code", texts.mermaid))))
        return self._enclose(element, contents, self._render_captions(element))

    def _enclose(
        self, element: Element, contents: Iterable[Markup | None], captions: Sequence[Markup]
    ) -> Markup | None:
        """Put contents and captions into a figure; captions that come before it stay before its contents."""
        parts = [part for part in contents if part]
        if captions:
            is_above = self._captions[element.id][0].order < element.order
            parts.insert(0 if is_above else len(parts), tag("figcaption", _join_lines(captions)))
        return tag("figure", _join_lines(["", *parts, ""]), id=element.id) if parts else None

    def _render_captions(self, element: Element) -> list[Markup]:
        rendered = map(self._render_plain, self._captions.get(element.id, ()))
        return [caption for caption in rendered if caption]

    def _describe(self, element: Element, text: str) -> dict[str, str | None]:
        """The id of an element, and language and direction where they differ from the document's."""
        language = prose.detect_part_language(text, self._page_languages.get(element.page))
        is_other = _get_primary(language) != _get_primary(self.language)
        return {"id": element.id, "lang": language if is_other else None, "dir": self._find_direction(text)}

    def _find_direction(self, text: str) -> str | None:
        """The direction of a text, if it is not the document's."""
        found = direction.find_direction(text)
        return found if found != self.direction else None


def _make_list_item(marker: str, content: Markup, attributes: Mapping[str, str | None]) -> _Block:
    """A list item; a paragraph without a marker, and with a number such as 01 that lists do not show."""
    number = list_items.get_number(marker)
    if not marker or (number is not None and str(number) != marker[:-2]):
        return _Block(tag("p", marker + content, **attributes))
    return _Block(tag("li", content, **attributes, value=number), marker=marker)


def _mark_page(page: PageFlow) -> list[_Block]:
    """The place where a page begins, with a note if nothing of it was read."""
    number = page.number
    mark = tag(
        "div", str(number), id=f"page-{number}", class_="page", role="doc-pagebreak", aria_label=f"page {number}"
    )
    if page.page is None or not page.page.is_lost:
        return [_Block(mark)]
    reason = f" Reason: {page.page.reason.reason}." if page.page.reason else ""
    return [_Block(mark), _make_note(f"Page {number}: {page.page.state.sentence}{reason}")]


def _fold(summary: str, content: Markup) -> Markup:
    return tag("details", Markup("{}{}").format(tag("summary", summary, **_ENGLISH), content))


def _build_table(
    cells: Sequence[Cell], caption: Markup, render_cell: Callable[[Cell], Markup], **attributes: object
) -> Markup:
    """Render a table with header cells, spans and a caption.

    `render_cell` renders the text of a cell, `attributes` are those of the table.
    """
    rows = group_rows(_close_row_gaps(cells))
    is_header = [all(cell.header for cell in row) for row in rows]
    head = len(list(takewhile(bool, is_header)))
    lines = [
        _render_row(row, gaps, "col" if is_header[n] else "row", render_cell)
        for n, (row, gaps) in enumerate(zip(rows, _count_gaps(rows), strict=True))
    ]
    if head == len(rows) or _has_span_below(rows[:head], rows[head:]):  # a row group would cut the span
        head = 0
    parts = [tag("thead", _join(lines[:head])) if head else "", tag("tbody", _join(lines[head:]))]
    return tag("table", _join([caption, *parts]), **attributes)


def _close_row_gaps(cells: Sequence[Cell]) -> list[Cell]:
    """Number the rows that have cells without gaps: HTML has no row without cells that a span could count."""
    numbers = sorted({cell.row for cell in cells})
    closed = []
    for cell in cells:
        row = bisect_left(numbers, cell.row)
        row_span = bisect_left(numbers, cell.row + cell.row_span) - row
        closed.append(cell.model_copy(update={"row": row, "row_span": row_span}))
    return closed


def _render_row(row: Sequence[Cell], gaps: Sequence[int], scope: str, render_cell: Callable[[Cell], Markup]) -> Markup:
    rendered: list[Markup] = []
    for cell, gap in zip(row, gaps, strict=True):
        rendered += [tag("td")] * gap
        rendered.append(_render_cell(cell, scope, render_cell))
    return tag("tr", _join(rendered))


def _render_cell(cell: Cell, scope: str, render_cell: Callable[[Cell], Markup]) -> Markup:
    return tag(
        "th" if cell.header else "td",
        render_cell(cell),
        scope=scope if cell.header else None,
        rowspan=cell.row_span if cell.row_span > 1 else None,
        colspan=cell.col_span if cell.col_span > 1 else None,
    )


def _count_gaps(rows: Sequence[Sequence[Cell]]) -> Iterator[list[int]]:
    """Yield for each cell of a row how many columns before it no cell occupies, also none that spans from above."""
    free_from: dict[int, int] = {}  # column -> the first row that no span from above reaches
    for row in rows:
        gaps, column = [], 0
        for cell in row:
            occupied = sum(free_from.get(n, 0) > cell.row for n in range(column, min(cell.col, flow.MAX_COLUMNS)))
            gaps.append(max(min(cell.col, flow.MAX_COLUMNS) - column - occupied, 0))
            column = max(column, cell.col + cell.col_span)
        for cell in row:
            for n in range(cell.col, min(cell.col + cell.col_span, flow.MAX_COLUMNS)):
                free_from[n] = max(free_from.get(n, 0), cell.row + cell.row_span)
        yield gaps


def _has_span_below(head: Sequence[Sequence[Cell]], body: Sequence[Sequence[Cell]]) -> bool:
    return bool(head and body) and any(cell.row + cell.row_span > body[0][0].row for row in head for cell in row)


def _join(parts: Sequence[str]) -> Markup:
    return Markup("").join(parts)
