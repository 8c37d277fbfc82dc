"""A page's checkpoint in, the same with keywords, summaries, context and language out.

Knows the elements of one page. Knows nothing of other pages, models, files or the document.
"""

from __future__ import annotations

from collections.abc import Sequence

from twopass.document import Analysis, Checkpoint, Element, Kind, Source
from twopass.text import keywords, prose, surrounding_text

HEADING_KEYWORDS = 5  # 3 to 5 of a heading, 5 to 10 of all else; a text with fewer content words gives fewer
LEAST_KEYWORDS, MOST_KEYWORDS = 5, 10
WORDS_PER_KEYWORD = 12
SHORT = 2  # sentences: as many or fewer are summed up in one


def page(checkpoint: Checkpoint, language: str | None) -> Checkpoint:
    """Everything that is derived from one page; `language` is the caller's hint."""
    elements = checkpoint.elements
    spoken = prose.language("\n".join(said(element) for element in elements), language)
    return checkpoint.model_copy(
        update={
            "page": checkpoint.page.model_copy(update={"language": spoken}),
            "elements": tuple(_element(element, elements, spoken) for element in elements),
        }
    )


def said(element: Element) -> str:
    """All text of an element, wherever its kind keeps it."""
    parts = [element.text]
    if element.table:
        parts += [cell.text for cell in element.table.cells]
    if element.figure:
        parts += [element.figure.visible_text or "", element.figure.description or "", *element.figure.trends]
    return "\n".join(dict.fromkeys(part for part in parts if part))  # a picture's text is its visible text


def _element(element: Element, elements: Sequence[Element], language: str | None) -> Element:
    visual = element.kind is Kind.TABLE or element.is_figure
    caption = _caption(element, elements) if visual else ""
    text = "\n".join(part for part in (caption, said(element)) if part)
    found = element.keywords or keywords.extract(text, language, _how_many(element, text))
    summary = element.summary or _summary(element, caption, found)
    update: dict[str, object] = {"keywords": found, "summary": summary}
    if visual:
        update["context"] = element.context or surrounding_text.context(element, elements)
    if element.analysis.source is not Source.MODEL:
        update["analysis"] = Analysis(source=Source.DERIVED if found or summary else Source.NONE)
    elif (found, summary) != (element.keywords, element.summary):
        # The model analysed it but left something out: what we added is told by name.
        added = [name for name, had in (("keywords", element.keywords), ("summary", element.summary)) if not had]
        update["flags"] = tuple(dict.fromkeys((*element.flags, *(f"derived_{name}" for name in added))))
    return element.model_copy(update=update)


def _how_many(element: Element, text: str) -> int:
    if element.is_heading:
        return HEADING_KEYWORDS
    return min(max(len(prose.words(text)) // WORDS_PER_KEYWORD, LEAST_KEYWORDS), MOST_KEYWORDS)


def _summary(element: Element, caption: str, found: Sequence[str]) -> str | None:
    if element.kind is Kind.TABLE:
        return _told(caption, _headers(element) or prose.flow(element.text)[: prose.SENTENCE])
    if element.is_figure:
        return _told(caption, prose.flow(said(element))[: prose.SENTENCE])
    told = len(prose.sentences(element.text))
    limit = 1 if element.is_heading or told <= SHORT else 2 if told <= 5 else 3
    return prose.summary(element.text, found, limit)


def _told(caption: str, content: str) -> str | None:
    """`Caption: what is in it.`, as much of it as there is."""
    content = " ".join(content.split())
    if not caption or not content:
        return caption or content or None
    return f"{caption.rstrip('.:。： ')}: {content}"


def _headers(element: Element) -> str:
    if not element.table:
        return ""
    rows = [cell for cell in element.table.cells if cell.header] or [c for c in element.table.cells if c.row == 0]
    return ", ".join(dict.fromkeys(prose.flow(cell.text) for cell in rows if cell.text.strip()))


def _caption(element: Element, elements: Sequence[Element]) -> str:
    own = [e for e in elements if e.id in element.caption_ids or (e.parent_id == element.id and e.kind is Kind.CAPTION)]
    return prose.flow(prose.close_up(prose.flow(caption.text) for caption in own))
