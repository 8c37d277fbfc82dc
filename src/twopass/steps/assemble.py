"""Checkpoints of pages in, one Document out: what no single page can know is decided here.

Pure and total: the same checkpoints give the same document, whatever is in them. Knows nothing of engines or stores.
Decided here: order, furniture, captions and footnotes, headings and sections, what runs on. Nothing is merged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from twopass.document import (
    Checkpoint,
    Document,
    Element,
    Kind,
    Meta,
    Page,
    Problem,
    Run,
    SourceInfo,
    State,
    status_of,
)
from twopass.text import continuations, page_furniture, prose, sections

CAPTION_GAP = 0.08  # of the page's height between a caption and what it belongs to
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
    elements = page_furniture.parted(elements)
    # 2) what belongs to what
    elements = _notes(_captions(elements))
    # 3) headings and sections
    outline = sections.lay(meta.outline, elements)
    elements = sections.headed(elements, outline)
    # 4) what runs on
    elements = continuations.linked(elements, frozenset(page.number for page in pages if page.state is State.BLANK))
    elements = [element.model_copy(update={"order": order}) for order, element in enumerate(elements)]
    told = (*problems, *(problem for checkpoint in read for problem in checkpoint.problems))
    title = _title(elements)
    return Document(
        id=doc_id,
        source=source,
        meta=_meta(meta, title or sections.foremost(elements), pages),
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
    return " ".join(prose.flow(e.text) for e in elements if e.is_body and e.kind is Kind.TITLE) or None


def _meta(meta: Meta, title: str | None, pages: Iterable[Page]) -> Meta:
    """What the file says stands; what it does not say, the pages do."""
    languages = Counter(page.language for page in pages if page.language)
    common = languages.most_common(1)[0][0] if languages else None  # of equals the first page's
    own = meta.title if meta.title and not sections.says_nothing(meta.title) else None
    return meta.model_copy(update={"title": own or title or meta.title, "language": meta.language or common})


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
    if element.kind is not Kind.FOOTNOTE or element.parent_id or not (note := prose.footnote(element.text)):
        return element
    for other in others:
        texts = [other.text, *(cell.text for cell in (other.table.cells if other.table else ()))]
        if any(prose.reference(text, note[0]) for text in texts):
            return element.model_copy(update={"parent_id": other.id})
    return element
