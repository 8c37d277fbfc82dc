"""A Document in, document.md and the place of every element in it out.

Every word of every body element is in it and what runs on is joined. Unless it is asked for otherwise each page has its
mark and furniture is left out.
Knows Markdown. Knows nothing of how anything was read. The same document gives the same bytes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from twopass.document import HEADINGS, Document, Element, Kind, Page, Span
from twopass.format_options import Markdown, Maths
from twopass.formats import escaping, front_matter, markdown_tables
from twopass.text import prose

USUAL = Markdown()
PARAGRAPHS = frozenset({Kind.TEXT, Kind.LIST_ITEM})
RUNNING = PARAGRAPHS | HEADINGS  # what is joined where it runs on
DEEPEST = 6  # hashes
ALT = 200  # characters of visible text that an image's alternative text holds; more of it goes below the image
_NUMBERED = re.compile(r"(\d{1,9})([.)])\s+(?=\S)")
_BULLET = re.compile(r"[•◦▪‣∙●○■□‒–—*+·-]\s+(?=\S)|[•◦▪‣∙●○■□]\s*(?=\S)")
_BLOCKS = re.compile(r"\A(?:[#|<!>]|```|\$\$)|\n\s*(?:\n|[#|<>]|[-*+]\s|\d+[.)]\s|```|\$\$)")  # more than a paragraph
_LABEL = re.compile(r"\w+", flags=re.ASCII)


class Piece(NamedTuple):
    """What one element gives to a block."""

    element_id: str | None
    text: str


@dataclass(frozen=True)
class Block:
    """Pieces side by side. Neighbours of one list stand without a blank line between them."""

    pieces: tuple[Piece, ...]
    list_kind: str | None = None


@dataclass(frozen=True)
class Writing:
    """What the elements of one document need to know of each other."""

    by_id: Mapping[str, Element]
    next_of: Mapping[str, str]  # paragraphs and tables that run on, both ends agreeing
    has_title: bool
    spelling: Markdown = USUAL
    crops: Mapping[str, str] = field(default_factory=dict)  # path -> address, where it is another
    notes: Mapping[str, str] = field(default_factory=dict)  # footnote's id -> label
    marks: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)  # element's id -> marks and labels


def write(
    document: Document, spelling: Markdown = USUAL, crops: Mapping[str, str] | None = None
) -> tuple[str, dict[str, Span]]:
    """The text of document.md, and where in it each element stands that has a place."""
    writing = _writing(document, spelling, crops or {})
    pages: dict[int, list[Element]] = {page.number: [] for page in document.pages}
    for element in document.elements:
        pages.setdefault(element.page, []).append(element)
    told = {page.number: page for page in document.pages}
    joined = set(writing.next_of.values())
    blocks = [Block((Piece(None, front_matter.matter(document)),))] if spelling.front_matter else []
    for number in sorted(pages):
        if spelling.page_marks:
            blocks.append(Block((Piece(None, _page_mark(number, told.get(number))),)))
        blocks += [_block(e, writing) for e in pages[number] if e.id in writing.by_id and e.id not in joined]
    return _laid_out([block for block in blocks if any(piece.text for piece in block.pieces)])


def running(document: Document) -> dict[str, str]:
    """Body paragraphs, list items and headings that run on, each with the element it goes on in."""
    return dict(_writing(document, Markdown(merge_tables=False), {}).next_of)


def _laid_out(blocks: Sequence[Block]) -> tuple[str, dict[str, Span]]:
    parts: list[str] = []
    spans: dict[str, Span] = {}
    at = 0
    before: Block | None = None
    for block in blocks:
        tight = before and block.list_kind and before.list_kind == block.list_kind
        gap = "" if before is None else "\n" if tight else "\n\n"
        for element_id, text in (Piece(None, gap), *block.pieces):
            if element_id is not None and text:
                spans[element_id] = Span(at, at + len(text))
            parts.append(text)
            at += len(text)
        before = block
    return "".join([*parts, "\n"]), spans


def _page_mark(number: int, page: Page | None) -> str:
    mark = f"<!-- page: {number} -->"
    if page is None or not page.is_lost:
        return mark
    return f"{mark}\n<!-- page {number}: {' '.join(filter(None, (page.state, page.reason)))} -->"


def _writing(document: Document, spelling: Markdown, crops: Mapping[str, str]) -> Writing:
    body = [element for element in document.elements if element.is_body or spelling.furniture]
    by_id = {element.id: element for element in body}
    place = {element.id: n for n, element in enumerate(body)}
    next_of = {}
    for element in body:
        after = by_id.get(element.continued_by or "")
        if element.kind is Kind.TABLE and not spelling.merge_tables:
            continue
        # Only forwards, and only where both agree: so no ring, and nothing is dropped.
        if after and after.continues == element.id and place[after.id] > place[element.id] and _fit(element, after):
            next_of[element.id] = after.id
    notes, marks = _footnotes(body, by_id)
    has_title = any(element.kind is Kind.TITLE for element in body)
    return Writing(by_id, next_of, has_title, spelling, crops, notes, marks)


def _fit(first: Element, second: Element) -> bool:
    """Whether both can be written as one: texts with words, or tables with as many columns."""
    if Kind.TABLE in (first.kind, second.kind):
        return (columns := _columns(first)) is not None and columns == _columns(second)
    return (
        {first.kind, second.kind} <= RUNNING
        and first.is_heading == second.is_heading
        and _has_words(first)
        and _has_words(second)
    )


def _columns(element: Element) -> int | None:
    """How many a table has; None where its cells do not tell all its words, which then stand below it."""
    known = element.table if element.kind is Kind.TABLE else None
    if not known or not known.cells or _missing(element.text, "\n".join(cell.text for cell in known.cells)):
        return None
    return max(known.cols, *(cell.col + cell.col_span for cell in known.cells))


def _has_words(element: Element) -> bool:
    return bool(prose.flow(_source(element)[0]))


def _footnotes(
    body: Sequence[Element], by_id: Mapping[str, Element]
) -> tuple[dict[str, str], dict[str, list[tuple[str, str]]]]:
    """Footnotes whose mark is found in a paragraph: what both are called. All others stay plain text."""
    found = []
    for element in body:
        parent = by_id.get(element.parent_id or "")
        note = prose.footnote(element.text) if element.kind is Kind.FOOTNOTE else None
        if note and parent and parent.kind in PARAGRAPHS and prose.reference(_source(parent)[0], note[0]):
            found.append((element, parent, note[0]))
    times = Counter(mark for _, _, mark in found)
    notes: dict[str, str] = {}
    taken: set[str] = set()
    marks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for element, parent, mark in found:
        name = mark if _LABEL.fullmatch(mark) else "note"
        label = name if times[mark] == 1 and name == mark else f"{element.page}-{name}"
        if label not in taken:
            taken.add(label)
            notes[element.id] = label
            marks[parent.id].append((mark, label))
    return notes, marks


def _source(element: Element) -> tuple[str, bool]:
    """An element's running text, and whether it is Markdown: the reader's own only where it has all the words."""
    return (element.text, False) if element.is_heading else _spelled(element.text, element.markdown.strip())


def _spelled(text: str, own: str) -> tuple[str, bool]:
    is_plain = item(prose.flow(own))[2] == item(prose.flow(text))[2]  # no markup, and so nothing is escaped
    if is_plain or not own or _BLOCKS.search(own) or _missing(text, own):
        return text, False
    return own, True


def _missing(text: str, rendered: str) -> bool:
    return bool(set(prose.words(text)) - set(prose.words(rendered)))


def _block(element: Element, writing: Writing) -> Block:
    if element.kind in PARAGRAPHS and element.id not in writing.next_of and len(_parts(element.text)) > 1:
        return _several(element, writing)
    if element.kind in RUNNING:
        return _running(element, writing)
    if element.id in writing.next_of:
        return _long_table(_chain(element, writing), writing)
    text = _RENDER.get(element.kind, _plain)(element, writing)
    if element.kind in _MUST_TELL and _missing(element.text, text):
        text = "\n\n".join(part for part in (text, _paragraph(prose.flow(element.text), writing)) if part)
    return Block((Piece(element.id, text),))


def _chain(element: Element, writing: Writing) -> list[Element]:
    """The element and all that it runs on into."""
    chain = [element]
    while (after := writing.next_of.get(chain[-1].id)) is not None:
        chain.append(writing.by_id[after])
    return chain


def _running(element: Element, writing: Writing) -> Block:
    """A paragraph, list item or heading with all that it runs on into."""
    chain = _chain(element, writing)
    sources = [_source(part) for part in chain]
    texts = [prose.flow(text) for text, _ in sources]
    gaps = [""]
    for n in range(1, len(texts)):
        texts[n - 1], gap, texts[n] = prose.join(texts[n - 1], texts[n])
        gaps.append(gap)
    marker, list_kind = "", None
    if element.kind is Kind.LIST_ITEM and texts[0]:
        marker, list_kind, texts[0] = item(texts[0])
    elif element.is_heading and texts[0]:
        marker = _hashes(element, writing)
    pieces: list[Piece] = []
    for part, text, (_, is_markdown), gap in zip(chain, texts, sources, gaps, strict=True):
        line = _with_notes(text, is_markdown, writing.marks.get(part.id, ()), writing.spelling.maths)
        if part is element:
            line = marker + (line if element.is_heading or (is_markdown and not marker) else escaping.leading(line))
        pieces += [Piece(None, gap), Piece(part.id, line)]
    if element.is_heading:
        pieces[-1] = pieces[-1]._replace(text=escaping.heading_end(pieces[-1].text))
    return Block(tuple(pieces), list_kind)


def _parts(text: str) -> list[str]:
    """Paragraphs and list items of one element: a model may box a whole list at once."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        bare = line.strip()
        if not bare or _NUMBERED.match(bare) or _BULLET.match(bare):
            parts.append([])
        parts[-1].append(bare)
    return [prose.flow("\n".join(part)) for part in parts if any(part)]


def _several(element: Element, writing: Writing) -> Block:
    """Its paragraphs apart, its items one below the other."""
    texts, own = _parts(element.text), _parts(element.markdown)
    sources = [_spelled(*pair) for pair in zip(texts, own, strict=True)] if len(texts) == len(own) else []
    whole, before = "", None
    for text, is_markdown in sources or [(text, False) for text in texts]:
        marker, list_kind, rest = item(text) if _is_item(text) else ("", None, text)
        line = _with_notes(rest, is_markdown, writing.marks.get(element.id, ()), writing.spelling.maths)
        gap = "" if not whole else "\n" if list_kind and list_kind == before else "\n\n"
        whole += gap + marker + (line if is_markdown and not marker else escaping.leading(line))
        before = list_kind
    return Block((Piece(element.id, whole),))


def _is_item(text: str) -> bool:
    return bool(_NUMBERED.match(text) or _BULLET.match(text))


def item(text: str) -> tuple[str, str, str]:
    """A list item's marker, the kind of list it is in, and the rest."""
    if found := _NUMBERED.match(text):
        return f"{found.group(1)}{found.group(2)} ", f"ordered{found.group(2)}", text[found.end() :]
    found = _BULLET.match(text)
    return "- ", "bullets", text[found.end() :] if found else text


def _with_notes(text: str, is_markdown: bool, marks: Sequence[tuple[str, str]], style: Maths) -> str:
    """The text shown, with `[^1]` where it refers to a footnote."""
    show: Callable[[str, Maths], str] = escaping.kept if is_markdown else escaping.shown
    for mark, label in marks:
        if where := prose.reference(text, mark):
            rest = [pair for pair in marks if pair != (mark, label)]
            before = _with_notes(text[: where[0]], is_markdown, rest, style)
            return f"{before}[^{label}]{_with_notes(text[where[1] :], is_markdown, rest, style)}"
    return show(text, style)


def _paragraph(text: str, writing: Writing) -> str:
    return escaping.leading(escaping.shown(text, writing.spelling.maths))


def _plain(element: Element, writing: Writing) -> str:
    text, is_markdown = _source(element)
    if is_markdown:
        return escaping.kept(prose.flow(text), writing.spelling.maths)
    return _paragraph(prose.flow(text), writing)


def _footnote(element: Element, writing: Writing) -> str:
    label, note = writing.notes.get(element.id), prose.footnote(element.text)
    if label is None or note is None:
        return _plain(element, writing)
    return f"[^{label}]: {_paragraph(prose.flow(note[1]), writing)}"


def _hashes(element: Element, writing: Writing) -> str:
    level = 1 if element.kind is Kind.TITLE else (element.level or 1) + writing.has_title
    return "#" * max(1, min(level, DEEPEST)) + " "


def _code(element: Element, writing: Writing) -> str:
    text = re.sub(r"\n\s*\n(\s*\n)+", "\n\n", element.text.replace("\r", "\n")).strip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}" if text.strip() else ""


def _formula(element: Element, writing: Writing) -> str:
    latex = element.formula.latex if element.formula and element.formula.latex else element.text
    latex = escaping.maths(latex)
    begin, end = escaping.FENCES[writing.spelling.maths][1]
    return f"{begin}\n{latex}\n{end}" if latex.strip() else ""


def _table(element: Element, writing: Writing) -> str:
    return markdown_tables.table(element.table, writing.spelling) if element.table else ""


def _figure(element: Element, writing: Writing) -> str:
    """The image, what is written in it, and what was read out of it."""
    figure = element.figure
    said = [element.text]
    if figure and figure.visible_text and _missing(figure.visible_text, element.text):
        said.append(figure.visible_text)
    visible = " ".join(filter(None, map(prose.flow, said)))  # each by itself: a word broken in one is not whole in two
    parts = []
    if element.image:
        short = visible if visible and len(visible) <= ALT else _name(element, writing)
        address = writing.crops.get(element.image) or quote(element.image, safe="/-._~")
        parts.append(f"![{escaping.alternative(short, writing.spelling.maths)}]({address})")
    if visible and not (element.image and len(visible) <= ALT):
        parts.append(_paragraph(visible, writing))
    if figure:
        described = figure.description if figure.description != element.text else None
        parts.append(_paragraph(prose.flow(described or ""), writing))
        parts.append(markdown_tables.table(figure.data, writing.spelling) if figure.data else "")
        parts.append(_mermaid(figure.mermaid or ""))
    return "\n\n".join(part for part in parts if part)


def _name(element: Element, writing: Writing) -> str:
    captions = [writing.by_id[name].text for name in element.caption_ids if name in writing.by_id]
    return prose.flow("\n".join(captions) or element.summary or element.kind)[:ALT]


def _mermaid(code: str) -> str:
    lines = [line for line in code.splitlines() if line.strip() and "```" not in line]
    return "\n".join(["```mermaid", *lines, "```"]) if lines else ""


def _long_table(parts: Sequence[Element], writing: Writing) -> Block:
    """A table over several pages as one; each part's span holds its own rows."""
    texts, end = markdown_tables.joined([part.table for part in parts if part.table], writing.spelling)
    pieces: list[Piece] = []
    for part, text in zip(parts, texts, strict=True):
        pieces += [Piece(None, "\n" if pieces and text else ""), Piece(part.id, text)]
    return Block((*pieces, Piece(None, end)))


_RENDER: Mapping[Kind, Callable[[Element, Writing], str]] = {
    Kind.FOOTNOTE: _footnote,
    Kind.CODE: _code,
    Kind.FORMULA: _formula,
    Kind.TABLE: _table,
    Kind.PICTURE: _figure,
    Kind.CHART: _figure,
}
_MUST_TELL = frozenset({Kind.TABLE, Kind.PICTURE, Kind.CHART})  # kinds whose text is shown by something else
