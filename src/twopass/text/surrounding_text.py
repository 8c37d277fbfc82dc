"""Collect the text around an element of a page, as context for prompts and for search."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from twopass.document import FURNITURE, Box, Category, Element
from twopass.text import prose

_CONTEXT_RADIUS = 0.2  # of the page's height, from edge to edge
CONTEXT_LENGTH = 500  # characters
_MIN_CUT_LINE = 20  # characters: if less of a line fits, it is left out
_PREVIEW = 200  # characters of each neighbour; with 50, a context seldom reached 100 characters
_TEXTS = frozenset({Category.TEXT_HEADER, Category.TEXT_SECTION, Category.TEXT_PARAGRAPH})


def collect_context(element: Element, elements: Sequence[Element]) -> str | None:
    """Collect the text at most _CONTEXT_RADIUS above or below the element, nearest first, as lines `[category] text`.

    `elements` are those of the element's page. None if the element has no box or no text near it.
    """
    if not element.box:
        return None
    near = [
        (hypot(*_measure_gaps(element.box, other.box)), index, other)
        for index, other in enumerate(elements)
        if other.box and other.id != element.id and other.category in _TEXTS and other.kind not in FURNITURE
        if _measure_gaps(element.box, other.box)[1] <= _CONTEXT_RADIUS
    ]
    lines = [_format_line(other) for _, _, other in sorted(near, key=lambda entry: entry[:2])]
    return _limit_length([line for line in lines if line]) or None


def _measure_gaps(one: Box, other: Box) -> tuple[float, float]:
    """Distance across and down the page, from edge to edge: the centre of a tall table is far from its neighbours."""
    return max(one.x0 - other.x1, other.x0 - one.x1, 0.0), max(one.y0 - other.y1, other.y0 - one.y1, 0.0)


def _format_line(element: Element) -> str:
    text = prose.to_one_line(element.text)
    preview = text if len(text) <= _PREVIEW else text[: _PREVIEW - 3] + "..."
    return f"[{element.category}] {preview}" if preview else ""


def _limit_length(lines: Sequence[str]) -> str:
    """Join lines up to CONTEXT_LENGTH characters. The last line is cut if enough of it remains."""
    context = ""
    for line in lines:
        room = CONTEXT_LENGTH - len(context) - (1 if context else 0)
        if len(line) > room:
            return f"{context}\n{line[: room - 3]}...".strip() if room > _MIN_CUT_LINE else context
        context = f"{context}\n{line}" if context else line
    return context
