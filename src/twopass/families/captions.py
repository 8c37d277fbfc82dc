"""Link captions and notes to their tables and figures, by labels, words, boxes and the order of the answer.

Families link those of a page when they parse it; steps/assemble.py links what is left when all pages were read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from twopass.document import Box, Element, Kind

_PAGE_NOTES = ("footnote", "page_footnote")  # notes to the text, by their label
_REACH = 0.2  # largest gap, as a share of the page's height: often only a part of a picture is found
_STEPS = 100  # elements of the answer between both; a column of a page has fewer
_FIGURE_NAME = re.compile(r"\s*(?:fig|abb|chart|그림|图|圖|図)", re.IGNORECASE)
_TABLE_NAME = re.compile(r"\s*(?:tab|표|表)", re.IGNORECASE)


def link(elements: Sequence[Element], labels_differ: bool = True) -> tuple[Element, ...]:
    """Link each caption and note without a parent to the nearest table or figure of its page that it can belong to.

    Both ends of every link are set. `labels_differ`: captions of tables have other labels than those of figures.
    """
    owner_of = {caption: element.id for element in elements for caption in element.caption_ids}
    caption_ids = {element.id: dict.fromkeys(element.caption_ids) for element in elements}
    captioned = {element.id for element in elements if element.caption_ids}
    parents: dict[str, str] = {}
    for index, element in enumerate(elements):
        if not _needs_owner(element):
            continue
        owner = element.parent_id or owner_of.get(element.id)
        owner = owner or _find_owner(index, elements, captioned, labels_differ)
        if owner in caption_ids:
            parents[element.id] = owner
            if element.kind is Kind.CAPTION:
                caption_ids[owner][element.id] = None
                captioned.add(owner)
    return tuple(
        one.model_copy(
            update={"parent_id": parents.get(one.id, one.parent_id), "caption_ids": tuple(caption_ids[one.id])}
        )
        for one in elements
    )


def _needs_owner(element: Element) -> bool:
    """Whether it is a caption, or a note of a table or figure by its label; steps/assemble.py links other notes."""
    label = (element.native_label or "").lower().replace("-", "_")
    is_note = element.kind is Kind.FOOTNOTE and "footnote" in label and label not in _PAGE_NOTES
    return element.is_body and (element.kind is Kind.CAPTION or is_note)


def _find_owner(index: int, elements: Sequence[Element], captioned: set[str], labels_differ: bool) -> str | None:
    """The id of the table or figure a caption or note belongs to, None if there is none within reach.

    The nearest by gap, then by order in the answer. One that has a caption is chosen only if no other is within reach.
    """
    candidates = []
    first = max(index - _STEPS, 0)
    for other, visual in enumerate(elements[first : index + _STEPS], first):
        if _can_own(elements[index], visual, labels_differ):
            # Of two equally near, prefer the earlier one: captions usually follow the table or figure.
            steps = abs(other - index) * 2 + (other > index)
            gap = _gap(elements[index].box, visual.box)
            if gap <= _REACH:
                has_caption = visual.id in captioned and elements[index].kind is Kind.CAPTION
                candidates.append((has_caption, steps > 3, gap, steps, visual.id))  # up to 3: next to it in the answer
    return min(candidates)[-1] if candidates else None


def _can_own(caption: Element, visual: Element, labels_differ: bool) -> bool:
    """Whether a table or figure is on the caption's page, and neither its label nor its words name the other kind."""
    if not visual.is_body or visual.page != caption.page:
        return False
    is_caption = caption.kind is Kind.CAPTION
    label = (caption.native_label or "") if labels_differ or not is_caption else ""
    if visual.kind is Kind.TABLE:
        names_figure = is_caption and _FIGURE_NAME.match(caption.text)
        return not names_figure and not label.startswith(("image", "figure", "chart"))
    names_table = is_caption and _TABLE_NAME.match(caption.text)
    return visual.is_figure and not names_table and not label.startswith("table")


def _gap(one: Box | None, other: Box | None) -> float:
    """The vertical gap between two boxes; half of the reach if one is missing, 1.0 if they are side by side."""
    if one is None or other is None:
        return _REACH / 2
    if min(one.x1, other.x1) <= max(one.x0, other.x0):
        return 1.0
    return max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
