"""Mark page furniture: running headers, running footers and page numbers.

The evidence is the position in the page's margins and repetition across pages, or a family's check of one page. A
label from the model alone marks nothing as furniture, because losing a paragraph to a wrong label is worse than keeping
a header.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from twopass.document import FURNITURE, Element, Flag, Kind, Layer
from twopass.text import footnotes, prose

_SIDE = 0.1  # of the page's width at left and right, for download notes and draft marks
BAND = 0.12  # of the page's height at top and bottom, for running headers and footers
_MARGIN = 0.2  # of the page's height: a number, date or URL here that is labelled header or footer is one
_REPEATED = 3  # pages that a text must repeat on; more than half of the document's pages also suffice
_SAME_PLACE = 0.03  # of the page: repetitions differ by less from their median position
_GRID_STEP = 0.02  # of the page: a header of changing text keeps its base line and an edge or its centre
_MIN_SHARE = 1 / 3  # of the pages must have such a header: books use another on left pages, none on a chapter's first
_MAX_LENGTH = 100  # characters: longer text is no running header
_MAY_REPEAT = frozenset({Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.LIST_ITEM, Kind.PICTURE}) | FURNITURE
_PAGE_NUMBER_PATTERN = (
    r"(?:page|seite|p\.)\s*\d+(?:\s*(?:of|von|/)\s*\d+)?|\d+\s*(?:of|von|/)\s*\d+|-\s*\d+\s*-|第\s*\d+\s*页"
)
_PAGE_NUMBER = re.compile(_PAGE_NUMBER_PATTERN, re.I)
_ROMAN = r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
_NUMBER = re.compile(rf"{_PAGE_NUMBER_PATTERN}|[-–—|·•.()\[\]\s]*(?:\d{{1,4}}|{_ROMAN})[-–—|·•.()\[\]\s]*", re.I)
_MONTH = (
    "jan(?:uar(?:y)?|vier)?|f[eé][bv](?:ruar(?:y)?|r(?:ier)?)?|mar(?:ch|s)?|märz|a[pv]r(?:il)?|ma[iy]|jui?n[ei]?"
    "|jul[iy]?|juil(?:let)?|aug(?:ust)?|août|sept?(?:emb(?:er|re))?|o[ck]t(?:ob(?:er|re))?|nov(?:emb(?:er|re))?"
    "|d[eé][cz](?:emb(?:er|re))?"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th|\.)?"
_DATE = (
    rf"(?:{_DAY}\s*)?(?:{_MONTH})\.?(?:\s*{_DAY})?,?\s*\d{{4}}|\d{{4}}([./-])\d{{1,2}}\1\d{{1,2}}"
    r"|\d{1,2}([./-])\d{1,2}\2(?:\d{4}|\d{2})|\d{2,4}\s*[年년]\s*\d{1,2}\s*[月월](?:\s*\d{1,2}\s*[日일])?"
)
_TIME = r"\d{1,2}:\d{2}(?::\d{2})?(?:\s*[ap]\.?m\.?)?"
_URL = r"(?:https?://|www\.)\S+"
# Notes that publishers and libraries print on each page of a file that they hand out.
_STAMP = re.compile(
    r"(?:this (?:content|article|document|copy) (?:was |is )?)?downloaded (?:from|by|on|via)\b.*"
    r"|.*\bdownloaded (?:from|on) .*\b(?:terms|restrictions|licen[sc]e|library)\b.*"
    r"|authorized licensed use limited to\b.*|arxiv:\s?\d{4}\.\d{4,5}(?:v\d+)?\b.*|licensed to\b.*\b(?:only|copy)\b.*",
    re.I | re.S,
)
# A heading, even if no label says so.
_NUMBERED_UNIT = re.compile(
    r"(?:article|art\.|section|sec\.|clause|chapter|part|annex|appendix|schedule|exhibit|question|item|step|§|artikel"
    r"|abschnitt|kapitel|teil|anhang|frage)\s*\d+[.:)]?",
    re.I,
)
_MAX_STAMP = 400  # characters: Wiley's note has 350
_NUMBER_DATE_OR_URL = re.compile(rf"(?:{_DATE})(?:,?\s*{_TIME})?|{_URL}|{_NUMBER.pattern}", re.I)


def mark(elements: Sequence[Element]) -> list[Element]:
    """Put each element of the document into the body or the furniture layer, whatever label the model gave it."""
    repeated = _find_repeated(elements)
    running = repeated | _find_running(elements, repeated)
    marked = [_mark_element(element, element.id in running) for element in elements]
    return _restore_bodies(marked, elements, running)


def _mark_element(element: Element, is_running: bool) -> Element:
    if is_running or Flag.IN_MARGIN in element.flags or _is_page_number(element) or _is_marginal(element):
        update: dict[str, object] = {"content_layer": Layer.FURNITURE}
        if element.kind not in FURNITURE and not element.is_figure:
            kind = Kind.PAGE_HEADER if _find_band(element) == "top" else Kind.PAGE_FOOTER
            update |= {"kind": kind, "category": kind.category}
        return element.model_copy(update=update)
    return _to_body(element) if element.kind in FURNITURE else element


def _to_body(element: Element) -> Element:
    if element.kind not in FURNITURE:
        return element.model_copy(update={"content_layer": Layer.BODY})
    kind = Kind.FOOTNOTE if _is_note(element) else Kind.TEXT
    flags = (*element.flags, *((Flag.APART,) if len(element.text) <= _MAX_LENGTH else ()))
    return element.model_copy(
        update={"kind": kind, "category": kind.category, "content_layer": Layer.BODY, "flags": flags}
    )


def is_unconfirmed_furniture(element: Element) -> bool:
    """Whether the element was labelled header or footer without other evidence. Text may continue after it."""
    return Flag.APART in element.flags


def _is_marginal(element: Element) -> bool:
    """Whether a text that occurs only once is furniture by what it says, in most cases together with its label."""
    if _find_band(element) and _is_stamp(element.text):
        return True
    return (
        element.kind in FURNITURE and _in_margin(element) and bool(_NUMBER_DATE_OR_URL.fullmatch(element.text.strip()))
    )


def _is_stamp(text: str) -> bool:
    """Whether a text says who downloaded the file and when, or names it in an archive."""
    return len(text) <= _MAX_STAMP and bool(_STAMP.fullmatch(text.strip()))


def is_lone_number(element: Element) -> bool:
    """Whether an element is a number and nothing else, such as a page number that nothing confirms."""
    return bool(_NUMBER.fullmatch(element.text.strip()))


def _in_margin(element: Element) -> bool:
    return element.box is None or not _MARGIN < element.box.centre[1] < 1 - _MARGIN


def _is_note(element: Element) -> bool:
    is_low = element.box is None or element.box.centre[1] > 0.5
    return element.kind is Kind.PAGE_FOOTER and is_low and footnotes.is_note(element.text)


def _restore_bodies(marked: Sequence[Element], elements: Sequence[Element], running: set[str]) -> list[Element]:
    """Restore body elements on pages whose text was all marked as furniture.

    Page numbers are restored only if the page has no other text; of the rest, elements that repeat on other pages only
    if there are no others.
    """
    pages = {element.page for element in elements if element.text.strip()}
    pages -= {element.page for element in marked if element.is_body and (element.text.strip() or element.is_figure)}
    texts_of: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.page in pages and element.text.strip():
            texts_of[element.page].append(element)
    restored: set[str] = set()
    for on_page in texts_of.values():
        candidates = [element for element in on_page if not _NUMBER.fullmatch(element.text.strip())] or on_page
        restored |= {element.id for element in [e for e in candidates if e.id not in running] or candidates}
    return [_to_body(old) if old.id in restored else new for new, old in zip(marked, elements, strict=True)]


def _is_page_number(element: Element) -> bool:
    return (
        element.kind is Kind.TEXT
        and _find_band(element) is not None
        and bool(_PAGE_NUMBER.fullmatch(element.text.strip()))
    )


def _find_band(element: Element) -> str | None:
    """The margin in which the element lies: top, bottom or side; None for the rest of the page."""
    box = element.box
    if box is None or element.kind not in _MAY_REPEAT:
        return None
    if box.y1 <= BAND or box.y0 >= 1 - BAND:
        return "top" if box.y1 <= BAND else "bottom"
    return "side" if box.x1 <= _SIDE or box.x0 >= 1 - _SIDE else None


def _measure_position(element: Element, band: str) -> float:
    """The centre of the element across its band: x in a side band, y in the others."""
    x, y = element.box.centre if element.box else (0.0, 0.0)
    return x if band == "side" else y


def _find_repeated(elements: Sequence[Element]) -> set[str]:
    """The ids of elements whose text repeats in one position of a margin."""
    groups: dict[tuple[str, str], list[Element]] = defaultdict(list)
    for element in elements:
        if (band := _find_band(element)) and (key := _make_key(element, band)):
            groups[band, key].append(element)
    pages = len({element.page for element in elements})
    repeated: set[str] = set()
    for (band, _), group in groups.items():
        repeated |= _find_repetitions(group, band, pages)
    return repeated


def _make_key(element: Element, band: str) -> str:
    """A key that repetitions share: the text without numbers, unless they number it; for a logo, its box."""
    text = " ".join(element.text.casefold().split())
    if element.is_figure and element.box:
        return text or "box " + " ".join(f"{side:.2f}" for side in element.box)
    is_line_number = band == "side" and is_lone_number(element)
    has_own_number = element.is_heading or element.kind is Kind.LIST_ITEM or is_line_number
    return text if has_own_number else re.sub(r"\d+|\b[ivxlc]+\b", "#", text)


def _find_repetitions(group: Sequence[Element], band: str, pages: int) -> set[str]:
    """The ids of a group's elements that share a position, if they repeat on enough of the document's pages.

    Without a label, fewer repetitions may be a coincidence, and numbers must be those of pages: clauses have others.
    """
    median = statistics.median_low(_measure_position(element, band) for element in group)
    aligned = [element for element in group if abs(_measure_position(element, band) - median) <= _SAME_PLACE]
    count = len({element.page for element in aligned})
    on_most_pages = count >= 2 and 2 * count > pages
    if not on_most_pages and (count < _REPEATED or _are_notes(aligned)):
        return set()
    if any(element.kind in FURNITURE for element in aligned) or aligned[0].is_figure:
        return {element.id for element in aligned}
    if count < _REPEATED or prose.is_unfinished(aligned[0].text) or not _have_page_numbers(aligned):
        return set()
    if aligned[0].is_heading:
        aligned = aligned[1:]  # a name above each page of a chapter or document: the first one is its heading
    return {element.id for element in aligned}


def _have_page_numbers(group: Sequence[Element]) -> bool:
    """Whether the numbers in texts that are otherwise equal stay the same or count up with the pages."""
    numbers = [[int(number) for number in re.findall(r"\d+", element.text)] for element in group]
    if _NUMBERED_UNIT.fullmatch(group[0].text.strip()) and numbers[0] != numbers[-1]:
        return False
    pages = [element.page for element in group]
    return all(
        _is_mostly_one(column) or _is_mostly_one([n - page for n, page in zip(column, pages, strict=True)])
        for column in zip(*numbers, strict=False)
    )


def _is_mostly_one(numbers: Sequence[int]) -> bool:
    return 2 * Counter(numbers).most_common(1)[0][1] > len(numbers)


def _are_notes(group: Sequence[Element]) -> bool:
    """Whether these footers are footnotes, and not footers that begin with the page number."""
    notes = [footnotes.parse_note(element.text) for element in group if _is_note(element)]
    if len(notes) < len(group):
        return False
    offsets = Counter(
        int(note[0]) - element.page for note, element in zip(notes, group, strict=True) if note and note[0].isdecimal()
    )
    return not offsets or offsets.most_common(1)[0][1] < _REPEATED


def _find_running(elements: Sequence[Element], repeated: set[str]) -> set[str]:
    """The ids of lines that keep their position on many pages as headers or footers, even if their text changes.

    A line without the label is one if it is at a place where others have the label, on a page that has none there, and
    if it names what one of the others or a heading names.
    """
    pages_of: dict[tuple[int, ...], set[int]] = defaultdict(set)
    labelled_of: dict[tuple[int, ...], set[str]] = defaultdict(set)
    headings = Counter(_make_title_key(element.text) for element in elements if element.is_heading)
    for element in elements:
        if element.id in repeated or _may_be_running(element):
            for cell in _locate_on_grids(element):
                pages_of[cell].add(element.page)
                labelled_of[cell].add(_make_title_key(element.text))
    required = max(_REPEATED, len({element.page for element in elements}) * _MIN_SHARE)

    def is_running(element: Element) -> bool:
        cells = [cell for cell in _locate_on_grids(element) if len(pages_of[cell]) >= required]
        if not cells or _may_be_running(element):
            return bool(cells)
        key = _make_title_key(element.text)
        is_named = headings[key] > element.is_heading or any(key in labelled_of[cell] for cell in cells)
        return _may_be_unlabelled(element) and is_named and all(element.page not in pages_of[cell] for cell in cells)

    return {element.id for element in elements if is_running(element)}


def _make_title_key(text: str) -> str:
    """The letters of a title, without the page's number before or after it."""
    return " ".join(re.sub(r"[\W\d_]+", " ", text.casefold()).split())


def _may_be_unlabelled(element: Element) -> bool:
    """Whether a line may be a running title although no label says so."""
    is_line = element.kind in (Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER) and len(element.text) <= _MAX_LENGTH
    return is_line and _find_band(element) in ("top", "bottom") and bool(_make_title_key(element.text))


def _may_be_running(element: Element) -> bool:
    is_short = len(element.text) <= _MAX_LENGTH
    return element.kind in FURNITURE and _in_margin(element) and is_short and not _is_note(element)


def _locate_on_grids(element: Element) -> Iterator[tuple[int, ...]]:
    """The cells of a line's left end, centre and right end, in a grid and in grids shifted by half a cell.

    The shifted grids catch positions near the border of a cell. A number has no cells, because any text may be beside
    it.
    """
    if element.box is None or element.is_figure or _NUMBER.fullmatch(element.text.strip()):
        return
    x, y = element.box.centre
    anchors = enumerate((element.box.x0, x, element.box.x1))
    for (anchor, at), right, down in product(anchors, (0, 0.5), (0, 0.5)):
        yield anchor, int(2 * right), int(2 * down), int(at / _GRID_STEP + right), int(y / _GRID_STEP + down)
