"""Link captions and notes to their tables and figures, by labels, boxes and the order of the answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from twopass.document import Box, Element, Kind

PAGE_NOTES = ("footnote", "page_footnote")  # notes to the text, by their label
CAPTION_REACH = 0.2  # largest gap to the table or figure, as a share of the page's height
CAPTION_STEPS = 100  # elements of the answer between both; a column of a page has fewer


def link_captions(elements: Sequence[Element]) -> list[Element]:
    """Link each caption and note to the nearest table or figure that it can belong to, in both directions."""
    owners: dict[str, str] = {}
    captioned: set[str] = set()
    for index, element in enumerate(elements):
        owner = _find_owner(index, elements, captioned) if _needs_owner(element) else None
        if owner:
            owners[element.id] = owner
            captioned |= {owner} if element.kind is Kind.CAPTION else set()
    captions: dict[str, list[str]] = defaultdict(list)
    for element in elements:
        if element.kind is Kind.CAPTION and element.id in owners:
            captions[owners[element.id]].append(element.id)
    return [
        element.model_copy(update={"parent_id": owners.get(element.id), "caption_ids": tuple(captions[element.id])})
        for element in elements
    ]


def _needs_owner(element: Element) -> bool:
    """Whether it is a caption, or a note of a table or figure by its label; steps/assemble.py links other notes."""
    label = element.native_label or ""
    return element.kind is Kind.CAPTION or (element.kind is Kind.FOOTNOTE and label not in PAGE_NOTES)


def _find_owner(index: int, elements: Sequence[Element], captioned: set[str]) -> str | None:
    """Return the id of the table or figure a caption or note belongs to, None if there is none within reach.

    The nearest by gap, then by order in the answer. One that has a caption is chosen only if no other is within reach.
    """
    candidates = []
    first = max(index - CAPTION_STEPS, 0)
    for other, visual in enumerate(elements[first : index + CAPTION_STEPS], first):
        if _can_own(elements[index], visual):
            # Of two equally near, prefer the earlier one: captions usually follow the table or figure.
            steps = abs(other - index) * 2 + (other > index)
            gap = _gap(elements[index].box, visual.box)
            if gap <= CAPTION_REACH:
                has_caption = visual.id in captioned and elements[index].kind is Kind.CAPTION
                candidates.append((has_caption, steps > 3, gap, steps, visual.id))  # up to 3: next to it in the answer
    return min(candidates)[-1] if candidates else None


def _can_own(caption: Element, visual: Element) -> bool:
    label = caption.native_label or ""
    if visual.kind is Kind.TABLE:
        return not label.startswith(("image", "figure", "chart"))
    return visual.is_figure and not label.startswith("table")


def _gap(one: Box | None, other: Box | None) -> float:
    """The vertical gap between two boxes; half of CAPTION_REACH if one is missing, 1.0 if they are side by side."""
    if one is None or other is None:
        return CAPTION_REACH / 2
    if min(one.x1, other.x1) <= max(one.x0, other.x0):
        return 1.0
    return max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
