"""The text of a document as a reader sees it: which elements are written, joined or linked, and with which text.

Markdown and HTML write the same flow; only their markup differs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from typing import NamedTuple

from twopass.document import HEADINGS, Cell, Document, Element, Figure, Flag, Kind, Page, Table
from twopass.format_options import Furniture, Markdown
from twopass.formats import escaping
from twopass.text import broken_words, footnotes, links, list_items, prose, table_markup
from twopass.text.hyphenation import Vocabulary
from twopass.text.links import ShownLink

_PARAGRAPHS = frozenset({Kind.TEXT, Kind.LIST_ITEM})
JOINABLE = _PARAGRAPHS | HEADINGS  # joined with their continuation on the next page
_WITHOUT_LINKS = frozenset({Kind.CODE, Kind.FORMULA})  # their text is shown as it is
_MAX_HEADING_LEVEL = 6  # of Markdown and HTML
MAX_COLUMNS = 200  # of a table, counting empty columns
_MAX_LABEL_LENGTH = 200  # characters of an image's alternative text
# The notes before and after text with the flag `unreadable`.
UNREADABLE_NOTES = (
    "The following text could not be read reliably.",
    "End of the text that could not be read reliably.",
)
_SURE_MATCH = 20  # letters: shorter texts are in others by chance
_MAX_NOTES = 100  # of a page that are linked: each is looked for in all texts of its page
_LABEL = re.compile(r"\w+", flags=re.ASCII)
# Markdown of more than one paragraph, or of another block.
_BLOCK_MARKUP = re.compile(r"\A(?:[#|!>]|<(?!su[bp]>)|```|\$\$)|\n\s*(?:\n|[#|<>]|[-*+]\s|\d+[.)]\s|```|\$\$)")
_INLINE_MARKUP = re.compile(r"</?su[bp]>|\*+")  # may stand inside a word


class Reference(NamedTuple):
    """A paragraph's reference to a footnote; `others` are the other texts of its page."""

    mark: str
    label: str
    others: tuple[str, ...]

    def find(self, text: str) -> tuple[int, int] | None:
        return footnotes.find_reference(text, self.mark, self.others)


class InlineText(NamedTuple):
    """A paragraph or list item on one line, and whether it is Markdown."""

    text: str
    is_markdown: bool


class JoinedPart(NamedTuple):
    """What one element contributes to a joined text; `gap` separates it from the part before it."""

    element: Element
    line: InlineText
    gap: str


class FigureTexts(NamedTuple):
    """What is written of a picture or chart beside its data; each text is empty if there is nothing to write.

    `label` is the alternative text of the image. It repeats no text that is written below the image.
    """

    label: str
    visible: str
    description: str
    mermaid: str


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
    language: str | None

    def collect_chain(self, element: Element) -> list[Element]:
        """The element followed by all its continuations."""
        chain = [element]
        while (following := self.next_of.get(chain[-1].id)) is not None:
            chain.append(self.by_id[following])
        return chain

    def join(self, element: Element) -> list[JoinedPart]:
        """The text of a paragraph, list item or heading with that of all its continuations."""
        chain = self.collect_chain(element)
        sources = [choose_text(part) for part in chain]
        texts = [prose.to_one_line(source.text) for source in sources]
        gaps = [""]
        for n in range(1, len(texts)):
            texts[n - 1], gap, texts[n] = self.join_lines(texts[n - 1], texts[n])
            gaps.append(gap)
        lines = (InlineText(text, source.is_markdown) for text, source in zip(texts, sources, strict=True))
        return [JoinedPart(*part) for part in zip(chain, lines, gaps, strict=True)]

    def join_lines(self, first: str, second: str) -> tuple[str, str, str]:
        """Two parts of a text, and what separates them; the document's words decide on a hyphen between them."""
        return prose.join_lines(first, second, self._vocabulary, self.language)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return broken_words.collect_vocabulary(self.by_id.values())

    def is_several_items(self, element: Element) -> bool:
        """Whether the element is several paragraphs or list items that no other element continues."""
        is_single = element.kind not in _PARAGRAPHS or element.id in self.next_of
        return not is_single and len(list_items.split(element.text)) > 1

    def get_heading_level(self, element: Element) -> int:
        """A heading's level from 1 to _MAX_HEADING_LEVEL: chapters are below the title, if there is one."""
        level = 1 if element.kind is Kind.TITLE else (element.level or 1) + self.has_title
        return max(1, min(level, _MAX_HEADING_LEVEL))


def build(document: Document, options: Markdown) -> Flow:
    """The flow of the body; headers, footers and tables over pages are treated as the options say."""
    body = _write_bullets([element for element in document.elements if is_written(element, options.furniture)])
    by_id = {element.id: element for element in body}
    next_of = _link_continuations(body, by_id, options)
    notes, marks = _link_notes(body, by_id)
    has_title = any(element.kind is Kind.TITLE for element in body)
    joined = set(next_of.values())
    first_parts = [element for element in body if element.id not in joined]
    pages = list(_group_by_page(document, first_parts))
    return Flow(pages, by_id, next_of, has_title, notes, marks, document.meta.language)


def _write_bullets(elements: Sequence[Element]) -> list[Element]:
    """The elements, with bullets in place of the filled boxes that begin items, on pages without other boxes."""
    ticked = {element.page for element in elements if list_items.has_boxes(element.text)}
    return [element if element.page in ticked else _write_bullet(element) for element in elements]


def _write_bullet(element: Element) -> Element:
    text = list_items.write_bullets(element.text) if element.kind in _PARAGRAPHS else element.text
    if text == element.text or (element.kind is not Kind.LIST_ITEM and len(list_items.split(text)) == 1):
        return element
    return element.model_copy(update={"text": text, "markdown": list_items.write_bullets(element.markdown)})


def is_written(element: Element, furniture: Furniture) -> bool:
    """Whether the text formats have this element: body, and furniture as the option says."""
    if element.is_hidden:
        return False
    if furniture is Furniture.OMIT:
        return element.is_body and Flag.APART not in element.flags
    return element.is_body or furniture is Furniture.KEEP


def choose_text(element: Element) -> InlineText:
    """An element's text or its Markdown: the model's own Markdown only if it has all the words."""
    if element.is_heading or _divides_styles(element):
        return InlineText(element.text, False)
    return _choose_line(element.text, element.markdown.strip())


def locate_links(element: Element, line: InlineText, skipped: int = 0) -> list[ShownLink]:
    """Where the links of an element are in a line of its text; `skipped` is the number of letters in front of it."""
    if not element.links or element.kind in _WITHOUT_LINKS:
        return []
    return links.locate(element.links, element.text, line.text, skipped, line.is_markdown)


def get_own_link(element: Element) -> str | None:
    """The address that all of an element leads to, such as that of a picture."""
    return next((link.uri for link in element.links if link.start is None), None)


def _divides_styles(element: Element) -> bool:
    """Whether a link begins or ends within a styled part of the Markdown, so that the marks of both would cross."""
    text = element.markdown.strip()
    ends = sorted(
        {0, len(text), *(n for link in locate_links(element, InlineText(text, True)) for n in (link.start, link.end))}
    )
    return len(ends) > 2 and any(not links.is_balanced(text[start:end]) for start, end in pairwise(ends))


def split_items(element: Element) -> list[InlineText]:
    """The paragraphs and list items of one element."""
    texts, own = list_items.split(element.text), list_items.split(element.markdown)
    if len(texts) != len(own) or _divides_styles(element):
        return [InlineText(text, False) for text in texts]
    return [_choose_line(*pair) for pair in zip(texts, own, strict=True)]


def parse_item(element: Element, text: str) -> tuple[str, str]:
    """The Markdown marker of one of the items of an element, and the rest of its text; no marker for a paragraph."""
    is_item = list_items.begins_item(text) or (element.kind is Kind.LIST_ITEM and list_items.is_list(text))
    return list_items.parse(text) if is_item else ("", text)


def describe_figure(element: Element) -> FigureTexts:
    """The texts of a picture or chart: what its data or an earlier one of them says is not written again."""
    figure = element.figure or Figure()
    visible: list[str] = []
    written = get_table_text(figure.data) if figure.data else ""
    texts = [element.text, figure.visible_text or ""]
    for text in texts:
        # One by one: joined, a word broken at the end of one text would be completed by the other.
        visible.append(get_missing_text(text, "\n".join([written, *visible])))
    description = prose.to_one_line(figure.description or "")
    letters = prose.strip_to_letters(description)
    is_new = letters not in map(prose.strip_to_letters, texts) if letters else description not in texts
    return FigureTexts(
        label=prose.to_one_line(figure.type or element.kind)[:_MAX_LABEL_LENGTH],
        visible=" ".join(filter(None, visible)),
        description=description if is_new else "",
        mermaid=_clean_mermaid(figure.mermaid or ""),
    )


def get_own_text(element: Element) -> str:
    """What the text of a table says and its cells do not, on one line."""
    return get_missing_text(element.text, get_table_text(element.table) if element.table else "")


def get_latex(element: Element) -> str:
    """A formula's LaTeX; empty if it was read as text, whose spaces and comments LaTeX would drop."""
    latex = escaping.clean_latex(element.formula.latex or "") if element.formula else ""
    return latex if latex.strip() else ""


def get_table_text(table: Table) -> str:
    """The texts of a table's cells in lines; that of a table without cells on one line."""
    if table.cells:
        return "\n".join(cell.text for row in table_markup.group_rows(table.cells) for cell in row)
    return prose.to_one_line(prose.unescape(prose.strip_markup(table.markdown or table.html)))


def clean_code(text: str) -> str:
    """Code without more than one blank line in a row."""
    return re.sub(r"\n\s*\n(\s*\n)+", "\n\n", text.replace("\r", "\n")).strip("\n")


def _clean_mermaid(code: str) -> str:
    """A diagram's Mermaid code without blank lines and fences."""
    return "\n".join(line for line in code.splitlines() if line.strip() and "```" not in line)


def get_missing_text(text: str, written: str) -> str:
    """The lines of the text of which words are not yet written, on one line.

    Words that are broken or divided in only one of the two are the same words.
    """
    known = set(prose.split_words(written))
    if known.issuperset(prose.split_words(text)):  # nearly always; what follows takes far longer
        return ""
    known.update(prose.split_words(prose.to_one_line(written)))
    letters = prose.strip_to_letters(written)

    def is_written(part: str) -> bool:
        own = prose.strip_to_letters(part)
        has_same_letters = bool(own) and (own == letters or (len(own) >= _SURE_MATCH and own in letters))
        return has_same_letters or known.issuperset(prose.split_words(part))

    if is_written(prose.to_one_line(text)):
        return ""
    return prose.to_one_line("\n".join(line for line in text.splitlines() if not is_written(line)))


def join_tables(parts: Sequence[Table]) -> tuple[list[Cell], list[int]]:
    """The cells of all tables as those of one, and how many rows each table contributes."""
    first = table_markup.group_rows(parts[0].cells)
    joined: list[Cell] = []
    counts: list[int] = []
    for rows in (first, *(_drop_repeated_head(first, table_markup.group_rows(part.cells)) for part in parts[1:])):
        joined += _shift_below(joined, rows)
        counts.append(len(rows))
    return joined, counts


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
    if not table or not table.cells or get_own_text(element):
        return None
    return max(table.cols, *(cell.col + cell.col_span for cell in table.cells))


def _has_words(element: Element) -> bool:
    return bool(prose.to_one_line(choose_text(element).text))


def _choose_line(text: str, markdown: str) -> InlineText:
    markdown = markdown.translate(escaping.UNREADABLE)  # before its start is looked at
    # Without markup the plain text says the same, and it gets escaped.
    _, own = list_items.parse(prose.to_one_line(markdown))
    has_markup = own != list_items.parse(prose.to_one_line(text))[1]
    has_blocks = _BLOCK_MARKUP.search(markdown) or _BLOCK_MARKUP.match(own) or list_items.has_marker(own)
    if not markdown or not has_markup or has_blocks:
        return InlineText(text, False)
    words = set(prose.split_words(text))  # also of texts whose words are those of entities, which have no letters
    is_complete = any(words.issubset(prose.split_words(m)) for m in (markdown, _INLINE_MARKUP.sub("", markdown)))
    is_same = is_complete and prose.strip_to_letters(text) == prose.strip_to_letters(markdown)
    return InlineText(markdown, True) if is_same else InlineText(text, False)


def _drop_repeated_head(first: Sequence[Sequence[Cell]], rows: Sequence[Sequence[Cell]]) -> Sequence[Sequence[Cell]]:
    """Drop empty rows and a repetition of the first part's header rows from the top of a further part."""
    empty = next((n for n, row in enumerate(rows) if any(cell.text.strip() for cell in row)), len(rows))
    rows = _drop_rows(rows, empty)
    header_rows = list(takewhile(lambda row: all(cell.header for cell in row), first))
    repeated = 0
    while repeated < min(len(header_rows), len(rows)) and _has_same_texts(header_rows[repeated], rows[repeated]):
        repeated += 1
    return _drop_rows(rows, repeated)


def _has_same_texts(one: Sequence[Cell], other: Sequence[Cell]) -> bool:
    return _make_comparison_key(one) == _make_comparison_key(other)


def _make_comparison_key(row: Sequence[Cell]) -> list[tuple[int, int, str]]:
    return [(cell.col, cell.col_span, prose.to_one_line(cell.text).casefold()) for cell in row]


def _drop_rows(rows: Sequence[Sequence[Cell]], count: int) -> Sequence[Sequence[Cell]]:
    """Drop the first `count` rows, unless one of their cells spans into the rows after them."""
    if count < len(rows) and any(cell.row + cell.row_span > rows[count][0].row for row in rows[:count] for cell in row):
        return rows
    return rows[count:]


def _shift_below(above: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Move rows to directly below the cells above, and cut row spans at the end of these rows."""
    if not rows:
        return []
    shift = 1 + max((cell.row for cell in above), default=-1) - rows[0][0].row
    end = 1 + rows[-1][0].row
    return [
        cell.model_copy(update={"row": cell.row + shift, "row_span": min(cell.row_span, end - cell.row)})
        for row in rows
        for cell in row
    ]


def _link_notes(
    body: Sequence[Element], by_id: Mapping[str, Element]
) -> tuple[dict[str, str], dict[str, list[Reference]]]:
    """Label the footnotes whose mark occurs in their paragraph: labels by footnote, references by paragraph.

    All other footnotes stay plain text, because Markdown readers drop notes without a reference.
    """
    on_page: dict[int, list[Element]] = defaultdict(list)
    for element in body:
        on_page[element.page].append(element)
    found = []
    counted: Counter[int] = Counter()
    for element in body:
        parent = by_id.get(element.parent_id or "")
        note = footnotes.parse_note(element.text) if element.kind is Kind.FOOTNOTE else None
        if not note or not parent or parent.kind not in _PARAGRAPHS:
            continue
        counted[element.page] += 1
        if counted[element.page] > _MAX_NOTES:
            continue
        others = tuple(other.text for other in on_page[parent.page] if other is not parent)
        if footnotes.find_reference(choose_text(parent).text, note[0], others):
            found.append((element, parent, note[0], others))
    times = Counter(mark for _, _, mark, _ in found)
    labels: dict[str, str] = {}
    references: dict[str, list[Reference]] = defaultdict(list)
    taken: set[str] = set()
    for element, parent, mark, others in found:
        name = mark if _LABEL.fullmatch(mark) else "note"
        label = name if times[mark] == 1 and name == mark else f"{element.page}-{name}"
        if label not in taken:
            taken.add(label)
            labels[element.id] = label
            references[parent.id].append(Reference(mark, label, others))
    return labels, references
