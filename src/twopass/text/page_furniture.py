"""Elements of all pages in, the same with running headers, footers and page numbers told from the body out.

Losing a paragraph to a wrong label is worse than keeping a header: a label alone makes nothing furniture.
Knows margins and what repeats in them. Knows nothing of what belongs to what in the body.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from twopass.document import FURNITURE, Element, Kind, Layer
from twopass.text import prose

SIDE = 0.1  # of the page's width at left and right: where download notes and marks of drafts stand
BAND = 0.12  # of the page's height at top and bottom: where running headers and footers stand
MARGIN = 0.2  # where what a label calls a header or footer is one if it is a number, date or address
REPEATED = 3  # pages, or more than half of the document's
SAME_PLACE = 0.03  # of the page's height
LINE = 0.02  # of the page: running headers whose text changes keep their base line and an edge or the middle
SHARE = 3  # at least every third page has such a header: books have others on their left pages and chapters' first
SHORT = 100  # characters: what is longer runs along no margin
APART = "apart"  # flag of what was called a header or footer
MAY_REPEAT = frozenset({Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.LIST_ITEM, Kind.PICTURE}) | FURNITURE
_PAGE = r"(?:page|seite|p\.)\s*\d+(?:\s*(?:of|von|/)\s*\d+)?|\d+\s*(?:of|von|/)\s*\d+|-\s*\d+\s*-|第\s*\d+\s*页"
_PAGE_OF = re.compile(_PAGE, re.I)
_ROMAN = r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
_NUMBER = re.compile(rf"{_PAGE}|[-–—|·•.()\[\]\s]*(?:\d{{1,4}}|{_ROMAN})[-–—|·•.()\[\]\s]*", re.I)
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
_BARE = re.compile(rf"(?:{_DATE})(?:,?\s*{_TIME})?|{_URL}|{_NUMBER.pattern}", re.I)


def parted(elements: Sequence[Element]) -> list[Element]:
    """Running headers, footers and page numbers told from the body, whatever the model called them."""
    repeated = _repeated(elements)
    running = repeated | _running(elements, repeated)
    return _with_bodies([_layered(element, element.id in running) for element in elements], elements, running)


def _layered(element: Element, runs: bool) -> Element:
    if runs or _is_page_number(element) or _is_marginal(element):
        update: dict[str, object] = {"content_layer": Layer.FURNITURE}
        if element.kind not in FURNITURE and not element.is_figure:
            kind = Kind.PAGE_HEADER if _band(element) == "top" else Kind.PAGE_FOOTER
            update |= {"kind": kind, "category": kind.category}
        return element.model_copy(update=update)
    return _as_body(element) if element.kind in FURNITURE else element


def _as_body(element: Element) -> Element:
    if element.kind not in FURNITURE:
        return element.model_copy(update={"content_layer": Layer.BODY})
    kind = Kind.FOOTNOTE if _is_note(element) else Kind.TEXT
    flags = (*element.flags, *((APART,) if len(element.text) <= SHORT else ()))
    return element.model_copy(
        update={"kind": kind, "category": kind.category, "content_layer": Layer.BODY, "flags": flags}
    )


def stands_apart(element: Element) -> bool:
    """Whether it is body for want of proof that it is a header or footer: the text around it goes on behind it."""
    return APART in element.flags


def _is_marginal(element: Element) -> bool:
    """Whether a label page_header or page_footer is believed where the text stands only once."""
    return element.kind in FURNITURE and _in_margin(element) and bool(_BARE.fullmatch(element.text.strip()))


def _in_margin(element: Element) -> bool:
    return element.box is None or not MARGIN < element.box.centre[1] < 1 - MARGIN


def _is_note(element: Element) -> bool:
    low = element.box is None or element.box.centre[1] > 0.5
    return element.kind is Kind.PAGE_FOOTER and low and prose.footnote(element.text) is not None


def _with_bodies(layered: Sequence[Element], elements: Sequence[Element], running: set[str]) -> list[Element]:
    """No page that has text is without body: on one that would be, what is only there comes back, else all."""
    pages = {element.page for element in elements if element.text.strip()}
    pages -= {element.page for element in layered if element.is_body and (element.text.strip() or element.is_figure)}
    alone: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.page in pages and element.text.strip():
            alone[element.page].append(element)
    back: set[str] = set()
    for on_page in alone.values():
        told = [element for element in on_page if not _NUMBER.fullmatch(element.text.strip())] or on_page
        back |= {element.id for element in [e for e in told if e.id not in running] or told}
    return [_as_body(element) if element.id in back else now for now, element in zip(layered, elements, strict=True)]


def _is_page_number(element: Element) -> bool:
    return element.kind is Kind.TEXT and _band(element) is not None and bool(_PAGE_OF.fullmatch(element.text.strip()))


def _band(element: Element) -> str | None:
    box = element.box
    if box is None or element.kind not in MAY_REPEAT:
        return None
    if box.y1 <= BAND or box.y0 >= 1 - BAND:
        return "top" if box.y1 <= BAND else "bottom"
    return "side" if box.x1 <= SIDE or box.x0 >= 1 - SIDE else None


def _place(element: Element, band: str) -> float:
    """Where it stands across its band."""
    x, y = element.box.centre if element.box else (0.0, 0.0)
    return x if band == "side" else y


def _repeated(elements: Sequence[Element]) -> set[str]:
    groups: dict[tuple[str, str], list[Element]] = defaultdict(list)
    for element in elements:
        if (band := _band(element)) and (key := _key(element)):
            groups[band, key].append(element)
    pages = len({element.page for element in elements})
    repeated: set[str] = set()
    for (band, _), group in groups.items():
        repeated |= _of_group(group, band, pages)
    return repeated


def _key(element: Element) -> str:
    """What makes two of them the same: text with numbers alike; headings, which count, to the letter; logos by box."""
    text = " ".join(element.text.casefold().split())
    if element.is_figure and element.box:
        return text or "box " + " ".join(f"{side:.2f}" for side in element.box)
    return text if element.is_heading else re.sub(r"\d+|\b[ivxlc]+\b", "#", text)


def _of_group(group: Sequence[Element], band: str, pages: int) -> set[str]:
    middle = statistics.median_low(_place(element, band) for element in group)
    here = [element for element in group if abs(_place(element, band) - middle) <= SAME_PLACE]
    count = len({element.page for element in here})
    most = count >= 2 and 2 * count > pages
    if not most and (count < REPEATED or _are_notes(here)):
        return set()
    labelled = any(element.kind in FURNITURE for element in here)
    if here[0].is_heading and not most and not labelled:
        here = here[1:]  # a chapter's name, repeated above its pages: the first is the chapter's heading
    return {element.id for element in here}


def _are_notes(group: Sequence[Element]) -> bool:
    """Whether footers are footnotes, and no footers that begin with their page's number."""
    notes = [prose.footnote(element.text) for element in group if _is_note(element)]
    if len(notes) < len(group):
        return False
    ahead = Counter(
        int(note[0]) - element.page for note, element in zip(notes, group, strict=True) if note and note[0].isdecimal()
    )
    return not ahead or ahead.most_common(1)[0][1] < REPEATED


def _running(elements: Sequence[Element], repeated: set[str]) -> set[str]:
    """Labelled lines that stand in one place of many pages, whatever each says there: names of chapters."""
    pages_of: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for element in elements:
        if element.id in repeated or _may_run(element):
            for place in _places(element):
                pages_of[place].add(element.page)
    least = max(REPEATED, len({element.page for element in elements}) / SHARE)
    return {
        element.id
        for element in elements
        if _may_run(element) and any(len(pages_of[place]) >= least for place in _places(element))
    }


def _may_run(element: Element) -> bool:
    return element.kind in FURNITURE and _in_margin(element) and len(element.text) <= SHORT and not _is_note(element)


def _places(element: Element) -> Iterator[tuple[int, ...]]:
    """A line's left end, middle and right end on a grid, and on grids half a square off for those on its lines.

    Numbers stand for themselves only: beside them is room for anything.
    """
    if element.box is None or element.is_figure or _NUMBER.fullmatch(element.text.strip()):
        return
    x, y = element.box.centre
    for (which, at), right, down in product(enumerate((element.box.x0, x, element.box.x1)), (0, 0.5), (0, 0.5)):
        yield which, int(2 * right), int(2 * down), int(at / LINE + right), int(y / LINE + down)
