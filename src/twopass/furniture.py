"""Elements of all pages in, the same with running headers, footers and page numbers told from the body out.

Knows margins and what repeats in them. Knows nothing of what belongs to what in the body.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence

from twopass.document import FURNITURE, Element, Kind, Layer

SIDE = 0.1  # of the page's width at left and right: where download notes and marks of drafts stand
BAND = 0.12  # of the page's height at top and bottom: where running headers and footers stand
MARGIN = 0.2  # where a label page_header or page_footer is believed without being repeated
REPEATED = 3  # pages, or more than half of the document's
SAME_PLACE = 0.03  # of the page's height
SHORT = 100  # characters: what is longer and stands once is text, whatever its label says
MAY_REPEAT = frozenset({Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.LIST_ITEM, Kind.PICTURE}) | FURNITURE
_PAGE_OF = re.compile(
    r"(?:page|seite|p\.)\s*\d+(?:\s*(?:of|von|/)\s*\d+)?|\d+\s*/\s*\d+|-\s*\d+\s*-|第\s*\d+\s*页", re.I
)


def parted(elements: Sequence[Element]) -> list[Element]:
    """Running headers, footers and page numbers told from the body, whatever the model called them."""
    repeated = _repeated(elements)
    return [_layered(element, element.id in repeated) for element in elements]


def _layered(element: Element, repeated: bool) -> Element:
    if repeated or _is_page_number(element) or (element.kind in FURNITURE and _stays(element)):
        update: dict[str, object] = {"content_layer": Layer.FURNITURE}
        if element.kind not in FURNITURE and not element.is_figure:
            kind = Kind.PAGE_HEADER if _band(element) == "top" else Kind.PAGE_FOOTER
            update |= {"kind": kind, "category": kind.category}
        return element.model_copy(update=update)
    if element.kind in FURNITURE:
        # Losing a paragraph to a wrong label is worse than keeping a header.
        return element.model_copy(update={"kind": Kind.TEXT, "content_layer": Layer.BODY})
    return element


def _stays(element: Element) -> bool:
    """Whether a label page_header or page_footer is believed where the text stands only once."""
    if len(element.text) > SHORT:
        return False
    return element.box is None or not MARGIN < element.box.centre[1] < 1 - MARGIN


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
    if not most and count < REPEATED:
        return set()
    labelled = any(element.kind in FURNITURE for element in here)
    if here[0].is_heading and not most and not labelled:
        here = here[1:]  # a chapter's name, repeated above its pages: the first is the chapter's heading
    return {element.id for element in here}
