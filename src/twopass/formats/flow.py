"""The text of a document as a reader sees it: which elements are written, which are joined, and with which text.

Markdown and HTML write the same flow; only their markup differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twopass.document import HEADINGS, Document, Element, Kind, Page
from twopass.format_options import Markdown
from twopass.formats import escaping, note_links
from twopass.formats.note_links import Reference
from twopass.text import list_items, prose

PARAGRAPHS = frozenset({Kind.TEXT, Kind.LIST_ITEM})
JOINABLE = PARAGRAPHS | HEADINGS  # joined with their continuation on the next page
MAX_HEADING_LEVEL = 6  # of Markdown and HTML
MAX_ALT_LENGTH = 200  # characters of alternative text; longer visible text becomes text below the image
UNREADABLE_BEGIN = "The following text could not be read reliably."  # notes around text with the flag `unreadable`
UNREADABLE_END = "End of the text that could not be read reliably."
# Markdown of more than one paragraph, or of another block.
_BLOCK_MARKUP = re.compile(r"\A(?:[#|!>]|<(?!su[bp]>)|```|\$\$)|\n\s*(?:\n|[#|<>]|[-*+]\s|\d+[.)]\s|```|\$\$)")
_INLINE_MARKUP = re.compile(r"</?su[bp]>|\*+")  # may stand inside a word


class Line(NamedTuple):
    """A paragraph or list item on one line, and whether it is Markdown."""

    text: str
    is_markdown: bool


class JoinedPart(NamedTuple):
    """What one element contributes to a joined text; `gap` separates it from the part before it."""

    element: Element
    line: Line
    gap: str


class PageFlow(NamedTuple):
    """A page and the elements that begin a block on it; `page` is None if the document lacks that page."""

    number: int
    page: Page | None
    elements: Sequence[Element]


@dataclass(frozen=True)
class Flow:
    """The links between elements that writing one of them needs."""

    pages: Sequence[PageFlow]
    by_id: Mapping[str, Element]
    next_of: Mapping[str, str]  # element id -> id of its continuation, where both elements name each other
    has_title: bool
    notes: Mapping[str, str]  # footnote id -> label
    marks: Mapping[str, Sequence[Reference]]  # paragraph id -> references in it

    def collect_chain(self, element: Element) -> list[Element]:
        """Return the element followed by all its continuations."""
        chain = [element]
        while (following := self.next_of.get(chain[-1].id)) is not None:
            chain.append(self.by_id[following])
        return chain

    def join(self, element: Element) -> list[JoinedPart]:
        """Return the text of a paragraph, list item or heading with that of all its continuations."""
        chain = self.collect_chain(element)
        sources = [choose_text(part) for part in chain]
        texts = [prose.to_one_line(source.text) for source in sources]
        gaps = [""]
        for n in range(1, len(texts)):
            texts[n - 1], gap, texts[n] = prose.join_lines(texts[n - 1], texts[n])
            gaps.append(gap)
        lines = (Line(text, source.is_markdown) for text, source in zip(texts, sources, strict=True))
        return [JoinedPart(*part) for part in zip(chain, lines, gaps, strict=True)]

    def is_several_items(self, element: Element) -> bool:
        """Whether the element is several paragraphs or list items that no other element continues."""
        is_single = element.kind not in PARAGRAPHS or element.id in self.next_of
        return not is_single and len(list_items.split(element.text)) > 1

    def get_heading_level(self, element: Element) -> int:
        """Return a heading's level from 1 to MAX_HEADING_LEVEL: chapters are below the title, if there is one."""
        level = 1 if element.kind is Kind.TITLE else (element.level or 1) + self.has_title
        return max(1, min(level, MAX_HEADING_LEVEL))

    def choose_alt_text(self, element: Element) -> str:
        """Return the alternative text of an image that shows no text: captions, summary or kind."""
        captions = [self.by_id[name].text for name in element.caption_ids if name in self.by_id]
        return prose.to_one_line("\n".join(captions) or element.summary or element.kind)[:MAX_ALT_LENGTH]


def build(document: Document, options: Markdown) -> Flow:
    """Return the flow of the body; headers, footers and tables over pages are treated as the options say."""
    body = [element for element in document.elements if element.is_body or options.furniture]
    by_id = {element.id: element for element in body}
    next_of = _link_continuations(body, by_id, options)
    notes, marks = note_links.link(body, by_id, PARAGRAPHS, lambda element: choose_text(element).text)
    has_title = any(element.kind is Kind.TITLE for element in body)
    joined = set(next_of.values())
    first_parts = [element for element in body if element.id not in joined]
    return Flow(list(_group_by_page(document, first_parts)), by_id, next_of, has_title, notes, marks)


def find_continuations(document: Document) -> Mapping[str, str]:
    """Map the id of each body paragraph, list item or heading to the id of its continuation, if it has one."""
    return build(document, Markdown(merge_tables=False)).next_of


def choose_text(element: Element) -> Line:
    """Return an element's text or its Markdown: the model's own Markdown only if it has all the words."""
    return Line(element.text, False) if element.is_heading else _choose_line(element.text, element.markdown.strip())


def split_items(element: Element) -> list[Line]:
    """Return the paragraphs and list items of one element."""
    texts, own = list_items.split(element.text), list_items.split(element.markdown)
    if len(texts) != len(own):
        return [Line(text, False) for text in texts]
    return [_choose_line(*pair) for pair in zip(texts, own, strict=True)]


def collect_visible_text(element: Element) -> str:
    """Return the text that can be seen in a figure, on one line."""
    texts, figure = [element.text], element.figure
    if figure and figure.visible_text and lacks_words(figure.visible_text, element.text):
        texts.append(figure.visible_text)
    # One by one: joined, a word broken at the end of one text would be completed by the other.
    return " ".join(filter(None, map(prose.to_one_line, texts)))


def get_description(element: Element) -> str:
    """Return a figure's description on one line; empty if it is the element's text."""
    description = element.figure.description if element.figure else None
    return prose.to_one_line(description) if description and description != element.text else ""


def get_latex(element: Element) -> str:
    """Return a formula's LaTeX; empty if it was read as text, whose spaces and comments LaTeX would drop."""
    latex = escaping.clean_latex(element.formula.latex or "") if element.formula else ""
    return latex if latex.strip() else ""


def clean_code(text: str) -> str:
    """Return code without more than one blank line in a row."""
    return re.sub(r"\n\s*\n(\s*\n)+", "\n\n", text.replace("\r", "\n")).strip("\n")


def clean_mermaid(code: str) -> str:
    """Return a diagram's Mermaid code without blank lines and fences."""
    return "\n".join(line for line in code.splitlines() if line.strip() and "```" not in line)


def lacks_words(text: str, rendered: str) -> bool:
    """Whether any word of the text is missing from what was rendered."""
    return bool(set(prose.split_words(text)) - set(prose.split_words(rendered)))


def _group_by_page(document: Document, elements: Sequence[Element]) -> Iterator[PageFlow]:
    by_number: dict[int, list[Element]] = {page.number: [] for page in document.pages}
    for element in elements:
        by_number.setdefault(element.page, []).append(element)
    page_of = {page.number: page for page in document.pages}
    for number in sorted(by_number):
        yield PageFlow(number, page_of.get(number), by_number[number])


def _link_continuations(body: Sequence[Element], by_id: Mapping[str, Element], options: Markdown) -> dict[str, str]:
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
    return next_of


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
    if not table or not table.cells or lacks_words(element.text, "\n".join(cell.text for cell in table.cells)):
        return None
    return max(table.cols, *(cell.col + cell.col_span for cell in table.cells))


def _has_words(element: Element) -> bool:
    return bool(prose.to_one_line(choose_text(element).text))


def _choose_line(text: str, markdown: str) -> Line:
    # Without markup the plain text says the same, and it gets escaped.
    has_markup = list_items.parse(prose.to_one_line(markdown))[1] != list_items.parse(prose.to_one_line(text))[1]
    if not markdown or not has_markup or _BLOCK_MARKUP.search(markdown):
        return Line(text, False)
    is_incomplete = lacks_words(text, markdown) and lacks_words(text, _INLINE_MARKUP.sub("", markdown))
    return Line(text, False) if is_incomplete else Line(markdown, True)
