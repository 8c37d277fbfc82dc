"""Build a page's elements from its layout regions: kinds, list items, headings, tables, captions."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence

from twopass.document import FURNITURE, HEADINGS, Box, Cell, Element, Flag, Kind, Layer, make_element_id
from twopass.families import captions, content
from twopass.families.layout import code_listing, inline_style, margins
from twopass.families.layout.margins import Role
from twopass.families.layout.page_layout import LayoutLine, LayoutRegion, PageLayout, RegionTable
from twopass.text import list_items, prose, table_markup
from twopass.text.confidence import Evidence, find_calibration, judge, weigh_plausibility

_KINDS = {
    "title": Kind.TITLE,
    "section-header": Kind.SECTION_HEADER,
    "list-item": Kind.LIST_ITEM,
    "table": Kind.TABLE,
    "picture": Kind.PICTURE,
    "formula": Kind.FORMULA,
    "caption": Kind.CAPTION,
    "footnote": Kind.FOOTNOTE,
    "page-header": Kind.PAGE_HEADER,
    "page-footer": Kind.PAGE_FOOTER,
}
_MAX_HEADING_WORDS = 25  # a longer heading that ends like a sentence is a paragraph
_TITLE_SIZE_RATIO = 1.25  # how much larger than every other heading of page 1 the title must be
# Smallest type size over the page's body size, and its level; text/headings.py may correct it.
_LEVELS = ((1.4, 1), (1.15, 2), (0.98, 3))
_ENTRY_LABELS = frozenset({"text", "list-item", "orphan", "section-header"})
_LEADER = re.compile(
    r"(?<=[^\s.·…‥_])\s*+(?:[.·…‥_]\s?){4,}+[\s\u2060\u200b]*+(?=(?:\d{1,4}|[ivxlcdmIVXLCDM]{1,7}|[A-Z]-?\d{1,3})\W*$)"
)
_INDENT_TOLERANCE = 0.25  # of the type size: markers of one list are aligned
_SURE_BULLET = re.compile(rf"\s*[{list_items.BULLETS}{list_items.BOXES}]\s*\S")
_UNNAMED_BULLET = re.compile(r"^[\ufffd\ue000-\uf8ff](?=\s+\S)")
_DASH = re.compile(r"\s*([‒–—·*-])\s+\S")
_ITEM_NUMBER = re.compile(rf"\s*([(\[]?)(\d{{1,3}}|[a-z])([.)\]])(?:\s+\S|[{prose.HAN}{prose.HANGUL}])")


def build_elements(layout: PageLayout, page: int) -> tuple[Element, ...]:
    """The elements of page `page` (from 1), in the order of the layout's regions."""
    layout = layout.model_copy(update={"boxes": tuple(code_listing.merge_regions(layout))})
    regions = [(_name_bullets(region), role) for region, role in margins.analyse(layout)]
    parts = [(part, role) for region, role in regions for part in _split_contents(region, layout)]
    items = [(item, role) for part, role in parts for item in _split_list_items(part)]
    built = [(part, e) for part, role in items if (e := _build_element(part, layout, page, role)) is not None]
    title = _find_title(built, layout.body_size) if page == 1 else None
    elements = [_as_title(element) if region is title else element for region, element in built]
    numbered = [e.model_copy(update={"id": make_element_id(page, n)}) for n, e in enumerate(elements)]
    return captions.link(numbered)


def _name_bullets(region: LayoutRegion) -> LayoutRegion:
    """Replace a character that the font does not name, and that begins a line of a list, by a bullet."""
    if region.label != "list-item":
        return region
    lines = (line.model_copy(update={"text": _UNNAMED_BULLET.sub("•", line.text)}) for line in region.lines)
    return region.model_copy(update={"lines": tuple(lines)})


def _split_contents(region: LayoutRegion, layout: PageLayout) -> list[LayoutRegion]:
    """Split a list of contents into its entries, without the leaders in front of the page numbers.

    A line without a leader is the beginning of the entry below it; behind the last entry it is text.
    """
    if region.label not in _ENTRY_LABELS or code_listing.is_listing(region, layout):
        return [region]
    is_entry = [bool(_LEADER.search(line.text)) for line in region.lines]
    if not any(is_entry):
        return [region]
    lines = [_without_leader(line) for line in region.lines]
    if len(lines) < 2 or 2 * sum(is_entry) < len(lines):
        return [region.with_lines(lines)]
    entries: list[list[LayoutLine]] = [[]]
    for line, ends in zip(lines, is_entry, strict=True):
        entries[-1].append(line)
        if ends:
            entries.append([])
    return [region.with_lines(entry).model_copy(update={"label": "list-item"}) for entry in entries if entry]


def _without_leader(line: LayoutLine) -> LayoutLine:
    """The line with one blank in place of a leader, and with the styles of its characters."""
    text, runs = line.text, line.runs
    while found := _LEADER.search(text):
        start, end = found.span()
        text = f"{text[:start]} {text[end:]}"
        moved = ((_move(a, start, end), _move(b, start, end), style) for a, b, style in runs)
        runs = tuple(run for run in moved if run[0] < run[1])
    return line.model_copy(update={"text": text, "runs": runs})


def _move(position: int, start: int, end: int) -> int:
    """Where a position is when one character has replaced those from `start` to `end`."""
    if position <= start:
        return position
    return position - (end - start) + 1 if position >= end else start + 1


def _split_list_items(region: LayoutRegion) -> list[LayoutRegion]:
    """Split a list item that holds several into one region each, with the box of its own lines."""
    if region.label != "list-item" or len(region.lines) < 2:
        return [region]
    items: list[list[LayoutLine]] = [[region.lines[0]]]
    for line in region.lines[1:]:
        if _begins_item(line, items):
            items.append([])
        items[-1].append(line)
    if len(items) == 1:
        return [region]
    return [region.with_lines(lines) for lines in items]


def _begins_item(line: LayoutLine, items: Sequence[Sequence[LayoutLine]]) -> bool:
    """Whether a line starts a new list item: it has a bullet or the next number.

    A dash counts only where it is aligned with an earlier one or indented below the current item.
    """
    if _SURE_BULLET.match(line.text):
        return True
    firsts = [item[0] for item in items]
    if found := _ITEM_NUMBER.match(line.text):
        before = (other for first in reversed(firsts) if (other := _ITEM_NUMBER.match(first.text)))
        last = next((other.group(2) for other in before if other.group(1, 3) == found.group(1, 3)), None)
        return last is not None and _is_next_number(last, found.group(2))
    if not (dash := _DASH.match(line.text)):
        return False
    left, tolerance = line.box[0], _INDENT_TOLERANCE * max(line.size, 1.0)
    dashed = [first for first in firsts if (other := _DASH.match(first.text)) and other.group(1) == dash.group(1)]
    is_aligned = any(abs(left - first.box[0]) <= tolerance for first in dashed)
    return is_aligned or left > max(other.box[0] for other in items[-1]) + tolerance


def _is_next_number(first: str, second: str) -> bool:
    if first.isdecimal() and second.isdecimal():
        return int(second) == int(first) + 1
    return len(first) == len(second) == 1 and ord(second) == ord(first) + 1


def _build_element(region: LayoutRegion, layout: PageLayout, page: int, role: Role | None) -> Element | None:
    """Build the element of a region; None where it has no text, though it is no picture and no unread line."""
    kind, is_furniture = _classify(region, layout, role), role is not None and role.is_furniture
    text = _build_text(region, kind)
    is_unread = region.label == "unread"
    if not (text or is_unread or kind is Kind.PICTURE):
        return None
    # A picture without words has no text that could be wrong.
    confidence, doubts = judge(_weigh_evidence(region, kind, text, layout)) if text else (None, ())
    if layout.unreadable_script:
        doubts = tuple(dict.fromkeys((Flag.UNREADABLE, *doubts)))
    if kind is Kind.TABLE and region.table and region.table.doubtful:
        doubts = tuple(dict.fromkeys((*doubts, Flag.UNCERTAIN)))
    element = Element(
        id="",
        page=page,
        category=kind.category,
        kind=kind,
        native_label=region.label,
        boxes=(Box.of(*region.box, layout.width, layout.height),),
        content_layer=Layer.FURNITURE if kind in FURNITURE or is_furniture else Layer.BODY,
        confidence=confidence,
        flags=(
            *layout.flags,
            *((Flag.ORPHAN,) if region.label == "orphan" else ()),
            *((Flag.MISSED,) if is_unread else ()),
            *((Flag.IN_MARGIN,) if is_furniture else ()),
            *((Flag.BROKEN_FONT,) if region.has_broken_font or (layout.lying_fonts and layout.via == "ocr") else ()),
            *((Flag.IMAGE_TEXT,) if region.shows_image_text else ()),
            *((Flag.MIXED_COLUMNS,) if region.across else ()),
            *doubts,
        ),
    )
    return _write(element, text, region, layout)


def _classify(region: LayoutRegion, layout: PageLayout, role: Role | None) -> Kind:
    kind = _KINDS.get(region.label, Kind.TEXT)
    if kind is Kind.TABLE and region.table is None:
        kind = Kind.TEXT
    if role in (Role.INNER, Role.SET_LIKE_TEXT):
        kind = Kind.TEXT
    if kind in HEADINGS and _is_prose(prose.to_one_line(region.text)):
        kind = Kind.TEXT
    if role is Role.PAGE_NUMBER:
        return Kind.PAGE_HEADER if region.box[1] + region.box[3] < layout.height else Kind.PAGE_FOOTER
    if kind in (Kind.TEXT, Kind.FORMULA) and code_listing.is_listing(region, layout):
        kind = Kind.CODE
    return kind


def _is_prose(text: str) -> bool:
    return len(prose.split_words(text)) > _MAX_HEADING_WORDS and prose.ends_sentence(text)


def _build_text(region: LayoutRegion, kind: Kind) -> str:
    if kind is Kind.TABLE and region.table:
        return "\n".join(
            " ".join(prose.to_one_line(cell.text) for cell in row) for row in _table_rows(region.table)
        ).strip()
    if kind is Kind.CODE:
        return code_listing.write(region.lines)
    if kind in (Kind.PICTURE, Kind.FORMULA):
        return region.text.strip()
    return prose.unwrap(region.text)


def _table_rows(table: RegionTable) -> Iterator[list[Cell]]:
    for row in sorted({cell.row for cell in table.cells}):
        yield [cell for cell in table.cells if cell.row == row and cell.text]


def _weigh_evidence(region: LayoutRegion, kind: Kind, text: str, layout: PageLayout) -> Evidence:
    scores = [line.score for line in region.lines if line.score is not None]
    is_ocr = layout.via == "ocr"
    return Evidence(
        length=0 if kind in (Kind.TABLE, Kind.CODE) else len(text),  # these have an order of their own
        agreement=None if is_ocr or region.pixel_score is not None else layout.agreement,
        recogniser=(statistics.mean(scores) if scores else layout.score) if is_ocr else region.pixel_score,
        is_hidden=layout.via == "hidden_layer",
        is_compared=region.is_compared,
        lies=region.has_lies,
        is_flat_formula=kind is Kind.FORMULA and not region.latex,
        is_across=region.across,
        plausibility=1.0 if kind in (Kind.TABLE, Kind.CODE, Kind.FORMULA) else weigh_plausibility(text),
        calibration=find_calibration(text),
        line_height=region.word_height * layout.pixels_per_point if is_ocr and layout.pixels_per_point else 0.0,
    )


def _write(element: Element, text: str, region: LayoutRegion, layout: PageLayout) -> Element:
    """Write what the region says into its element, with the styles of its lines."""
    if element.kind is Kind.SECTION_HEADER:
        return content.write(element, text, level=_level(region, layout.body_size))
    if element.kind is Kind.LIST_ITEM:
        return content.write(element, text, _list_item_markdown(text, region.lines, layout.common_style))
    if element.kind is Kind.TABLE and region.table:
        cells = tuple(c.model_copy(update={"text": prose.unwrap(c.text)}) for c in region.table.cells)
        return content.write_table(element, table_markup.build_table(region.table.rows, region.table.cols, cells))
    if element.kind in (Kind.TITLE, Kind.PICTURE, Kind.FORMULA, Kind.CODE):
        return content.write(element, text, latex=region.latex)
    return content.write(element, text, inline_style.write_styles(text, region.lines, layout.common_style))


def _list_item_markdown(text: str, lines: Sequence[LayoutLine], common_style: str) -> str:
    """The item behind its number, or behind a dash in place of its bullet."""
    marker, rest = list_items.parse(text)
    styled = inline_style.write_styles(text, lines, common_style, start=len(text) - len(rest))
    return marker + (rest if styled is None else styled)


def _level(region: LayoutRegion, body: float) -> int:
    """Guess the level from the type size; the document's numbering and outline may correct it."""
    ratio = region.size / body
    return next((level for least, level in _LEVELS if ratio >= least), len(_LEVELS) + 1)


def _find_title(built: Sequence[tuple[LayoutRegion, Element]], body: float) -> LayoutRegion | None:
    """The first heading of page 1 if it has no number and is clearly larger than all others."""
    candidates = [(region, element) for region, element in built if element.is_heading]
    if not candidates or any(element.kind is Kind.TITLE for _, element in candidates):
        return None
    (first, element), others = candidates[0], candidates[1:]
    next_largest = max((region.size for region, _ in others), default=body)
    return first if element.numbering is None and first.size >= _TITLE_SIZE_RATIO * next_largest > 0 else None


def _as_title(element: Element) -> Element:
    titled = element.model_copy(update={"kind": Kind.TITLE, "category": Kind.TITLE.category})
    return content.write(titled, element.text, level=1)
