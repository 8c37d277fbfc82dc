"""Build a document's section tree from its headings and its outline, with keywords and a summary per section."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from twopass.document import FIGURES, HEADINGS, Analysis, Element, Kind, Section, Source
from twopass.text import headings, prose
from twopass.text.headings import Outline

_MAX_KEYWORDS, _MIN_KEYWORDS = 10, 5
_SECTION_SENTENCES = 3
_MIN_PROSE = 8  # words: shorter prose only introduces what follows it
_VISUALS = FIGURES | {Kind.TABLE}
_SUMMARY_SOURCE = 6000  # characters of a section that its summary is chosen from


@dataclass(frozen=True)
class _SectionStart:
    """A section begins before the element at this index."""

    index: int
    level: int
    number: str | None
    title: str


def build_tree(
    elements: Sequence[Element], outline: Outline, pages: Sequence[int], title: str | None
) -> tuple[Section, ...]:
    """Build the section tree in document order. Elements before the first heading belong to no section.

    `pages` are the numbers of the document's pages. The title begins a section only if it is the only heading.
    """
    starts = _find_heading_starts(elements) + _find_outline_starts(elements, outline, pages, title)
    starts.sort(key=lambda start: start.index)
    if not starts:
        first = next((i for i, element in enumerate(elements) if element.is_body and element.is_heading), None)
        starts = [] if first is None else [_SectionStart(first, 1, None, headings.join_heading(elements, first))]
    ends = [*(start.index for start in starts[1:]), len(elements)]
    named = [(f"s{n:03d}", start, end) for n, (start, end) in enumerate(zip(starts, ends, strict=False), start=1)]
    return _nest(named, elements, ())


def _find_heading_starts(elements: Sequence[Element]) -> list[_SectionStart]:
    starts = []
    for index, element in enumerate(elements):
        if element.is_body and element.kind is Kind.SECTION_HEADER and not element.continues:
            text = headings.join_heading(elements, index)
            numbering = headings.parse_numbering(text)
            number = numbering.text if numbering else element.numbering
            title = numbering.rest if numbering and numbering.rest else text
            starts.append(_SectionStart(index, element.level or 1, number, title))
    return starts


def _find_outline_starts(
    elements: Sequence[Element], outline: Outline, pages: Sequence[int], title: str | None
) -> list[_SectionStart]:
    """Section starts for the outline entries that no heading matches."""
    matched = outline.element_by_entry
    starts: list[_SectionStart] = []
    for entry_index, entry in enumerate(outline.entries):
        is_title = title is not None and headings.fold_title(entry.title) == headings.fold_title(title)
        if entry_index in matched or is_title or (entry.page is not None and entry.page not in pages):
            continue
        numbering = headings.parse_numbering(entry.title)
        level = numbering.depth if numbering and outline.is_flat else outline.get_level(entry_index)
        text = prose.to_one_line(numbering.rest if numbering and numbering.rest else entry.title)
        index = _find_start_index(entry_index, elements, outline, starts)
        starts.append(_SectionStart(index, level, numbering.text if numbering else None, text))
    return starts


def _find_start_index(
    entry_index: int, elements: Sequence[Element], outline: Outline, earlier: Sequence[_SectionStart]
) -> int:
    """The index of the first element on the entry's page, or on the next page if an earlier entry has the same page.

    Never before an earlier section, and never after the next entry that matches an element.
    """
    entry, matched = outline.entries[entry_index], outline.element_by_entry
    before = [matched[other] for other in range(entry_index) if other in matched]
    lowest = max([*(index + 1 for index in before), *(start.index for start in earlier)], default=0)
    after = (matched[other] for other in range(entry_index + 1, len(outline.entries)) if other in matched)
    highest = min(after, default=len(elements))
    if entry.page is None:
        return max(lowest, highest) if highest < len(elements) else lowest
    is_page_shared = any(other.page == entry.page for other in outline.entries[:entry_index])
    top = bisect_left(elements, entry.page + is_page_shared, key=lambda element: element.page)
    return max(lowest, min(top, highest)) if lowest <= highest else lowest


def _nest(
    starts: Sequence[tuple[str, _SectionStart, int]], elements: Sequence[Element], path: tuple[str, ...]
) -> tuple[Section, ...]:
    """Make one section of the first start and all deeper ones that follow it, then go on with the next."""
    sections = []
    first = 0
    while first < len(starts):
        name, start, end = starts[first]
        stop = first + 1
        while stop < len(starts) and starts[stop][1].level > start.level:
            stop += 1
        section_path = (*path, start.title)
        children = _nest(starts[first + 1 : stop], elements, section_path)
        own = [element for element in elements[start.index : end] if element.is_body]
        own_and_nested = [element for element in elements[start.index : starts[stop - 1][2]] if element.is_body]
        keywords = _select_keywords(own_and_nested)
        summary = _summarize(own, own_and_nested, keywords)
        sections.append(
            Section(
                id=name,
                number=start.number,
                title=start.title,
                level=start.level,
                path=section_path,
                element_ids=tuple(element.id for element in own),
                keywords=keywords,
                summary=summary,
                analysis=Analysis(source=Source.DERIVED if keywords or summary else Source.NONE),
                children=children,
            )
        )
        first = stop
    return tuple(sections)


def summarize(elements: Sequence[Element]) -> tuple[tuple[str, ...], str | None]:
    """Keywords and summary of a run of elements."""
    keywords = _select_keywords(elements)
    return keywords, _summarize(elements, elements, keywords)


def _select_keywords(elements: Sequence[Element]) -> tuple[str, ...]:
    """The keywords that most of the elements share; those of a heading count double."""
    scores: dict[str, float] = defaultdict(float)
    spellings: dict[str, str] = {}
    for element in elements:
        for rank, keyword in enumerate(element.keywords):
            folded = keyword.casefold()
            spellings.setdefault(folded, keyword)
            scores[folded] += (2 if element.is_heading else 1) / (rank + 1)
    best = sorted(scores, key=lambda folded: -scores[folded])
    return prose.select_distinct((spellings[folded] for folded in best), _MAX_KEYWORDS, _MIN_KEYWORDS)


def _summarize(own: Sequence[Element], own_and_nested: Sequence[Element], keywords: Sequence[str]) -> str | None:
    """Summarize the prose of the section and its subsections.

    If the section has hardly any prose itself, the summaries of its own tables and figures come first. Without any
    prose, take those of the subsections: of tables and figures, else of other elements, else of headings.
    """
    summary = prose.summarize(_collect_prose(own_and_nested), keywords, _SECTION_SENTENCES)
    if summary and len(prose.split_words(_collect_prose(own))) >= _MIN_PROSE:
        return summary
    fallbacks = (_VISUALS, frozenset(Kind) - HEADINGS, HEADINGS)
    return (
        _join_summaries(own, _VISUALS)
        or summary
        or next(filter(None, (_join_summaries(own_and_nested, kinds) for kinds in fallbacks)), None)
    )


def _join_summaries(elements: Sequence[Element], kinds: Collection[Kind]) -> str | None:
    """The first summaries of the elements of these kinds."""
    summaries = (element.summary for element in elements if element.kind in kinds and not element.continues)
    return prose.join_sentences([text for text in dict.fromkeys(summaries) if text][:_SECTION_SENTENCES]) or None


def _collect_prose(elements: Sequence[Element]) -> str:
    """The paragraphs, each joined with its continuations. If they are too short together, list items as well."""
    paragraphs = [element for element in elements if element.kind is Kind.TEXT]
    counts = accumulate(len(prose.split_words(element.text)) for element in paragraphs)
    if not any(count >= _MIN_PROSE for count in counts):
        paragraphs = [element for element in elements if element.kind in (Kind.TEXT, Kind.LIST_ITEM)]
    texts: list[str] = []
    for element in paragraphs:
        text = prose.to_one_line(element.text)
        if element.continues and texts:
            texts[-1] = "".join(prose.join_lines(texts[-1], text))
        elif sum(map(len, texts)) > _SUMMARY_SOURCE:
            break
        else:
            texts.append(text)
    return "\n\n".join(texts)[:_SUMMARY_SOURCE]
