"""Build a page's elements from the blocks of an answer, by their labels and contents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from twopass.document import FURNITURE, HEADINGS, Category, Element, Figure, Flag, Kind, Layer, Table, make_element_id
from twopass.families import table_parser
from twopass.families.content import write, write_table
from twopass.families.grounded import answer_text
from twopass.families.grounded.grounding import Block
from twopass.text import headings, list_items, maths, prose

# Labels that the models use (title … equation), and more that other users of them have reported.
_LABEL_KINDS = {
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
    "aside_text": Kind.TEXT,
    "table": Kind.TABLE,
    "table_title": Kind.CAPTION,
    "table_caption": Kind.CAPTION,
    "table_footnote": Kind.FOOTNOTE,
    "image": Kind.PICTURE,
    "photo": Kind.PICTURE,
    "picture": Kind.PICTURE,
    "seal": Kind.PICTURE,
    "stamp": Kind.PICTURE,
    "logo": Kind.PICTURE,
    "icon": Kind.PICTURE,
    "qr_code": Kind.PICTURE,
    "barcode": Kind.PICTURE,
    "figure": Kind.PICTURE,
    "diagram": Kind.PICTURE,
    "flowchart": Kind.PICTURE,
    "header_image": Kind.PICTURE,
    "footer_image": Kind.PICTURE,
    "figure_title": Kind.CAPTION,
    "chart_title": Kind.CAPTION,
    "image_caption": Kind.CAPTION,
    "figure_caption": Kind.CAPTION,
    "caption": Kind.CAPTION,
    "image_footnote": Kind.FOOTNOTE,
    "footnote": Kind.FOOTNOTE,
    "page_footnote": Kind.FOOTNOTE,
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
# What may be a label; what names one that no table here has. Anything else is text in place of a label.
_LABEL = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z0-9]+){0,3}|[a-z]+ [a-z]+")
_NAME = re.compile(r"[a-z]+(?:[_-][a-z0-9]+)*")
# An unknown label gets the kind of the first of these that it contains.
_LABEL_PARTS = (
    ("caption", Kind.CAPTION),
    ("footnote", Kind.FOOTNOTE),
    ("title", Kind.TITLE),
    ("header", Kind.TITLE),
    ("heading", Kind.TITLE),
    ("section", Kind.SECTION_HEADER),
    ("table", Kind.TABLE),
    ("photo", Kind.PICTURE),  # before graph, because of photograph
    ("graph", Kind.CHART),
    ("chart", Kind.CHART),
    ("plot", Kind.CHART),
    ("diagram", Kind.PICTURE),
    ("flow", Kind.PICTURE),
    ("image", Kind.PICTURE),
    ("figure", Kind.PICTURE),
)
_FENCE = re.compile(r"\s*```[ \t]*[\w+#.-]*[ \t]*")
_FENCE_MARK = "```"
_MARKDOWN_FENCE = re.compile(r"```(?:markdown|md)", flags=re.IGNORECASE)
_DIAGRAM_PARTS = ("figure", "diagram", "flow")  # in labels of pictures that are drawings
_PROSE_KINDS = frozenset(
    {Kind.TEXT, Kind.LIST_ITEM, Kind.CAPTION, Kind.FOOTNOTE, Kind.TITLE, Kind.SECTION_HEADER} | FURNITURE
)


@dataclass(frozen=True)
class Piece:
    """A block, or a part of one, that becomes one element. A picture in a cell of a table is one without a box."""

    block: Block
    text: str
    table: Table | None = None
    is_picture: bool = False


def build_elements(blocks: Sequence[Block], page: int) -> tuple[Element, ...]:
    """Build one element for each tag, and one for each table or text without a tag of its own."""
    is_tagged = any(block.label for block in blocks)
    pieces = [part for piece in _move_tables_to_tags(list(_split_blocks(blocks))) for part in _take_pictures(piece)]
    comments = _find_comments(pieces)
    built = [_build_element(piece, page, is_tagged, n in comments) for n, piece in enumerate(pieces)]
    built = _cut_repeated_headings([element for element in built if element.text or element.boxes or element.figure])
    return tuple(element.model_copy(update={"id": make_element_id(page, index)}) for index, element in enumerate(built))


def classify_label(label: str | None) -> Kind:
    """The kind of a label; an unknown label is classified by the words in it."""
    return _find_kind(label) or Kind.TEXT


def is_label(label: str) -> bool:
    """Whether this may be a label; the models also write the text itself in its place."""
    return bool(_find_kind(label) or _NAME.fullmatch(label))


def is_text(label: str, content: str) -> bool:
    """Whether a label is text: none that names a kind, unless it looks like one and text stands below it."""
    return not is_label(label) or not (_find_kind(label) or content.strip() or "_" in label)


def _find_kind(label: str | None) -> Kind | None:
    """The kind that a label names, or a word in it; None if it names none."""
    normalized = _normalize_label(label)
    if normalized in _LABEL_KINDS or not _LABEL.fullmatch(label or ""):
        return _LABEL_KINDS.get(normalized)
    return next((kind for part, kind in _LABEL_PARTS if part in normalized), None)


def _normalize_label(label: str | None) -> str:
    return (label or "text").lower().strip().replace("-", "_").replace(" ", "_")


def _split_blocks(blocks: Sequence[Block]) -> Iterator[Piece]:
    """Separate the tables in a block from its text. Every block gives one piece that keeps its tag."""
    for block in blocks:
        kind = classify_label(block.label)
        parts = list(_clean_parts(block.content, kind)) or [table_parser.Part("", None)]
        if len(parts) == 1 and (parts[0].table is None or kind in (Kind.TABLE, Kind.CHART, Kind.TEXT)):
            yield Piece(block, parts[0].text, parts[0].table)
            continue
        first = _find_part_of_tag(kind, parts)
        if first is None:
            yield Piece(block, "")
        for n, part in enumerate(parts):
            yield Piece(block, part.text, part.table) if n == first else _untagged_piece(block, part)


def _clean_parts(content: str, kind: Kind) -> Iterator[table_parser.Part]:
    """Split the content of a block of this kind into tables and cleaned texts; blank ones are dropped."""
    if kind is Kind.CODE:
        yield table_parser.Part(answer_text.clean_code(content), None)
        return
    for part in table_parser.split_tables(answer_text.fix_markup(content)):
        if part.table is not None:
            yield part
            continue
        may_be_several = kind is Kind.TEXT or kind in HEADINGS
        for text in _split_text(part.text, kind) if may_be_several else [part.text]:
            clean = answer_text.clean_code if _is_fenced(text) else answer_text.clean_prose
            if cleaned := clean(text):
                yield part._replace(text=cleaned)


def _find_part_of_tag(kind: Kind, parts: Sequence[table_parser.Part]) -> int | None:
    """The index of the part of a tag: for a table or chart the first table, for any other the first text."""
    matches = (n for n, part in enumerate(parts) if (part.table is not None) == (kind in (Kind.TABLE, Kind.CHART)))
    return next(matches, None)


def _untagged_piece(block: Block, part: table_parser.Part) -> Piece:
    return Piece(replace(block, label=None, corners=(), unread_box=False), part.text, part.table)


def _move_tables_to_tags(pieces: list[Piece]) -> list[Piece]:
    """Move tables that the model wrote below their tags, for example after a caption, up to those tags.

    The last n table tags without a table get the n tables that follow before the next such tag, in order.
    """
    placed: dict[int, Piece] = {}
    open_tags: list[int] = []  # indices of table tags that have no table yet
    tables: list[int] = []  # indices of tables below them
    only_notes = True  # since the last of these tags
    for index, piece in enumerate(pieces):
        if _awaits_table(piece):
            if tables:
                placed |= _attach_tables(pieces, open_tags, tables)
                open_tags, tables = [], []
            open_tags.append(index)
            only_notes = True
            continue
        if open_tags and piece.table and _may_belong_to_tag(piece, only_notes):
            tables.append(index)
        only_notes = only_notes and classify_label(piece.block.label) in (Kind.CAPTION, Kind.FOOTNOTE)
    placed |= _attach_tables(pieces, open_tags, tables)
    return [placed.get(index, piece) for index, piece in enumerate(pieces)]


def _take_pictures(piece: Piece) -> Iterator[Piece]:
    """Yield the piece without the pictures in its prose or in the cells of its table, and a piece for each of them."""
    is_code = classify_label(piece.block.label) is Kind.CODE or _is_fenced(piece.text)
    source, pictures = ("", []) if is_code else table_parser.split_pictures(piece.text)
    if not pictures:
        yield piece
        return
    if piece.table is None and len(pictures) == 1 and not source.strip():
        yield replace(piece, text=pictures[0], is_picture=True)
        return
    yield replace(piece, text=source.strip(), table=table_parser.parse_source(source) if piece.table else None)
    for words in pictures:
        yield Piece(replace(piece.block, label=None, corners=(), unread_box=False), words, is_picture=True)


def _find_comments(pieces: Sequence[Piece]) -> frozenset[int]:
    """The indices of the texts with a hash that are comments of the code around them, and no headings.

    Headings may have the label of a text, but not beside code, and not with one hash before a small letter. What has
    another label is a comment only if both are true.
    """
    found = set()
    for n, piece in enumerate(pieces):
        if piece.block.label is None or piece.table or not answer_text.is_heading(piece.text):
            continue
        is_text, is_comment = classify_label(piece.block.label) is Kind.TEXT, answer_text.is_comment(piece.text)
        near = (*pieces[max(n - 1, 0) : n], *pieces[n + 1 : n + 2])
        is_in_code = any(answer_text.is_code(other.text) for other in near)
        if (is_text or is_comment) and (is_in_code or (is_text and is_comment)):
            found.add(n)
    return frozenset(found)


def _awaits_table(piece: Piece) -> bool:
    return (
        bool(piece.block.label)
        and classify_label(piece.block.label) is Kind.TABLE
        and not piece.table
        and not piece.text
    )


def _may_belong_to_tag(piece: Piece, only_notes: bool) -> bool:
    """Whether a table may belong to a table tag above it.

    It has no tag of its own, or a text tag and only captions and notes between it and the table tag.
    """
    if piece.block.label is None:
        return True
    return classify_label(piece.block.label) is Kind.TEXT and only_notes


def _attach_tables(pieces: Sequence[Piece], open_tags: Sequence[int], tables: Sequence[int]) -> dict[int, Piece]:
    """The tags with their tables and boxes, and empty pieces for where the tables were, by index."""
    placed: dict[int, Piece] = {}
    for tag, table in zip(open_tags[-len(tables) :] if tables else (), tables, strict=False):
        piece, block = pieces[table], pieces[tag].block
        merged = replace(block, corners=(*block.corners, *piece.block.corners))
        placed[tag] = Piece(merged, piece.text, piece.table)
        placed[table] = Piece(replace(piece.block, corners=()), "")
    return placed


def _build_element(piece: Piece, page: int, is_tagged: bool, is_comment: bool) -> Element:
    block, kind = piece.block, Kind.TEXT if is_comment else _classify(piece)
    element = Element(
        id="",
        page=page,
        category=_category(kind, block.label),
        kind=kind,
        native_label=block.label,
        boxes=block.boxes,
        content_layer=Layer.FURNITURE if kind in FURNITURE else Layer.BODY,
        flags=tuple(_find_flags(block, is_tagged)),
    )
    if piece.is_picture:
        return element.model_copy(update={"figure": Figure(description=piece.text or None), "text": piece.text})
    if piece.table and kind is Kind.CHART:
        element = element.model_copy(update={"figure": Figure()})
    return write_table(element, piece.table) if piece.table else with_content(element, piece.text)


def with_content(element: Element, content: str) -> Element:
    """The element with what the model wrote, formatted as its kind requires.

    A formula with words beside it is a paragraph.
    """
    content = maths.delimit_environments(content) if element.kind is Kind.FORMULA else content
    if element.kind is Kind.FORMULA and not maths.is_formula(content):
        element = element.model_copy(update={"kind": Kind.TEXT, "formula": None})
        text = maths.unify_delimiters(content.strip())
        return write(element, text, answer_text.to_markdown(text))
    content = maths.unify_dollars(content) if element.kind in _PROSE_KINDS else content
    text = _plain_text(element.kind, content)
    if element.is_heading:
        level = element.level or answer_text.heading_level(content)
        return write(element, text, answer_text.to_markdown(text), level=level)
    if element.kind is Kind.FORMULA:
        return write(element, text, "", latex=maths.to_latex(text))
    if element.is_figure or element.kind is Kind.CODE:
        return write(element, text)
    return write(element, text, answer_text.to_markdown(answer_text.fix_hyphens(content.strip())))


def _find_flags(block: Block, is_tagged: bool) -> Iterator[Flag]:
    """Yield the flags of a block; `is_tagged` means that other blocks of the answer have labels."""
    if is_tagged and block.label is None and not block.corners:
        yield Flag.UNTAGGED
    yield from block.flags
    if block.is_degenerate:
        yield Flag.DEGENERATE_BOX
    if block.unread_box:
        yield Flag.UNREAD_BOX
    if block.label and not block.boxes:
        yield Flag.NO_BOX


def _classify(piece: Piece) -> Kind:
    kind = classify_label(piece.block.label)
    if piece.table is not None or piece.is_picture:
        return Kind.PICTURE if piece.is_picture else Kind.CHART if kind is Kind.CHART else Kind.TABLE
    if kind is Kind.TITLE and headings.parse_numbering(answer_text.strip_hashes(piece.text)):
        return Kind.SECTION_HEADER
    if kind is Kind.TEXT:
        return _classify_text(piece.text)
    return kind


def _classify_text(text: str) -> Kind:
    """Classify text by its form."""
    if answer_text.is_heading(text) and "\n" not in text.strip():
        return Kind.SECTION_HEADER
    if maths.is_display_formula(text):
        return Kind.FORMULA
    if _is_fenced(text):
        return Kind.CODE
    return Kind.LIST_ITEM if list_items.is_list(text) else Kind.TEXT


def _category(kind: Kind, label: str | None) -> Category:
    normalized = (label or "").lower()
    if kind is Kind.PICTURE and any(part in normalized for part in _DIAGRAM_PARTS):
        return Category.DIAGRAM
    return kind.category


def _plain_text(kind: Kind, content: str) -> str:
    """The content as plain text."""
    if kind in HEADINGS:
        return prose.unwrap(answer_text.fix_hyphens(answer_text.strip_emphasis(answer_text.strip_hashes(content))))
    if kind in _PROSE_KINDS:
        return answer_text.fix_hyphens(answer_text.strip_emphasis(content)).strip()
    if kind is Kind.CODE:
        return _strip_fences(content)
    return content.strip()


def _is_fenced(text: str) -> bool:
    return text.startswith(_FENCE_MARK)


def _strip_fences(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not _FENCE.fullmatch(line)).strip("\n")


def _cut_repeated_headings(elements: Sequence[Element]) -> list[Element]:
    """Cut the headings above a paragraph from its start, where the model repeated them without a space."""
    kept: list[Element] = []
    heading_text = ""
    for element in elements:
        if element.is_heading:
            heading_text += element.text
        elif heading_text:
            is_paragraph = element.kind in (Kind.TEXT, Kind.LIST_ITEM)
            kept.append(_cut_headings(heading_text, element) if is_paragraph else element)
            heading_text = ""
            continue
        kept.append(element)
    return kept


def _cut_headings(heading_text: str, element: Element) -> Element:
    rest = answer_text.cut_headings(element.text, heading_text)
    if rest == element.text:
        return element
    markdown = answer_text.cut_headings(element.markdown, heading_text)
    flags = (*element.flags, Flag.HEADING_REPEATED)
    # The number that made it a list item may have been the heading's.
    kind = Kind.LIST_ITEM if list_items.is_list(rest) else Kind.TEXT
    return element.model_copy(update={"text": rest, "markdown": markdown, "flags": flags, "kind": kind})


def restore_headings(elements: Sequence[Element]) -> list[Element]:
    """The elements as the model wrote them, with the headings that were cut from the paragraphs below them."""
    restored, heading_text = [], ""
    for element in elements:
        is_cut = Flag.HEADING_REPEATED in element.flags
        restored.append(element.model_copy(update={"text": heading_text + element.text}) if is_cut else element)
        heading_text = heading_text + element.text if element.is_heading else ""
    return restored


def split_paragraphs(text: str) -> list[Block]:
    """Split an answer without boxes into paragraphs, headings, formulas and tables."""
    blocks: list[Block] = []
    for part in table_parser.split_tables(text):
        pieces = [part.text] if part.table else _split_text(part.text)
        blocks += [Block(None, (), piece) for piece in pieces]
    return blocks


def _split_text(text: str, kind: Kind | None = None) -> list[str]:
    """Split an answer without boxes, or the text of a block of this kind, at headings and fenced code.

    All but paragraphs also at blank lines. A heading with a box may have several lines, but none that ends a sentence.
    Rules are dropped, and a fence around Markdown; other fenced code and display formulas are kept whole.
    """
    ends_with_line = kind not in HEADINGS or text.rstrip().endswith((".", "。"))
    pieces: list[list[str]] = [[]]
    closing: str | None = None
    in_markdown = False
    lines = text.splitlines()
    for n, line in enumerate(lines):
        stripped = line.strip()
        if closing is not None:
            pieces[-1].append(line)
            if stripped.endswith(closing):
                pieces += [[]] if closing == _FENCE_MARK else []
                closing = None
        elif _MARKDOWN_FENCE.fullmatch(stripped) or (in_markdown and stripped == _FENCE_MARK):
            in_markdown = not in_markdown
            pieces.append([])
        elif not stripped or (_is_rule(stripped) and len(lines) > 1):
            pieces[-1].append("") if kind is Kind.TEXT else pieces.append([])
        elif answer_text.is_heading(line) and not _is_in_code(lines, n):
            level = answer_text.heading_level(line)
            if ends_with_line or not pieces[-1] or answer_text.heading_level(pieces[-1][0]) != level:
                pieces += [[line], []] if ends_with_line else [[line]]
            else:
                pieces[-1].append(line)
        elif stripped.startswith(_FENCE_MARK) and not stripped.removeprefix(_FENCE_MARK).endswith(_FENCE_MARK):
            closing = _FENCE_MARK
            pieces.append([line])
        else:
            closing = "\\]" if stripped.startswith("\\[") and not stripped.endswith("\\]") else None
            pieces[-1].append(line)
    return ["\n".join(piece) for piece in pieces if any(piece)]


def _is_in_code(lines: Sequence[str], n: int) -> bool:
    """Whether a line stands directly below or above a line of code."""
    return any(answer_text.is_code(line) for line in (*lines[max(n - 1, 0) : n], *lines[n + 1 : n + 2]))


def _is_rule(line: str) -> bool:
    return len(line) >= 3 and set(line) in ({"-"}, {"*"}, {"="})
