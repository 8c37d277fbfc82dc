"""Add the bullet that a reader left out between two items of a list, as GLM's SDK does."""

from __future__ import annotations

from collections.abc import Sequence

from twopass.document import Element, Kind

BULLET = "- "  # cleanup.py has written every bullet like this
SAME_EDGE = 0.01  # of the page's width, between left edges: 10 of 1,000 in GLM's SDK


def add_missing(elements: Sequence[Element]) -> tuple[Element, ...]:
    """The elements, with a bullet in the markdown of each text between two items that begin at its left edge.

    `text` stays as it was read.
    """
    completed = list(elements)
    for index in range(1, len(elements) - 1):
        above, element, below = elements[index - 1 : index + 2]
        if _is_item(above) and _is_item(below) and _lacks_bullet(element) and _are_aligned(above, element, below):
            completed[index] = element.model_copy(update={"markdown": BULLET + element.markdown})
    return tuple(completed)


def _is_item(element: Element) -> bool:
    return element.kind is Kind.TEXT and element.text.startswith(BULLET)


def _lacks_bullet(element: Element) -> bool:
    return element.kind is Kind.TEXT and bool(element.text) and not _is_item(element)


def _are_aligned(*elements: Element) -> bool:
    edges = [element.box.x0 for element in elements if element.box]
    return len(edges) == len(elements) and max(edges) - min(edges) <= SAME_EDGE
