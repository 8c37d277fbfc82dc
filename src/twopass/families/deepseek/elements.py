"""Blocks of a DeepSeek-OCR answer in, a page's elements out: what each is called, and what it says.

Knows the model's labels and what it writes under them. Knows nothing of prompts, rungs or other pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twopass.document import (
    FURNITURE,
    HEADINGS,
    Category,
    Element,
    Figure,
    Formula,
    Kind,
    Layer,
    Table,
    element_id,
)
from twopass.families import table_parser
from twopass.families.deepseek import answer_text as prose
from twopass.families.deepseek import captions
from twopass.families.deepseek.grounding import Block
from twopass.text import prose as words
from twopass.text import sections

# What the model really says (title … equation), and what other readers of it have met.
KINDS = {
    "title": Kind.TITLE,
    "heading": Kind.TITLE,
    "sub_title": Kind.SECTION_HEADER,
    "subtitle": Kind.SECTION_HEADER,
    "section_header": Kind.SECTION_HEADER,
    "text": Kind.TEXT,
    "paragraph": Kind.TEXT,
    "reference": Kind.TEXT,
    "list": Kind.LIST_ITEM,
    "list_item": Kind.LIST_ITEM,
    "table": Kind.TABLE,
    "table_caption": Kind.CAPTION,
    "table_footnote": Kind.FOOTNOTE,
    "image": Kind.PICTURE,
    "photo": Kind.PICTURE,
    "picture": Kind.PICTURE,
    "seal": Kind.PICTURE,
    "figure": Kind.PICTURE,
    "diagram": Kind.PICTURE,
    "flowchart": Kind.PICTURE,
    "image_caption": Kind.CAPTION,
    "figure_caption": Kind.CAPTION,
    "caption": Kind.CAPTION,
    "image_footnote": Kind.FOOTNOTE,
    "footnote": Kind.FOOTNOTE,
    "graph": Kind.CHART,
    "chart": Kind.CHART,
    "plot": Kind.CHART,
    "equation": Kind.FORMULA,
    "formula": Kind.FORMULA,
    "code": Kind.CODE,
    "header": Kind.PAGE_HEADER,
    "page_header": Kind.PAGE_HEADER,
    "footer": Kind.PAGE_FOOTER,
    "page_footer": Kind.PAGE_FOOTER,
    "page_number": Kind.PAGE_FOOTER,
}
# An unknown label is what the first of these says that is in it.
SUBSTRINGS = (
    ("caption", Kind.CAPTION),
    ("footnote", Kind.FOOTNOTE),
    ("title", Kind.TITLE),
    ("header", Kind.TITLE),
    ("heading", Kind.TITLE),
    ("section", Kind.SECTION_HEADER),
    ("table", Kind.TABLE),
    ("photo", Kind.PICTURE),  # before graph: a photograph is none
    ("graph", Kind.CHART),
    ("chart", Kind.CHART),
    ("plot", Kind.CHART),
    ("diagram", Kind.PICTURE),
    ("flow", Kind.PICTURE),
    ("image", Kind.PICTURE),
    ("figure", Kind.PICTURE),
)
DIAGRAMS = ("figure", "diagram", "flow")  # labels of pictures that are drawings
PROSE = frozenset({Kind.TEXT, Kind.LIST_ITEM, Kind.CAPTION, Kind.FOOTNOTE, Kind.TITLE, Kind.SECTION_HEADER} | FURNITURE)


@dataclass(frozen=True)
class Piece:
    """What becomes one element: a block, or a part of one."""

    block: Block
    text: str
    table: Table | None = None


def elements(blocks: Sequence[Block], page: int) -> tuple[Element, ...]:
    """One element a tag, and one for each table or text that stands where no tag tells of it."""
    tagged = any(block.label for block in blocks)
    made = [_element(piece, page, tagged) for piece in _with_tables(list(_pieces(blocks)))]
    made = _unglued([element for element in made if element.text or element.boxes])
    named = [element.model_copy(update={"id": element_id(page, index)}) for index, element in enumerate(made)]
    return tuple(captions.tied(named))


def kind_of(label: str | None) -> Kind:
    """The kind of a label; of one that nobody has seen, by what is in it."""
    folded = (label or "text").lower().strip().replace("-", "_").replace(" ", "_")
    if folded in KINDS:
        return KINDS[folded]
    return next((kind for part, kind in SUBSTRINGS if part in folded), Kind.TEXT)


def _pieces(blocks: Sequence[Block]) -> Iterator[Piece]:
    """A block's tables apart from its prose; a block always gives a piece that stands for its tag."""
    for block in blocks:
        parts = list(_parts(block.content)) or [table_parser.Part("", None)]
        kind = kind_of(block.label)
        if len(parts) == 1 and (parts[0].table is None or kind in (Kind.TABLE, Kind.TEXT)):
            yield Piece(block, parts[0].text, parts[0].table)
            continue
        first = _of_tag(kind, parts)
        if first is None:
            yield Piece(block, "")
        for n, part in enumerate(parts):
            yield Piece(block, part.text, part.table) if n == first else _stray(block, part)


def _parts(content: str) -> Iterator[table_parser.Part]:
    """Tables as they were written, and the prose between them as it was meant."""
    for part in table_parser.parts(prose.tidied(content)):
        if part.table is not None:
            yield part
        elif text := prose.cleaned(part.text):
            yield part._replace(text=text)


def _of_tag(kind: Kind, parts: Sequence[table_parser.Part]) -> int | None:
    """Which part a tag stands for: a table's tag for its first table, every other for the first text."""
    wanted = (n for n, part in enumerate(parts) if (part.table is not None) == (kind is Kind.TABLE))
    return next(wanted, None)


def _stray(block: Block, part: table_parser.Part) -> Piece:
    return Piece(replace(block, label=None, corners=(), unread=False), part.text, part.table)


def _with_tables(pieces: list[Piece]) -> list[Piece]:
    """Tables whose tags stand further up, with a caption between, are put where their tags are, the first at the first.

    The nearest tags above have none: as many as there are tables before the next tag without one.
    """
    placed: dict[int, Piece] = {}
    waiting: list[int] = []  # places of table tags that have no table yet
    found: list[int] = []  # and of tables below them
    for place, piece in enumerate(pieces):
        if _awaits_table(piece):
            if found:
                placed |= _put(pieces, waiting, found)
                waiting, found = [], []
            waiting.append(place)
        elif waiting and piece.table and _is_lost(piece, pieces[waiting[-1] + 1 : place]):
            found.append(place)
    placed |= _put(pieces, waiting, found)
    return [placed.get(place, piece) for place, piece in enumerate(pieces)]


def _awaits_table(piece: Piece) -> bool:
    return bool(piece.block.label) and kind_of(piece.block.label) is Kind.TABLE and not piece.table and not piece.text


def _is_lost(piece: Piece, between: Sequence[Piece]) -> bool:
    """Whether a table has no tag, or a text's tag with nothing but captions and notes up to a table's."""
    if piece.block.label is None:
        return True
    notes = (kind_of(other.block.label) in (Kind.CAPTION, Kind.FOOTNOTE) for other in between)
    return kind_of(piece.block.label) is Kind.TEXT and all(notes)


def _put(pieces: Sequence[Piece], waiting: Sequence[int], found: Sequence[int]) -> dict[int, Piece]:
    """The tags with their tables, and what is left where the tables were: nothing, its box is the tag's too."""
    placed: dict[int, Piece] = {}
    for tag, place in zip(waiting[-len(found) :] if found else (), found, strict=False):
        piece, block = pieces[place], pieces[tag].block
        whole = replace(block, corners=(*block.corners, *piece.block.corners))
        placed[tag] = Piece(whole, piece.text, piece.table)
        placed[place] = Piece(replace(piece.block, corners=()), "")
    return placed


def _element(piece: Piece, page: int, tagged: bool) -> Element:
    block, kind = piece.block, _kind(piece)
    element = Element(
        id="",
        page=page,
        category=_category(kind, block.label),
        kind=kind,
        native_label=block.label,
        boxes=block.boxes,
        content_layer=Layer.FURNITURE if kind in FURNITURE else Layer.BODY,
        flags=tuple(_flags(block, tagged)),
    )
    return told(element, piece.text, piece.table)


def told(element: Element, content: str, table: Table | None = None) -> Element:
    """The element with this content, as its kind reads it."""
    text = _text(element.kind, content, table)
    known = element.model_copy(update={"text": text, "markdown": text})
    return known.model_copy(update=_details(known, content, table))


def _flags(block: Block, tagged: bool) -> Iterator[str]:
    if tagged and block.label is None and not block.corners:
        yield "untagged"
    yield from block.flags
    if block.is_degenerate:
        yield "degenerate_box"
    if block.unread:
        yield "unread_box"
    if block.label and not block.boxes:
        yield "no_box"


def _kind(piece: Piece) -> Kind:
    kind = kind_of(piece.block.label)
    if piece.table is not None:
        return Kind.TABLE
    if kind is Kind.TITLE and sections.number(prose.without_hashes(piece.text)):
        return Kind.SECTION_HEADER
    if kind is Kind.TEXT:
        return _kind_of_text(piece.text)
    return kind


def _kind_of_text(text: str) -> Kind:
    """What a text without a better name is by how it is written."""
    if prose.is_heading(text) and "\n" not in text.strip():
        return Kind.SECTION_HEADER
    if prose.is_display(text):
        return Kind.FORMULA
    if text.startswith("```"):
        return Kind.CODE
    return Kind.LIST_ITEM if prose.is_item(text) else Kind.TEXT


def _category(kind: Kind, label: str | None) -> Category:
    folded = (label or "").lower()
    if kind is Kind.PICTURE and any(part in folded for part in DIAGRAMS):
        return Category.DIAGRAM
    return kind.category


def _text(kind: Kind, content: str, table: Table | None) -> str:
    """What an element says, in plain text."""
    if table is not None:
        return table_parser.words(table)
    if kind in HEADINGS:
        return words.flow(prose.hyphenated(prose.unmarked(prose.without_hashes(content))))
    if kind in PROSE:
        return prose.hyphenated(prose.unmarked(content)).strip()
    if kind is Kind.CODE:
        return _code(content)
    return content.strip()


def _code(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("```")]
    return "\n".join(lines).strip("\n")


def _details(element: Element, content: str, table: Table | None) -> dict[str, Any]:
    """The fields that only this kind has."""
    text = element.text
    if element.kind in HEADINGS:
        level = element.level or prose.hashes(content) or (1 if element.kind is Kind.TITLE else 2)
        found = sections.number(text)
        shown = f"{'#' * level} {prose.markdown(text)}"
        return {"level": level, "numbering": found.text if found else None, "markdown": shown}
    if table is not None:
        return {"table": table, "markdown": table.markdown or table.html}
    if element.kind is Kind.FORMULA:
        latex = prose.latex(text)
        return {"formula": Formula(latex=latex or None), "markdown": f"$$\n{latex}\n$$" if latex else ""}
    if element.is_figure:
        return {"figure": Figure(visible_text=text or None)}
    if element.kind is Kind.CODE:
        return {"markdown": f"```\n{text}\n```"}
    return {"markdown": prose.markdown(prose.hyphenated(content.strip()))}


def _unglued(elements: Sequence[Element]) -> list[Element]:
    """Paragraphs without the headings above them that the model said again, glued to the first word."""
    told: list[Element] = []
    above = ""
    for element in elements:
        if element.is_heading:
            above += element.text
        elif above:
            told.append(_after(above, element) if element.kind in (Kind.TEXT, Kind.LIST_ITEM) else element)
            above = ""
            continue
        told.append(element)
    return told


def _after(headings: str, element: Element) -> Element:
    rest = prose.after_heading(element.text, headings)
    if rest == element.text:
        return element
    shown = prose.after_heading(element.markdown, headings)
    flags = (*element.flags, "heading_repeated")
    kind = Kind.LIST_ITEM if prose.is_item(rest) else Kind.TEXT  # its number was the heading's
    return element.model_copy(update={"text": rest, "markdown": shown, "flags": flags, "kind": kind})


def paragraphs(text: str) -> list[Block]:
    """An answer without boxes as blocks: paragraphs, headings, formulas and tables apart."""
    blocks: list[Block] = []
    for part in table_parser.parts(text):
        pieces = [part.text] if part.table else _split(part.text)
        blocks += [Block(None, (), piece) for piece in pieces]
    return blocks


def _split(text: str) -> list[str]:
    """At blank lines, headings and rules; a fenced or displayed block stays whole."""
    pieces: list[list[str]] = [[]]
    closes: str | None = None
    for line in text.splitlines():
        bare = line.strip()
        if closes is None and (not bare or _is_rule(bare)):
            pieces.append([])
            continue
        if closes is None and prose.is_heading(bare):
            pieces += [[line], []]
            continue
        if closes is not None:
            closes = None if bare.endswith(closes) else closes
        elif bare.startswith("```"):
            closes = "```"
        elif bare.startswith("\\[") and not bare.endswith("\\]"):
            closes = "\\]"
        pieces[-1].append(line)
    return ["\n".join(piece) for piece in pieces if piece]


def _is_rule(line: str) -> bool:
    return len(line) >= 3 and set(line) <= set("-") or (len(line) >= 3 and set(line) <= set("*"))
