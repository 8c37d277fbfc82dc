"""A page's elements in, the same with captions and notes tied to their tables and figures out.

Knows labels, boxes and the order of an answer. Knows nothing of texts or other pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from twopass.document import Box, Element, Kind

CAPTION_REACH = 0.2  # of the page's height between a caption and its table or figure


def tied(elements: Sequence[Element]) -> list[Element]:
    """Captions and notes tied to the nearest table or figure they can belong to; both sides know it."""
    owners: dict[str, str] = {}
    taken: set[str] = set()
    for place, element in enumerate(elements):
        owner = _owner(place, elements, taken) if _is_tied(element) else None
        if owner:
            owners[element.id] = owner
            taken |= {owner} if element.kind is Kind.CAPTION else set()
    captions = [element.id for element in elements if element.kind is Kind.CAPTION]
    known = []
    for element in elements:
        own = tuple(caption for caption in captions if owners.get(caption) == element.id)
        known.append(element.model_copy(update={"parent_id": owners.get(element.id), "caption_ids": own}))
    return known


def _is_tied(element: Element) -> bool:
    """A caption, or a note that its label ties to a table or figure; other notes are assemble's."""
    told = element.native_label or ""
    return element.kind is Kind.CAPTION or (element.kind is Kind.FOOTNOTE and told != "footnote")


def _owner(place: int, elements: Sequence[Element], taken: set[str]) -> str | None:
    """The nearest by white space, then by place in the answer; one that has a caption only if no other is near."""
    near = []
    for other, visual in enumerate(elements):
        if _fits(elements[place], visual):
            steps = abs(other - place) * 2 + (other > place)  # of equals the one told before: captions interpose
            gap = _gap(elements[place].box, visual.box)
            if gap <= CAPTION_REACH:
                near.append(
                    (visual.id in taken and elements[place].kind is Kind.CAPTION, steps > 3, gap, steps, visual.id)
                )
    return min(near)[-1] if near else None


def _fits(caption: Element, visual: Element) -> bool:
    told = caption.native_label or ""
    if visual.kind is Kind.TABLE:
        return not told.startswith(("image", "figure", "chart"))
    return visual.is_figure and not told.startswith("table")


def _gap(one: Box | None, other: Box | None) -> float:
    """White space between two boxes one above the other; a little where a box is missing, much beside each other."""
    if one is None or other is None:
        return CAPTION_REACH / 2
    if min(one.x1, other.x1) <= max(one.x0, other.x0):
        return 1.0
    return max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
