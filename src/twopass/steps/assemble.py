"""Assemble the checkpoints of a document's pages into one Document.

Decides what no single page can show: reading order, page furniture, captions and footnotes, headings and sections, and
which elements continue others. Elements are linked but never merged. The result depends on the checkpoints only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate

from twopass.document import (
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
    derive_status,
    list_canary_problems,
)
from twopass.families import captions
from twopass.text import (
    broken_words,
    continuations,
    footnotes,
    headings,
    links,
    list_items,
    page_furniture,
    prose,
    sections,
)

_ESCAPED_NUMBER = re.compile(r"\A(\d+)\\([.)])")
_NUMBERED_CAPTION = re.compile(r"\s*(?:table|figure|fig\.|abb\.|tab\.|표|그림|表|图|图表|図)\s*\d+[.:\s]\s*\S", re.I)


def document(
    source: SourceInfo,
    meta: Meta,
    run: Run,
    doc_id: str,
    checkpoints: Sequence[Checkpoint],
    problems: Sequence[Problem] = (),
) -> Document:
    """Assemble the document. The order of the checkpoints does not matter."""
    checkpoints = _sort_pages(checkpoints)
    pages = tuple(checkpoint.page for checkpoint in checkpoints)
    # 1) the elements of each page, their words that line ends break, their links, and the furniture that pages repeat
    everything = [element for checkpoint in checkpoints for element in checkpoint.elements]
    elements = [_correct_caption(element) for element in everything if not element.is_hidden]
    elements = broken_words.join(elements, {page.number: page.language for page in pages})
    elements = links.attach(elements, {page.number: page.links for page in pages})
    elements = _mark_numbered(page_furniture.mark(elements))
    # 2) captions and footnotes with their parents
    elements = _link_footnotes(captions.link(elements, labels_differ=False))
    # 3) headings and sections
    outline = headings.match_outline(meta.outline, elements)
    elements = headings.resolve(elements, outline)
    # 4) continuations of paragraphs and tables
    elements = continuations.link(elements, frozenset(page.number for page in pages if page.state is State.BLANK))
    # 5) what nobody can see, where it stands
    elements = _insert_hidden(elements, [element for element in everything if element.is_hidden])
    elements = [element.model_copy(update={"order": order}) for order, element in enumerate(elements)]
    of_pages = (problem for checkpoint in checkpoints for problem in checkpoint.problems)
    all_problems = (*problems, *list_canary_problems(checkpoints), *of_pages)
    title = _join_title(elements)
    return Document(
        id=doc_id,
        source=source,
        meta=_complete_meta(meta, title or headings.find_top_heading(elements), pages),
        run=run,
        status=derive_status(pages, all_problems),
        pages=_count_left_out(pages, elements),
        elements=tuple(elements),
        sections=sections.build_tree(elements, outline, [page.number for page in pages], title or meta.title),
        problems=all_problems,
    )


def _count_left_out(pages: Sequence[Page], elements: Iterable[Element]) -> tuple[Page, ...]:
    """Count in each page's audit the words of its furniture, which only the whole document shows."""
    words: Counter[int] = Counter()
    for element in elements:
        is_left_out = element.content_layer is Layer.FURNITURE
        words[element.page] += len(prose.split_words(element.text)) if is_left_out else 0
    return tuple(
        page.model_copy(update={"audit": page.audit.model_copy(update={"words_left_out": words[page.number]})})
        if page.audit
        else page
        for page in pages
    )


def _insert_hidden(elements: Sequence[Element], hidden: Sequence[Element]) -> list[Element]:
    """The elements with each hidden one behind the last element of its page that begins above it."""
    places = [_find_place(element) for element in elements]
    lowest = list(accumulate(reversed(places), min))[::-1]  # of each element and all behind it: never decreases
    behind: dict[int, list[Element]] = defaultdict(list)
    for one in sorted(hidden, key=_find_place):
        behind[bisect_right(lowest, _find_place(one))].append(one)
    return [*behind[0], *(one for n, element in enumerate(elements, 1) for one in (element, *behind[n]))]


def _find_place(element: Element) -> tuple[int, float]:
    return element.page, element.box.y0 if element.box else 0.0


def _sort_pages(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """One checkpoint per page, in page order; of several for one page the last."""
    by_number = {checkpoint.page.number: checkpoint for checkpoint in checkpoints}
    return [by_number[number] for number in sorted(by_number)]


def _correct_caption(element: Element) -> Element:
    """Make a heading that begins like `Table 1` a caption."""
    if element.kind is Kind.SECTION_HEADER and _NUMBERED_CAPTION.match(element.text):
        return element.model_copy(update={"kind": Kind.CAPTION, "category": Kind.CAPTION.category, "level": None})
    return element


def _mark_numbered(elements: Sequence[Element]) -> list[Element]:
    """Make numbered paragraphs list items if their numbers go on: readers label one of them so and the next not."""
    may_be = [n for n, e in enumerate(elements) if e.is_body and e.kind in (Kind.TEXT, Kind.LIST_ITEM)]
    numbered = {may_be[n] for n in list_items.find_sequences([elements[index].text for index in may_be])}
    return [_to_list_item(element) if n in numbered else element for n, element in enumerate(elements)]


def _to_list_item(element: Element) -> Element:
    if element.kind is Kind.LIST_ITEM:
        return element
    kind, markdown = Kind.LIST_ITEM, _ESCAPED_NUMBER.sub(r"\1\2", element.markdown)
    markdown = "".join(list_items.parse(markdown)) if markdown else ""
    return element.model_copy(update={"kind": kind, "category": kind.category, "markdown": markdown})


def _join_title(elements: Iterable[Element]) -> str | None:
    return " ".join(prose.to_one_line(e.text) for e in elements if e.is_body and e.kind is Kind.TITLE) or None


def _complete_meta(meta: Meta, title: str | None, pages: Iterable[Page]) -> Meta:
    """Keep the file's own metadata; take a missing title or language from the pages."""
    languages = Counter(page.language for page in pages if page.language)
    common = languages.most_common(1)[0][0] if languages else None  # on a tie, that of the earlier page
    own = meta.title if meta.title and not headings.is_placeholder(meta.title) else None
    return meta.model_copy(update={"title": own or title or meta.title, "language": meta.language or common})


def _link_footnotes(elements: Sequence[Element]) -> list[Element]:
    """Link each footnote to the first element of its page that contains its mark."""
    on_page: dict[int, list[Element]] = defaultdict(list)
    for element in elements:
        if element.is_body and element.kind is not Kind.FOOTNOTE:
            on_page[element.page].append(element)
    return [_link_footnote(element, on_page[element.page]) for element in elements]


def _link_footnote(element: Element, others: Sequence[Element]) -> Element:
    if element.kind is not Kind.FOOTNOTE or element.parent_id or not (note := footnotes.parse_note(element.text)):
        return element
    texts = [element.text, *(other.text for other in others)]
    for n, other in enumerate(others, 1):
        if _is_below(element, other) and _refers_to(other, note[0], [*texts[:n], *texts[n + 1 :]]):
            return element.model_copy(update={"parent_id": other.id})
    return element


def _refers_to(element: Element, mark: str, others: Sequence[str]) -> bool:
    texts = [element.text, *(cell.text for cell in (element.table.cells if element.table else ()))]
    return any(footnotes.find_reference(text, mark, others) for text in texts)


def _is_below(note: Element, element: Element) -> bool:
    """Whether a note begins below the top of the element that may refer to it."""
    return not note.box or not element.box or note.box.y0 >= element.box.y0
