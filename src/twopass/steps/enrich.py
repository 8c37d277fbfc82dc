"""Derive keywords, summaries, context and language of one page's elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twopass.document import Analysis, Checkpoint, Element, Flag, Kind, Problem, Source
from twopass.errors import WorkerDied
from twopass.runtime.cpu_budget import limit_cpu_time
from twopass.runtime.page_pool import PagePool
from twopass.text import broken_words, keywords, prose, surrounding_text

# 3 to 5 keywords for a heading, 5 to 10 for other elements; a text with fewer content words gives fewer.
_HEADING_KEYWORDS = 5
_LEAST_KEYWORDS, _MOST_KEYWORDS = 5, 10
_WORDS_PER_KEYWORD = 12
_LIMIT_S = 10.0  # processor seconds for one page
_SHORT = 2  # sentences: a text of at most this length gets a summary of one sentence
_MEDIUM = 5  # sentences: a text of at most this length gets a summary of two, a longer one of three


def describe_options() -> dict[str, Any]:
    """What affects the result, for the document's identity; empty for a complete installation."""
    return {} if keywords.is_available() else {"keywords": False}


async def within_limit(checkpoint: Checkpoint, language: str | None, page_pool: PagePool) -> Checkpoint:
    """Enrich a page in a page worker. If that dies or takes too long, the page is kept as it is, with a warning."""
    try:
        with limit_cpu_time(_LIMIT_S):
            return await page_pool.call(page, checkpoint, language)
    except WorkerDied as died:
        what = f"no keywords and summaries: {died.message}"
        return checkpoint.with_problems([Problem.warning(checkpoint.page.number, died.code, what)])


def page(checkpoint: Checkpoint, language: str | None) -> Checkpoint:
    """Add everything that is derived from one page; `language` is the caller's hint."""
    own = [element for element in checkpoint.elements if not element.is_hidden]
    hidden = [element for element in checkpoint.elements if element.is_hidden]
    detected = prose.detect_language("\n".join(_collect_text(element) for element in own), language)
    elements = broken_words.join(own, {checkpoint.page.number: detected})
    return checkpoint.model_copy(
        update={
            "page": checkpoint.page.model_copy(update={"language": detected}),
            "elements": (
                *(
                    _with_own_texts(_enrich_element(joined, elements, detected), element)
                    for element, joined in zip(own, elements, strict=True)
                ),
                *hidden,
            ),
        }
    )


def _with_own_texts(enriched: Element, element: Element) -> Element:
    """The enriched element with the texts of the page, whose broken words the document joins."""
    own = {name: getattr(element, name) for name in ("text", "markdown", "table", "figure")}
    return enriched.model_copy(update=own)


def _collect_text(element: Element) -> str:
    """All text of an element, including that of its table or figure."""
    parts = [element.text]
    if element.table:
        parts += [cell.text for cell in element.table.cells]
    if element.figure:
        parts += [element.figure.visible_text or "", element.figure.description or "", *element.figure.trends]
    # Each part once: the text of a picture equals its visible text.
    return "\n".join(dict.fromkeys(part for part in parts if part))


def _enrich_element(element: Element, elements: Sequence[Element], language: str | None) -> Element:
    is_visual = element.kind is Kind.TABLE or element.is_figure
    caption = _join_captions(element, elements) if is_visual else ""
    text = "\n".join(part for part in (caption, _collect_text(element)) if part)
    phrases = element.keywords or keywords.extract(text, language, _choose_keyword_limit(element, text))
    summary = element.summary or _summarize(element, caption, phrases)
    update: dict[str, object] = {"keywords": phrases, "summary": summary}
    if is_visual:
        update["context"] = element.context or surrounding_text.collect_context(element, elements)
    if element.analysis.source is not Source.MODEL:
        update["analysis"] = Analysis(source=Source.DERIVED if phrases or summary else Source.NONE)
    elif (phrases, summary) != (element.keywords, element.summary):
        # The model analysed the element but left something out: a flag names what was added here.
        derived = {Flag.DERIVED_KEYWORDS: element.keywords, Flag.DERIVED_SUMMARY: element.summary}
        element = element.with_flags(*(flag for flag, given in derived.items() if not given))
    return element.model_copy(update=update)


def _choose_keyword_limit(element: Element, text: str) -> int:
    if element.is_heading:
        return _HEADING_KEYWORDS
    return min(max(len(prose.split_words(text)) // _WORDS_PER_KEYWORD, _LEAST_KEYWORDS), _MOST_KEYWORDS)


def _summarize(element: Element, caption: str, phrases: Sequence[str]) -> str | None:
    if element.kind is Kind.TABLE:
        return _prefix_caption(caption, _join_headers(element) or prose.to_one_line(element.text)[: prose.MAX_SENTENCE])
    if element.is_figure:
        return _prefix_caption(caption, prose.to_one_line(_collect_text(element))[: prose.MAX_SENTENCE])
    count = len(prose.split_sentences(element.text))
    limit = 1 if element.is_heading or count <= _SHORT else 2 if count <= _MEDIUM else 3
    return prose.summarize(element.text, phrases, limit)


def _prefix_caption(caption: str, content: str) -> str | None:
    """`caption: content`, or the one of them that is not empty; None if both are."""
    content = " ".join(content.split())
    if not caption or not content:
        return caption or content or None
    return f"{caption.rstrip('.:。： ')}: {content}"


def _join_headers(element: Element) -> str:
    """The texts of the header cells, or of the first row if there are none."""
    if not element.table:
        return ""
    headers = [cell for cell in element.table.cells if cell.header] or [c for c in element.table.cells if c.row == 0]
    return ", ".join(dict.fromkeys(prose.to_one_line(cell.text) for cell in headers if cell.text.strip()))


def _join_captions(element: Element, elements: Sequence[Element]) -> str:
    captions = [
        e for e in elements if e.id in element.caption_ids or (e.parent_id == element.id and e.kind is Kind.CAPTION)
    ]
    return prose.to_one_line(prose.join_sentences(prose.to_one_line(caption.text) for caption in captions))
