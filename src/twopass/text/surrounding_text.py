"""An element and its page's elements in, the text that stands around it out.

Knows boxes and categories of one page. Knows nothing of who asks: prompts of pass 2, or vector indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from twopass.document import FURNITURE, Box, Category, Element
from twopass.text import prose

CONTEXT_RADIUS = 0.2  # of the page's height, from edge to edge
CONTEXT_LENGTH = 500
CONTEXT_LEAST = 20  # a cut line shorter than this says nothing
PREVIEW = 200  # of each neighbour; with 50, a context of 100 characters was seldom reached
TEXTS = frozenset({Category.TEXT_HEADER, Category.TEXT_SECTION, Category.TEXT_PARAGRAPH})


def context(element: Element, elements: Sequence[Element]) -> str | None:
    """Text within a fifth of the page's height of an element's edges, nearest first, one `[category] text` a line."""
    if not element.box:
        return None
    near = [
        (hypot(*_gaps(element.box, other.box)), place, other)
        for place, other in enumerate(elements)
        if other.box and other.id != element.id and other.category in TEXTS and other.kind not in FURNITURE
        if _gaps(element.box, other.box)[1] <= CONTEXT_RADIUS
    ]
    lines = [_line(other) for _, _, other in sorted(near, key=lambda n: n[:2])]
    return _limited([line for line in lines if line]) or None


def _gaps(one: Box, other: Box) -> tuple[float, float]:
    """Across and down the page, from edge to edge: the middle of a tall table is far from all that stands around it."""
    return max(one.x0 - other.x1, other.x0 - one.x1, 0.0), max(one.y0 - other.y1, other.y0 - one.y1, 0.0)


def _line(element: Element) -> str:
    text = prose.flow(element.text)
    preview = text if len(text) <= PREVIEW else text[: PREVIEW - 3] + "..."
    return f"[{element.category}] {preview}" if preview else ""


def _limited(lines: Sequence[str]) -> str:
    whole = ""
    for line in lines:
        room = CONTEXT_LENGTH - len(whole) - (1 if whole else 0)
        if len(line) > room:
            return f"{whole}\n{line[: room - 3]}...".strip() if room > CONTEXT_LEAST else whole
        whole = f"{whole}\n{line}" if whole else line
    return whole
