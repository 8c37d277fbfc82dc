"""Elements of a document in reading order in, the same with `continues` and `continued_by` out.

Knows where paragraphs and tables break: at columns, pages and figures. Merges nothing: writers do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from twopass.document import Element, Kind
from twopass.text import page_furniture, prose

# What may stand between two halves of a paragraph.
FLOATS = frozenset({Kind.TABLE, Kind.PICTURE, Kind.CHART, Kind.CAPTION, Kind.FOOTNOTE})
PARAGRAPHS = frozenset({Kind.TEXT, Kind.LIST_ITEM})
LOOK_BACK = 4  # paragraphs: author's addresses, table notes and the like
SLACK = 0.01  # of the page: boxes of neighbours overlap by a little
ALIKE = 0.08  # of the page: halves of one table are about as wide and stand about as far left
_ITEM = re.compile(r"\s*(?:[•◦▪‣·●○■□*‒–—-]|\(?\w{1,3}[.)])\s")
_CONTINUED = re.compile(r"\b(?:continued|cont\.|fortsetzung|suite)|续|續|계속|つづき", flags=re.IGNORECASE)
_CAPTION_NUMBER = re.compile(r"^\D{0,12}?(\d+(?:[.-]\d+)*)")


def linked(elements: Sequence[Element], blank: Collection[int] = ()) -> list[Element]:
    """Each paragraph and table tied to its continuation; `blank` pages count as not there."""
    by_id = {element.id: element for element in elements}
    pairs = _headings(elements) + _paragraphs(elements, blank) + _tables(elements, by_id, blank)
    after, before = dict(pairs), {second: first for first, second in pairs}
    return [
        element.model_copy(update={"continued_by": after.get(element.id), "continues": before.get(element.id)})
        for element in elements
    ]


def _paragraphs(elements: Sequence[Element], blank: Collection[int]) -> list[tuple[str, str]]:
    """Each paragraph with the one it goes on in: mostly the next, else one behind notes that were read as text."""
    pairs: list[tuple[str, str]] = []
    doubtful: list[tuple[str, str]] = []  # the second begins like a sentence: only if nothing fits better
    recent: list[Element] = []  # paragraphs since the last heading or list, the latest last
    between: Element | None = None
    for element in (e for e in elements if e.is_body):
        if element.kind in FLOATS or page_furniture.stands_apart(element):
            between = element
            continue
        if element.kind not in PARAGRAPHS:
            recent = []
        elif not _is_captions_rest(between, element):
            first = _first_half(recent, element, between is not None, blank)
            if first and not _begins_sentence(element):
                pairs.append((first.id, element.id))
                recent.remove(first)
            elif first:
                doubtful.append((first.id, element.id))
            recent = [*recent[-LOOK_BACK:], element]
        between = None
    taken = {first for first, _ in pairs}
    return pairs + [pair for pair in doubtful if pair[0] not in taken]


def _begins_sentence(element: Element) -> bool:
    return element.text.lstrip()[:1].isupper()


def _first_half(recent: Sequence[Element], second: Element, between: bool, blank: Collection[int]) -> Element | None:
    """The latest that must go on, where the text before does not; else the text before, where it may."""
    if not recent or _ITEM.match(second.text):
        return None
    last = recent[-1]
    if not prose.is_open(last.text) and prose.starts_within(second.text):
        for first in reversed(recent[:-1]):
            if first.kind is second.kind and prose.is_open(first.text) and _may(first, second, True, blank):
                return first
    return last if _may(last, second, between, blank) else None


def _may(first: Element, second: Element, between: bool, blank: Collection[int]) -> bool:
    if not _follows(first.page, second.page, blank):
        return False
    if second.kind is Kind.LIST_ITEM and not (first.kind is Kind.LIST_ITEM and _ITEM.match(first.text)):
        return False
    if prose.breaks_word(first.text, second.text):
        return True
    broken = between or first.page != second.page or _next_column(first, second)
    return broken and prose.runs_on(first.text, second.text)


def _is_captions_rest(before: Element | None, element: Element) -> bool:
    """Whether it is the end of a legend that the layout cut in two."""
    return before is not None and before.kind is Kind.CAPTION and prose.runs_on(before.text, element.text)


def _headings(elements: Sequence[Element]) -> list[tuple[str, str]]:
    """Titles and headings of two lines that were read as two."""
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
    return first.kind is Kind.TITLE or prose.starts_within(second.text) or prose.is_open(first.text)


def _follows(first: int, second: int, blank: Collection[int]) -> bool:
    return second >= first and all(page in blank for page in range(first + 1, second))


def _next_column(first: Element, second: Element) -> bool:
    if not first.boxes or not second.boxes:
        return False
    end, start = first.boxes[-1], second.boxes[0]
    return start.x0 >= end.x1 - SLACK and start.y0 < end.y1


def _tables(elements: Sequence[Element], by_id: dict[str, Element], blank: Collection[int]) -> list[tuple[str, str]]:
    """A page's last table and the next page's first one, where nothing but captions and notes stands between."""
    pairs = []
    last: Element | None = None
    for element in elements:
        if not element.is_body or element.kind in (Kind.CAPTION, Kind.FOOTNOTE) or page_furniture.stands_apart(element):
            continue
        if last and element.kind is Kind.TABLE and _is_rest(last, element, by_id, blank):
            pairs.append((last.id, element.id))
        last = element if element.kind is Kind.TABLE else None
    return pairs


def _is_rest(first: Element, second: Element, by_id: dict[str, Element], blank: Collection[int]) -> bool:
    if first.page == second.page or not _follows(first.page, second.page, blank) or not first.table or not second.table:
        return False
    if first.table.cols != second.table.cols or not _alike(first, second):
        return False
    ours, theirs = _caption(first, by_id), _caption(second, by_id)
    if theirs and not _CONTINUED.search(theirs):
        return bool(ours) and _number(ours) is not None and _number(ours) == _number(theirs)
    head = _first_row(second)
    return head is None or head == _first_row(first) or bool(_CONTINUED.search(theirs))


def _alike(first: Element, second: Element) -> bool:
    if not first.box or not second.box:
        return True
    return abs(first.box.x0 - second.box.x0) < ALIKE and abs(first.box.width - second.box.width) < 2 * ALIKE


def _caption(element: Element, by_id: dict[str, Element]) -> str:
    return " ".join(by_id[name].text for name in element.caption_ids if name in by_id)


def _number(caption: str) -> str | None:
    found = _CAPTION_NUMBER.match(caption)
    return found.group(1) if found else None


def _first_row(element: Element) -> tuple[str, ...] | None:
    """The header's words; None for a table without one."""
    assert element.table is not None
    head = [cell for cell in element.table.cells if cell.header and cell.row == 0]
    return tuple(" ".join(cell.text.casefold().split()) for cell in head) or None
