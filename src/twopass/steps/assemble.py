"""Checkpoints of pages in, one Document out: what no single page can know is decided here.

Pure and total: the same checkpoints give the same document, whatever is in them. Knows nothing of engines or stores.
Decided here: order, furniture, captions and footnotes, headings and sections, what runs on. Nothing is merged.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from twopass import joins, sections, words
from twopass.document import (
    FURNITURE,
    Checkpoint,
    Document,
    Element,
    Kind,
    Layer,
    Meta,
    Page,
    Problem,
    Run,
    SourceInfo,
    State,
    status_of,
)

SIDE = 0.1  # of the page's width at left and right: where download notes and marks of drafts stand
BAND = 0.12  # of the page's height at top and bottom: where running headers and footers stand
MARGIN = 0.2  # where a label page_header or page_footer is believed without being repeated
REPEATED = 3  # pages, or more than half of the document's
SAME_PLACE = 0.03  # of the page's height
SHORT = 100  # characters: what is longer and stands once is text, whatever its label says
CAPTION_GAP = 0.08  # of the page's height between a caption and what it belongs to
MAY_REPEAT = frozenset({Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.LIST_ITEM, Kind.PICTURE}) | FURNITURE
_PAGE_OF = re.compile(
    r"(?:page|seite|p\.)\s*\d+(?:\s*(?:of|von|/)\s*\d+)?|\d+\s*/\s*\d+|-\s*\d+\s*-|第\s*\d+\s*页", re.I
)
_FIGURE_CAPTION = re.compile(r"\s*(?:fig|abb|chart|그림|图|圖|図)", re.I)
_LEGEND = re.compile(r"\s*(?:table|figure|fig\.|abb\.|tab\.|표|그림|表|图|图表|図)\s*\d+[.:\s]\s*\S", re.I)
_TABLE_CAPTION = re.compile(r"\s*(?:tab|표|表)", re.I)


def document(
    source: SourceInfo,
    meta: Meta,
    run: Run,
    doc_id: str,
    checkpoints: Sequence[Checkpoint],
    problems: Sequence[Problem] = (),
) -> Document:
    """The whole document; the order in which checkpoints are given does not matter."""
    read = list({c.page.number: c for c in sorted(checkpoints, key=lambda c: c.page.number, reverse=True)}.values())[
        ::-1
    ]
    pages = tuple(checkpoint.page for checkpoint in read)
    # 1) what each page holds, and what of it every page repeats
    elements = [_legend(element) for checkpoint in read for element in checkpoint.elements]
    elements = _furniture(elements)
    # 2) what belongs to what
    elements = _notes(_captions(elements))
    # 3) headings and sections
    outline = sections.lay(meta.outline, elements)
    elements = sections.headed(elements, outline)
    # 4) what runs on
    elements = joins.linked(elements, frozenset(page.number for page in pages if page.state is State.BLANK))
    elements = [element.model_copy(update={"order": order}) for order, element in enumerate(elements)]
    told = (*problems, *(problem for checkpoint in read for problem in checkpoint.problems))
    title = _title(elements)
    return Document(
        id=doc_id,
        source=source,
        meta=_meta(meta, title, pages),
        run=run,
        status=status_of(pages, told),
        pages=pages,
        elements=tuple(elements),
        sections=sections.tree(elements, outline, [page.number for page in pages], title or meta.title),
        problems=told,
    )


def _legend(element: Element) -> Element:
    """A heading that begins `Table 1` is a caption, whatever the model called it."""
    if element.kind is Kind.SECTION_HEADER and _LEGEND.match(element.text):
        return element.model_copy(update={"kind": Kind.CAPTION, "category": Kind.CAPTION.category, "level": None})
    return element


def _title(elements: Iterable[Element]) -> str | None:
    return " ".join(words.flow(e.text) for e in elements if e.is_body and e.kind is Kind.TITLE) or None


def _meta(meta: Meta, title: str | None, pages: Iterable[Page]) -> Meta:
    """What the file says stands; what it does not say, the pages do."""
    languages = Counter(page.language for page in pages if page.language)
    common = languages.most_common(1)[0][0] if languages else None  # of equals the first page's
    own = meta.title if meta.title and not sections.says_nothing(meta.title) else None
    return meta.model_copy(update={"title": own or title or meta.title, "language": meta.language or common})


def _furniture(elements: Sequence[Element]) -> list[Element]:
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


def _captions(elements: Sequence[Element]) -> list[Element]:
    """Captions without a parent tied to the nearest table or figure of their page; both sides of every tie filled."""
    parents: dict[str, str] = {}
    children: dict[str, list[str]] = defaultdict(list)
    owner = {name: element.id for element in elements for name in element.caption_ids}
    known = {element.id for element in elements}
    visuals: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.is_body and element.box and (element.kind is Kind.TABLE or element.is_figure):
            visuals[element.page].append(element)
    for element in elements:
        if element.kind is not Kind.CAPTION or not element.is_body:
            continue
        parent = element.parent_id or owner.get(element.id) or _visual_of(element, visuals[element.page], children)
        if parent in known:
            parents[element.id] = parent
            children[parent].append(element.id)
    return [
        element.model_copy(
            update={
                "parent_id": parents.get(element.id, element.parent_id),
                "caption_ids": tuple(dict.fromkeys((*element.caption_ids, *children.get(element.id, ())))),
            }
        )
        for element in elements
    ]


def _visual_of(caption: Element, visuals: Sequence[Element], taken: Mapping[str, list[str]]) -> str | None:
    """The nearest above or below; one that has a caption already only where no other is near."""
    if not caption.box:
        return None
    near = []
    for order, other in enumerate(visuals):
        if not other.box or not _names(caption, other):
            continue
        gap = max(other.box.y0 - caption.box.y1, caption.box.y0 - other.box.y1, 0.0)
        beside = min(caption.box.x1, other.box.x1) <= max(caption.box.x0, other.box.x0)
        if gap <= CAPTION_GAP and not beside:
            near.append((other.id in taken or bool(other.caption_ids), gap, order, other.id))
    return min(near)[-1] if near else None


def _names(caption: Element, other: Element) -> bool:
    """Whether a caption that begins so can belong to this: tables to tables, figures to figures."""
    if other.kind is Kind.TABLE:
        return not _FIGURE_CAPTION.match(caption.text)
    return other.is_figure and not _TABLE_CAPTION.match(caption.text)


def _notes(elements: Sequence[Element]) -> list[Element]:
    """Footnotes tied to the element of their page that shows their mark."""
    on_page: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.is_body and element.kind is not Kind.FOOTNOTE:
            on_page[element.page].append(element)
    return [_noted(element, on_page[element.page]) for element in elements]


def _noted(element: Element, others: Sequence[Element]) -> Element:
    if element.kind is not Kind.FOOTNOTE or element.parent_id or not (note := words.footnote(element.text)):
        return element
    for other in others:
        texts = [other.text, *(cell.text for cell in (other.table.cells if other.table else ()))]
        if any(words.reference(text, note[0]) for text in texts):
            return element.model_copy(update={"parent_id": other.id})
    return element
