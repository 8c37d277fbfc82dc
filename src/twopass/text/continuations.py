"""Link paragraphs, headings and tables that break at columns, pages and figures with their continuations.

Sets `continues` and `continued_by`. The elements are not merged here; the writers of the formats do that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from twopass.document import Element, Kind
from twopass.text import list_items, page_furniture, prose

# What may lie between two parts of a paragraph.
_FLOATS = frozenset({Kind.TABLE, Kind.PICTURE, Kind.CHART, Kind.CAPTION, Kind.FOOTNOTE})
_PARAGRAPHS = frozenset({Kind.TEXT, Kind.LIST_ITEM})
_LOOK_BACK = 4  # paragraphs that may lie between two parts, such as authors' addresses and table notes
_OVERLAP = 0.01  # of the page: boxes of neighbouring columns overlap by up to this much
_ALIGNMENT = 0.08  # of the page: left edges of a table's parts differ by less, their widths by less than twice that
_LIST_MARKER = re.compile(rf"\s*(?:[{list_items.BULLETS}{list_items.BOXES}·*‒–—-]|\(?\w{{1,3}}[.)])\s")
_CONTINUED = re.compile(r"\b(?:continued|cont\.|fortsetzung|suite)|续|續|계속|つづき", flags=re.IGNORECASE)
_CAPTION_NUMBER = re.compile(r"^\D{0,12}?(\d+(?:[.-]\d+)*)")


def link(elements: Sequence[Element], blank: Collection[int] = ()) -> list[Element]:
    """Link each paragraph, heading and table of a document in reading order to its continuation.

    `blank` holds the numbers of blank pages, which a paragraph or table may cross.
    """
    by_id = {element.id: element for element in elements}
    pairs = _pair_headings(elements) + _pair_paragraphs(elements, blank) + _pair_tables(elements, by_id, blank)
    next_of, previous_of = dict(pairs), {second: first for first, second in pairs}
    return [
        element.model_copy(update={"continued_by": next_of.get(element.id), "continues": previous_of.get(element.id)})
        for element in elements
    ]


def _pair_paragraphs(elements: Sequence[Element], blank: Collection[int]) -> list[tuple[str, str]]:
    """Pair paragraphs with their continuations: mostly the next one, else one after notes that were read as text."""
    pairs: list[tuple[str, str]] = []
    doubtful: list[tuple[str, str]] = []  # the second part begins like a sentence: used only if nothing fits better
    recent: list[Element] = []  # paragraphs since the last heading or other block, the latest last
    interruption: Element | None = None  # the float or unconfirmed header just before
    for element in (e for e in elements if e.is_body):
        if element.kind in _FLOATS or _is_unconfirmed(element):
            interruption = element
            continue
        if element.kind not in _PARAGRAPHS:
            recent = []
        elif not _continues_caption(interruption, element):
            first = _find_first_part(recent, element, interruption is not None, blank)
            if first and not _begins_sentence(element):
                pairs.append((first.id, element.id))
                recent.remove(first)
            elif first:
                doubtful.append((first.id, element.id))
            recent = [*recent[-_LOOK_BACK:], element]
        interruption = None
    taken = {first for first, _ in pairs}
    return pairs + [pair for pair in doubtful if pair[0] not in taken]


def _is_unconfirmed(element: Element) -> bool:
    """Whether an element may be a header, footer or page number between two parts of a paragraph."""
    is_number = element.kind is Kind.TEXT and page_furniture.is_lone_number(element)
    return is_number or page_furniture.is_unconfirmed_furniture(element)


def _begins_sentence(element: Element) -> bool:
    return element.text.lstrip()[:1].isupper()


def _find_first_part(
    recent: Sequence[Element], second: Element, is_interrupted: bool, blank: Collection[int]
) -> Element | None:
    """The paragraph that `second` continues; None if it begins a new one.

    Usually the paragraph before it. If that one is finished and `second` begins inside a sentence, the latest
    unfinished one. `is_interrupted` means that a float, such as a figure, lies just before `second`.
    """
    if not recent or _LIST_MARKER.match(second.text):
        return None
    last = recent[-1]
    if not prose.is_unfinished(last.text) and prose.starts_mid_sentence(second.text):
        for first in reversed(recent[:-1]):
            if (
                first.kind is second.kind
                and prose.is_unfinished(first.text)
                and _may_continue(first, second, True, blank)
            ):
                return first
    return last if _may_continue(last, second, is_interrupted, blank) else None


def _may_continue(first: Element, second: Element, is_interrupted: bool, blank: Collection[int]) -> bool:
    if not _is_adjacent(first.page, second.page, blank):
        return False
    if second.kind is Kind.LIST_ITEM and not (first.kind is Kind.LIST_ITEM and _LIST_MARKER.match(first.text)):
        return False
    if prose.is_word_split(first.text, second.text):
        return True
    has_break = is_interrupted or first.page != second.page or _is_next_column(first, second)
    return has_break and prose.is_continuation(first.text, second.text)


def _continues_caption(previous: Element | None, element: Element) -> bool:
    """Whether the element is the end of a caption that the layout model cut in two."""
    if previous is None or previous.kind is not Kind.CAPTION:
        return False
    return prose.is_continuation(previous.text, element.text)


def _pair_headings(elements: Sequence[Element]) -> list[tuple[str, str]]:
    """Pair the lines of titles and headings that were read as separate elements."""
    body = [element for element in elements if element.is_body]
    return [
        (first.id, second.id)
        for first, second in pairwise(body)
        if first.is_heading
        and first.kind is second.kind
        and first.page == second.page
        and _is_second_line(first, second)
    ]


def _is_second_line(first: Element, second: Element) -> bool:
    if second.numbering or not second.text.strip():
        return False
    return first.kind is Kind.TITLE or prose.starts_mid_sentence(second.text) or prose.is_unfinished(first.text)


def _is_adjacent(first: int, second: int, blank: Collection[int]) -> bool:
    """Whether page `second` is page `first`, the page after it, or separated from it by blank pages only."""
    return second >= first and all(page in blank for page in range(first + 1, second))


def _is_next_column(first: Element, second: Element) -> bool:
    if not first.boxes or not second.boxes:
        return False
    end, start = first.boxes[-1], second.boxes[0]
    return start.x0 >= end.x1 - _OVERLAP and start.y0 < end.y1


def _pair_tables(
    elements: Sequence[Element], by_id: dict[str, Element], blank: Collection[int]
) -> list[tuple[str, str]]:
    """Pair a page's last table with the next page's first if only captions and footnotes lie between."""
    pairs = []
    last: Element | None = None
    for element in elements:
        if (
            not element.is_body
            or element.kind in (Kind.CAPTION, Kind.FOOTNOTE)
            or page_furniture.is_unconfirmed_furniture(element)
        ):
            continue
        if last and element.kind is Kind.TABLE and _continues_table(last, element, by_id, blank):
            pairs.append((last.id, element.id))
        last = element if element.kind is Kind.TABLE else None
    return pairs


def _continues_table(first: Element, second: Element, by_id: dict[str, Element], blank: Collection[int]) -> bool:
    if first.page == second.page or not _is_adjacent(first.page, second.page, blank):
        return False
    if not first.table or not second.table or first.table.cols != second.table.cols or not _is_aligned(first, second):
        return False
    caption, next_caption = _get_caption(first, by_id), _get_caption(second, by_id)
    if next_caption and not _CONTINUED.search(next_caption):
        number = _parse_caption_number(caption)
        return number is not None and number == _parse_caption_number(next_caption)
    header = _get_header(second)
    return header is None or header == _get_header(first) or bool(_CONTINUED.search(next_caption))


def _is_aligned(first: Element, second: Element) -> bool:
    if not first.box or not second.box:
        return True
    return abs(first.box.x0 - second.box.x0) < _ALIGNMENT and abs(first.box.width - second.box.width) < 2 * _ALIGNMENT


def _get_caption(element: Element, by_id: dict[str, Element]) -> str:
    return " ".join(by_id[name].text for name in element.caption_ids if name in by_id)


def _parse_caption_number(caption: str) -> str | None:
    match = _CAPTION_NUMBER.match(caption)
    return match.group(1) if match else None


def _get_header(element: Element) -> tuple[str, ...] | None:
    """The folded texts of the header row; None if the table has no header."""
    assert element.table is not None
    header = [cell for cell in element.table.cells if cell.header and cell.row == 0]
    return tuple(" ".join(cell.text.casefold().split()) for cell in header) or None
